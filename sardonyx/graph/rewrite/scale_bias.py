"""Mul by a scalar, then Add of a scalar: one ElementWiseIdentity with that scale and bias.

Exact, because both ways round after the product and after the sum, in the same type. Left alone
where the scalars are not float32 values, which is all that operator's scale and bias can be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sardonyx.graph.calls import HOLE, OpCall
from sardonyx.graph.program import Embedded, Operand, Step
from sardonyx.ops.directml import ElementWiseIdentity, allows

Known = Mapping[int, np.ndarray[Any, Any]]


def fuse_scale_bias(steps: Sequence[Step], results: Sequence[int], known: Known) -> Sequence[Step]:
    """Fuse each such pair whose product nobody else reads."""
    reads = Counter(register for step in steps for register in step.reads)
    reads.update(register for step in steps for block in step.blocks for register in block.captures)
    reads.update(results)
    products: dict[int, tuple[Step, int, float]] = {}
    fused: list[Step] = []
    dropped: set[Step] = set()
    for step in steps:
        pair = _scaled(step, known)
        if pair is not None and step.node.op_type == "Mul" and reads[step.results[0]] == 1:
            products[step.results[0]] = (step, *pair)
        elif pair is not None and step.node.op_type == "Add" and pair[0] in products:
            product, source, scale = products.pop(pair[0])
            if (scale, pair[1]) != (1.0, 0.0):  # x + 0.0 is no identity: it makes 0.0 of -0.0.
                dropped.add(product)
                fused.append(_with_scale_and_bias(step, source, scale, pair[1]))
                continue
        fused.append(step)
    return [step for step in fused if step not in dropped]


def _scaled(step: Step, known: Known) -> tuple[int, float] | None:
    """The register and the scalar, if this step combines an array with a scalar constant."""
    if step.node.domain or step.node.op_type not in ("Mul", "Add") or len(step.operands) != 2:
        return None
    (spec,) = step.specs
    if not allows(spec.dtype, len(spec.shape)) or spec.dtype.kind != "f":
        return None
    values = [_constant(operand, known) for operand in step.operands]
    for register, value in zip(step.operands, reversed(values), strict=True):
        if isinstance(register, int) and register not in known and value is not None:
            scalar = float(value.reshape(()))
            fits = value.ndim <= len(spec.shape) and _is_float32(scalar)
            return (register, scalar) if fits else None
    return None


def _is_float32(scalar: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float32(scalar)) == scalar


def _constant(operand: Operand, known: Known) -> np.ndarray[Any, Any] | None:
    value = operand.value if isinstance(operand, Embedded) else known.get(operand)
    return value if value is not None and value.size == 1 else None


def _with_scale_and_bias(step: Step, source: int, scale: float, bias: float) -> Step:
    call = OpCall(
        ElementWiseIdentity.at(1).function,
        (HOLE,),
        {"scale": scale, "bias": bias},
        (step.specs[0].dtype,),
    )
    title = f"{ElementWiseIdentity.domain}::{ElementWiseIdentity.name}"
    return replace(step, call=call, operands=(source,), renamed=title)
