"""Loop: on the device where all that it carries keeps its shape, walked through where not."""

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
from sardonyx.errors import LimitExceeded
from sardonyx.ops.axes import axis_within
from sardonyx.ops.definition import Body, DType, NeedsHost, Outline, Outputs, Value, Walk, op

# Up to here it is quicker to compile each iteration by itself than to compile a loop.
FEW_ITERATIONS = 8
# Up to here a loop is unrolled if all that it works on is known: then nothing is compiled at all.
FOLDED_ITERATIONS = 256
# Walked through one by one, more than this would take for ever.
MOST_WALKED = 2**14
# Larger trip counts are treated as unbounded: only the condition ends such a loop.
ENDLESS = 2**40
# How many results are held ready, at first, where it is not known how many a loop will make.
FIRST_ROWS = 256

YES = np.asarray(True)
NUMBER = Spec((), np.dtype(np.int64))


@op
def Loop(
    walk: Walk, M: Value = None, cond: Value = None, *v_initial: Value, body: Body, outputs: Outputs
) -> Value:
    for value, what in ((M, "its trip count"), (cond, "its condition")):
        if value is not None:
            single(value, what)
    loop = _Loop(walk, M, cond, v_initial, body)
    if not loop.is_short():
        made = loop.left_to_device()
        if made is not None:
            return made[:outputs]
    return loop.walked_through()[:outputs]


@Loop.infers()
def _of_the_body(
    dtypes: Sequence[DType | None], outputs: int, *, body: Outline
) -> tuple[DType | None, ...]:
    carried = max(len(dtypes) - 2, 0)
    if body.inputs != 2 + carried:
        raise ValueError(
            f"its body has {body.inputs} inputs, and needs {2 + carried}: the number of the "
            "iteration, a condition, and all that is carried"
        )
    if max(carried, outputs) > len(body.dtypes) - 1:
        raise ValueError(
            f"it has {outputs} outputs and carries {carried} values, and its body makes "
            f"{len(body.dtypes)}, of which the first is the condition"
        )
    going, *made = body.dtypes
    if going not in (None, YES.dtype):
        raise ValueError(f"the condition that its body makes is {going}, and must be bool")
    # Where there is no iteration, what is carried stays what it is.
    pairs = zip(dtypes[2:], made, strict=False)
    kept = [after if before in (None, after) else None for before, after in pairs]
    return (*kept, *made[carried:])


def single(value: Value, what: str) -> None:
    """Refuse what is no tensor of one element."""
    if math.prod(getattr(value, "shape", (0,))) != 1:
        shape = list(value.shape) if hasattr(value, "shape") else "of no tensor"
        raise ValueError(f"{what} has the shape {shape}, but must be one element")


def _condition(value: Value) -> Value:
    """What the body says of the end, which must be one boolean."""
    single(value, "the condition that its body makes")
    if value.dtype != YES.dtype:
        raise ValueError(f"the condition that its body makes is {value.dtype}, and must be bool")
    return value


