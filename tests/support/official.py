"""ONNX's own backend suite: every case of every category, on any backend.

`python -m tests.support.official` runs all of it and prints a table. Names of backends and a
pattern for the names of cases select from it.
"""

from __future__ import annotations

import re
import sys
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import onnx
from onnx.backend.test import BackendTest
from onnx.backend.test.loader import load_model_tests

import sardonyx
from sardonyx.backends import find
from sardonyx.backends.base import Backend
from sardonyx.graph.programs.compiler import NOW
from sardonyx.onnx_backend import SardonyxBackend
from tests.conftest import backends_present

DRAWN = (
    "expects the numbers that NumPy's generator draws without a seed that the model could tell; "
    "the standard leaves the generator open"
)

# Every case that is not run, with its reason.
EXCLUDED = {
    f"test_bernoulli{kind}{expanded}": DRAWN
    for kind in ("", "_double", "_seed")
    for expanded in ("", "_expanded")
}

# What the suite expects of these is computed by the installed NumPy when it is loaded, from
# version 2 on in float32: where the result is zero, it may be off by as much.
ROUNDING_OF_EXPECTATIONS = {"test_dft": 1e-6}

# Whose last Softmax takes logits this large, which should be equal. How products round decides what
# it returns, and that depends on the processor and its threads. So such a Softmax is given the
# logits divided by this number.
ROUNDING_OF_LOGITS = {"test_squeezenet": 2.0**33}

LOW_PRECISION = {
    number
    for name, number in onnx.TensorProto.DataType.items()
    if name.startswith(("FLOAT8", "FLOAT6", "FLOAT4")) or name in ("INT4", "UINT4", "INT2", "UINT2")
}
# The element types that a library has no arrays of, so that cases of these cannot run on it.
LACKING = {
    "strict": LOW_PRECISION | {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16},
}


class Case(NamedTuple):
    category: str
    name: str
    run: Callable[[None], None]


class Driven(SardonyxBackend):
    """The backend interface, on the array library that a test chooses; each model runs twice."""

    # What the logits of the last Softmax are divided by.
    scale: float | None = None

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Always, since the suite takes no for a reason to skip the case."""
        return True

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Any:
        if cls.scale is not None:
            model = with_smaller_logits(model, cls.scale)
        return Twice(super().prepare(model, device))


class Twice:
    """A model that records in its first run, and gives what it replays in its second."""

    def __init__(self, prepared: Any) -> None:
        self.prepared = prepared

    def run(self, inputs: Any) -> Any:
        self.prepared.run(inputs)
        return self.prepared.run(inputs)


def with_smaller_logits(model: onnx.ModelProto, scale: float) -> onnx.ModelProto:
    """The model with the input of its last node, a Softmax, divided by `scale`."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    softmax = changed.graph.node.pop()
    assert softmax.op_type == "Softmax"
    divisor = onnx.numpy_helper.from_array(np.float32(scale), "scale")
    constant = onnx.helper.make_node("Constant", [], ["scale"], value=divisor)
    division = onnx.helper.make_node("Div", [softmax.input[0], "scale"], ["smaller"])
    softmax.input[0] = "smaller"
    changed.graph.node.extend([constant, division, softmax])
    return changed


class Suite(BackendTest):
    """ONNX's runner, with a stricter look at what comes out."""

    least_atol = 0.0

    @classmethod
    def assert_similar_outputs(
        cls,
        ref_outputs: Sequence[Any],
        outputs: Sequence[Any],
        rtol: float,
        atol: float,
        model_dir: str | None = None,
    ) -> None:
        assert len(outputs) == len(ref_outputs)
        for found, expected in zip(outputs, ref_outputs, strict=True):
            assert_same(found, expected, rtol, max(atol, cls.least_atol))


def assert_same(found: Any, expected: Any, rtol: float, atol: float) -> None:
    """Equal dtype and shape; integers, strings and bits exactly, floats within the tolerance."""
    if expected is None or isinstance(expected, list):
        assert type(found) is type(expected)
        Suite.assert_similar_outputs(expected or [], found or [], rtol, atol)
        return
    expected = np.asarray(expected)
    assert isinstance(found, np.ndarray), type(found)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.dtype == object or expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
    elif expected.dtype.kind == "V":
        # ONNX's runner allows two units in the last place of a bfloat16.
        rtol = max(rtol, 2**-6) if expected.dtype.name == "bfloat16" else rtol
        wide = found.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(*wide, rtol=rtol, atol=atol)
    else:
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


