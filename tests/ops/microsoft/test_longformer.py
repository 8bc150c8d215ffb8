"""LongformerAttention, which only CUDA has in onnxruntime, against its documentation in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import results

BATCH, LENGTH, HEADS, SIZE, WINDOW = 2, 8, 2, 3, 2
HIDDEN = HEADS * SIZE


def inputs() -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return rng.normal(0, 0.7, shape).astype(np.float32)

    mask = np.zeros((BATCH, LENGTH), np.float32)
    mask[1, 6:] = -10000
    flags = np.zeros((BATCH, LENGTH), np.int32)
    flags[0, [0, 5]] = 1
    flags[1, 3] = 1
    return {
        "input": drawn(BATCH, LENGTH, HIDDEN),
        "weight": drawn(HIDDEN, 3 * HIDDEN),
        "bias": drawn(3 * HIDDEN),
        "mask": mask,
        "global_weight": drawn(HIDDEN, 3 * HIDDEN),
        "global_bias": drawn(3 * HIDDEN),
        "global": flags,
    }


def documented(x: dict[str, Any], window: int) -> Any:
    """Each token by itself, over the list of the tokens that it attends to."""
    out = np.zeros(x["input"].shape)
    projections = [
        x["input"].astype(np.float64) @ x[f"{kind}weight"] + x[f"{kind}bias"]
        for kind in ("", "global_")
    ]
    for b in range(BATCH):
        for t in range(LENGTH):
            is_global = x["global"][b, t]
            rows = projections[is_global][b].reshape(LENGTH, 3, HEADS, SIZE)
            near = [s for s in range(LENGTH) if abs(s - t) <= window or x["global"][b, s]]
            keys = [s for s in (range(LENGTH) if is_global else near) if x["mask"][b, s] == 0]
            for head in range(HEADS):
                scores = rows[keys, 1, head] @ rows[t, 0, head] / np.sqrt(SIZE)
                weights = np.exp(scores - scores.max())
                mixed = weights / weights.sum() @ rows[keys, 2, head]
                out[b, t, head * SIZE : (head + 1) * SIZE] = mixed
    return out


@pytest.mark.parametrize("window", [1, 2, 4])
def test_attention(xp: Backend, window: int) -> None:
    x = inputs()
    y = results(xp, "LongformerAttention", *x.values(), num_heads=HEADS, window=window)
    np.testing.assert_allclose(y, documented(x, window), rtol=1e-4, atol=1e-5)


def test_narrow_floats() -> None:
    x = inputs()
    narrow = [a.astype(np.float16) if a.dtype == np.float32 else a for a in x.values()]
    y = results(HOST, "LongformerAttention", *narrow, num_heads=HEADS, window=WINDOW)
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, documented(x, WINDOW), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("weight", (HIDDEN, HIDDEN), "weight has shape"),
        ("global", (BATCH, 1), "global has shape"),
        ("input", (BATCH, LENGTH, HIDDEN + 1), "2 heads divide the size"),
    ],
)
def test_what_is_refused(name: str, shape: tuple[int, ...], message: str) -> None:
    x = inputs()
    x[name] = np.zeros(shape, x[name].dtype)
    with pytest.raises(InvalidInput, match=message):
        results(HOST, "LongformerAttention", *x.values(), num_heads=HEADS, window=WINDOW)
