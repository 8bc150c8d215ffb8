"""The windows of a convolution as columns of a matrix, in bands that fit into a limited memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

# The maximum bytes of the columns that exist at the same time.
LARGEST_COLUMNS = 2**28

# The images and the rows of a band: slices of the result's first axis and of its third.
Band = tuple[slice, slice]


def column_bytes(channels: int, kernel: Sequence[int], dtype: np.dtype[Any]) -> int:
    """Return the bytes of one column, in the type in which it is multiplied."""
    is_narrow_float = dtype.kind in "fV" and dtype.itemsize < 4
    return channels * math.prod(kernel) * (4 if is_narrow_float else dtype.itemsize)


def bands(batch: int, sizes: Sequence[int], bytes_each: int) -> list[Band]:
    """Divide the windows of `batch` images into bands: of several images, or of rows of one.

    >>> bands(2, (4, 4), LARGEST_COLUMNS // 16)
    [(slice(0, 1, None), slice(0, 4, None)), (slice(1, 2, None), slice(0, 4, None))]
    """
    rows, most = sizes[0], max(LARGEST_COLUMNS // max(bytes_each, 1), 1)
    image, row = math.prod(sizes), math.prod(sizes[1:])
    if image <= most:
        return [(part, slice(0, rows)) for part in _parts(batch, most // max(image, 1))]
    each = _parts(rows, max(most // row, 1))
    return [(slice(i, i + 1), part) for i in range(batch) for part in each]


def _parts(length: int, most: int) -> list[slice]:
    """Divide a length into equal parts, or almost, of at most so many elements."""
    count = max(-(-length // max(most, 1)), 1)
    ends = [length * i // count for i in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]
