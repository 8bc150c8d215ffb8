"""The runtime arguments of a padded program, and the masks that it computes from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from sardonyx.backends.padding.axes import Layout, Slot


@dataclass(frozen=True, slots=True)
class RuntimeArgs:
    """The values that differ between calls of one padded program: scalars by dtype, and arrays."""

    scalars: Mapping[str, Any]
    arrays: Sequence[Any]

    def __getitem__(self, slot: Slot) -> Any:
        if slot.dtype is None:
            return self.arrays[slot.number]
        return lax.index_in_dim(self.scalars[slot.dtype], slot.number, keepdims=False)

    @property
    def leaves(self) -> list[Any]:
        return [*self.scalars.values(), *self.arrays]

    def of(self, leaves: Sequence[Any]) -> RuntimeArgs:
        """The same structure with other leaves, such as the arguments of a traced function."""
        count = len(self.scalars)
        return RuntimeArgs(dict(zip(self.scalars, leaves[:count], strict=True)), leaves[count:])


class Digit(NamedTuple):
    """The positions along an axis for which `position // unit % base` is below a size."""

    axis: int
    unit: int
    base: int
    size: Slot


@dataclass(frozen=True, slots=True)
class Mask:
    """Which elements are true along certain axes; false if these have no padding."""

    digits: tuple[Digit, ...]

    def __bool__(self) -> bool:
        return bool(self.digits)

    def where(self, runtime_args: RuntimeArgs, shape: Sequence[int]) -> Any:
        """The mask as a boolean array that broadcasts to the shape."""
        conditions = []
        for digit in self.digits:
            along = [n if i == digit.axis else 1 for i, n in enumerate(shape)]
            position = lax.broadcasted_iota(np.int32, along, digit.axis)
            if digit.unit > 1:
                position = position // digit.unit
            if digit.base * digit.unit < shape[digit.axis]:
                position = position % digit.base
            conditions.append(position < runtime_args[digit.size])
        return reduce(and_, conditions)

    def padding(self, runtime_args: RuntimeArgs, shape: Sequence[int]) -> Any:
        """The opposite, as an array of the shape."""
        return jnp.broadcast_to(~self.where(runtime_args, shape), shape)

    def fill(self, runtime_args: RuntimeArgs, x: Any, value: Any) -> Any:
        """Replace the padding of `x` by `value`."""
        if not self.digits:
            return x
        return jnp.where(self.where(runtime_args, x.shape), x, jnp.asarray(value, x.dtype))


def digits_of(layout: Layout, axes: Sequence[int], slot: Any) -> tuple[Digit, ...]:
    """The digits of a mask along these axes; `slot` returns the slot of a size."""
    digits = []
    for axis in axes:
        unit = layout[axis].padded
        if unit == 0:  # No position is in the padding.
            continue
        for part in layout[axis].parts:
            unit //= part.padded
            if part.is_padded:
                digits.append(Digit(axis, unit, part.padded, slot(part.true)))
    return tuple(digits)
