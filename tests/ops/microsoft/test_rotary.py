from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import OPS
from tests.ops.oracle import onnxruntime_run, run

DOMAIN = "com.microsoft"
RNG = np.random.default_rng(0)
CACHES = tuple(RNG.standard_normal((2, 10, 4)).astype(np.float32))
FLAT = RNG.standard_normal((2, 3, 24)).astype(np.float32)
BY_HEAD = RNG.standard_normal((2, 3, 5, 8)).astype(np.float32)


def compare(xp: Backend, name: str, *inputs: np.ndarray, **attributes: Any) -> None:
    expected = onnxruntime_run(name, *inputs, opset=1, domain=DOMAIN, **attributes)
    found = run(xp, OPS[DOMAIN, name], *inputs, **attributes)
    assert found.dtype == expected.dtype
    tolerance = 1e-5 if found.dtype == np.float32 else 4e-3
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(
    ("x", "positions", "attributes"),
    [
        (FLAT, [[0, 3, 2], [9, 1, 1]], {}),
        (FLAT, [2], {}),
        (FLAT, 7, {"num_heads": 3}),
        (FLAT, [[0, 3, 2], [9, 1, 1]], {"num_heads": 2, "rotary_embedding_dim": 8}),
        (FLAT, [[0, 3, 2], [9, 1, 1]], {"is_packed_batching": 1, "scale": 2.0}),
        (BY_HEAD, [5], {}),
        (BY_HEAD, [[0, 3, 2, 8, 8], [9, 1, 1, 0, 4]], {}),
        (FLAT[:0], np.zeros((0, 3)), {}),
    ],
)
def test_rotary_embedding(
    xp: Backend, x: np.ndarray, positions: Any, attributes: dict[str, Any], interleaved: int
) -> None:
    ids = np.asarray(positions, np.int64)
    compare(xp, "RotaryEmbedding", x, ids, *CACHES, interleaved=interleaved, **attributes)


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
def test_float16(backend: Backend) -> None:
    x, *caches = (x.astype(np.float16) for x in (FLAT, *CACHES))
    compare(backend, "RotaryEmbedding", x, np.asarray([1]), *caches)


@pytest.mark.parametrize("x", [FLAT, BY_HEAD], ids=["flat", "by head"])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("section", [(2, 1, 1), (0, 2, 2), (4, 0, 0), (0, 4, 0)])
def test_positions_of_three_coordinates(
    xp: Backend, x: np.ndarray, layout: int, section: tuple[int, ...]
) -> None:
    ids = np.random.default_rng(1).integers(0, 10, (3, 2, x.shape[-2]))
    attributes: dict[str, Any] = {"mrope_section": section, "mrope_layout": layout, "num_heads": 3}
    compare(xp, "MRotaryEmbedding", x, ids, *CACHES, scale=0.5, **attributes)


def test_gemma(xp: Backend) -> None:
    rng = np.random.default_rng(2)
    angles = rng.standard_normal((2, 5, 8)).astype(np.float32)
    q, q_rot, k, k_rot = rng.standard_normal((4, 2, 3, 5, 8)).astype(np.float32)
    found = run(xp, OPS[DOMAIN, "GemmaRotaryEmbedding"], angles, q, q_rot, k, k_rot)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    for y, x, turned in zip(found, (q, k), (q_rot, k_rot), strict=True):
        np.testing.assert_allclose(y, x * cos + turned * sin, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ((FLAT, np.zeros((3, 3), np.int64), *CACHES), {}, "position_ids has shape"),
        ((FLAT[0], np.zeros(1, np.int64), *CACHES), {}, "input has 2 axes"),
        ((FLAT, np.zeros(1, np.int64), CACHES[0][0], CACHES[1]), {}, "a cache has 1 axes"),
        ((FLAT, np.zeros(1, np.int64), *CACHES), {"rotary_embedding_dim": 4}, "num_heads; add it"),
    ],
)
def test_wrong_shapes(xp: Backend, inputs: Any, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, OPS[DOMAIN, "RotaryEmbedding"], *inputs, **attributes)
