"""What examples are drawn from: types, shapes, values, and how a node gets them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from sardonyx.backends.dtypes import is_low_precision, isdtype
from sardonyx.graph.standard.types import DType
from tests.property.agreement import Draw
from tests.property.case import Case
from tests.property.reference import choices_of_types

Shape = tuple[int, ...]
FLOAT32, INT64 = np.dtype(np.float32), np.dtype(np.int64)


class Supply(ABC):
    """A draw that has arrays already, and hands them over where an operator can take them."""

    @abstractmethod
    def __call__(self, strategy: st.SearchStrategy[Any]) -> Any:
        """Draw from a strategy."""

    @abstractmethod
    def types(self, op: str, opset: int) -> dict[str, DType]:
        """A dtype for each type variable of the operator."""

    @abstractmethod
    def shape(self, least: int, most: int, empty: bool) -> Shape | None:
        """The shape of an array that it has, of a rank between `least` and `most`, or None."""

    @abstractmethod
    def array(self, dtype: DType, shape: Shape, values: np.ndarray) -> np.ndarray | None:
        """An array that it has, whose elements lie within `values`, or None."""


# -- types ----------------------------------------------------------------------------------------


def drawn_types(draw: Draw, op: str, opset: int) -> dict[str, DType]:
    """A dtype for each type variable of the operator, as one of onnxruntime's kernels has it."""
    if isinstance(draw, Supply):
        return draw.types(op, opset)
    usable = [c for c in choices_of_types(op, opset) if all(c.values())]
    kernel = draw(st.sampled_from(usable))
    return {name: draw(st.sampled_from(dtypes)) for name, dtypes in kernel.items()}


# -- shapes ---------------------------------------------------------------------------------------


def drawn_shape(draw: Draw, least: int = 0, most: int = 6, empty: bool = True) -> Shape:
    """A shape of a rank between `least` and `most`; one in eight has an axis of size 0."""
    if isinstance(draw, Supply) and (found := draw.shape(least, most, empty)) is not None:
        return found
    rank = draw(st.integers(least, most))
    sizes = st.integers(1, 5 if rank < 4 else 3)
    shape = draw(st.lists(sizes, min_size=rank, max_size=rank))
    if empty and rank and one_in(draw, 8):
        shape[draw(st.integers(0, rank - 1))] = 0
    return tuple(shape)


def drawn_part(draw: Draw, whole: Shape) -> Shape:
    """A shape that broadcasts to `whole`."""
    part = whole[draw(st.integers(0, len(whole))) :] if one_in(draw, 3) else whole
    stretched = draw(st.integers(0, 2 ** len(part) - 1)) if one_in(draw, 2) else 0
    return tuple(1 if stretched >> i & 1 else size for i, size in enumerate(part))


def drawn_axis(draw: Draw, rank: int) -> int:
    """An axis, from the front or from the back; now and then one that is not there."""
    return draw(st.integers(-rank, rank) if one_in(draw, 8) else st.integers(-rank, rank - 1))


def drawn_axes(draw: Draw, rank: int) -> list[int]:
    """Some of the axes in any order, counted from either end."""
    chosen = draw(st.lists(st.integers(0, rank - 1), unique=True)) if rank else []
    return [axis - rank if draw(st.booleans()) else axis for axis in chosen]


def one_in(draw: Draw, count: int) -> bool:
    """Whether something that happens once in `count` times happens now."""
    return bool(draw(st.integers(0, count - 1)) == count - 1)


# -- values ---------------------------------------------------------------------------------------

QUARTERS = np.arange(-16, 17) / 4
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf]
WORDS = np.array(["", "a", "b", "ab", "Ärger", " 1 "], object)


def ordinary(dtype: DType) -> np.ndarray:
    """Small values, whose sums and products are mostly exact."""
    if dtype.kind == "O":
        return WORDS
    if dtype.kind == "b":
        return np.array([False, True])
    if isdtype(dtype, "integral"):
        low, high = bounds(dtype)
        return np.arange(max(-9, low), min(9, high) + 1).astype(dtype)
    return converted(QUARTERS, dtype)


def wild(dtype: DType) -> np.ndarray:
    """Ordinary values, and the extremes of the type."""
    if dtype.kind in "Ob":
        return ordinary(dtype)
    if isdtype(dtype, "integral"):
        low, high = bounds(dtype)
        extremes = [np.array(v).astype(dtype) for v in (low, high, high - 1, high // 2 + 1)]
        return np.stack([*ordinary(dtype), *extremes])
    limits = ml_dtypes.finfo(dtype)
    edges = [float(v) for v in (limits.max, limits.min, limits.smallest_normal)]
    more = [*QUARTERS[::4], *SPECIAL, *edges, 0.1, -2.7, 19.3, -88.5]
    return converted(more, dtype)


def bounds(dtype: DType) -> tuple[int, int]:
    """The least and the greatest of an integer type."""
    limits = ml_dtypes.iinfo(dtype)
    return int(limits.min), int(limits.max)


def converted(values: Sequence[float], dtype: DType) -> np.ndarray:
    """Numbers in a type which may lack some of them."""
    with np.errstate(all="ignore"):
        return np.asarray(values, np.float64).astype(dtype)


Pool = Callable[[DType], np.ndarray] | Sequence[float]


def drawn_array(draw: Draw, dtype: DType, shape: Shape, pool: Pool = ordinary) -> np.ndarray:
    """An array of elements of a pool."""
    values = pool(dtype) if callable(pool) else converted(pool, dtype)
    if isinstance(draw, Supply) and (found := draw.array(dtype, shape, values)) is not None:
        return found
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    array = np.empty(shape, dtype)
    array[...] = values[rng.integers(len(values), size=shape)]
    return array


# -- how a node gets them -------------------------------------------------------------------------


def placed(draw: Draw, inputs: Sequence[np.ndarray | None]) -> dict[str, Any]:
    """Which inputs are weights, and whether the case also runs on JAX (which compiles it)."""
    present = frozenset(i for i, value in enumerate(inputs) if value is not None)
    weights = draw(st.sampled_from([frozenset(), present - {0}, frozenset(), present]))
    packed = {i for i in present if is_packed(inputs[i].dtype)}
    return {"weights": weights | packed, "on_jax": one_in(draw, 8)}


def is_packed(dtype: DType) -> bool:
    """Whether several elements share a byte; such arrays are no input for onnxruntime."""
    return is_low_precision(dtype) and ml_bits(dtype) < 8


def ml_bits(dtype: DType) -> int:
    limits = ml_dtypes.iinfo if isdtype(dtype, "integral") else ml_dtypes.finfo
    return int(limits(dtype).bits)


def chosen(draw: Draw, options: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Some of the attributes, with one of the values given for each; the others are left out."""
    found = {}
    for name, values in options.items():
        if draw(st.booleans()):
            found[name] = draw(st.sampled_from(list(values)))
    return found


def parameters(
    draw: Draw,
    op: str,
    opset: int,
    inputs: Sequence[np.ndarray | None],
    integers: Mapping[str, Sequence[int]],
    *,
    since: int,
    attributes: Mapping[str, Any] | None = None,
    **rest: Any,
) -> Case:
    """A case whose lists of integers are attributes before opset `since`, and inputs from it on."""
    given = dict(attributes or {})
    if opset < since:
        given |= integers
    else:
        inputs = [*inputs, *(np.array(v, np.int64) for v in integers.values())]
    return Case(op, opset, tuple(inputs), given, **placed(draw, inputs), **rest)
