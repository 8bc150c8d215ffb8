"""A call's arguments, by position and by name, as arrays in the order of a model's inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.array_interop import check_input, importer, normalised
from sardonyx.graph.calls.nested_values import flat
from sardonyx.graph.ir import ValueInfo


def arranged(
    infos: Sequence[ValueInfo], inputs: Sequence[Any], named: Mapping[str, Any]
) -> list[Any]:
    """The inputs in order; an optional one that was not passed is None."""
    if not named and len(inputs) == len(infos):
        return list(inputs)
    names = [info.name for info in infos]
    given = by_name(infos, inputs, named)
    if unknown := [name for name in given if name not in names]:
        raise InvalidInput(
            f"The model has no input '{unknown[0]}'; it takes {', '.join(names) or 'none'}."
        )
    optional = {i.name for i in infos if (i.type or "").startswith("optional(")}
    if missing := [str(i) for i in infos if i.name not in given and i.name not in optional]:
        raise InvalidInput(f"The model also needs {'; '.join(missing)}.")
    return [given.get(name) for name in names]


def by_name(
    infos: Sequence[ValueInfo], inputs: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The inputs by name, however they were passed."""
    names = [info.name for info in infos]
    if len(inputs) > len(names):
        raise InvalidInput(
            f"The model takes {len(names)} inputs ({', '.join(names) or 'none'}), and got "
            f"{len(inputs)}."
        )
    given = dict(zip(names, inputs, strict=False))
    if twice := [name for name in given if name in named]:
        raise InvalidInput(f"The input '{twice[0]}' was given twice: by position and by name.")
    return {**given, **named}


def chosen_outputs(asked: Iterable[str] | None, known: Sequence[str]) -> list[str]:
    """The names of the outputs that a caller wants; all of them for None."""
    if asked is None:
        return list(known)
    if isinstance(asked, str):
        raise InvalidInput(f"The output names are a str: pass a list, [{asked!r}].")
    if not isinstance(asked, Iterable):
        raise InvalidInput(f"The output names are {asked!r}: pass a list of names, or None.")
    names = list(asked)
    for name in names:
        if not isinstance(name, str) or name not in known:
            shown = f"'{name}'" if isinstance(name, str) else repr(name)
            raise InvalidInput(f"The model has no output {shown}; it has {', '.join(known)}.")
    return names


def require_feeds(feeds: Any) -> None:
    """Refuse inputs that do not come by name."""
    if not isinstance(feeds, Mapping):
        raise InvalidInput(f"The feeds are a {type(feeds).__name__}: pass a dict, by name.")


def taken(
    infos: Sequence[ValueInfo],
    inputs: Sequence[Any],
    named: Mapping[str, Any],
    backend: Backend,
) -> tuple[list[Any], dict[str, int]]:
    """The arrays of a call that passes tensors alone, and the sizes that names stand for.

    To be called in the backend's scope.
    """
    sizes: dict[str, int] = {}
    given = []
    for value, info in zip(arranged(infos, inputs, named), infos, strict=True):
        array = normalised(value, info)
        if not hasattr(array, "shape"):
            raise InvalidInput(f"The input '{info}' is no tensor, and nothing else can be passed.")
        convert = importer(array, info, backend)
        array = array if convert is None else convert(array)
        check_input(backend.spec(array), info, sizes)
        given.append(array)
    return given, sizes


def registers_of(
    names: Collection[str], infos: Sequence[ValueInfo], arrays: Sequence[Any]
) -> set[int]:
    """Where the arrays of these inputs are, among all that the inputs hold."""
    ends = accumulate((len(flat([value])) for value in arrays), initial=0)
    return {
        register
        for info, (start, end) in zip(infos, pairwise(ends), strict=True)
        for register in range(start, end)
        if info.name in names
    }
