"""Scan: a loop over slices, on the device if all carried values keep their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axis_within
from sardonyx.ops.definition import Body, Ints, Value, Walk, op
from sardonyx.ops.loops import FEW_ITERATIONS, NUMBER, first_rows, no_rows, stacked


@op
def Scan(
    walk: Walk,
    *initial_state_and_scan_inputs: Value,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Ints | None = None,
    scan_input_directions: Ints | None = None,
    scan_output_axes: Ints | None = None,
    scan_output_directions: Ints | None = None,
) -> Value:
    values = initial_state_and_scan_inputs
    states = _states(values, num_scan_inputs)
    rows = body.outputs - states
    if rows < 0:
        raise ValueError(
            f"its body has {body.outputs} outputs, but there are {states} carried values"
        )
    scanned = values[states:]
    in_axes = _along(
        scan_input_axes, scan_input_directions, [len(v.shape) for v in scanned], "input"
    )
    out_axes = _along(scan_output_axes, scan_output_directions, [None] * rows, "output")
    length = _common_length([v.shape[axis] for v, (axis, _) in zip(scanned, in_axes, strict=True)])
    if (length > FEW_ITERATIONS or not length) and _keeps_shape(walk, values, in_axes, body):
        on_device = walk.on_device(
            _scanned, *values, body=body, in_axes=in_axes, out_axes=out_axes, length=length
        )
        if on_device is not None:
            return on_device
    return _scan_by_steps(walk, values, body, in_axes, out_axes, length)


def _states(values: Sequence[Value], scanned: int) -> int:
    """Return how many values are carried between steps: those before the scan inputs."""
    if not 1 <= scanned <= len(values):
        raise ValueError(
            f"num_scan_inputs is {scanned}, but must be from 1 to {len(values)}, the number of "
            "inputs"
        )
    if not all(hasattr(value, "shape") for value in values):
        raise ValueError("all inputs must be tensors; sequences and optionals cannot be scanned")
    return len(values) - scanned


ScanAxis = tuple[int, bool]


def _along(
    axes: Ints | None, directions: Ints | None, ranks: Sequence[int | None], what: str
) -> tuple[ScanAxis, ...]:
    """Return the axis along which each array is scanned, and whether it is backwards."""
    axes = (0,) * len(ranks) if axes is None else axes
    directions = (0,) * len(ranks) if directions is None else directions
    if not len(axes) == len(directions) == len(ranks):
        raise ValueError(
            f"scan_{what}_axes and scan_{what}_directions must have {len(ranks)} numbers, one per "
            f"{what}"
        )
    if not set(directions) <= {0, 1}:
        raise ValueError(f"scan_{what}_directions are {directions}, but must be 0 or 1")
    counted = (a if r is None else axis_within(a, r) for a, r in zip(axes, ranks, strict=True))
    return tuple((axis, bool(d)) for axis, d in zip(counted, directions, strict=True))


def _common_length(lengths: Sequence[int]) -> int:
    if len(set(lengths)) > 1:
        raise ValueError(
            f"its scan inputs must have the same length, but have {', '.join(map(str, lengths))}"
        )
    return lengths[0]


def _keeps_shape(
    walk: Walk, values: Sequence[Value], in_axes: Sequence[ScanAxis], body: Body
) -> bool:
    """Return whether the body preserves the shape and dtype of all carried values."""
    states = len(values) - len(in_axes)
    state = [Spec(tuple(value.shape), value.dtype) for value in values[:states]]
    slices = [
        Spec((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype)
        for x, (axis, _) in zip(values[states:], in_axes, strict=True)
    ]
    results = walk.shapes(body, *state, *slices, iteration=NUMBER)
    return results is not None and [*results[:states]] == state


def _scanned(
    xp: Backend,
    *values: Array,
    body: Body,
    in_axes: Sequence[ScanAxis],
    out_axes: Sequence[ScanAxis],
    length: int,
) -> tuple[Array, ...]:
    states = len(values) - len(in_axes)
    state = values[:states]
    inputs = [
        _in_order(xp, xp.moveaxis(x, axis, 0), backwards)
        for x, (axis, backwards) in zip(values[states:], in_axes, strict=True)
    ]
    numbers = xp.arange(length, dtype=xp.dtype(NUMBER.dtype))

    def step(carried: Any, slices: Any) -> Any:
        number, *elements = slices
        results = [xp.asarray(r) for r in body(*carried, *elements, iteration=number)]
        return tuple(results[:states]), tuple(results[states:])

    last, rows = xp.scan(step, state, (numbers, *inputs), length)
    placed = (
        xp.moveaxis(_in_order(xp, row, backwards), 0, axis_within(axis, row.ndim))
        for row, (axis, backwards) in zip(rows, out_axes, strict=True)
    )
    return (*last, *placed)


def _in_order(xp: Backend, x: Array, backwards: bool) -> Array:
    return xp.flip(x, axis=0) if backwards else x


def _scan_by_steps(
    walk: Walk,
    values: Sequence[Value],
    body: Body,
    in_axes: Sequence[ScanAxis],
    out_axes: Sequence[ScanAxis],
    length: int,
) -> tuple[Value, ...]:
    states = len(values) - len(in_axes)
    state, inputs = list(values[:states]), values[states:]
    if not length:
        slices = [
            walk.apply(_blank, x, axis=axis)[0]
            for x, (axis, _) in zip(inputs, in_axes, strict=True)
        ]
        specs = body.specs(*state, *slices)[states:]
        return (*state, *(no_rows(s, axis) for s, (axis, _) in zip(specs, out_axes, strict=True)))
    rows = []
    for i in range(length):
        slices = [
            walk.apply(_slice, x, axis=axis, place=length - 1 - i if backwards else i)[0]
            for x, (axis, backwards) in zip(inputs, in_axes, strict=True)
        ]
        results = body(*state, *slices, iteration=np.asarray(i))
        state = list(results[:states])
        rows.append(results[states:])
    stacks = (
        walk.apply(stacked, *(column[::-1] if backwards else column), axis=axis)[0]
        for column, (axis, backwards) in zip(zip(*rows, strict=True), out_axes, strict=True)
    )
    return (*state, *stacks)


def _slice(xp: Backend, x: Array, *, axis: int, place: int) -> Array:
    return x[(*(slice(None),) * axis, place, ...)]


def _blank(xp: Backend, x: Array, *, axis: int) -> Array:
    return xp.zeros((*x.shape[:axis], *x.shape[axis + 1 :]), dtype=x.dtype)


@Scan.before(9)
def scan_of_batch(
    walk: Walk,
    sequence_lens: Value = None,
    *initial_state_and_scan_inputs: Value,
    body: Body,
    num_scan_inputs: int,
    directions: Ints | None = None,
) -> Value:
    """Scan each sequence of a batch, the first axis of all values, one after the other."""
    values = initial_state_and_scan_inputs
    states = _states(values, num_scan_inputs)
    if any(len(v.shape) < 1 + (i >= states) for i, v in enumerate(values)):
        raise ValueError(
            "all inputs need a first axis for the batch, and scan inputs a second one for the steps"
        )
    batch = _common_length([value.shape[0] for value in values])
    longest = values[-1].shape[1]
    lengths = [longest] * batch
    if sequence_lens is not None:
        lengths = [int(length) for length in walk.read(sequence_lens).ravel()]
    if len(lengths) != batch or not all(0 <= length <= longest for length in lengths):
        raise ValueError(
            f"sequence_lens is {lengths}, but must be {batch} numbers from 0 to {longest}"
        )
    rows = []
    for i, length in enumerate(lengths):
        inputs = [walk.apply(_slice, value, axis=0, place=i)[0] for value in values]
        inputs[states:] = [walk.apply(first_rows, x, count=length)[0] for x in inputs[states:]]
        results = Scan(
            walk,
            *inputs,
            body=body,
            num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
        )
        padded = (walk.apply(_padded, x, length=longest)[0] for x in results[states:])
        rows.append((*results[:states], *padded))
    return tuple(walk.apply(stacked, *column)[0] for column in zip(*rows, strict=True))


def _padded(xp: Backend, rows: Array, *, length: int) -> Array:
    beyond = [(0, length - rows.shape[0]), *[(0, 0)] * (rows.ndim - 1)]
    return rows if rows.shape[0] == length else xp.pad(rows, beyond, 0)
