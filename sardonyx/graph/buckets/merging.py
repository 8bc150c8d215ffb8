"""Merges equal structures that differ in numbers, and makes such a structure for other numbers.

The structures are what traces of one model for several sizes leave behind: steps with their calls,
shapes, operands and constants. A number that differs becomes a formula of the sizes. A dataclass
may have fields that are looked up from the others: it names them in `looked_up`, and the method
`look_up` takes the others, and returns None if it finds nothing. What is found may be something
else between sizes for which it is the same, as the form of a packed weight is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np

from sardonyx.graph.buckets.formulas import Formula, SizeVector, terms
from sardonyx.graph.values.kinds import exact

# Larger arrays are data, and get no formulas for their elements.
MOST_NUMBERS = 64
# Longer tuples of numbers are compared as a whole.
MOST_ELEMENTS = 64


class Irregular(Exception):  # noqa: N818  (a finding, not a fault)
    """The structures differ in more than numbers."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of one choice of sizes, and the parts that were made of them so far."""

    values: Sequence[int]
    # The terms of formulas for these sizes.
    of_sizes: Sequence[int]
    made: dict[int, Any] = field(default_factory=dict)


# Makes a part of the structure.
Part: TypeAlias = "Same | Number | Calculated | Built"


@dataclass(frozen=True, eq=False, slots=True)
class Same:
    """A part that is equal in all structures."""

    value: Any

    def at(self, numbers: Numbers) -> Any:
        return self.value


@dataclass(frozen=True, eq=False, slots=True)
class Number:
    """A number that differs."""

    index: int

    def at(self, numbers: Numbers) -> int:
        return numbers.values[self.index]


@dataclass(frozen=True, eq=False, slots=True)
class Calculated:
    """An array whose elements follow a formula."""

    formula: Formula

    def at(self, numbers: Numbers) -> np.ndarray[Any, Any]:
        return _read_only(self.formula.at(numbers.of_sizes))


@dataclass(frozen=True, eq=False, slots=True)
class Built:
    """A part that is built of others, once for each choice of sizes."""

    build: Callable[[list[Any]], Any]
    parts: Sequence[Part]
    # The parts that are the same, with None for others; and the places of these.
    _same: Sequence[Any] = field(init=False)
    _others: Sequence[tuple[int, Part]] = field(init=False)

    def __post_init__(self) -> None:
        same = [part.value if isinstance(part, Same) else None for part in self.parts]
        others = [(i, part) for i, part in enumerate(self.parts) if not isinstance(part, Same)]
        object.__setattr__(self, "_same", same)
        object.__setattr__(self, "_others", others)

    def at(self, numbers: Numbers) -> Any:
        made = numbers.made.get(id(self))
        if made is None:
            parts = list(self._same)
            for i, part in self._others:
                parts[i] = part.at(numbers)
            numbers.made[id(self)] = made = self.build(parts)
        return made


