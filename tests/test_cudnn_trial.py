"""Trials of cuDNN's attention; JAX's other implementation stands in for cuDNN here."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx.backends.jax.accelerators import cudnn_attention, cudnn_trial
from sardonyx.backends.jax.accelerators.cudnn_choice import SWITCH
from sardonyx.backends.operations.scores import Reach, Scoring
from sardonyx.errors import BackendUnavailable
from tests.support.on_hopper import OnHopper

BATCH, HEADS, SHARED, LENGTH, SIZE = 3, 4, 2, 13, 16
LENGTHS = np.array([LENGTH, 5, 0], np.int64)
BF16 = np.dtype(ml_dtypes.bfloat16)
CPU = jax.devices("cpu")[0]


def arrays(dtype: Any = BF16, size: int = SIZE) -> list[np.ndarray]:
    draw = np.random.default_rng(5).standard_normal
    return [draw((BATCH, heads, LENGTH, size)).astype(dtype) for heads in (HEADS, SHARED, SHARED)]


def stand_in(q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
    # In float32, because it compiles no products of float16 for CPUs.
    wide = [x.astype(jnp.float32) for x in (q, k, v)]
    return cudnn_attention.attended(*wide, scoring, "xla").astype(q.dtype)


def wrong(q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
    """One head reads the keys of another, as a kernel might."""
    return stand_in(q, k[:, ::-1], v[:, ::-1], scoring)


def with_nan(q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
    return stand_in(q, k, v, scoring).at[-1, -1, -1, -1].set(jnp.nan)


def failing(q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
    return jax.ffi.ffi_call("__cudnn$fmhaSoftmax", q)(q)


def missing(q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
    raise BackendUnavailable("JAX finds no cuDNN.")


DIFFERED = "attention without cuDNN, whose results differed when it was tried out"
FAILED = "attention without cuDNN, which failed when it was tried out"


@pytest.mark.slow
@pytest.mark.sampled(12)
@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.parametrize("reach", [
    Reach(), Reach(is_causal=True), Reach(lengths=LENGTHS), Reach(True, LENGTHS),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BF16], ids=str)
def test_a_trial_agrees(dtype: Any, reach: Reach, is_traced: bool) -> None:
    verdicts = []

    def ask(q: Any, k: Any, v: Any) -> Any:
        scoring = Scoring(0.25, reach=reach)
        verdicts.append(cudnn_trial.agrees(CPU, q, k, scoring, stand_in))
        return q

    (jax.jit(ask) if is_traced else ask)(*arrays(dtype))
    assert verdicts == [True]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("form", "reason"),
    [(wrong, DIFFERED), (with_nan, DIFFERED), (failing, FAILED), (missing, FAILED)],
)
def test_what_is_wrong_or_fails_in_a_trial_is_not_used(form: Any, reason: str) -> None:
    q, k, _ = arrays()
    scoring = Scoring(0.25, reach=Reach())
    with cudnn_trial.noted() as notes:
        for _ in range(2):
            assert not cudnn_trial.agrees(CPU, q, k, scoring, form)
    assert len(notes) == 2
    assert notes[0] == notes[1]
    assert notes[0].startswith(reason)


def test_only_who_asks_for_cuDNN_gets_an_error_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    q, k, _ = arrays()
    with pytest.raises(BackendUnavailable, match="no cuDNN"):
        cudnn_trial.agrees(CPU, q, k, Scoring(0.125, reach=Reach()), missing)


@pytest.mark.parametrize(
    ("shape", "tried"),
    [
        ((1, 4, 1024, 64), (1, 4, 1024, 64)),
        ((8, 4, 1024, 64), (2, 4, 1024, 64)),
        ((1, 4, 32768, 64), (1, 4, 1024, 64)),
        ((1, 4, 640, 64), (1, 4, 1024, 64)),
        ((1, 4, 5000, 64), (1, 4, 1061, 64)),
        ((1, 4, 576, 64), (1, 4, 576, 64)),
        ((1, 4, 704, 64), (1, 4, 1088, 64)),
        ((1, 4, 129, 64), (1, 4, 165, 64)),
        ((1, 4, 2, 64), (1, 4, 37, 64)),
        ((1, 4, 64, 64), (1, 4, 64, 64)),
    ],
)
def test_what_is_tried_of_a_shape(shape: tuple[int, ...], tried: tuple[int, ...]) -> None:
    assert cudnn_trial._tried(shape) == tried
    # What is tried is tried as it is.
    assert cudnn_trial._tried(tried) == tried


def test_few_trials_stand_for_all_lengths() -> None:
    assert len({cudnn_trial._tried_length(length) for length in range(2, 40_000)}) == 14


@pytest.mark.slow
def test_lengths_of_one_kind_share_a_trial() -> None:
    calls = []

    def counted(q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
        calls.append(q.shape)
        return stand_in(q, k, v, scoring)

    for length in (3, 13, 36, 127, 64):
        q = jax.ShapeDtypeStruct((4, 2, length, 8), BF16)
        assert cudnn_trial.agrees(CPU, q, q, Scoring(0.25, reach=Reach()), counted)
    assert calls == [(2, 2, 37, 8), (2, 2, 64, 8)]


@pytest.mark.slow
def test_programs_go_on_without_it_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Distrusting(OnHopper):
        def trusts_cudnn(self, q: Any, k: Any, scoring: Scoring) -> bool:
            return cudnn_trial.agrees(CPU, q, k, scoring, wrong)

    monkeypatch.setenv(SWITCH, "1")
    text = """<ir_version: 11, opset_import: ["": 24]>
        g (float16[3,4,13,16] q, float16[3,2,13,16] k, float16[3,2,13,16] v) => (y)
        { y = Attention (q, k, v) }"""
    model = sardonyx.load(parser.parse_model(text), backend=Distrusting(), compile="now")
    given = arrays(np.float16)
    right = sardonyx.run_op("Attention", *given, opset=24, backend="numpy")
    np.testing.assert_allclose(np.asarray(model(*given)), right, rtol=1e-2, atol=1e-2)
    assert model.stats().workarounds == {DIFFERED: 1}
