"""GELU as exporters spell it out, by the error function or by tanh: one Gelu.

The same function, whose constants and order of products may differ: results differ by a few units
in the last place of the input; where the type is narrow, Gelu rounds once and the chain each time.
Above half of the largest number the chain overflows, and Gelu does not.
"""

from __future__ import annotations

import math

from sardonyx.graph.rewriting.polynomial import is_about, made_by, polynomial
from sardonyx.graph.rewriting.rewriter import Passage, Replacement, calling, calls
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.activation import Gelu
from sardonyx.ops.elementwise import Erf, Tanh, erf_of_integers_too

_ERF = (Erf, erf_of_integers_too)
_INNER = math.sqrt(2 / math.pi)


def fuse_gelu(passage: Passage, step: Step) -> Replacement:
    """`x (1 + f(x)) / 2`, however its products are ordered."""
    found = made_by(passage, step)
    if found is None or len(found) != 2:
        return None
    single = [registers for registers in found if len(registers) == 1]
    for (x,) in single:
        (other,) = (registers for registers in found if registers != (x,))
        if len(other) != 2 or x not in other or passage.spec(x) != step.specs[0]:
            continue
        inner = other[other.index(x) - 1]
        kind = _kind(passage, inner, x)
        if kind and is_about(found, {(x,): 0.5, other: 0.5}, step.specs[0].dtype):
            return [calling(step, Gelu, (x,), Gelu.name, approximate=kind)]
    return None


def _kind(passage: Passage, inner: int, x: int) -> str | None:
    """Which of both functions of `x` this is: "none" means the exact one."""
    step = passage.inner(inner, *_ERF, Tanh)
    if step is None:
        return None
    dtype = step.specs[0].dtype
    argument = polynomial(passage, step.operands[0])
    if calls(step, *_ERF):
        return "none" if is_about(argument, {(x,): math.sqrt(0.5)}, dtype) else None
    cubic = {(x,): _INNER, (x, x, x): 0.044715 * _INNER}
    return "tanh" if is_about(argument, cubic, dtype) else None
