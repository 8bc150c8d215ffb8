"""Drawn examples of operators of com.microsoft, whose schemas only onnxruntime has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from sardonyx.graph.standard.types import DType
from tests.property.agreement import Draw, verdicts_on
from tests.property.case import Case
from tests.property.strategies import drawn_array, placed

DOMAIN = "com.microsoft"
Maker: TypeAlias = Callable[[Draw, str], Case]

HALF, SINGLE, DOUBLE = (np.dtype(name) for name in ("float16", "float32", "float64"))
INT32 = np.dtype(np.int32)
BYTES = tuple(np.dtype(name) for name in ("uint8", "int8"))
EIGHTHS = np.arange(-16, 17) / 8
# Of powers of two the products are exact, so that no two ways of rounding differ.
POWERS = [0.25, 0.5, 1, 2]


def assert_drawn_agree(maker: Maker, op: str) -> None:
    @st.composite
    def cases(draw: Draw) -> Case:
        return maker(draw, op)

    verdicts = verdicts_on(cases(), f"{DOMAIN}-{op}")
    assert verdicts["agree"], f"no example of {op} compared: {verdicts}"


def node(
    draw: Draw,
    op: str,
    inputs: Sequence[np.ndarray | None],
    attributes: Mapping[str, Any] | None = None,
    **rest: Any,
) -> Case:
    placement = placed(draw, inputs) | rest
    return Case(op, 1, tuple(inputs), attributes or {}, domain=DOMAIN, **placement)


def drawn_float(draw: Draw, *dtypes: DType) -> DType:
    dtype: DType = draw(st.sampled_from(dtypes))
    return dtype


def drawn_bytes(draw: Draw) -> DType:
    dtype: DType = draw(st.sampled_from(BYTES))
    return dtype


def drawn_scale(draw: Draw, shape: tuple[int, ...] = ()) -> np.ndarray:
    return drawn_array(draw, SINGLE, shape, POWERS)


def or_none(draw: Draw, array: np.ndarray) -> np.ndarray | None:
    return array if draw(st.booleans()) else None