@dataclass(eq=False, slots=True)
class _Loop:
    walk: Walk
    limit: Value
    # Without a condition at first, what the body says of one is ignored.
    cond: Value
    state: Sequence[Value]
    body: Body

    @property
    def rows(self) -> int:
        """How many results are gathered, one from each iteration."""
        rows = self.body.outputs - 1 - len(self.state)
        if rows < 0:
            raise ValueError(
                f"its body has {self.body.outputs} outputs, and needs at least "
                f"{1 + len(self.state)}: a condition, and all that is carried"
            )
        return rows

    def trips(self) -> int:
        """The greatest number of iterations; the program is for this number alone."""
        return ENDLESS if self.limit is None else int(self.walk.read(self.limit).item())

    def holds(self, cond: Value) -> bool:
        return bool(self.walk.read(cond).item())

    def is_short(self) -> bool:
        if self.rows or self.limit is None or self.walk.knows(self.limit):
            few = FOLDED_ITERATIONS if all(map(self.walk.knows, self.state)) else FEW_ITERATIONS
            return self.trips() <= few or self.ends_at_once()
        return self.ends_at_once()

    def ends_at_once(self) -> bool:
        known = self.cond is not None and self.walk.knows(self.cond)
        return known and not self.holds(self.cond)

    # -- on the device ----------------------------------------------------------------------------

    def left_to_device(self) -> Any:
        """None if there is no such form."""
        ignored = self.cond is None
        if self.counts() and self.keeps_shape(YES):
            made = self.walk.on_device(
                _for, *self.state, body=self.body, trips=self.trips(), ignored=ignored
            )
            if made is not None:
                return made
        if not self.keeps_shape(Spec((), YES.dtype)):
            return None
        if self.rows:
            return self.in_chunks()
        going = YES if ignored else self.cond
        # A known limit that no loop reaches is left out: XLA cannot count up to the greatest int64.
        limits = [] if self.is_unbounded() else [self.limit]
        return self.walk.on_device(
            _while,
            going,
            *limits,
            *self.state,
            body=self.body,
            ignored=ignored,
            limits=len(limits),
            begins=self.begins(),
        )

    def is_unbounded(self) -> bool:
        """Whether it is known that only the condition ends the loop."""
        known = self.limit is None or self.walk.knows(self.limit)
        return known and self.trips() >= ENDLESS

    def begins(self) -> bool:
        """Whether it is known that the condition holds at first."""
        return self.cond is None or (self.walk.knows(self.cond) and self.holds(self.cond))

    def keeps_shape(self, going: Any) -> bool:
        """Whether all that is carried comes out of the body as it went in."""
        state = [_spec(value) for value in self.state]
        made = None
        if None not in state:
            made = self.walk.shapes(self.body, NUMBER, going, *state, iteration=NUMBER)
        if made:
            _condition(made[0])
        return made is not None and [*made[1 : 1 + len(state)]] == state

    def counts(self) -> bool:
        """Whether the number of iterations is known, but for what the body says of the end."""
        counted = self.limit is not None and (self.rows > 0 or self.walk.knows(self.limit))
        begins = self.cond is None or self.walk.knows(self.cond)
        return counted and begins and self.trips() < ENDLESS

    def in_chunks(self) -> Any:
        """Gather into buffers of growing size, as often as one is full before the loop ends."""
        trips, size, done = self.trips(), FIRST_ROWS, 0
        going: Value = YES if self.cond is None else self.cond
        state = list(self.state)
        pieces: list[list[Value]] = [[] for _ in range(self.rows)]
        while True:
            room = min(size, trips - done)
            made = self.walk.on_device(
                _chunk,
                np.asarray(done),
                going,
                *state,
                body=self.body,
                room=room,
                ignored=self.cond is None,
                is_endless=self.begins() and self.is_unbounded(),
            )
            if made is None:
                return None
            status, going, *rest = made
            count, goes_on = self.walk.read(status).tolist()
            state, buffers = rest[: len(state)], rest[len(state) :]
            for i, buffer in enumerate(buffers):
                pieces[i] += self.walk.apply(_first, buffer, count=count)
            done, size = done + count, 2 * size
            if not goes_on or done >= trips:
                break
        joined = (p if len(p) == 1 else self.walk.apply(_joined, *p) for p in pieces)
        return (*state, *(value for values in joined for value in values))

    # -- one iteration after the other ------------------------------------------------------------

    def walked_through(self) -> tuple[Value, ...]:
        trips, state = self.trips(), list(self.state)
        going: Value = YES if self.cond is None else self.cond
        rows: list[list[Value]] = [[] for _ in range(self.rows)]
        done, is_unbounded = 0, self.is_unbounded()
        while done < trips and (self.cond is None or self.holds(going)):
            if done == MOST_WALKED:
                raise LimitExceeded(
                    f"it has not come to an end after {MOST_WALKED:,} iterations, each of which "
                    "has to be traced by itself, since what it carries changes its shape"
                )
            number = np.asarray(done)
            still, *made = self.body(number, going, *state, iteration=number)
            _condition(still)
            if is_unbounded and (self.cond is None or still is going):
                raise LimitExceeded(_NEVER_ENDS)
            going = still
            state, ends = made[: len(state)], made[len(state) :]
            for row, end in zip(rows, ends, strict=True):
                row.append(end)
            done += 1
        if rows and not done:
            return (*state, *self.no_rows())
        return (*state, *(self.walk.apply(stacked, *row)[0] for row in rows))

    def no_rows(self) -> list[Value]:
        specs = self.body.specs(np.asarray(0), YES, *self.state)[1 + len(self.state) :]
        return [np.zeros((0, *spec.shape), spec.dtype) for spec in specs]


