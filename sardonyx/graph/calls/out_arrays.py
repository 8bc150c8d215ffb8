"""Arrays of a caller that a call writes its outputs into: the option `out`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from sardonyx.errors import InvalidInput
from sardonyx.graph.standard.types import short_name
from sardonyx.printable import LONGEST_NAME, printable

# By the number of the output.
Targets: TypeAlias = Mapping[int, np.ndarray[Any, Any]]

# Whether strided arrays share memory can be hard to know; then they count as if they did.
MOST_WORK = 100_000


def targets_of(out: Any, names: Sequence[str]) -> Targets:
    """Return the arrays to write to by the numbers of the outputs, once they can be written to.

    >>> y = np.zeros(2)
    >>> [targets_of(out, ["y"])[0] is y for out in (y, [y], {"y": y})]
    [True, True, True]
    """
    targets = {
        number: _checked(array, names[number])
        for number, array in _by_number(out, names).items()
        if array is not None
    }
    for (one, array), (other, second) in combinations(targets.items(), 2):
        if _share_memory(array, second):
            raise InvalidInput(
                f"The arrays of out= for '{names[one]}' and '{names[other]}' share memory: pass "
                "arrays that do not overlap."
            )
    return targets


def written(values: Sequence[Any], targets: Targets, names: Sequence[str]) -> list[Any]:
    """Write results to their arrays; return all results, with the arrays in place of these.

    Nothing is written unless all of them fit. Results that share memory with an array, because it
    overlaps an input, are copied first.
    """
    results = list(values)
    for number, array in targets.items():
        results[number] = _fitting(values[number], array, names[number])
    for number, value in enumerate(results):
        if isinstance(value, np.ndarray):
            if any(np.may_share_memory(value, array) for array in targets.values()):
                results[number] = value.copy()
        elif isinstance(value, (list, dict)):
            results[number] = _apart(value, targets)
    for number, array in targets.items():
        array[...] = results[number]
        results[number] = array
    return results


def _by_number(out: Any, names: Sequence[str]) -> dict[int, Any]:
    if isinstance(out, Mapping):
        for name in out:
            if name not in names:
                raise InvalidInput(
                    f"The arrays of out= name an output {printable(repr(name), LONGEST_NAME)}; the "
                    f"call returns {', '.join(names)}."
                )
        return {number: out[name] for number, name in enumerate(names) if name in out}
    if isinstance(out, (list, tuple)):
        if len(out) != len(names):
            raise InvalidInput(
                f"The arrays of out= are {len(out)}, but the call returns {len(names)} outputs "
                f"({', '.join(names)}): pass one for each, or None for those to return as usual."
            )
        return dict(enumerate(out))
    if len(names) != 1:
        raise InvalidInput(
            f"The call returns {len(names)} outputs ({', '.join(names)}), but out= is a "
            f"{type(out).__name__}: pass a list of arrays, or a dict from names to arrays."
        )
    return {0: out}


def _checked(array: Any, name: str) -> np.ndarray[Any, Any]:
    kind = type(array)
    if not isinstance(array, np.ndarray) or (
        kind is not np.ndarray and isinstance(array, np.ma.MaskedArray)
    ):
        is_jax = kind.__module__.partition(".")[0] in ("jax", "jaxlib")
        reason = "JAX's arrays cannot be changed" if is_jax else "only NumPy's arrays can be"
        raise InvalidInput(
            f"The array of out= for '{name}' is a {kind.__name__}, which cannot be written to, as "
            f"{reason}: pass a NumPy array."
        )
    if not array.flags.writeable:
        raise InvalidInput(
            f"The array of out= for '{name}' is read-only: pass an array that can be written to."
        )
    steps = zip(array.shape, array.strides, strict=True)
    if array.size and any(size > 1 and step == 0 for size, step in steps):
        raise InvalidInput(
            f"The array of out= for '{name}' repeats its elements, as broadcast arrays do: pass "
            "one with memory for each element."
        )
    return array


def _share_memory(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    try:
        return np.shares_memory(one, other, max_work=MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _fitting(value: Any, array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Return a result on the host, if it has the array's shape and dtype."""
    if value is None or isinstance(value, (list, dict)):
        raise InvalidInput(
            f"The output '{name}' is no tensor in this call, so out= cannot hold it: leave it out."
        )
    try:
        host = np.asarray(value)
    except Exception as error:
        raise InvalidInput(
            f"The output '{name}' is a {type(value).__name__}, which has no data for out= yet: "
            "leave out out= under a transformation such as jit."
        ) from error
    if (host.shape, host.dtype) != (array.shape, array.dtype):
        raise InvalidInput(
            f"The array of out= for '{name}' is {short_name(array.dtype)}{list(array.shape)}, but "
            f"the output is {short_name(host.dtype)}{list(host.shape)}: pass an array like that."
        )
    return host


def _apart(value: Any, targets: Targets) -> Any:
    """Return a sequence without arrays that share memory with those that are written."""
    if isinstance(value, list):
        return [_apart(one, targets) for one in value]
    is_shared = isinstance(value, np.ndarray) and any(
        np.may_share_memory(value, array) for array in targets.values()
    )
    return value.copy() if is_shared else value
