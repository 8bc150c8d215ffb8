"""Mul by a scalar, then Add of a scalar: one ElementWiseIdentity with that scale and bias.

Exact, because both ways round after the product and after the sum, in the same type. Left alone
where the scalars are not float32 values, which is all that operator's scale and bias can be.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.graph.rewriting.rewriter import Passage, Replacement, calling
from sardonyx.graph.tracing.steps import Operand, Step
from sardonyx.ops.directml import ElementWiseIdentity, allows
from sardonyx.ops.elementwise import Mul

_TITLE = f"{ElementWiseIdentity.domain}::{ElementWiseIdentity.name}"


def fuse_scale_bias(passage: Passage, step: Step) -> Replacement:
    """Fuse the sum with a product that nobody else reads."""
    total = _scaled(passage, step)
    product = None if total is None else passage.inner(total[0], Mul)
    factor = None if product is None else _scaled(passage, product)
    if total is None or factor is None:
        return None
    (_, bias), (source, scale) = total, factor
    if (scale, bias) == (1.0, 0.0):  # x + 0.0 is no identity: it makes 0.0 of -0.0.
        return None
    function = ElementWiseIdentity.at(1).function
    return [calling(step, function, (source,), _TITLE, scale=scale, bias=bias)]


def _scaled(passage: Passage, step: Step) -> tuple[int, float] | None:
    """The register and the scalar, if this step combines an array with a scalar constant."""
    (spec,) = step.specs
    if not allows(spec.dtype, len(spec.shape)) or spec.dtype.kind != "f":
        return None
    for operand, other in (step.operands, step.operands[::-1]):
        constant = _constant(passage, other)
        if isinstance(operand, int) and _constant(passage, operand) is None:
            if constant is None or constant.size != 1 or constant.ndim > len(spec.shape):
                continue
            scalar = float(constant.reshape(()))
            return (operand, scalar) if _is_float32(scalar) else None
    return None


def _constant(passage: Passage, operand: Operand) -> np.ndarray[Any, Any] | None:
    return passage.constant(operand)


def _is_float32(scalar: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float32(scalar)) == scalar
