"""Rewrites: which chains become one step, that the step makes the same, and what is left alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from tests.support.rewrite_cases import (
    PlainJax,
    RewriteCase,
    close,
    without_kernels,
    without_rewrites,
    working,
)
from tests.support.rewrite_cases_attention import OF_ATTENTION, OF_NO_ATTENTION
from tests.support.rewrite_cases_chains import (
    OF_ACTIVATIONS,
    OF_BATCHES,
    OF_LAYERS,
    OF_NO_ACTIVATIONS,
    OF_NO_BATCHES,
    OF_NO_LAYERS,
)
from tests.support.rewrite_cases_moves import CANCELLED, HALVES, KEPT
from tests.support.rewrite_cases_pads import NOT_PADDED, PADDED

FUSED = [*OF_BATCHES, *OF_LAYERS, *OF_ACTIVATIONS, *OF_ATTENTION, *CANCELLED, *PADDED]
LEFT = [
    *OF_NO_BATCHES,
    *OF_NO_LAYERS,
    *OF_NO_ACTIVATIONS,
    *OF_NO_ATTENTION,
    *KEPT,
    *NOT_PADDED,
]
LIBRARIES = {"numpy": "numpy", "jax": PlainJax()}
# In units in the last place of the largest result.
ULPS = 8
# Operators that had no bfloat16 before opset 22.
WITHOUT_BFLOAT16 = ("Conv", "BatchNormalization", "HardSigmoid", "Softplus")


def each(cases: Iterable[RewriteCase]) -> Any:
    return pytest.mark.parametrize("case", [case.parameter() for case in cases])


@each([*FUSED, *LEFT])
def test_what_runs(case: RewriteCase, xp: Backend) -> None:
    program = sardonyx.load(case.model(), backend=without_kernels(xp)).trace(*case.arrays())
    assert working(program) == list(case.titles)


@each(FUSED)
def test_the_listing_tells_it(case: RewriteCase) -> None:
    text = str(sardonyx.load(case.model(), backend="numpy").trace(*case.arrays()))
    assert all(f"= {title}(" in text for title in case.titles)


@pytest.mark.sampled(8)
@each([*FUSED, *LEFT])
def test_results_agree(case: RewriteCase, xp: Backend) -> None:
    agree(case, np.float32, without_kernels(xp))


@each([*FUSED, *LEFT])
def test_results_agree_in_float64(case: RewriteCase) -> None:
    agree(case, np.float64, "numpy")


@pytest.mark.sampled(6)
@each(case for case in FUSED if case.opset >= 13)
@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_results_agree_in_float16(case: RewriteCase, library: str) -> None:
    agree(case, np.float16, LIBRARIES[library])


@pytest.mark.sampled(5)
@each(
    case
    for case in FUSED
    if case.opset >= 13 and not {n.op_type for n in case.nodes}.intersection(WITHOUT_BFLOAT16)
)
@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_results_agree_in_bfloat16(case: RewriteCase, library: str) -> None:
    agree(case, ml_dtypes.bfloat16, LIBRARIES[library])


@each(HALVES)
@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_casts_of_halves(case: RewriteCase, library: str) -> None:
    program = sardonyx.load(case.model(), backend=library).trace(*case.arrays())
    assert working(program) == list(case.titles)
    agree(case, np.float32, library)


@pytest.mark.sampled(12)
@each(FUSED)
@pytest.mark.parametrize("library", ["numpy", "jax"])
@pytest.mark.parametrize("special", [[np.nan], [np.inf, -0.0], [-np.inf, 1e30]], ids=str)
def test_what_is_no_number_stays_so(case: RewriteCase, special: list[float], library: str) -> None:
    arrays = case.arrays()
    for array in arrays:
        places = array.reshape(-1)[:: max(array.size // 3, 1)]
        places[:] = np.resize(special, places.shape)
    compare(case, arrays, LIBRARIES[library])


def agree(case: RewriteCase, dtype: Any, backend: Any) -> None:
    compare(case, case.arrays(dtype), backend)


def compare(case: RewriteCase, arrays: list[Any], backend: Any) -> None:
    """The model as it runs, twice since programs are only then replayed, against all its steps."""
    proto = case.model(arrays[0].dtype)
    expected = without_rewrites(proto, arrays, backend)
    loaded = sardonyx.load(proto, backend=backend)
    for _ in range(2):
        found = loaded(*arrays)
        pairs = zip(found, expected, strict=True) if len(case.outputs) > 1 else [(found, expected)]
        for one, other in pairs:
            assert np.asarray(one).dtype == np.asarray(other).dtype
            close(one, other, ULPS)


@pytest.mark.sampled(10)
@each(FUSED)
def test_gradients_agree(case: RewriteCase) -> None:
    arrays = case.arrays()

    def slopes(loaded: Any) -> Any:
        return jax.jit(jax.grad(lambda *at: (loaded(*at) ** 2).sum(), range(len(arrays))))(*arrays)

    rewritten, plain = (
        slopes(sardonyx.load(case.model(), backend=LIBRARIES["jax"], rewrites=rewrites))
        for rewrites in (True, False)
    )
    for found, expected in zip(rewritten, plain, strict=True):
        close(found, expected, 64)


@each(case for case in FUSED if len(case.weights) > 3)
@pytest.mark.sampled(6)
def test_weights_can_be_replaced(case: RewriteCase, xp: Backend) -> None:
    backend, arrays = without_kernels(xp), case.arrays()
    loaded = sardonyx.load(case.model(), backend=backend)
    loaded(*arrays)
    plain = sardonyx.load(case.model(), backend=backend, rewrites=False)
    changed = {name: array for name, array in case.weights.items() if np.ndim(array) == 1}
    for name, array in changed.items():
        loaded.params[name] = plain.params[name] = np.asarray(array[::-1] * 2, np.float32)
    close(loaded(*arrays), plain(*arrays), ULPS)
    assert working(loaded.trace(*arrays)) == list(case.titles)


@each(FUSED)
@pytest.mark.sampled(8)
def test_recordings_are_cached(case: RewriteCase, tmp_path: Path) -> None:
    """A step with an attribute that their format does not know would keep them from it."""
    file, arrays = tmp_path / "model.onnx", case.arrays()
    onnx.save(case.model(), file)
    for traces in (1, 0):
        cached = sardonyx.load(file, backend="jax", cache=tmp_path / "cache", compile="background")
        cached(*arrays)
        assert cached.stats().traces == traces


@each([*OF_LAYERS, *OF_ACTIVATIONS])
def test_empty_inputs(case: RewriteCase, xp: Backend) -> None:
    agree(replace(case, shape=(0, *case.shape[1:])), np.float32, xp)


# What three exports of one network have in common, once what each spells out is fused.
PROJECTED = ["MatMul", "Add", "Reshape", "Transpose"]
EXPORTED = [
    *["LayerNormalization", *PROJECTED * 3, "Attention", "Transpose", "Reshape", "Add"],
    *["RMSNormalization", "Gelu", "Add", "Gelu", "Add", "Mish", "Add", "Swish", "Add"],
    *["HardSwish", "Add", "Transpose", "Conv", "Swish", "ConvTranspose", "Transpose"],
]


@pytest.mark.parametrize("name", ["torchscript_9", "torchscript_13", "dynamo"])
def test_exports_of_one_network_become_the_same_steps(name: str, xp: Backend) -> None:
    path = Path(__file__).parent / "models" / f"spelled_{name}"
    with np.load(path.with_suffix(".npz")) as calls:
        call = {key: calls[f"0/in/{key}"] for key in ("x", "mask")}
    loaded = sardonyx.load(path.with_suffix(".onnx"), backend=without_kernels(xp))
    program = loaded.trace(**call)
    assert working(program) == EXPORTED


@each(case for case in OF_ATTENTION)
def test_attention_is_left_to_a_compiler_that_does_it_as_well(case: RewriteCase) -> None:
    program = sardonyx.load(case.model(), backend="jax").trace(*case.arrays())
    assert ("Attention" in working(program)) == (case.name == "shared_heads")
