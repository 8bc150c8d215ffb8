"""Inputs and attributes that fit no operator of onnxruntime's: each is refused by name, or runs.

Every operator's small node is changed in one place: an axis more or less, another size, no
elements, an index out of range, an input left out, or another value of an attribute. Whatever is
wrong raises one of sardonyx's errors for the user; a library's own error would be a bug.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import sardonyx
from sardonyx.errors import InternalError, LimitExceeded, SardonyxError
from sardonyx.ops import OPS
from tests.ops.microsoft.small_node import Small
from tests.ops.microsoft.small_nodes import NODES

# What NumPy says where an operator itself does not look at shapes that are multiplied, reduced or
# indexed; shapes that do not broadcast are named well enough by the two shapes.
OF_NUMPY = (
    *("gufunc", "cannot reshape", "axes don't match", "out of bounds for array"),
    *("out of bounds for axis", "out of bounds for int32", "not enough values to unpack"),
)
VALUES: dict[Any, tuple[Any, ...]] = {
    int: (0, -1, 3, 2**31),
    float: (0.0, float("nan"), float("inf")),
    str: ("nonsense",),
}


def changed_arrays(array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield arrays with another shape, or with an integer that is no index."""
    yield "one more axis", array[None]
    for axis in range(array.ndim):
        yield f"longer axis {axis}", np.concatenate([array, np.take(array, [0], axis)], axis)
        yield f"shorter axis {axis}", np.delete(array, -1, axis)
        yield f"empty axis {axis}", np.take(array, range(0), axis)
    if array.ndim:
        yield "one axis less", np.asarray(array[0], array.dtype)
        yield "scalar", np.asarray(array.flat[0], array.dtype).reshape(())
    if array.dtype.kind == "i":
        for number in (-1, np.iinfo(array.dtype).max):
            wrong = array.copy()
            wrong.flat[0] = number
            yield f"holds {number}", wrong


def changed_inputs(each: Small) -> Iterator[tuple[str, Small]]:
    for i, value in enumerate(each.inputs):
        if value is not None:
            for label, array in (*changed_arrays(np.asarray(value)), ("left out", None)):
                inputs = list(each.inputs)
                inputs[i] = array
                weights = each.weights if array is not None else each.weights - {i}
                yield f"input {i}: {label}", replace(each, inputs=inputs, weights=weights)


def changed_attributes(each: Small) -> Iterator[tuple[str, Small]]:
    for name, parameter in OPS[each.domain, each.op].at(1).attributes.items():
        for value in VALUES.get(parameter.type, ()):
            yield f"{name}={value}", replace(each, attributes={**each.attributes, name: value})
        if isinstance(numbers := each.attributes.get(name), list):
            for value in (numbers * 2, [-1 for _ in numbers]):
                yield f"{name}={value}", replace(each, attributes={**each.attributes, name: value})


def require_refusal_or_result(label: str, each: Small) -> bool:
    """Return whether the node runs; whatever else happens must be one of the user's errors."""
    try:
        proto = each.model()
    except (TypeError, ValueError):  # No file could hold this attribute.
        return False
    refusal = refusal_of(proto, each.feeds)
    if refusal is None:
        return True
    message = str(refusal)
    assert not isinstance(refusal, InternalError), label
    assert each.op in message, label
    assert not any(words in message for words in OF_NUMPY), f"{label}: {message}"
    return False


def refusal_of(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> SardonyxError | None:
    try:
        with np.errstate(all="ignore"):
            sardonyx.load(proto, backend="numpy").run(None, feeds)
    except SardonyxError as error:
        return error
    return None


def name_of(each: Small) -> str:
    return each.op


@pytest.mark.sampled(8)
@pytest.mark.parametrize("each", NODES, ids=name_of)
def test_wrong_inputs_are_refused_by_name(each: Small) -> None:
    runs = [require_refusal_or_result(*changed) for changed in changed_inputs(each)]
    assert not all(runs)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("each", NODES, ids=name_of)
def test_wrong_attributes_are_refused_by_name(each: Small) -> None:
    assert require_refusal_or_result("unchanged", each)
    for label, changed in changed_attributes(each):
        require_refusal_or_result(label, changed)


def test_a_huge_window_is_refused_before_it_takes_memory() -> None:
    small = next(each for each in NODES if each.op == "LinearAttention")
    each = replace(small, attributes={**small.attributes, "state_window": 2**31})
    with pytest.raises(LimitExceeded, match=r"'it' .*LinearAttention.* a value of shape"):
        sardonyx.load(each.model(), backend="numpy").run(None, each.feeds)


@pytest.mark.parametrize("left_out", [(1,), (1, 4), (7,), (1, 4, 7)])
def test_embeddings_without_some_inputs(left_out: tuple[int, ...]) -> None:
    """Without segment ids, all tokens are in the first segment."""
    small = next(each for each in NODES if each.op == "EmbedLayerNormalization")
    inputs = [None if i in left_out else value for i, value in enumerate(small.inputs)]
    each = replace(small, inputs=inputs)
    session = onnxruntime.InferenceSession(
        each.model().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = sardonyx.load(each.model(), backend="numpy").run(None, each.feeds)
    for ours, theirs in zip(found, session.run(None, each.feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
