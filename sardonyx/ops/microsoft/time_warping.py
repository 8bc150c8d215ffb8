"""DynamicTimeWarping: the cheapest path through a matrix of costs."""

from __future__ import annotations

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Host, Unsized, op
from sardonyx.ops.dtypes import INT32

# From a point to the one before it on the path, by row and by column.
DIAGONAL, UP, LEFT = range(3)


@op(domain="com.microsoft")
def DynamicTimeWarping(xp: Backend, input: Array) -> Unsized:
    """Return the rows and the columns of the path from the first corner to the last."""
    if input.ndim not in (2, 3) or (input.ndim == 3 and input.shape[0] != 1):
        raise ValueError(f"input has shape {input.shape}, but must be a matrix or one in a batch")
    costs = xp.fetch(input).reshape(input.shape[-2:])
    steps = _steps(costs)
    row, column = costs.shape
    path = []
    while row and column:
        path.append((row - 1, column - 1))
        step = steps[row - 1, column - 1]
        row, column = row - (step != LEFT), column - (step != UP)
    return xp.put(np.asarray(path[::-1], INT32).reshape(-1, 2).T.copy())


def _steps(costs: Host) -> Host:
    """Return the step to the point before each one; points on an antidiagonal come together."""
    rows, columns = costs.shape
    steps = np.zeros(costs.shape, np.int8)
    # The totals on the two antidiagonals before, by row, with one row before the first.
    before, last = (np.full(rows + 1, np.inf, costs.dtype) for _ in range(2))
    before[0] = 0
    for diagonal in range(rows + columns - 1):
        row = np.arange(max(0, diagonal - columns + 1), min(rows, diagonal + 1))
        column = diagonal - row
        ways = before[row], last[row], last[row + 1]
        is_diagonal = (ways[DIAGONAL] < ways[UP]) & (ways[DIAGONAL] < ways[LEFT])
        is_up = (ways[UP] < ways[DIAGONAL]) & (ways[UP] < ways[LEFT])
        # Where two ways cost the same, the path goes left.
        step = np.where(is_diagonal, DIAGONAL, np.where(is_up, UP, LEFT))
        steps[row, column] = step
        totals = np.full_like(last, np.inf)
        totals[row + 1] = np.choose(step, ways) + costs[row, column]
        before, last = last, totals
    return steps
