"""The arguments of a call, by position or name, as arrays in the order of the model's inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.array_interop import check_input, importer, normalised
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.values.kinds import leaves


def in_input_order(
    infos: Sequence[ValueInfo], inputs: Sequence[Any], named: Mapping[str, Any]
) -> list[Any]:
    """Return the arguments in the order of the inputs; None for a missing optional one."""
    if not named and len(inputs) == len(infos):
        return list(inputs)
    # Other mappings may have a value for any name.
    if type(named) is dict and not inputs and len(named) == len(infos):
        # Each call comes here: contextlib.suppress takes ten times as long.
        try:
            return [named[info.name] for info in infos]
        except KeyError:
            pass  # The names are looked at below.
    names = {info.name: None for info in infos}
    values = by_name(infos, inputs, named)
    if unknown := [name for name in values if name not in names]:
        raise InvalidInput(
            f"The model has no input '{unknown[0]}'; it takes {', '.join(names) or 'none'}."
        )
    optional = {i.name for i in infos if i.container == "optional"}
    if missing := [str(i) for i in infos if i.name not in values and i.name not in optional]:
        raise InvalidInput(f"The model also needs {'; '.join(missing)}.")
    return [values.get(name) for name in names]


def by_name(
    infos: Sequence[ValueInfo], inputs: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments by name, also those that were passed by position."""
    names = [info.name for info in infos]
    if len(inputs) > len(names):
        raise InvalidInput(
            f"The model takes {len(names)} inputs ({', '.join(names) or 'none'}), but "
            f"{len(inputs)} were passed."
        )
    positional = dict(zip(names, inputs, strict=False))
    if duplicates := [name for name in positional if name in named]:
        raise InvalidInput(
            f"The input '{duplicates[0]}' was passed by position and by name: pass it once."
        )
    return {**positional, **named}


def chosen_outputs(requested: Iterable[str] | None, available: Sequence[str]) -> Sequence[str]:
    """Return the names of the outputs that a caller requests; None requests all of them."""
    if requested is None:
        return available
    if isinstance(requested, str):
        raise InvalidInput(f"The output names are a str: pass a list, [{requested!r}].")
    if not isinstance(requested, Iterable):
        raise InvalidInput(f"The output names are {requested!r}: pass a list of names, or None.")
    names = list(requested)
    for name in names:
        if not isinstance(name, str) or name not in available:
            shown = f"'{name}'" if isinstance(name, str) else repr(name)
            raise InvalidInput(f"The model has no output {shown}; it has {', '.join(available)}.")
    return names


def require_feeds(feeds: Any) -> None:
    """Refuse feeds that are not a mapping from names."""
    # A class for abstract types is asked only about others: that takes longer.
    if type(feeds) is not dict and not isinstance(feeds, Mapping):
        raise InvalidInput(
            f"The feeds are a {type(feeds).__name__}: pass a dict from input names to arrays."
        )


def checked_arrays(
    infos: Sequence[ValueInfo],
    inputs: Sequence[Any],
    named: Mapping[str, Any],
    backend: Backend,
) -> tuple[list[Any], dict[str, int]]:
    """Return the arrays of a call whose inputs are all tensors, and the sizes of named dimensions.

    Call it in the backend's scope.
    """
    sizes: dict[str, int] = {}
    arrays = []
    for value, info in zip(in_input_order(infos, inputs, named), infos, strict=True):
        array = normalised(value, info)
        if not hasattr(array, "shape"):
            raise InvalidInput(
                f"The input '{info}' is not a tensor, but only tensors can be passed here."
            )
        convert = importer(array, info, backend)
        array = array if convert is None else convert(array)
        check_input(backend.spec(array), info, sizes)
        arrays.append(array)
    return arrays, sizes


def registers_of(
    names: Collection[str], infos: Sequence[ValueInfo], arrays: Sequence[Any]
) -> set[int]:
    """Return the positions of the arrays of these inputs, among the arrays of all inputs."""
    ends = accumulate((len(leaves(value)) for value in arrays), initial=0)
    return {
        register
        for info, (start, end) in zip(infos, pairwise(ends), strict=True)
        for register in range(start, end)
        if info.name in names
    }
