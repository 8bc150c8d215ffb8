"""Tables that are computed once per model, from the same attributes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sardonyx.ops.ml.tables import once


class Pair(NamedTuple):
    one: Any
    other: Any


def counted() -> tuple[Any, list[Any]]:
    calls: list[Any] = []

    def build(*arguments: Any) -> str:
        calls.append(arguments)
        return repr(arguments)

    return once(build), calls


def test_lists_and_arrays_are_compared_by_identity() -> None:
    build, calls = counted()
    array, numbers = np.zeros(2), (1.0, 2.0)
    arguments = [(array, numbers, "name", None), (Pair(array, numbers), 3)]
    for each in arguments * 3:
        assert build(*each) == repr(each)
    assert len(calls) == 2
    build(array.copy(), numbers, "name", None)
    build(Pair(array, tuple([1.0, 2.0])), 3)  # noqa: C409  (another tuple)
    assert len(calls) == 4


def test_floats_are_compared_by_their_bits() -> None:
    build, calls = counted()
    for value in (0.0, -0.0, np.nan, np.nan, np.float64(-0.0)):
        build(value)
    assert list(map(str, (call[0] for call in calls))) == ["0.0", "-0.0", "nan"]
