"""Loop: it runs on the device if all carried values keep their shapes, and is unrolled if not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.standard import Array
from sardonyx.deviations import is_to_the_letter
from sardonyx.errors import LimitExceeded
from sardonyx.ops.axes import axis_within
from sardonyx.ops.definition import Body, DType, NeedsHost, Outline, Outputs, Value, Walk, op

# Up to this many iterations, compiling each by itself is faster than compiling a loop.
FEW_ITERATIONS = 8
# Up to this many, a loop is unrolled if all its values are static: then nothing is compiled.
FOLDED_ITERATIONS = 256
# Maximum number of iterations that are traced one by one.
MOST_WALKED = 2**14
# Larger trip counts are treated as unbounded: only the condition ends such a loop.
ENDLESS = 2**40
# Initial size of the buffers for a loop whose number of results is unknown.
FIRST_ROWS = 256

YES = np.asarray(True)
NUMBER = Spec((), np.dtype(np.int64))


@op
def Loop(
    walk: Walk, M: Value = None, cond: Value = None, *v_initial: Value, body: Body, outputs: Outputs
) -> Value:
    for name, value in (("M", M), ("cond", cond)):
        if value is not None:
            single(name, value)
    if cond is None and not is_to_the_letter():
        cond = YES  # Then the condition of the body counts, as in onnxruntime.
    loop = _Loop(walk, M, cond, v_initial, body)
    if not loop.is_short():
        results = loop.on_device()
        if results is not None:
            return results[:outputs]
    return loop.unrolled()[:outputs]


@Loop.infers()
def _infer_loop(
    dtypes: Sequence[DType | None], outputs: int, *, body: Outline
) -> tuple[DType | None, ...]:
    carried = max(len(dtypes) - 2, 0)
    if body.inputs != 2 + carried:
        raise ValueError(
            f"its body has {body.inputs} inputs, but needs {2 + carried}: the number of the "
            "iteration, a condition and all carried values"
        )
    if max(carried, outputs) > len(body.dtypes) - 1:
        raise ValueError(
            f"it has {outputs} outputs and {carried} carried values, but its body returns "
            f"{len(body.dtypes)} values, including the condition"
        )
    going, *results = body.dtypes
    _require_bool(going)
    # Without any iteration, carried values keep their dtypes.
    pairs = zip(dtypes[2:], results, strict=False)
    final = [after if before in (None, after) else None for before, after in pairs]
    return (*final, *results[carried:])


def single(name: str, value: Value) -> None:
    """Raise a ValueError unless the value is a tensor of one element."""
    if not hasattr(value, "shape"):
        raise ValueError(f"{name} is not a tensor, but must have one element")
    if math.prod(value.shape) != 1:
        raise ValueError(f"{name} has shape {list(value.shape)}, but must have one element")


def _require_bool(dtype: DType | None) -> None:
    if dtype not in (None, YES.dtype):
        raise ValueError(f"the condition that its body returns is {dtype}, but must be bool")


def _check_condition(value: Value) -> None:
    """Raise a ValueError unless the body's condition is one boolean."""
    single("the condition that its body returns", value)
    _require_bool(value.dtype)


