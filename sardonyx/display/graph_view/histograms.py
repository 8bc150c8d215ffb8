"""A weight in a few numbers: its range, its mean, and a histogram of a sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from sardonyx.printable import shortened

Array: TypeAlias = np.ndarray[Any, Any]

# Elements that are read of one weight, in contiguous blocks: a mapped file is read by pages.
_MOST_ELEMENTS = 2**15
_BLOCKS = 16
_BINS = 32
_MOST_SHOWN = 16
_LONGEST = 400


def summary(array: Array, read: Callable[[Array], Array] = np.asarray) -> dict[str, Any]:
    """Return what the view shows of a weight; of a large one it reads a sample.

    `read` loads a part of the array whose data is not in memory yet.

    >>> weight = np.arange(8, dtype=np.float32)
    >>> shown = summary(weight)
    >>> shown["count"], shown["least"], shown["most"], sum(shown["bins"])
    (8, 0.0, 7.0, 8)
    """
    shown: dict[str, Any] = {"count": int(array.size), "bytes": int(array.nbytes)}
    if array.size <= _MOST_SHOWN:
        shown["content"] = content(read(array))
    if array.size == 0 or array.dtype.kind in "OSUTc":
        return shown
    values = _sample(array, read)
    if values.size < array.size:
        shown["sampled"] = int(values.size)
    return shown | _distribution(values)


def content(array: Array) -> str:
    """Return the elements of a small array, as text.

    >>> content(np.array([1, 2], np.int64))
    '[1, 2]'
    """
    if array.dtype.kind not in "biufcOSUT":  # One of ml_dtypes.
        array = array.astype(np.float32)
    return shortened(str(array.tolist()), _LONGEST)


def _sample(array: Array, read: Callable[[Array], Array]) -> Array:
    if array.size <= _MOST_ELEMENTS:
        return read(array).reshape(-1).astype(np.float64)
    # Views of one axis and, where the array has no such view, its first elements.
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat[:_MOST_ELEMENTS]
    length = _MOST_ELEMENTS // _BLOCKS
    starts = np.linspace(0, flat.size - length, _BLOCKS).astype(np.int64)
    return np.concatenate([read(flat[s : s + length]).astype(np.float64) for s in starts])


def _distribution(values: Array) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    shown: dict[str, Any] = {}
    if finite.size < values.size:
        shown["unusual"] = int(values.size - finite.size)
    if finite.size == 0:
        return shown
    least, most = float(finite.min()), float(finite.max())
    with np.errstate(all="ignore"):
        spread = {"mean": float(finite.mean()), "deviation": float(finite.std())}
    shown |= {"least": least, "most": most}
    shown |= {name: value for name, value in spread.items() if np.isfinite(value)}
    shown["zeros"] = int(np.count_nonzero(finite == 0))
    width = most - least
    if np.isfinite(width) and width > 0:
        places = np.minimum((finite - least) / width * _BINS, _BINS - 1).astype(np.int64)
        shown["bins"] = np.bincount(places, minlength=_BINS).tolist()
    else:
        shown["bins"] = [int(finite.size)]
    return shown
