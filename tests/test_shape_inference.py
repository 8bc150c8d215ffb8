"""The shapes that NumPy's rules give are those that JAX finds by tracing."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import jax
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from ml_dtypes import bfloat16
from onnx.backend.test.loader import load_model_tests

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import BadData, Constants, Within
from sardonyx.backends.executable import Spec
from sardonyx.backends.shape_arrays import NoShapeRule, shape_array
from sardonyx.backends.shape_backend import SHAPES
from sardonyx.backends.standard import Array
from sardonyx.graph.tracing.shape_inference import (
    Inference,
    Inferred,
    by_shapes,
    is_for_any_backend,
)
from sardonyx.graph.tracing.steps import Call, Embedded
from sardonyx.ops.pooling import AveragePool
from tests.property import reference
from tests.property.agreement import cases_of
from tests.property.case import Case
from tests.property.makers import MAKERS
from tests.support.onnx_builders import model, node, value
from tests.test_first_calls import MODELS, drawn

FLOAT32 = np.dtype(np.float32)


class Both:
    """Infers each call in both ways."""

    def __init__(self) -> None:
        self.answered = 0
        # The calls for which there are no rules, and those for which both ways differ.
        self.without_rule: list[Call] = []
        self.differing: list[Any] = []

    def infer(
        self, inferred: Inferred, call: Call, operands: Sequence[Spec | Embedded], known: Any
    ) -> Inference:
        found = by_shapes(call, operands, known) if is_for_any_backend(call) else None
        try:
            expected = inferred._by_backend(call, operands, known)
        except Exception as error:
            if found is not None:
                self.differing.append((call, operands, found, error))
            raise
        if found is None:
            self.without_rule.append(call)
        else:
            self.answered += 1
            if not agree(found, expected):
                self.differing.append((call, operands, found, expected))
        return expected


def agree(found: Inference, expected: Inference) -> bool:
    """Whether both say the same; a result may be an alias in JAX alone."""
    aliases = zip(found.same, expected.same, strict=True)
    return (
        list(found.specs) == [Spec(tuple(s.shape), s.dtype) for s in expected.specs]
        and all(one in (None, other) for one, other in aliases)
        and list(found.checked) == list(expected.checked)
    )


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    compared = Both()

    def infer(inferred: Inferred, *arguments: Any) -> Inference:
        return compared.infer(inferred, *arguments)

    monkeypatch.setattr(Inferred, "_infer", infer)
    yield compared
    assert not compared.differing


def trace(proto: Any, inputs: Sequence[Any] | dict[str, Any]) -> None:
    loaded = sardonyx.load(proto, backend="jax", compile="never")
    loaded.trace(**inputs) if isinstance(inputs, dict) else loaded.trace(*inputs)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.sampled(3)
def test_models_of_exporters(path: Path, both: Both) -> None:
    trace(path, list(drawn(sardonyx.load(path, backend="jax")).values()))
    assert both.answered
    assert not both.without_rule


@pytest.mark.slow
def test_official_cases(both: Both) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The suite computes what it expects, with overflows.
        cases = list(load_model_tests(kind="node"))
    for case in cases:
        inputs = [
            onnx.numpy_helper.to_array(array) if isinstance(array, onnx.TensorProto) else array
            for array in case.data_sets[0][0]
        ]
        with suppress(sardonyx.SardonyxError):  # Some need their inputs in another form.
            trace(case.model, inputs)
    assert both.answered > 5000
    assert len(both.without_rule) < 5  # Fourier transforms of no complex numbers.


@pytest.mark.parametrize("op", sorted(MAKERS))
@pytest.mark.sampled(16)
def test_examples_of_operators(op: str, both: Both) -> None:
    @seed(crc32(op.encode()))
    @settings(
        max_examples=10,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases_of(MAKERS[op], op, reference.versions(op)[-1]))
    def compare(case: Case) -> None:
        with suppress(sardonyx.SardonyxError):  # Some examples are invalid.
            trace(case.model, case.feeds)

    compare()
    # Of no elements there is no largest, for one.
    assert len(both.without_rule) <= both.answered


# -- arrays without data ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "read",
    [
        bool,
        int,
        float,
        list,
        np.sort,
        lambda x: x[x > 0],
        lambda x: x[np.array([0])],
        lambda x: x.item(),
        lambda x: x.copy(),
        lambda x: 0 in x,
        np.add.reduce,
        lambda x: np.add(x, x, out=x),
        SHAPES.fetch,
    ],
)
def test_nothing_reads_elements(read: Callable[[Any], Any]) -> None:
    """Otherwise a shape could depend on them."""
    with pytest.raises(NoShapeRule):
        read(shape_array((1,), FLOAT32))


def test_nothing_writes_elements() -> None:
    x = shape_array((2,), FLOAT32)
    with pytest.raises(NoShapeRule):
        x[0] = 1
    with pytest.raises(NoShapeRule):
        x += 1


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.uint64, bool, bfloat16, np.complex64])
def test_huge_arrays_cost_nothing(dtype: Any) -> None:
    x = shape_array((2**20, 2**20), np.dtype(dtype))
    y = SHAPES.permute_dims(SHAPES.reshape(x[::2, 3:], (2**19, -1, 1)), (2, 0, 1))
    assert (y.shape, y.dtype) == ((1, 2**19, 2**20 - 3), np.dtype(dtype))
    assert (y == y[:, :1]).shape == y.shape


def test_windows_are_not_counted_one_by_one() -> None:
    x = shape_array((1, 1, 2**12, 2**12), FLOAT32)
    tracemalloc.start()
    try:
        with SHAPES.scope():
            y = AveragePool(SHAPES, x, kernel_shape=(2, 2), pads=(1, 1, 1, 1))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert y.shape == (1, 1, 2**12 + 1, 2**12 + 1)


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 7, 2), (5, -4, -3), (0.5, 2.0, 0.25), (3, 3, 1)]
)
def test_ranges_have_as_many_elements_as_numpy_says(start: Any, stop: Any, step: Any) -> None:
    expected = np.arange(start, stop, step)
    found = SHAPES.arange(start, stop, step)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)


def test_conditions_hold_for_constants() -> None:
    indices = shape_array((2,), np.dtype(np.int64))
    constants = Constants({id(indices): lambda: np.array([0, 9])})
    checked = SHAPES.with_constants(constants)
    with pytest.raises(BadData, match="9"):
        checked.require(indices, Within("indices", 0, 8))
    assert constants.with_conditions == {id(indices)}


def test_invalid_shapes_are_refused_as_before() -> None:
    graph = model(
        [node("MatMul", ["x", "y"], ["z"])], [value("x", ["n", 3]), value("y", ["m", 2])], ["z"]
    )
    with pytest.raises(sardonyx.InvalidInput, match="MatMul"):
        sardonyx.load(graph, backend="jax").trace(np.ones((2, 3), "f"), np.ones((4, 2), "f"))


def test_functions_of_users_get_arrays_of_the_library() -> None:
    types: list[type] = []

    @sardonyx.op(domain="own")
    def Twice(xp: Backend, X: Array) -> Array:
        types.append(type(X))
        return X + X

    graph = model([node("Twice", ["x"], ["y"], domain="own")], [value("x", [2])], ["y"], own=1)
    sardonyx.load(graph, backend="jax", ops=[Twice]).trace(np.ones(2, np.float32))
    assert types
    assert all(issubclass(kind, jax.core.Tracer) for kind in types)
