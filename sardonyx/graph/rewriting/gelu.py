"""GELU as exporters write it, by the error function or by tanh: one Gelu.

The function is the same, but its constants and the order of products may differ: results differ by
a few units in the last place of the input. In narrow types Gelu rounds once, the chain each time.
Above half of the largest number the chain overflows, and Gelu does not.
"""

from __future__ import annotations

import math
from itertools import permutations

from sardonyx.graph.rewriting.polynomial import is_about, polynomial, result_of
from sardonyx.graph.rewriting.rewriter import Passage, Replacement, calls, instead_of
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.activation import Gelu
from sardonyx.ops.elementwise import Erf, Tanh, erf_of_integers_too

_ERF = (Erf, erf_of_integers_too)
_INNER = math.sqrt(2 / math.pi)


def fuse_gelu(passage: Passage, step: Step) -> Replacement:
    """Fuse `x (1 + f(x)) / 2`, in whichever order its products are written."""
    terms = result_of(passage, step) or {}
    if len(terms) != 2:
        return None
    for single, pair in permutations(terms):
        x = single[0] if len(single) == 1 else None
        if x is None or len(pair) != 2 or x not in pair or passage.spec(x) != step.specs[0]:
            continue
        approximate = _approximation(passage, pair[pair.index(x) - 1], x)
        if approximate and is_about(terms, {single: 0.5, pair: 0.5}, step.specs[0].dtype):
            return [instead_of(step, Gelu, (x,), approximate=approximate)]
    return None


def _approximation(passage: Passage, inner: int, x: int) -> str | None:
    """The attribute of the Gelu that has this inner function of `x`: "none" is the exact one."""
    step = passage.sole_producer(inner, *_ERF, Tanh)
    if step is None:
        return None
    dtype = step.specs[0].dtype
    argument = polynomial(passage, step.operands[0])
    if calls(step, *_ERF):
        return "none" if is_about(argument, {(x,): math.sqrt(0.5)}, dtype) else None
    cubic = {(x,): _INNER, (x, x, x): 0.044715 * _INNER}
    return "tanh" if is_about(argument, cubic, dtype) else None
