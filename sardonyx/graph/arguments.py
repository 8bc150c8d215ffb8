"""A call's arguments, by position and by name, as arrays in the order of a model's inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from sardonyx.graph.arrays import check_input, importer, normalised
from sardonyx.graph.structure import ValueInfo
from sardonyx.graph.trees import flat


def arranged(
    infos: Sequence[ValueInfo], inputs: Sequence[Any], named: Mapping[str, Any]
) -> list[Any]:
    """The inputs in order; an optional one that was not passed is None."""
    if not named and len(inputs) == len(infos):
        return list(inputs)
    names = [info.name for info in infos]
    if len(inputs) > len(names):
        raise InvalidInput(
            f"The model takes {len(names)} inputs ({', '.join(names) or 'none'}), and got "
            f"{len(inputs)}."
        )
    given = dict(zip(names, inputs, strict=False))
    for name, value in named.items():
        if name not in names:
            raise InvalidInput(
                f"The model has no input '{name}'; it takes {', '.join(names) or 'none'}."
            )
        if name in given:
            raise InvalidInput(f"The input '{name}' was given twice: by position and by name.")
        given[name] = value
    optional = {i.name for i in infos if (i.type or "").startswith("optional(")}
    if missing := [str(i) for i in infos if i.name not in given and i.name not in optional]:
        raise InvalidInput(f"The model also needs {'; '.join(missing)}.")
    return [given.get(name) for name in names]


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