@dataclass(eq=False, slots=True)
class _Loop:
    walk: Walk
    limit: Value
    # The standard ignores the condition that the body returns if there is none at first.
    cond: Value
    state: Sequence[Value]
    body: Body

    @property
    def rows(self) -> int:
        """The number of scan outputs, which gather one result from each iteration."""
        rows = self.body.outputs - 1 - len(self.state)
        if rows < 0:
            raise ValueError(
                f"its body has {self.body.outputs} outputs, but needs at least "
                f"{1 + len(self.state)}: a condition and all carried values"
            )
        return rows

    def trips(self) -> int:
        """Return the maximum number of iterations; the program is specific to this number."""
        return ENDLESS if self.limit is None else int(self.walk.read(self.limit).item())

    def holds(self, cond: Value) -> bool:
        return bool(self.walk.read(cond).item())

    def is_short(self) -> bool:
        if self.rows or self.limit is None or self.walk.knows(self.limit):
            few = FOLDED_ITERATIONS if all(map(self.walk.knows, self.state)) else FEW_ITERATIONS
            return self.trips() <= few or self.ends_at_once()
        return self.ends_at_once()

    def ends_at_once(self) -> bool:
        is_static = self.cond is not None and self.walk.knows(self.cond)
        return is_static and not self.holds(self.cond)

    # -- on the device ----------------------------------------------------------------------------

    def on_device(self) -> Any:
        """Run the loop on the device; None if it cannot run there."""
        ignored = self.cond is None
        if self.counts() and self.keeps_shape(YES):
            results = self.walk.on_device(
                _for, *self.state, body=self.body, trips=self.trips(), ignored=ignored
            )
            if results is not None:
                return results
        if not self.keeps_shape(Spec((), YES.dtype)):
            return None
        if self.rows:
            return self.in_chunks()
        going = YES if ignored else self.cond
        # A static limit that no loop reaches is omitted: XLA cannot count to the largest int64.
        limits = [] if self.is_unbounded() else [self.limit]
        return self.walk.on_device(
            _while,
            going,
            *limits,
            *self.state,
            body=self.body,
            ignored=ignored,
            limits=len(limits),
            is_endless=self.begins() and not limits,
        )

    def is_unbounded(self) -> bool:
        """Return whether it is static that only the condition ends the loop."""
        is_static = self.limit is None or self.walk.knows(self.limit)
        return is_static and self.trips() >= ENDLESS

    def begins(self) -> bool:
        """Return whether it is static that the condition holds at first."""
        return self.cond is None or (self.walk.knows(self.cond) and self.holds(self.cond))

    def keeps_shape(self, going: Any) -> bool:
        """Return whether the body preserves the shape and dtype of all carried values."""
        state = [_spec(value) for value in self.state]
        if None in state:
            return False
        results = self.walk.shapes(self.body, NUMBER, going, *state, iteration=NUMBER)
        if results is None:
            return False
        _check_condition(results[0])
        return [*results[1 : 1 + len(state)]] == state

    def counts(self) -> bool:
        """Return whether the number of iterations is static unless the body ends the loop."""
        counted = self.limit is not None and (self.rows > 0 or self.walk.knows(self.limit))
        begins = self.cond is None or self.walk.knows(self.cond)
        return counted and begins and self.trips() < ENDLESS

    def in_chunks(self) -> Any:
        """Run the loop chunk by chunk; each gathers results in buffers twice as large as before."""
        trips, size, done = self.trips(), FIRST_ROWS, 0
        going: Value = YES if self.cond is None else self.cond
        state = list(self.state)
        pieces: list[list[Value]] = [[] for _ in range(self.rows)]
        while True:
            room = min(size, trips - done)
            results = self.walk.on_device(
                _chunk,
                np.asarray(done),
                going,
                *state,
                body=self.body,
                room=room,
                ignored=self.cond is None,
                is_endless=self.begins() and self.is_unbounded(),
            )
            if results is None:
                return None
            status, going, *rest = results
            count, goes_on = self.walk.read(status).tolist()
            state, buffers = rest[: len(state)], rest[len(state) :]
            for i, buffer in enumerate(buffers):
                pieces[i] += self.walk.apply(first_rows, buffer, count=count)
            done, size = done + count, 2 * size
            if not goes_on or done >= trips:
                break
        joined = (p if len(p) == 1 else self.walk.apply(_joined, *p) for p in pieces)
        return (*state, *(value for values in joined for value in values))

    # -- unrolled ---------------------------------------------------------------------------------

    def unrolled(self) -> tuple[Value, ...]:
        """Trace one iteration after the other."""
        trips, state = self.trips(), list(self.state)
        going: Value = YES if self.cond is None else self.cond
        rows: list[list[Value]] = [[] for _ in range(self.rows)]
        done, is_unbounded = 0, self.is_unbounded()
        while done < trips and (self.cond is None or self.holds(going)):
            if done == MOST_WALKED:
                raise LimitExceeded(
                    f"it has not ended after {MOST_WALKED:,} iterations, which are traced one by "
                    "one since a carried value changes its shape"
                )
            number = np.asarray(done)
            still, *results = self.body(number, going, *state, iteration=number)
            _check_condition(still)
            if is_unbounded and (self.cond is None or still is going):
                raise LimitExceeded(_NEVER_ENDS)
            going = still
            state = results[: len(state)]
            for row, result in zip(rows, results[len(state) :], strict=True):
                row.append(result)
            done += 1
        if rows and not done:
            return (*state, *self.no_rows())
        return (*state, *(self.walk.apply(stacked, *row)[0] for row in rows))

    def no_rows(self) -> list[Value]:
        specs = self.body.specs(np.asarray(0), YES, *self.state)[1 + len(self.state) :]
        return [no_rows(spec) for spec in specs]


def _spec(value: Value) -> Spec | None:
    return Spec(tuple(value.shape), value.dtype) if hasattr(value, "shape") else None


