"""Along which free dimensions calls of a model can be padded, so that they share a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.api import load
from sardonyx.errors import SardonyxError
from sardonyx.graph.buckets.expressions import names_in
from sardonyx.graph.buckets.programs import BucketTooLarge, CannotPad
from sardonyx.graph.buckets.sizes import resized
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.model.model import Model
from sardonyx.printable import first_line

# The size of a dimension for which the caller has named none: one of 1 would be broadcast.
USUAL_SIZE = 6
# A dimension by its name, or by an input and an axis.
Key: TypeAlias = str | tuple[str, int]


class PaddedSize(NamedTuple):
    """A free dimension, and why calls cannot be padded along it; None if they can."""

    title: str
    reason: str | None


def padded_sizes(
    path: str, model: Model, arrays: Mapping[str, np.ndarray[Any, Any]], device: str | None
) -> list[PaddedSize]:
    """Try to prove, for calls like this one and each free dimension, that padding is exact.

    Nothing is compiled. Only JAX pads: other libraries compile nothing for single sizes.
    """
    if model.backend != "jax" or any(info.container for info in model.inputs):
        return []
    larger = _larger(model.inputs, arrays)
    sizes = _free_sizes(model.inputs, larger)
    return [
        PaddedSize(_title(key), _obstacle(path, {key: [2 * size]}, larger, device))
        for key, size in sizes.items()
    ]


def _free_sizes(infos: tuple[ValueInfo, ...], arrays: Mapping[str, Any]) -> dict[Key, int]:
    """Return the size of each dimension that the model leaves free by itself."""
    sizes: dict[Key, int] = {}
    for info in infos:
        for axis, declared in enumerate(info.shape or ()):
            size = arrays[info.name].shape[axis]
            if declared is None:
                sizes[info.name, axis] = size
            elif isinstance(declared, str) and names_in(declared) == {declared}:
                sizes.setdefault(declared, size)
    return sizes


def _larger(
    infos: tuple[ValueInfo, ...], arrays: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a call with `USUAL_SIZE` in place of 1 in all free dimensions."""
    named = {key: n for key, n in _free_sizes(infos, arrays).items() if isinstance(key, str)}
    changed = {name: USUAL_SIZE for name, size in named.items() if size == 1}
    result = {}
    for info in infos:
        array = arrays[info.name]
        shape = resized(info.shape, array.shape, named, changed)
        unnamed = [
            USUAL_SIZE if declared is None and size == 1 else size
            for size, declared in zip(shape, info.shape or shape, strict=True)
        ]
        result[info.name] = np.resize(array, unnamed)
    return result


def _title(key: Key) -> str:
    return key if isinstance(key, str) else f"axis {key[1]} of {key[0]}"


def _obstacle(
    path: str, buckets: Mapping[Key, list[int]], arrays: Mapping[str, Any], device: str | None
) -> str | None:
    """Return what prevents padding to these buckets; None if nothing does."""
    try:
        padded = load(path, backend="jax", device=device, compile="now", buckets=buckets)
        program = padded.trace(**arrays)
    except BucketTooLarge as error:
        return f"the model does not run for larger sizes: {error.reason}"
    except CannotPad as error:
        return error.reason
    except SardonyxError as error:
        return f"not known, pass other sizes with --shape: {first_line(error)}"
    shapes = [array.shape for array in arrays.values()]
    if [spec.shape for spec in program.inputs] == shapes:
        return "the graph takes another form for exactly these sizes"
    return None
