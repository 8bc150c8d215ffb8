"""Recordings that are derived for new sizes, on CuPy: step by step, then fused, then a graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import parser

import sardonyx
from tests.test_buckets import GRAPHS, model, normal
from tests.test_changing_sizes import DECODER
from tests.test_derived_recordings import wait_for_background

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

ENCODER = Path(__file__).parents[1] / "models" / "encoder_dynamo.onnx"


def encoder(backend: CupyBackend, **options: Any) -> sardonyx.Model:
    return sardonyx.load(ENCODER, backend=backend, **options)


def taught(loaded: sardonyx.Model) -> sardonyx.Model:
    """Let a model see that sizes change."""
    for size in (12, 7, 9):
        loaded(normal(2, size, 16))
        wait_for_background()
    return loaded


def fused_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of kernels of each segment that is fused."""
    from sardonyx.backends.cupy import fused_segments  # noqa: PLC0415  (CuPy may be absent)

    counts: list[int] = []
    fused = fused_segments.fused

    def counted(*arguments: Any) -> Any:
        program = fused(*arguments)
        counts.append(program.launches)
        return program

    monkeypatch.setattr(fused_segments, "fused", counted)
    return counts


def test_a_size_that_comes_once_compiles_no_kernels(
    device: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, counts = taught(encoder(device)), fused_calls(monkeypatch)
    before = loaded.stats().traces
    for size in (5, 6, 8, 10, 11):
        loaded(normal(2, size, 16))
    assert counts == []
    assert loaded.stats().traces == before


def test_a_size_that_repeats_is_fused_and_captured(
    device: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, plain = taught(encoder(device)), encoder(device, buckets=None)
    counts, before = fused_calls(monkeypatch), loaded.stats().traces
    x = normal(2, 8, 16)
    ours, theirs = [loaded(x) for _ in range(4)], [plain(x) for _ in range(4)]
    assert loaded.stats().traces == before
    # The derived segment is fused as that of a trace is.
    assert len(counts) == 2
    assert counts[0] == counts[1]
    for our, their in zip(ours[1:], theirs[1:], strict=True):
        assert_array_equal(our, their)
    assert_allclose(ours[0], ours[1], rtol=1e-5, atol=1e-6)
    assert loaded.stats().unfused == plain.stats().unfused
    assert loaded.stats().uncaptured == plain.stats().uncaptured


def test_a_decoder_keeps_its_arrays_on_the_device(device: CupyBackend) -> None:
    loaded, plain = (
        sardonyx.load(parser.parse_model(DECODER), backend=device, **options)
        for options in ({}, {"buckets": None})
    )
    ours = theirs = [device.put(normal(1, 5, 8)), device.put(normal(1, 5, 8))]
    for i in range(40):
        x = device.put(normal(1, 1, 8) + np.float32(i / 100))
        y, *ours = loaded(x, *ours)
        expected, *theirs = plain(x, *theirs)
        assert all(map(device.owns, (y, *ours)))
        assert_allclose(device.fetch(y), device.fetch(expected), rtol=1e-5, atol=1e-6)
        wait_for_background()
    assert loaded.stats().traces <= 8


def test_cached_recordings_come_before_derived_ones(device: CupyBackend, tmp_path: Path) -> None:
    for is_first in (True, False):
        loaded = encoder(device, cache=tmp_path)
        for size in (12, 7, 9):
            result = loaded(normal(2, size, 16))
            assert_allclose(
                result, encoder(device, buckets=None)(normal(2, size, 16)), rtol=1e-5, atol=1e-6
            )
        wait_for_background()
        # In the second process calls trace nothing, and only the background does.
        assert loaded.stats().traces <= (7 if is_first else 4)
        before = loaded.stats().traces
        for size in (8, 8, 8, 6, 6, 6):
            loaded(normal(2, size, 16))
        assert loaded.stats().traces == before


def test_memory_and_profiles_of_derived_calls(device: CupyBackend) -> None:
    loaded, plain = taught(encoder(device)), encoder(device, buckets=None)
    x = normal(2, 8, 16)
    loaded(x)
    ours, theirs = loaded.memory(x), plain.memory(x)
    assert (ours.temporaries, ours.outputs) == (theirs.temporaries, theirs.outputs)
    nodes = [{node.name for node in each.profile(x).nodes} for each in (loaded, plain)]
    assert nodes[0] == nodes[1]
    loaded.compile({"x": (2, 8, 16)})
    assert_allclose(loaded(x), plain(x), rtol=1e-5, atol=1e-6)


def test_steps_get_inputs_that_do_not_lie_askew(device: CupyBackend) -> None:
    """All of them, the last one too; weights lie as they should."""
    from sardonyx.backends.cupy.alignment import is_askew  # noqa: PLC0415  (CuPy may be absent)

    taken: list[bool] = []

    def replay(xp: CupyBackend, *arrays: Any) -> list[Any]:
        assert xp is device
        taken.extend(map(is_askew, arrays))
        return list(arrays)

    x = device.put(np.zeros(9, np.uint8))[1:].view(np.float32)
    assert is_askew(x)
    device.stepped(replay, [x, x], inputs=2).run(x, x)
    device.stepped(replay, [x, x], inputs=1).run(x, x)
    assert taken == [False, False, False, True]


@pytest.mark.parametrize("name", ["softmax", "attention", "positions", "causal attention"])
def test_results_are_those_of_fused_kernels(device: CupyBackend, name: str) -> None:
    proto: onnx.ModelProto = model(GRAPHS[name])
    loaded = sardonyx.load(proto, backend=device)
    plain = sardonyx.load(proto, backend=device, buckets=None)
    for size in (20, 25, 22, 24, 21, 31, 40, 29):
        x = normal(2, size, 6)
        for _ in range(2):
            assert_allclose(loaded(x), plain(x), rtol=1e-5, atol=1e-6)
        assert_array_equal(loaded(x), plain(x))
        wait_for_background()
