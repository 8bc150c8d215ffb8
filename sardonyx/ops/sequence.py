"""Sequences and optionals. While tracing they are Python lists and None, so most cost nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axis_within
from sardonyx.ops.definition import Arrays, DType, Host, Value, op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.layout import Concat, parts_along


@op
def SequenceConstruct(xp: Backend, *inputs: Value) -> Value:
    if any(value is None for value in inputs):
        raise ValueError("one of its inputs is missing, but a sequence needs all of them")
    return list(inputs)


@op
def SequenceEmpty(xp: Backend, *, dtype: DType = FLOAT32) -> Value:
    return []


@op
def SequenceLength(xp: Backend, input_sequence: Value) -> Host:
    return np.asarray(len(_sequence(input_sequence)), dtype=np.int64)


@op
def SequenceAt(xp: Backend, input_sequence: Value, position: int) -> Value:
    values = _sequence(input_sequence)
    return values[_place(position, len(values))]


@op
def SequenceErase(xp: Backend, input_sequence: Value, position: int = -1) -> Value:
    values = _sequence(input_sequence)
    place = _place(position, len(values))
    return [*values[:place], *values[place + 1 :]]


@op
def SequenceInsert(
    xp: Backend, input_sequence: Value, tensor: Value, position: int | None = None
) -> Value:
    values = _sequence(input_sequence)
    size = len(values)
    place = size if position is None else _place(position, size, last=size)
    if values and values[0].dtype != tensor.dtype:
        raise ValueError(f"tensor is {tensor.dtype}, but input_sequence contains {values[0].dtype}")
    return [*values[:place], tensor, *values[place:]]


@op
def ConcatFromSequence(
    xp: Backend, input_sequence: Arrays, *, axis: int, new_axis: int = 0
) -> Array:
    if not input_sequence:
        raise ValueError("the sequence is empty, but must have at least one tensor to concatenate")
    if new_axis:
        input_sequence = [
            xp.expand_dims(x, axis=axis_within(axis, x.ndim + 1)) for x in input_sequence
        ]
    joined: Array = Concat(xp, *input_sequence, axis=axis)
    return joined


@op
def SplitToSequence(
    xp: Backend, input: Array, split: Host | None = None, *, axis: int = 0, keepdims: int = 1
) -> Arrays:
    axis = axis_within(axis, input.ndim)
    size = input.shape[axis]
    if split is not None and split.ndim > 1:
        raise ValueError(
            f"split has shape {split.shape}, but must be a number or a list of numbers"
        )
    if split is None:
        parts = [1] * size
    elif split.ndim:
        parts = [int(part) for part in split]
    else:
        parts = _equal_parts(size, int(split))
    if sum(parts) != size or min(parts, default=0) < 0:
        raise ValueError(
            f"split {parts} must be non-negative numbers whose sum is {size}, the size of axis "
            f"{axis}"
        )
    pieces = parts_along(input, axis, parts)
    if split is None and not keepdims:
        return [xp.squeeze(piece, axis=axis) for piece in pieces]
    return pieces


def _equal_parts(size: int, part: int) -> list[int]:
    if part <= 0:
        raise ValueError(f"split is {part}, but must be positive")
    whole, rest = divmod(size, part)
    return [part] * whole + [rest] * (rest > 0)


@op
def Optional(xp: Backend, input: Value = None, *, type: Value = None) -> Value:
    return input


@op
def OptionalHasElement(xp: Backend, input: Value = None) -> Host:
    return np.asarray(input is not None)


@op
def OptionalGetElement(xp: Backend, input: Value) -> Value:
    if input is None:
        raise ValueError("the optional is empty; test it with OptionalHasElement first")
    return input


def _sequence(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("its input must be a sequence, but is a tensor or an empty optional")
    return value


def _place(position: int, size: int, last: int | None = None) -> int:
    last = size - 1 if last is None else last
    if not -size <= position <= last:
        raise ValueError(f"position {position} is out of range for a sequence of length {size}")
    return position + size if position < 0 else position
