"""What compiled programs may save of calls that NumPy computes step by step."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.programs.work import work_of
from sardonyx.graph.tracing.steps import Step
from sardonyx.graph.values.params import Weights

# What NumPy computes and moves in a second, about. Only the proportion of the two matters.
OPERATIONS, BYTES = 8e10, 4e9
# Operators that libraries for NumPy compute as fast as programs do.
PRODUCTS = frozenset({"MatMul", "Gemm"})


def part_beside_products(stages: Sequence[Stage], weights: Weights) -> float:
    """Return which part of a call, from 0 to 1, is spent beside matrix products.

    Those take as long in a program.
    """
    products = rest = 0.0
    for stage in stages:
        steps = () if stage.segment is None else stage.segment.steps
        for step, work in zip(steps, work_of(stage, weights), strict=True):
            if _is_product(step):
                products += work.operations / OPERATIONS
            else:
                rest += work.bytes / BYTES
    return rest / (products + rest) if products else 1.0


def _is_product(step: Step) -> bool:
    return any(node.operator in PRODUCTS for node in step.fused or (step.node,))