def _spec(value: Value) -> Spec | None:
    return Spec(tuple(value.shape), value.dtype) if hasattr(value, "shape") else None


def _while(
    xp: Backend,
    going: Array,
    *limit_and_state: Array,
    body: Body,
    ignored: bool,
    limits: int,
    begins: bool,
) -> tuple[Array, ...]:
    state = limit_and_state[limits:]
    start = xp.zeros((), dtype=xp.dtype(NUMBER.dtype))
    below = [xp.reshape(limit, ()) for limit in limit_and_state[:limits]]

    def goes_on(number: Array, going: Array, *_: Array) -> Array:
        return reduce(xp.logical_and, [number < limit for limit in below], going)

    def iterate(number: Array, going: Array, *carried: Array) -> tuple[Array, ...]:
        still, *made = body(number, going, *carried, iteration=number)
        if begins and not limits and (ignored or _stays_true(still, going)):
            raise LimitExceeded(_NEVER_ENDS)
        still = going if ignored else xp.reshape(xp.asarray(still), ())
        return (number + 1, still, *map(xp.asarray, made))

    _, _, *last = xp.loop(goes_on, iterate, (start, xp.reshape(going, ()), *state))
    return tuple(last)


def _stays_true(still: Any, going: Any) -> bool:
    """Whether a body's condition is a constant, or the one that it got, which held at first."""
    return still is going or (isinstance(still, np.ndarray) and bool(still.all()))


_NEVER_ENDS = (
    f"it never ends: its condition is always true, and it has no trip count below {ENDLESS:,}; "
    "give it one, or a condition that depends on what it computes"
)


def _for(xp: Backend, *state: Array, body: Body, trips: int, ignored: bool) -> tuple[Array, ...]:
    start = xp.zeros((), dtype=xp.dtype(NUMBER.dtype))

    def iterate(carried: Any, _: Any) -> Any:
        number, *given = carried
        going, *made = body(number, YES, *given, iteration=number)
        if not ignored and not (isinstance(going, np.ndarray) and going.all()):
            raise NeedsHost  # When it ends, only the device knows.
        made = [xp.asarray(value) for value in made]
        return (number + 1, *made[: len(state)]), tuple(made[len(state) :])

    (_, *last), rows = xp.scan(iterate, (start, *state), (), trips)
    # Not before, since a loop that its condition may end need not come to so many rows.
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
    """At most `room` iterations: how many they were, whether it goes on, and what they made."""
    done = xp.reshape(done, ())
    going = xp.reshape(going, ())
    specs = body.specs(done, going, *state, iteration=done)
    kept = len(state)
    buffers = [xp.zeros((room, *s.shape), dtype=xp.dtype(s.dtype)) for s in specs[1 + kept :]]

    def goes_on(count: Array, going: Array, *_: Array) -> Array:
        return going & (count < room)

    def iterate(count: Array, going: Array, *carried: Array) -> tuple[Array, ...]:
        number = done + count
        still, *made = body(number, going, *carried[:kept], iteration=number)
        if is_endless and (ignored or _stays_true(still, going)):
            raise LimitExceeded(_NEVER_ENDS)
        still = going if ignored else xp.reshape(xp.asarray(still), ())
        written = (
            xp.scatter(buffer, (count,), xp.asarray(row))
            for buffer, row in zip(carried[kept:], made[kept:], strict=True)
        )
        return (count + 1, still, *map(xp.asarray, made[:kept]), *written)

    carry = (xp.zeros_like(done), going, *state, *buffers)
    count, going, *made = xp.loop(goes_on, iterate, carry)
    return (xp.stack([count, xp.astype(going, count.dtype)]), going, *made)


def _first(xp: Backend, buffer: Array, *, count: int) -> Array:
    return buffer if buffer.shape[0] == count else buffer[:count, ...]


def _joined(xp: Backend, *pieces: Array) -> Array:
    return xp.concat(pieces, axis=0)


def stacked(xp: Backend, *rows: Array, axis: int = 0) -> Array:
    """What the iterations have made, as one array with an axis that counts them."""
    shapes = {row.shape: None for row in rows}
    if len(shapes) > 1:
        one, other, *_ = shapes
        raise ValueError(f"its iterations make results of different shapes, {one} and {other}")
    return xp.stack(rows, axis=axis_within(axis, rows[0].ndim + 1))
