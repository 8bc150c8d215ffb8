"""Random inputs of the shapes that a model and the user say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.memory_limit import memory_limit
from sardonyx.cli.shapes import Shapes, Sizes
from sardonyx.errors import InvalidInput, LimitExceeded
from sardonyx.graph.ir import ValueInfo

# Normal numbers are drawn as float64 before they are rounded to the dtype of the input.
_BYTES_DRAWN = 8


def known_sizes(
    infos: Iterable[ValueInfo], inputs: Mapping[str, Any], shapes: Shapes
) -> dict[str, int]:
    """Return the sizes of named dimensions, by the shapes of inputs that have them."""
    sizes: dict[str, int] = {}
    for info in infos:
        shape = shapes.get(info.name, getattr(inputs.get(info.name), "shape", None))
        if shape is not None and info.shape is not None and len(shape) == len(info.shape):
            for name, size in zip(info.shape, shape, strict=True):
                if isinstance(name, str):
                    sizes.setdefault(name, int(size))
    return sizes


def drawn(
    info: ValueInfo,
    shape: Sizes | None,
    sizes: Mapping[str, int],
    seed: tuple[int, int],
    below: int,
) -> Any:
    """Return a random array for an input, the same one for the same seed.

    Floats are normal, integers lie below `below`, booleans are either, strings are letters.
    """
    if info.container or info.dtype is None:
        raise InvalidInput(
            f"The input {info} is no array, so it cannot be drawn: pass it in a folder of ONNX "
            "test data."
        )
    sized = _shape(info, sizes) if shape is None else shape
    count = math.prod(sized)
    if count * max(_BYTES_DRAWN, info.dtype.itemsize) > memory_limit():
        raise LimitExceeded(
            f"The input '{info.name}' of shape {list(sized)} is too large for this machine: pass "
            "smaller sizes."
        )
    rng = np.random.default_rng(seed)
    return _elements(rng, count, info.dtype, below).reshape(sized)


def _shape(info: ValueInfo, sizes: Mapping[str, int]) -> Sizes:
    """Return the shape that a model declares, with the sizes of named dimensions."""
    declared = [sizes.get(n) if isinstance(n, str) else n for n in info.shape or ()]
    shape = tuple(size for size in declared if size is not None)
    if info.shape is None or len(shape) < len(declared):
        example = ",".join(str(size or 1) for size in declared) or "1,3"
        raise InvalidInput(
            f"The sizes of the input {info} are not all fixed: pass them as in --shape "
            f"{info.name}={example}."
        )
    return shape


def _elements(
    rng: np.random.Generator, count: int, dtype: np.dtype[Any], below: int
) -> np.ndarray[Any, Any]:
    if dtype == np.dtype(object):
        return np.array([*"abc"], object)[rng.integers(0, 3, count)]
    if isdtype(dtype, "bool"):
        return rng.integers(0, 2, count).astype(bool)
    if isdtype(dtype, "integral"):
        most = 2 ** (8 * dtype.itemsize - 1) if dtype.isbuiltin == 1 else 2
        return rng.integers(0, min(below, most), count).astype(dtype)
    if isdtype(dtype, "complex floating"):
        return (rng.standard_normal(count) + 1j * rng.standard_normal(count)).astype(dtype)
    return rng.standard_normal(count).astype(dtype)
