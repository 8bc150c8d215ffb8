"""A draw that offers a graph's values to the operators that tests/property knows how to draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import defs

from sardonyx.backends.dtypes import isdtype
from sardonyx.graph.standard.types import DType, dtype_of_type
from tests.fuzz.chance import drawn_from
from tests.fuzz.graph import Array
from tests.fuzz.values import Value
from tests.property.reference import choices_of_types, domain_of
from tests.property.strategies import Shape, Supply

Values = Mapping[str, Value]
# Puts further nodes between a value and one of this type and shape; the name of that, or None.
Fitting = Callable[[str, DType, Shape, Array], str | None]


class Offer(Supply):
    """Draws at random, and has arrays come from a graph where one fits."""

    def __init__(self, random: Random, values: Values, fit: Fitting, everywhere: bool) -> None:
        self.random, self.values, self.fit = random, values, fit
        self.everywhere = everywhere
        # Whether infinities and NaN may enter where examples have ordinary numbers.
        self.infinite = random.random() < 0.3
        self.names: dict[int, str] = {}
        self.target = self._chosen()

    def __call__(self, strategy: st.SearchStrategy[Any]) -> Any:
        return drawn_from(strategy, self.random)

    def types(self, op: str, opset: int) -> dict[str, DType]:
        choices = type_choices(op, opset, self.everywhere)
        first = defs.get_schema(op, opset, domain_of(op)).inputs
        variable = first[0].type_str if first else ""
        wanted = self.values[self.target].data.dtype if self.target else None
        fitting = [c for c in choices if wanted in c.get(variable, ())]
        # A dtype of its own now and then, so that graphs do not stay with what they began with.
        if fitting and self.random.random() < 0.9:
            kernel = self.random.choice(fitting)
            return {
                name: wanted if name == variable and wanted is not None else self._of(dtypes)
                for name, dtypes in kernel.items()
            }
        kernel = self.random.choice(choices)
        return {name: self._of(dtypes) for name, dtypes in kernel.items()}

    def shape(self, least: int, most: int, empty: bool) -> Shape | None:
        if self.target is None or self.random.random() < 0.1:
            return None
        shape: Shape = self.values[self.target].data.shape
        fits = least <= len(shape) <= most and (empty or 0 not in shape)
        return shape if fits else None

    def array(self, dtype: DType, shape: Shape, values: Array) -> Array | None:
        if self.random.random() < 0.2:
            return None
        name = self._fitting(dtype, shape, values)
        if name is None and self.target is not None and self.random.random() < 0.4:
            name = self.fit(self.target, dtype, shape, values)
        if name is None:
            return None
        array: Array = self.values[name].data
        self.names[id(array)] = name
        return array

    def _chosen(self) -> str | None:
        """A value to start from: one of the newest, as a rule."""
        names = [name for name, value in self.values.items() if not isinstance(value.data, list)]
        if not names:
            return None
        return self.random.choice(names[-4:] if self.random.random() < 0.6 else names)

    def _fitting(self, dtype: DType, shape: Shape, values: Array) -> str | None:
        names = [
            name
            for name, value in self.values.items()
            if not isinstance(value.data, list)
            and value.data.dtype == dtype
            and value.data.shape == shape
            and lies_within(value.data, values, self.infinite)
        ]
        if self.target in names and id(self.values[self.target].data) not in self.names:
            return self.target
        return self.random.choice(names) if names else None

    def _of(self, dtypes: tuple[DType, ...]) -> DType:
        present = {v.data.dtype for v in self.values.values() if not isinstance(v.data, list)}
        held = [dtype for dtype in dtypes if dtype in present]
        return self.random.choice(held if held and self.random.random() < 0.7 else list(dtypes))


@cache
def type_choices(op: str, opset: int, everywhere: bool) -> tuple[Mapping[str, Any], ...]:
    """What type variables may stand for: in onnxruntime's kernels, or in the standard."""
    if everywhere:
        return tuple(c for c in choices_of_types(op, opset) if all(c.values()))
    schema = defs.get_schema(op, opset, domain_of(op))
    allowed = {}
    for variable in schema.type_constraints:
        dtypes = (dtype_of_type(text) for text in variable.allowed_type_strs)
        allowed[variable.type_param_str] = tuple(
            d for d in dtypes if d is not None and d.kind != "c"
        )
    return (allowed,) if all(allowed.values()) else ()


def lies_within(array: Array, values: Array, infinite: bool = False) -> bool:
    """Whether an array's elements are such as a pool has: these very ones, or between them."""
    if not array.size or array.dtype.kind in "Ob":
        return True
    if not isdtype(values.dtype, "numeric"):
        return True
    pool = values.astype(np.float64)
    if not np.isfinite(pool).all():
        return True  # Anything goes.
    found = array.astype(np.float64)
    low, high = pool.min(), pool.max()
    if infinite and (low, high) == (-4.0, 4.0):
        found = found[np.isfinite(found)]
    if not np.isfinite(found).all():
        return False
    if (low, high) in ((-4.0, 4.0), (-9.0, 9.0)):
        low, high = -1e3, 1e3  # The ordinary ones, where nothing depends on their size.
    if found.size and (found.min() < low or found.max() > high):
        return False
    whole = bool((pool == np.rint(pool)).all())
    return not whole or bool(np.isin(found, pool).all() or (low, high) == (-1e3, 1e3))
