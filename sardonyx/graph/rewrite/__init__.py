"""Fusions: each replaces steps by fewer steps that compute exactly the same. One file each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.graph.program import Step
from sardonyx.graph.rewrite.scale_bias import Known, fuse_scale_bias

Rewrite = Callable[[Sequence[Step], Sequence[int], Known], Sequence[Step]]

REWRITES: tuple[Rewrite, ...] = (fuse_scale_bias,)


def rewrite(steps: Sequence[Step], results: Sequence[int], known: Known) -> Sequence[Step]:
    """The steps after every fusion.

    `results` are the registers that are read after them; `known` the constants among the others.
    """
    for each in REWRITES:
        steps = each(steps, results, known)
    return steps