def _while(
    xp: Backend,
    going: Array,
    *limit_and_state: Array,
    body: Body,
    ignored: bool,
    limits: int,
    is_endless: bool,
) -> tuple[Array, ...]:
    state = limit_and_state[limits:]
    start = xp.zeros((), dtype=xp.dtype(NUMBER.dtype))
    below = [xp.reshape(limit, ()) for limit in limit_and_state[:limits]]

    def goes_on(number: Array, going: Array, *_: Array) -> Array:
        return reduce(xp.logical_and, [number < limit for limit in below], going)

    def iterate(number: Array, going: Array, *carried: Array) -> tuple[Array, ...]:
        still, *results = body(number, going, *carried, iteration=number)
        still = _condition(xp, still, going, ignored=ignored, is_endless=is_endless)
        return (number + 1, still, *map(xp.asarray, results))

    _, _, *last = xp.loop(goes_on, iterate, (start, xp.reshape(going, ()), *state))
    return tuple(last)


def _condition(xp: Backend, still: Any, going: Array, *, ignored: bool, is_endless: bool) -> Array:
    """Return the condition after an iteration; refuse one that can never end an endless loop."""
    is_constant = xp.is_static(still) and bool(still.all())
    if is_endless and (ignored or still is going or is_constant):
        raise LimitExceeded(_NEVER_ENDS)
    return going if ignored else xp.reshape(xp.asarray(still), ())


_NEVER_ENDS = (
    f"it never ends: its condition is always true, and it has no trip count below {ENDLESS:,}; "
    "give it one, or a condition that depends on computed values"
)


def _for(xp: Backend, *state: Array, body: Body, trips: int, ignored: bool) -> tuple[Array, ...]:
    start = xp.zeros((), dtype=xp.dtype(NUMBER.dtype))

    def iterate(carried: Any, _: Any) -> Any:
        number, *current = carried
        going, *results = body(number, YES, *current, iteration=number)
        if not ignored and (xp.is_abstract(going) or not bool(going.all())):
            raise NeedsHost  # Only the device knows when the loop ends.
        results = [xp.asarray(value) for value in results]
        return (number + 1, *results[: len(state)]), tuple(results[len(state) :])

    (_, *last), rows = xp.scan(iterate, (start, *state), (), trips)
    # Checked only here: a loop that ends early raises NeedsHost above, and has fewer rows.
    for row in rows:
        xp.allow(row.shape, xp.numpy_dtype(row.dtype))
    return (*last, *rows)


def _chunk(
    xp: Backend,
    done: Array,
    going: Array,
    *state: Array,
    body: Body,
    room: int,
    ignored: bool,
    is_endless: bool,
) -> tuple[Array, ...]:
    """Run up to `room` iterations; return [count, goes on], the condition, state and results."""
    done = xp.reshape(done, ())
    going = xp.reshape(going, ())
    specs = body.specs(done, going, *state, iteration=done)
    states = len(state)
    buffers = [xp.zeros((room, *s.shape), dtype=xp.dtype(s.dtype)) for s in specs[1 + states :]]

    def goes_on(count: Array, going: Array, *_: Array) -> Array:
        return going & (count < room)

    def iterate(count: Array, going: Array, *carried: Array) -> tuple[Array, ...]:
        number = done + count
        still, *results = body(number, going, *carried[:states], iteration=number)
        still = _condition(xp, still, going, ignored=ignored, is_endless=is_endless)
        written = (
            xp.scatter(buffer, (count,), xp.asarray(row))
            for buffer, row in zip(carried[states:], results[states:], strict=True)
        )
        return (count + 1, still, *map(xp.asarray, results[:states]), *written)

    carry = (xp.zeros_like(done), going, *state, *buffers)
    count, going, *final = xp.loop(goes_on, iterate, carry)
    return (xp.stack([count, xp.astype(going, count.dtype)]), going, *final)


def first_rows(xp: Backend, buffer: Array, *, count: int) -> Array:
    return buffer if buffer.shape[0] == count else buffer[:count, ...]


def _joined(xp: Backend, *pieces: Array) -> Array:
    return xp.concat(pieces, axis=0)


def stacked(xp: Backend, *rows: Array, axis: int = 0) -> Array:
    """Stack the results of the iterations along a new axis."""
    shapes = {row.shape: None for row in rows}
    if len(shapes) > 1:
        one, other, *_ = shapes
        raise ValueError(f"its iterations return results of different shapes, {one} and {other}")
    return xp.stack(rows, axis=axis_within(axis, rows[0].ndim + 1))


def no_rows(spec: Any, axis: int = 0) -> Value:
    """Stack the results of no iterations, each of which would be like `spec`."""
    axis = axis_within(axis, len(spec.shape) + 1)
    return np.zeros((*spec.shape[:axis], 0, *spec.shape[axis:]), spec.dtype)
