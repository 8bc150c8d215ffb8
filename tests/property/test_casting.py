"""Operators that convert elements, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from sardonyx.backends.dtypes import is_low_precision, isdtype
from sardonyx.graph.standard.types import DType, number_of
from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.reference import choices_of_types
from tests.property.strategies import (
    Pool,
    drawn_array,
    drawn_shape,
    drawn_types,
    ordinary,
    placed,
    wild,
)


def pool_for(source: DType, target: DType) -> Pool:
    """Values whose conversion is defined: none beyond the integers, or the numbers in strings."""
    to_integer = isdtype(target, "integral")
    if source.kind == "O":
        return strings(target)
    if (isdtype(source, "real floating") and to_integer) or target.kind == "O":
        return lambda dtype: np.abs(ordinary(dtype)) if target.kind != "i" else ordinary(dtype)
    if "e8m0" in target.name:
        return lambda dtype: np.abs(ordinary(dtype))
    if is_low_precision(source) or is_low_precision(target):
        return lambda dtype: np.unique(np.abs(ordinary(dtype)))[:8] if to_integer else wild(dtype)
    return wild


def strings(target: DType) -> Pool:
    whole = ["0", "1", "12", "-7", "100"]
    if target.kind == "u" or "e8m0" in target.name:
        whole = [word for word in whole if "-" not in word]
    if target.kind in "bu" or isdtype(target, "integral") or "e8m0" in target.name:
        return lambda _: np.array(whole, object)
    return lambda _: np.array([*whole, "1.5", "-2.25e-3", "NaN", "INF", "-INF", "+inf"], object)


def drawn_source(draw: Draw, source: DType, target: DType) -> np.ndarray:
    return drawn_array(draw, source, drawn_shape(draw), pool_for(source, target))


def rounding(draw: Draw, opset: int) -> dict[str, Any]:
    has_saturate = opset >= 19 and draw(st.booleans())
    return {"saturate": draw(st.integers(0, 1))} if has_saturate else {}


def cast(draw: Draw, op: str, opset: int) -> Case:
    source, target = (drawn_types(draw, op, opset)[name] for name in ("T1", "T2"))
    x = drawn_source(draw, source, target)
    given = {"to": number_of(target), **rounding(draw, opset)}
    return Case(op, opset, (x,), given, ulps=1, **by_weights(draw, target, x))


def cast_like(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    source, target = types["T1"], types["T2"]
    inputs = drawn_source(draw, source, target), drawn_array(draw, target, (2,))
    given = rounding(draw, opset)
    return Case(op, opset, inputs, given, ulps=1, **by_weights(draw, target, *inputs))


def by_weights(draw: Draw, target: DType, *inputs: np.ndarray) -> dict[str, Any]:
    """onnxruntime takes strings by one way, and gives low precision by another."""
    found = placed(draw, inputs)
    if inputs[0].dtype.kind == "O" and is_low_precision(target):
        found["weights"] = frozenset(range(len(inputs)))
    return found


def bit_cast(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    alike = [t for t in choices_of_types(op, opset)[0]["T2"] if t.itemsize == types["T1"].itemsize]
    x = drawn_array(draw, types["T1"], drawn_shape(draw), wild)
    given = {"to": number_of(draw(st.sampled_from(alike)))}
    return Case(op, opset, (x,), given, **placed(draw, [x]))


CASES = {"Cast": cast, "CastLike": cast_like, "BitCast": bit_cast}


@versions_of(CASES)
@pytest.mark.sampled(5)
def test_conversions(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
