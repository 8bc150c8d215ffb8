"""A program of small arrays as a function of NumPy's arrays, if it is worth one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Replay, Spec, WrittenOut
from sardonyx.backends.written_out.backend import NotingBackend
from sardonyx.backends.written_out.broadcasting import with_broadcast_ahead
from sardonyx.backends.written_out.choices import run_chosen
from sardonyx.backends.written_out.joined_kernels import Library, with_joined_kernels
from sardonyx.backends.written_out.noted_array import NotedArray
from sardonyx.backends.written_out.notes import NotedCall, Notes, Place, Variable
from sardonyx.backends.written_out.source import (
    ahead_of_calls,
    function_of,
    places_in,
    values_of,
    without_dead,
)

# How many times the limit the calls of a program can cost that does not exceed it.
MOST_NOTED = 4
# Elements of an array: more take longer than XLA's call, and the notes are taken with arrays.
MOST_ELEMENTS = 2**18


def written_out(
    replay: Replay,
    specs: Sequence[Spec],
    inputs: int,
    expected: Sequence[Spec],
    limit: float = math.inf,
    *,
    steps: Backend | None = None,
) -> WrittenOut | None:
    """Return a program as calls of NumPy; None if they take more microseconds than `limit`.

    `replay` is a function of a backend and of arrays, of which the first are the inputs. A library
    for `steps` runs those that read elements, each as one call.
    """
    # Calls on weights alone count too while notes are taken.
    if any(math.prod(spec.shape) > MOST_ELEMENTS for spec in (*specs, *expected)):
        return None
    notes = Notes(MOST_NOTED * limit)
    xp = NotingBackend(notes, steps=steps)
    arguments = [NotedArray(notes, _like(spec)) for spec in specs]
    try:
        with xp.scope():
            # NumPy hands out scalars for arrays of rank 0.
            results = [xp.as_array(result) for result in replay(xp, *arguments)]
    except Exception:  # Elements are read, or these ones are refused: the program runs as it is.
        return None
    if steps is None and [xp.spec(result) for result in results] != list(expected):
        return None
    written = _divided(notes, arguments, inputs, results)
    return written if written.price <= limit else None


def _like(spec: Spec) -> Any:
    return np.full(spec.shape, "" if spec.dtype.hasobject else 0, spec.dtype)


def _divided(
    notes: Notes, arguments: Sequence[NotedArray], inputs: int, results: Sequence[Any]
) -> WrittenOut:
    places = [argument.place for argument in arguments]
    returned = [r.place if isinstance(r, NotedArray) else r for r in results]
    fixed = {argument.place: argument.shape for argument in arguments[inputs:]}
    return written(notes.calls, places[:inputs], fixed, returned)


def written(
    calls: Sequence[NotedCall],
    inputs: Sequence[Place],
    fixed: Mapping[Place, tuple[int, ...]],
    results: Sequence[Any],
    variables: int | None = None,
    *,
    as_program: bool = True,
    library: Library | None = None,
) -> WrittenOut:
    """Return the functions that do these calls: on what is `fixed`, with its shapes, and on inputs.

    With a number of variables, the second function takes these before the inputs, and frees each
    array after its last use: its arrays may be large. Unless it runs `as_program`, arrays lie as in
    the steps, so that sums of them have the same bits: then nothing is broadcast ahead. Kernels of
    the library are joined; if there are variables, the last one is for the plans of that.
    """
    calls = without_dead(calls, results)
    largest = _largest(calls)
    ahead, each = ahead_of_calls(calls, inputs)
    numbers = count(max((place.number for place in _all_places(calls, fixed)), default=0) + 1)

    def new_place() -> Place:
        return Place(next(numbers))

    if as_program:
        broadcast, each = with_broadcast_ahead(ahead, each, fixed, new_place)
        ahead += broadcast
    known = {*fixed, *(call.result for call in ahead)}
    if library is not None:
        plans = Variable(variables - 1) if variables else None
        each = with_joined_kernels(each, known, results, library, new_place, plans)
    reads = [place for call in each for place in places_in(call)] + list(results)
    kept = list(dict.fromkeys(place for place in reads if _is_in(place, known)))
    return WrittenOut(
        values_of(ahead, list(fixed), kept),
        function_of(each, kept, inputs, results, variables, as_program=as_program),
        sum(call.price for call in each),
        largest,
    )


def _largest(calls: Sequence[NotedCall]) -> float:
    sizes = [math.prod(call.shape) for call in calls if call.shape is not None]
    # Arrays within steps and within choices are unknown.
    tells = all(
        call.is_kernel or not (call.is_step or call.function is run_chosen) for call in calls
    )
    return max(sizes, default=0) if tells else math.inf


def _all_places(calls: Sequence[NotedCall], others: Iterable[Place]) -> Iterator[Place]:
    yield from others
    yield from (call.result for call in calls)


def _is_in(place: Any, known: set[Any]) -> bool:
    return not isinstance(place, np.ndarray) and place in known
