"""Segments that are nearly all kernels run on these and on NumPy for good: nothing is compiled."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import sardonyx
from sardonyx.backends.jax.xla_cpu import packed
from sardonyx.graph.programs import beside_kernels, compiler, interpretation
from sardonyx.graph.programs.written_segment import kernel_of
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.ops.fused_products import packed_product
from tests.support.kernels import NEEDS_ONEDNN
from tests.test_buckets import model, normal
from tests.test_derived_recordings import wait_for_background

pytestmark = NEEDS_ONEDNN


@pytest.fixture(autouse=True)
def runs_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what a program does beside kernels counts for nothing, unless it is a lot."""
    monkeypatch.setattr(compiler, "MOST_BESIDE_KERNELS", 1e3)


def multiplying(body: str = "m = MatMul(x, w) y = Relu(m)", **options: Any) -> sardonyx.Model:
    proto = model(body)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(normal(6, 64), "w"))
    return sardonyx.load(proto, backend="jax", compile="background", buckets=None, **options)


def called(loaded: sardonyx.Model, x: Any, times: int = 4) -> Any:
    results = []
    for _ in range(times):
        results.append(loaded(x))
        wait_for_background()
    for result in results:
        assert_allclose(result, results[0], rtol=1e-5, atol=1e-5)
    return results[-1]


def test_nothing_is_compiled_for_them() -> None:
    loaded = multiplying()
    x = normal(8, 32, 6)
    result = called(loaded, x)
    assert_allclose(result, np.maximum(x @ np.asarray(loaded.params["w"]), 0), rtol=1e-5, atol=1e-5)
    stats = loaded.stats()
    assert (stats.compiles, stats.written_out, stats.interpreted) == (0, 1, 3)


def test_replaced_weights_are_packed_anew() -> None:
    loaded = multiplying()
    x = normal(8, 32, 6)
    called(loaded, x)
    loaded.params["w"] = np.ones((6, 64), np.float32)
    expected = np.maximum(x.sum(axis=-1, keepdims=True) + np.zeros(64), 0)
    assert_allclose(called(loaded, x), expected, rtol=1e-4, atol=1e-5)
    assert loaded.stats().compiles == 0


def test_who_asks_for_the_compiled_program_gets_it() -> None:
    loaded = multiplying()
    x = normal(8, 32, 6)
    loaded.compile({"x": x})
    assert loaded.stats().compiles == 1
    called(loaded, x)
    assert loaded.stats().written_out == 0


def test_a_process_with_a_cache_compiles_for_the_next_one(tmp_path: Any) -> None:
    loaded = multiplying(cache=tmp_path)
    called(loaded, normal(8, 32, 6))
    assert (loaded.stats().compiles, loaded.stats().written_out) == (1, 0)


@pytest.mark.parametrize(
    "body",
    ["m = Mul(x, x) s = Exp(m) y = ReduceSum(s)", "m = MatMul(x, w) t = Tanh(m) y = Cos(t)"],
    ids=["no kernel", "much beside one"],
)
def test_other_segments_are_compiled(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "MOST_BESIDE_KERNELS", 0.1)
    loaded = multiplying(body)
    called(loaded, normal(64, 512, 6))
    assert (loaded.stats().compiles, loaded.stats().written_out) == (1, 0)


@pytest.mark.parametrize("share", [1e3, 1e-5])
def test_a_long_first_run_says_what_cannot_stay(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It prepares weights, so that others have to say what can."""
    monkeypatch.setattr(compiler, "MOST_BESIDE_KERNELS", share)
    monkeypatch.setattr(interpretation, "PATIENCE", 1e-3)
    stepped = interpretation.Interpretation._stepped

    def slow(self: Any, arrays: Any) -> Any:
        time.sleep(2e-3)
        return stepped(self, arrays)

    monkeypatch.setattr(interpretation.Interpretation, "_stepped", slow)
    loaded = multiplying()
    called(loaded, normal(8, 32, 6), times=1)
    stays = share > 1
    assert (loaded.stats().compiles, loaded.stats().written_out) == (not stays, 0)
    # A run may ask before the one before it counts.
    called(loaded, normal(8, 32, 6), times=3)
    assert (loaded.stats().compiles, loaded.stats().written_out) == (not stays, stays)


def test_a_slow_moment_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run was slow by chance, and others were not while the segment was written out."""
    loaded = multiplying("m = MatMul(x, w) t = Tanh(m) y = Cos(t)")
    x, seconds, write = normal(8, 32, 6), iter([0.0, 0.4]), beside_kernels.written_with_kernels
    stepped = interpretation.Interpretation._stepped

    def slow(self: Any, arrays: Any) -> Any:
        time.sleep(next(seconds, 0.0))
        return stepped(self, arrays)

    def called_meanwhile(*arguments: Any, **options: Any) -> Any:
        loaded(x)
        found = write(*arguments, **options)
        # What stays has to take more than 0.3 seconds.
        monkeypatch.setattr(compiler, "MOST_BESIDE_KERNELS", found.price * 1e-6 / 0.3)
        return found

    monkeypatch.setattr(interpretation.Interpretation, "_stepped", slow)
    monkeypatch.setattr(beside_kernels, "written_with_kernels", called_meanwhile)
    monkeypatch.setattr(compiler, "MOST_STEPS", 0)
    called(loaded, x)
    assert (loaded.stats().compiles, loaded.stats().written_out) == (1, 0)


def test_products_of_numpy_are_no_kernels_of_programs() -> None:
    spec = sardonyx.backends.executable.Spec((6, 64), np.dtype(np.float32))
    turned = packed.TurnedMatrix(spec, is_transposed=False, is_blocked=False)
    call = OpCall(packed_product, (), {"product": turned}, ())
    assert not kernel_of(call)
    assert not kernel_of("a call of a block")


def test_errors_are_those_of_the_compiled_program() -> None:
    loaded = multiplying()
    x = normal(8, 32, 6)
    called(loaded, x)
    with pytest.raises(sardonyx.InvalidInput):
        loaded(normal(8, 32, 7))
    assert loaded(x).shape == (8, 32, 64)


def test_nothing_is_compiled_for_a_limit_of_threads() -> None:
    loaded = multiplying(threads=1)
    called(loaded, normal(8, 32, 6))
    assert (loaded.stats().compiles, loaded.stats().written_out) == (0, 1)