@cache
def cases() -> tuple[Case, ...]:
    """All cases, in an order that is the same in every process."""
    with warnings.catch_warnings():
        # Loading the suite computes its expectations, with overflows and in deprecated ways.
        warnings.simplefilter("ignore")
        classes = Suite(Driven).test_cases
    return tuple(
        Case(title.removeprefix("OnnxBackend").removesuffix("ModelTest"), name[:-4], run)
        for title, methods in classes.items()
        for name, run in sorted(vars(methods).items())
        if name.endswith("_cpu")
    )


def backends() -> tuple[Backend, ...]:
    """Those of the other tests, and JAX with nothing compiled."""
    return (*backends_present(), eager_jax())


@cache
def eager_jax() -> Backend:
    return find("jax").uncompiled()


def label(backend: Backend) -> str:
    return "jax-eager" if backend is eager_jax() else backend.name


@cache
def node_tests() -> tuple[Any, ...]:
    """The cases that are made in memory, with their models and data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(load_model_tests(kind="node"))


@cache
def _types() -> dict[str, set[int]]:
    """The element types in the cases that are made in memory, by name."""
    return {case.name: element_types(case.model.graph) for case in node_tests()}


def runs_on(case: Case, backend: Backend) -> bool:
    lacking = LACKING.get(backend.name)
    return lacking is None or not lacking & _types().get(case.name, set())


def element_types(graph: onnx.GraphProto) -> set[int]:
    """Every element type that a graph's values, constants and casts name."""
    found = set()
    for value in (*graph.input, *graph.output):
        kind = value.type
        for wrapper in ("optional_type", "sequence_type", "optional_type", "sequence_type"):
            kind = getattr(kind, wrapper).elem_type if kind.HasField(wrapper) else kind
        found.add(kind.tensor_type.elem_type)
    for node in graph.node:
        for attribute in node.attribute:
            found.add(attribute.t.data_type)
            if attribute.name in ("to", "dtype", "output_dtype", "softmax_precision", "stash_type"):
                found.add(attribute.i)
            found |= element_types(attribute.g)
    return found


def run(case: Case, backend: Backend) -> None:
    """Run a case, and raise what it finds."""
    rounding = [
        atol for start, atol in ROUNDING_OF_EXPECTATIONS.items() if case.name.startswith(start)
    ]
    with (
        patch.object(Driven, "array_backend", backend),
        patch.object(Driven, "scale", ROUNDING_OF_LOGITS.get(case.name)),
        patch.object(Suite, "least_atol", max(rounding, default=0.0)),
    ):
        case.run(None)


def results(backend: Backend, pattern: str) -> Iterator[tuple[str, str, str]]:
    """Category, outcome and, where it failed, the reason of each case."""
    for case in cases():
        if not re.search(pattern, case.name):
            continue
        if case.name in EXCLUDED:
            yield case.category, "excluded", ""
        elif not runs_on(case, backend):
            yield case.category, "lacks the type", ""
        else:
            yield (case.category, *_outcome(case, backend))


def _outcome(case: Case, backend: Backend) -> tuple[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run(case, backend)
    except (Exception, unittest.SkipTest) as error:
        return "failed", f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())}"
    return "passed", ""


def main(arguments: Sequence[str]) -> None:
    known = {label(backend): backend for backend in backends()}
    chosen = [known.pop(word) for word in arguments if word in known] or list(known.values())
    pattern = "|".join(word for word in arguments if word not in {label(b) for b in chosen})
    print(f"{'':16}{'cases':>8}{'passed':>8}{'excluded':>10}{'lack type':>11}{'failed':>8}")
    for backend in chosen:
        found = list(results(backend, pattern))
        outcomes = [outcome for _, outcome, _ in found]
        counted = [outcomes.count(o) for o in ("passed", "excluded", "lacks the type", "failed")]
        passed, excluded, lacking, failed = counted
        print(
            f"{label(backend):16}{len(found):>8}{passed:>8}{excluded:>10}{lacking:>11}{failed:>8}"
        )
        for _, outcome, reason in found:
            if outcome == "failed":
                print(f"    {reason[:240]}", flush=True)


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict("os.environ", ONNX_MODELS=folder),
        # Otherwise each case, which runs once, would run on NumPy or CuPy in place of JAX.
        patch.dict(sardonyx.load.__kwdefaults__, compile=NOW),
    ):
        main(sys.argv[1:])