@dataclass(eq=False, slots=True)
class Merger:
    """Merges structures, one for each of the sizes."""

    sampled: Sequence[SizeVector]
    # Whether looked-up fields that are the same in all structures have to be so at all sizes, since
    # whoever uses the result made something for them once.
    keeps_looked_up: bool = False
    # The numbers that differ, each as a column with one for each of the sizes.
    _columns: dict[tuple[int, ...], Number] = field(default_factory=dict)
    # The parts so far, so that equal ones are built once; and those of single objects, by their id.
    _parts: dict[Any, Part] = field(default_factory=dict)
    _by_id: dict[int, Same] = field(default_factory=dict)

    def merged(self, values: Sequence[Any]) -> Part:
        """Return the part that these structures have in common; raise `Irregular` without one."""
        first = values[0]
        # Networks have some ten thousand values, of which most are one object in all structures.
        for value in values:
            if value is not first:
                break
        else:
            part = self._by_id.get(id(first))
            if part is None:
                part = self._by_id[id(first)] = Same(first)
            return part
        kind = type(first)
        for value in values:
            if type(value) is not kind:
                raise Irregular
        merge: Callable[[Merger, Any], Part] | None = _MERGED.get(kind)
        if merge is None:
            merge = Merger._sequence if issubclass(kind, tuple) else Merger._record
        return merge(self, values)

    def _record(self, values: Sequence[Any]) -> Part:
        """Return the part of dataclasses, or of what has no parts."""
        kind: Any = type(values[0])
        record = _record_of(kind)
        if record is None:
            return self._equal(values)
        columns = [[getattr(value, name) for value in values] for name in record.names]
        if not (self.keeps_looked_up and record.looked_up):
            return self._built((kind,), values, record, columns)
        found = [tuple(getattr(value, name) for name in record.looked_up) for value in values]
        if any(each != found[0] for each in found):
            return self._built((kind,), values, record, columns)
        return self._built((kind, found[0]), values, replace(record, found=found[0]), columns)

    def numbers(self) -> Callable[[SizeVector], Numbers] | None:
        """Return what computes the numbers from sizes; None if a number follows no formula."""
        columns = list(self._columns)
        if not columns:
            return lambda sizes: Numbers((), terms(sizes))
        rows = [np.asarray(row, np.int64) for row in zip(*columns, strict=True)]
        formula = Formula.fitted(self.sampled, rows)
        return None if formula is None else partial(_numbers_at, formula)

    def _same(self, value: Any, key: Any) -> Part:
        key = Same, key
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = Same(value)
        return part

    def _equal(self, values: Sequence[Any]) -> Part:
        keys = list(map(exact, values))
        try:
            if any(key != keys[0] for key in keys):
                raise Irregular
            return self._same(values[0], keys[0])
        except (TypeError, ValueError) as error:
            raise Irregular from error

    def _number(self, values: Sequence[int]) -> Part:
        column = tuple(values)
        if len(set(column)) == 1:
            return self._same(column[0], column[0])
        return self._columns.setdefault(column, Number(len(self._columns)))

    def _sequence(self, values: Sequence[Any]) -> Part:
        kind: Any = type(values[0])
        if len(set(map(len, values))) != 1:
            raise Irregular
        is_long = kind is tuple and len(values[0]) > MOST_ELEMENTS
        if is_long and set(map(type, values[0])) <= _NUMBERS:
            try:
                return self._equal(values)
            except Irregular:
                pass
        build = kind._make if hasattr(kind, "_make") else kind
        return self._built((kind,), values, build, list(zip(*values, strict=True)))

    def _slice(self, values: Sequence[slice]) -> Part:
        ends = [(value.start, value.stop, value.step) for value in values]
        return self._built((slice,), values, slice_of, list(zip(*ends, strict=True)))

    def _mapping(self, values: Sequence[Mapping[Any, Any]]) -> Part:
        keys = list(values[0])
        if any(list(value) != keys for value in values):
            raise Irregular
        columns = [[value[key] for value in values] for key in keys]
        return self._built((dict, *keys), values, Items(tuple(keys)), columns)

    def _function(self, values: Sequence[partial[Any]]) -> Part:
        parts = [(value.func, value.args, value.keywords) for value in values]
        return self._built((partial,), values, _partial, list(zip(*parts, strict=True)))

    def _array(self, values: Sequence[np.ndarray[Any, Any]]) -> Part:
        first = values[0]
        if any(value.dtype != first.dtype for value in values):
            raise Irregular
        if any(value.shape != first.shape for value in values):
            return self._corner(values)
        try:
            return self._equal(values)
        except Irregular:
            if first.dtype.kind not in "iuf" or first.size > MOST_NUMBERS:
                raise
        formula = Formula.fitted(self.sampled, values)
        if formula is None:
            raise Irregular
        return Calculated(formula)

    def _corner(self, values: Sequence[np.ndarray[Any, Any]]) -> Part:
        """Return the part for arrays of other sizes that begin with the same elements."""
        if len({value.ndim for value in values}) != 1:
            raise Irregular
        largest = max(values, key=lambda value: value.size)
        for value in values:
            if any(n > most for n, most in zip(value.shape, largest.shape, strict=True)):
                raise Irregular
            if exact(np.ascontiguousarray(_corner_of(largest, value.shape))) != exact(value):
                raise Irregular
        shapes = list(zip(*(value.shape for value in values), strict=True))
        return self._built((_Corner, id(largest)), values, _Corner(largest), shapes)

    def _built(
        self,
        key: tuple[Any, ...],
        values: Sequence[Any],
        build: Callable[[list[Any]], Any],
        columns: Sequence[Sequence[Any]],
    ) -> Part:
        parts = list(map(self.merged, columns))
        key = (*key, *map(id, parts))
        if set(map(type, parts)) <= {Same}:
            return self._same(values[0], key)
        return self._parts.setdefault(key, Built(build, parts))


_NUMBERS = frozenset((bool, int, float))

# By the type of a value; all others are records.
_MERGED: Mapping[type, Callable[[Merger, Any], Part]] = {
    bool: Merger._equal,
    int: Merger._number,
    tuple: Merger._sequence,
    list: Merger._sequence,
    dict: Merger._mapping,
    slice: Merger._slice,
    np.ndarray: Merger._array,
    partial: Merger._function,
}


@dataclass(frozen=True, eq=False, slots=True)
class _Record:
    """Builds a dataclass of its fields, or of those that tell the others."""

    build: Callable[..., Any]
    names: tuple[str, ...]
    looked_up: tuple[str, ...]
    # What has to be looked up, if only that will do.
    found: tuple[Any, ...] | None = None

    def __call__(self, parts: list[Any]) -> Any:
        record = self.build(**dict(zip(self.names, parts, strict=True)))
        if record is None:
            raise Irregular
        if self.found is not None:
            for name, value in zip(self.looked_up, self.found, strict=True):
                if getattr(record, name) != value:
                    raise Irregular
        return record


@cache
def _record_of(kind: Any) -> _Record | None:
    """Return what builds a dataclass; None for other types."""
    if not is_dataclass(kind):
        return None
    looked_up = getattr(kind, "looked_up", ())
    names = [each.name for each in fields(kind) if each.init and each.name not in looked_up]
    build: Any = kind
    return _Record(build.look_up if looked_up else build, tuple(names), tuple(looked_up))


@dataclass(frozen=True, eq=False, slots=True)
class Items:
    keys: tuple[Any, ...]

    def __call__(self, parts: list[Any]) -> Any:
        return dict(zip(self.keys, parts, strict=True))


@dataclass(frozen=True, eq=False, slots=True)
class _Corner:
    """Builds the first elements of an array, of the shape that the parts are."""

    largest: np.ndarray[Any, Any]

    def __call__(self, parts: list[Any]) -> Any:
        return _read_only(_corner_of(self.largest, parts).copy())


def slice_of(parts: list[Any]) -> slice:
    """Return the slice with this start, stop and step."""
    return slice(*parts)


def _corner_of(array: np.ndarray[Any, Any], shape: Sequence[int]) -> np.ndarray[Any, Any]:
    return array[tuple(map(slice, shape))]


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


def _partial(parts: list[Any]) -> Any:
    function, arguments, keywords = parts
    return partial(function, *arguments, **keywords)


def _numbers_at(formula: Formula, sizes: SizeVector) -> Numbers:
    of_sizes = terms(sizes)
    return Numbers(formula.numbers(of_sizes), of_sizes)
