"""Where to cut many steps into pieces that compile fast: between layers, so that these are equal.

Only the kinds of the steps and their wires count, never a size: a graph is cut alike for all sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate

import numpy as np

from sardonyx.graph.tracing.steps import Step

# The longest piece, where each step has one reader: XLA compiles 512 steps in 0.6 s, 2,048 in 10 s.
PIECE = 512
# A call of a piece takes about 10 us, as long as some ten small steps.
_SHORTEST_PIECE = 64
# Number of steps that a result with several readers counts for. XLA copies elementwise steps into
# every fusion that reads them, through all layers of a residual network: for 128 such layers of 8
# steps it takes 38 s, and 1.5 s for a piece of 16 layers. The pieces also run faster.
_SHARED = 24
# Layers with more steps are cut too.
_LONGEST_LAYER = 512
# Share of the steps that a period may repeat less well than the best one.
_SLACK = 0.01


def cut(steps: Sequence[Step], results: Collection[int]) -> list[int]:
    """Return the positions at which to cut the steps, if `results` are read after the last one."""
    longest = _longest_piece(steps) if steps else PIECE
    if len(steps) <= longest:
        return []
    crossing = _crossing(steps, results)
    layer = _length_of_layer(steps)
    if layer is None:
        return list(_narrowest(crossing, longest))
    # The best place within a layer is the narrowest one in all layers.
    begin = min(range(layer), key=lambda start: max(crossing[start::layer]))
    length = layer * max(1, longest // layer)
    return [at for at in range(begin, len(steps), length) if at > 0]


def _longest_piece(steps: Sequence[Step]) -> int:
    readers = Counter(register for step in steps for register in set(step.reads))
    shared = sum(any(readers[r] > 1 for r in step.results) for step in steps)
    return max(_SHORTEST_PIECE, PIECE * len(steps) // (len(steps) + _SHARED * shared))


def _crossing(steps: Sequence[Step], results: Collection[int]) -> list[int]:
    """Return for each position how many values are computed before it and read after it."""
    producers = {register: i for i, step in enumerate(steps) for register in step.results}
    last_reads: dict[int, int] = {}
    for i, step in enumerate(steps):
        for register in step.reads:
            last_reads[register] = i
    last_reads.update(dict.fromkeys(results, len(steps)))
    changes = [0] * (len(steps) + 2)
    for register, i in producers.items():
        changes[i + 1] += 1
        changes[max(last_reads.get(register, i), i) + 1] -= 1
    return list(accumulate(changes))[: len(steps) + 1]


def _narrowest(crossing: Sequence[int], longest: int) -> Iterator[int]:
    """Yield cuts where few values cross, half a piece to a piece after one another."""
    at = 0
    while len(crossing) - 1 - at > longest:
        at = min(range(at + longest, at + longest // 2, -1), key=crossing.__getitem__)
        yield at


def _length_of_layer(steps: Sequence[Step]) -> int | None:
    """Return after how many steps most of them repeat, or None if they do not."""
    numbers: dict[tuple[str, str, int], int] = {}
    kinds = np.array(
        [
            numbers.setdefault((s.node.domain, s.node.op_type, len(s.operands)), len(numbers))
            for s in steps
        ]
    )
    longest = min(_LONGEST_LAYER, len(steps) // 2)
    repeated = [float(np.mean(kinds[n:] == kinds[:-n])) for n in range(1, longest + 1)]
    best = max(repeated)
    if best < 0.9:  # A few steps before and after the layers do not repeat.
        return None
    return 1 + next(i for i, share in enumerate(repeated) if share >= best - _SLACK)
