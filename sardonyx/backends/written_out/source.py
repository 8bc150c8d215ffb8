"""Noted calls as the source of a Python function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MethodDescriptorType
from typing import Any, TypeVar

import numpy as np

from sardonyx.backends.written_out.functions import NEW, SILENT
from sardonyx.backends.written_out.notes import NotedCall, Place, Variable, has_variable, mapped
from sardonyx.backends.written_out.quiet import error_state

_Kind = TypeVar("_Kind")


@dataclass
class _Names:
    """The names in the source: of values by their places, and of objects that it refers to."""

    by_place: dict[Place, str] = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)

    def of(self, value: Any) -> str:
        """Return an expression for an argument of a call."""
        if isinstance(value, Place):
            return self.by_place.setdefault(value, f"v{value.number}")
        if isinstance(value, Variable):
            return f"n{value.number}"
        if type(value) is tuple:
            return f"({''.join(f'{self.of(each)}, ' for each in value)})"
        if type(value) is list:
            return f"[{', '.join(map(self.of, value))}]"
        if type(value) in (int, bool, type(None)):
            return repr(value)
        return self._of_object(value)

    def _of_object(self, value: Any) -> str:
        if type(value) is slice and has_variable(value):
            return f"slice({', '.join(map(self.of, (value.start, value.stop, value.step)))})"
        name = f"c{len(self.objects)}"
        self.objects[name] = value
        return name


def function_of(
    calls: Sequence[NotedCall],
    ahead: Sequence[Place],
    inputs: Sequence[Place],
    results: Sequence[Any],
    variables: int | None = None,
    *,
    as_program: bool = True,
) -> Callable[..., Sequence[Any]]:
    """Return the function that does these calls; nothing else holds the arrays that it returns.

    It takes a function that says whether another one must run, and that one, which runs too if
    NumPy raises an error; then the values computed ahead, and the inputs. A result that is no place
    is an array that is always the same. With a number of variables it takes them before the inputs,
    and frees each array after its last use. Results are as those of a program, or as NumPy's.
    """
    names = _Names(objects={"ndarray": np.ndarray, "asarray": np.asarray})
    passed = [names.of(place) for place in inputs]
    taken = [*map(names.of, ahead), *map(names.of, map(Variable, range(variables or 0))), *passed]
    body = [f"{x} = {x} if type({x}) is ndarray else asarray({x})" for x in passed]
    body += _lines(calls, names, {} if variables is None else _last_uses(calls, results))
    made_by = {call.result: call for call in calls}
    body += _handing_out(results, made_by, names, as_program=as_program)
    instead = f"return instead({', '.join(passed)})"
    source = [
        f"def written_out({', '.join(['is_watched', 'instead', *taken])}):",
        "    if is_watched():",
        f"        {instead}",
        "    try:",
        *_indented(_in_error_state(calls, body, names), 2),
        "    except Exception:",
        f"        {instead}",
    ]
    return _compiled(source, "written_out", names)


def _last_uses(calls: Sequence[NotedCall], results: Sequence[Any]) -> dict[NotedCall, list[Place]]:
    """Return which results of calls are used for the last time by each of the calls."""
    made = {call.result for call in calls if call.function is not operator.setitem}
    unseen = made.difference(result for result in results if isinstance(result, Place))
    found = {}
    for call in reversed(calls):
        last = [p for p in dict.fromkeys((*places_in(call), call.result)) if p in unseen]
        unseen.difference_update(last)
        if last:
            found[call] = last
    return found


def values_of(
    calls: Sequence[NotedCall], parameters: Sequence[Place | Variable], results: Sequence[Place]
) -> Callable[..., list[Any]]:
    """Return the function that does these calls, and returns these values as they are."""
    names = _Names()
    body = _lines(calls, names, _last_uses(calls, results))
    body.append(f"return [{', '.join(map(names.of, results))}]")
    heading = f"def written_ahead({', '.join(map(names.of, parameters))}):"
    return _compiled([heading, *_indented(body, 1)], "written_ahead", names)


def _in_error_state(calls: Sequence[NotedCall], body: Sequence[str], names: _Names) -> list[str]:
    """Return lines that run the body in the error state that it needs."""
    if all(call.function in SILENT for call in calls):
        return list(body)
    variable, quiet = error_state()
    names.objects.update(set_state=variable.set, quiet=quiet, restore=variable.reset)
    return [
        "before = set_state(quiet)",
        "try:",
        *_indented(body, 1),
        "finally:",
        "    restore(before)",
    ]


def _indented(lines: Sequence[str], levels: int) -> list[str]:
    return [f"{'    ' * levels}{line}" for line in lines]


def _handing_out(
    results: Sequence[Any],
    made_by: Mapping[Place, NotedCall],
    names: _Names,
    *,
    as_program: bool,
) -> list[str]:
    """Return lines for the results: memory that the caller alone has.

    NumPy's functions order the elements as in their arguments. Those of a program always lie by
    rows, and can only be read; strings can be written to, as those of all steps on the host.
    """
    lines: list[str] = []
    unused = dict(made_by)
    for i, result in enumerate(results):
        value, name = names.of(result), f"r{i}"
        call = unused.pop(result, None) if isinstance(result, Place) else None
        is_number = call is not None and isinstance(call.function, np.ufunc)
        as_it_is = f'asarray({value}, None, "C")' if as_program else f"asarray({value})"
        copied = f"{value}.copy()" if as_program else f'{value}.copy("K")'
        if call is None:
            own = copied
        elif is_number:
            own = as_it_is
        else:
            own = f"{as_it_is} if {value}.base is None else {copied}"
        lines.append(f"{name} = {own}")
        if as_program:
            dtype = None if call is None else call.dtype
            is_known = dtype is not None and not dtype.hasobject
            read_only = f"{name}.flags.writeable = {name}.dtype.hasobject"
            lines.append(f"{name}.setflags(write=False)" if is_known else read_only)
    return [*lines, f"return [{', '.join(f'r{i}' for i in range(len(results)))}]"]


def _lines(
    calls: Sequence[NotedCall], names: _Names, lasts: Mapping[NotedCall, Sequence[Place]]
) -> list[str]:
    """Return a line for each call, and one that frees what is used for the last time there."""
    lines = []
    for call in calls:
        lines.append(_line(call, names))
        if call in lasts:
            lines.append(f"del {', '.join(map(names.of, lasts[call]))}")
    return lines


def _line(call: NotedCall, names: _Names) -> str:
    arguments = [names.of(argument) for argument in call.arguments]
    if call.function is operator.setitem:
        return f"{arguments[0]}[{arguments[1]}] = {arguments[2]}"
    return f"{names.of(call.result)} = {_expression(call, arguments, names)}"


def _expression(call: NotedCall, arguments: Sequence[str], names: _Names) -> str:
    function = call.function
    if function is operator.getitem:
        return f"{arguments[0]}[{arguments[1]}]"
    given = list(arguments)
    given += [f"{name}={names.of(value)}" for name, value in call.options.items()]
    if isinstance(function, MethodDescriptorType):
        return f"{given[0]}.{function.__name__}({', '.join(given[1:])})"
    return f"{names.of(function)}({', '.join(given)})"


def _compiled(source: Sequence[str], title: str, names: _Names) -> Callable[..., Any]:
    namespace = dict(names.objects)
    exec(compile("\n".join(source), f"<{title}>", "exec"), namespace)
    function: Callable[..., Any] = namespace[title]
    return function


def ahead_of_calls(
    calls: Sequence[NotedCall], inputs: Collection[Place]
) -> tuple[list[NotedCall], list[NotedCall]]:
    """Divide calls into those that need no input, and those of each call of the program.

    What is changed in place is made by each call of the program, in the order of the notes, and
    what depends on variables.
    """
    reads = {call: places_in(call) for call in calls}
    each = {call for call in calls if call.changes is not None or call.is_variable}
    while True:
        count, changed = len(each), {call.changes for call in each if call.changes is not None}
        computed = {*inputs, *changed, *(call.result for call in each)}
        made = _sources(reads, changed)
        for call in calls:
            if call.result in made or not computed.isdisjoint(reads[call]):
                each.add(call)
                computed.add(call.result)
        if len(each) == count:
            break
    return [c for c in calls if c not in each], [c for c in calls if c in each]


def _sources(reads: dict[NotedCall, list[Place]], places: Collection[Place]) -> set[Place]:
    """Return these places, and all from which their calls made them, which they may be views of."""
    found = set(places)
    for call in reversed(reads):
        if call.result in found and not _makes_new(call):
            found.update(reads[call])
    return found


def _makes_new(call: NotedCall) -> bool:
    """Whether the result is a new array, not a view of an argument."""
    is_known = call.function in NEW or isinstance(call.function, np.ufunc)
    return is_known and call.changes is None and "out" not in call.options


def without_dead(calls: Sequence[NotedCall], results: Sequence[Any]) -> list[NotedCall]:
    """Return the calls on which results depend, or that change or demand something."""
    needed = {result for result in results if isinstance(result, Place)}
    live = []
    for call in reversed(calls):
        if call.result in needed or call.changes is not None or call.demands:
            needed.update(places_in(call))
            live.append(call)
    return live[::-1]


def places_in(call: NotedCall) -> list[Place]:
    """Return the places that a call reads."""
    return places_of((call.arguments, dict(call.options)))


def places_of(item: Any) -> list[Place]:
    """Return the places in it, at any depth."""
    return _all_of(Place, item)


def variables_in(call: NotedCall) -> list[Variable]:
    """Return the variables that a call reads, or runs."""
    return _all_of(Variable, (call.function, call.arguments, dict(call.options)))


def _all_of(kind: type[_Kind], item: Any) -> list[_Kind]:
    found: list[_Kind] = []

    def note(each: Any) -> None:
        if isinstance(each, kind):
            found.append(each)

    mapped(note, item)
    return found
