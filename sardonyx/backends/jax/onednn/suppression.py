"""Non-maximum suppression by a kernel, where NumPy takes some fifty operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.threads import threads_of_calls

# So many boxes, of three numbers each, take 400 MB. More are not made room for.
MOST_ROOM = 2**24


def suppressed(
    boxes: Any,
    scores: Any,
    *,
    limit: int,
    threshold: float,
    least: float | None,
    has_centres: bool,
    threads: int | None = None,
) -> Any:
    """`Indexing.suppressed` of arrays in float32; None where NumPy is to compute it."""
    images, classes, count = scores.shape
    room = images * classes * min(limit, count)
    if room > MOST_ROOM or not loaded.has_lanes():
        return None
    overlap, score = np.array([threshold, least or 0], np.float32).view(np.int32).tolist()
    sizes = threads or threads_of_calls(), images, classes, count, min(limit, count)
    spec = (*sizes, has_centres, overlap, least is not None, score)
    found = np.empty((room, 3), np.int64)
    boxes, scores = map(np.ascontiguousarray, (boxes, scores))
    return found[: loaded.suppress(spec, found, boxes, scores)].copy()
