"""A product with weights, then a factor or a shift for each output: both go into the weights.

What is added up is the same, but multiplied before instead of after: results differ by a few units
in the last place of the largest term. Only in float32 and float64, where weights lose as little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.numpy import HOST
from sardonyx.graph.rewriting.rewriter import (
    Called,
    Passage,
    Replacement,
    ahead_of,
    call_of,
    calling,
    calls,
    given,
)
from sardonyx.graph.tracing.op_call import HOLE
from sardonyx.graph.tracing.steps import Embedded, Operand, Step
from sardonyx.ops.convolution import Conv, ConvTranspose
from sardonyx.ops.definition import Op
from sardonyx.ops.elementwise import Add, Div, Mul, Neg, Reciprocal, Sub
from sardonyx.ops.linalg import Gemm, MatMul
from sardonyx.ops.weight_ops import by_output, scaled_and_shifted, scaled_outputs


def fold_into_weights(passage: Passage, step: Step) -> Replacement:
    """Let a product's own weight and bias do what this step does."""
    (spec,) = step.specs
    if not passage.can_add or spec.dtype not in (np.float32, np.float64):
        return None
    change = _change(passage, step)
    product = None if change is None else _product(passage, change.source)
    if change is None or product is None or not _fits(passage, change, product, spec):
        return None
    return _Folding(passage, step, product).steps(change)


# -- what is done to each output ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Change:
    """What a step does with what it reads: times a factor, or plus a shift, or both."""

    source: Operand
    factor: Operand | None = None
    shift: Operand | None = None
    # What must be made of the factor or the shift first.
    by: Op[Any] | None = None


def _change(passage: Passage, step: Step) -> _Change | None:
    if calls(step, scaled_and_shifted):
        source, factor, shift = step.operands
        return _Change(source, factor, shift)
    if not calls(step, Mul, Add, Div, Sub):
        return None
    first, second = step.operands
    if calls(step, Mul, Add) and passage.is_fixed(first):
        first, second = second, first
    if not passage.is_fixed(second) or passage.is_fixed(first):
        return None
    if calls(step, Mul, Div):
        return _Change(first, factor=second, by=Reciprocal if calls(step, Div) else None)
    return _Change(first, shift=second, by=Neg if calls(step, Sub) else None)


def _fits(passage: Passage, change: _Change, product: _Product, made: Spec) -> bool:
    """Whether factor and shift vary with the output alone, and the result has the same shape."""
    if passage.spec(change.source) != made:
        return False
    if change.factor is None and product.keeps_no_bias:
        return False
    if change.factor is not None and change.shift is not None:
        return product.axis == 1  # As that of a normalisation does.
    changing = (operand for operand in (change.factor, change.shift) if operand is not None)
    return all(_varies_along(passage.spec(operand), product, made) for operand in changing)


def _varies_along(spec: Spec | None, product: _Product, made: Spec) -> bool:
    if spec is None or spec.dtype != made.dtype or len(spec.shape) > len(made.shape):
        return False
    shape = (1,) * (len(made.shape) - len(spec.shape)) + spec.shape
    return all(
        size == 1 or (axis == product.axis and size == product.outputs)
        for axis, size in enumerate(shape)
    )


# -- products with weights ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Product:
    """A step that multiplies by a weight, and where its outputs lie."""

    step: Step
    weight: Operand
    bias: Operand | None
    outputs: int
    # Of the result, and of the weight.
    axis: int
    weight_axis: int
    groups: int = 1
    # By what a Gemm multiplies its bias.
    beta: float = 1.0
    # The step that adds the bias, where the product itself does not.
    adding: Step | None = None

    @property
    def keeps_no_bias(self) -> bool:
        """Whether a shift would remain a step of its own."""
        return self.adding is None and calls(self.step, MatMul)


def _product(passage: Passage, source: Operand) -> _Product | None:
    """The product that makes this and only this, by a weight that is nobody else's."""
    step = passage.inner(source, Conv, ConvTranspose, Gemm, MatMul, Add)
    if step is None:
        return None
    (made,) = step.specs
    product = (_sum if calls(step, Add) else _plain)(passage, step, made)
    if product is None or not passage.is_fixed(product.weight):
        return None
    if product.bias is not None and not passage.is_fixed(product.bias):
        return None
    weight = passage.spec(product.weight)
    is_alone = passage.is_read_once(product.weight)
    return product if is_alone and weight is not None and weight.dtype == made.dtype else None


def _plain(passage: Passage, step: Step, made: Spec) -> _Product | None:
    if calls(step, Conv):
        bound = given(step, Conv)
        return _Product(step, bound["W"], bound["B"], made.shape[1], 1, 0)
    if calls(step, ConvTranspose):
        bound = given(step, ConvTranspose)
        groups = bound["group"]
        return _Product(step, bound["W"], bound["B"], made.shape[1], 1, 1, groups=groups)
    if calls(step, Gemm):
        bound = given(step, Gemm)
        axis = 0 if bound["transB"] else 1
        beta = bound["beta"]
        bias = bound["C"] if beta else None
        return _Product(step, bound["B"], bias, made.shape[1], 1, axis, beta=beta)
    weight = passage.spec(step.operands[1])
    if weight is None or len(weight.shape) != 2 or not made.shape:
        return None
    return _Product(step, step.operands[1], None, made.shape[-1], len(made.shape) - 1, 1)


def _sum(passage: Passage, step: Step, made: Spec) -> _Product | None:
    """A MatMul and the bias that is added to it, which varies with the output alone."""
    for source, bias in (step.operands, step.operands[::-1]):
        product = passage.inner(source, MatMul)
        if product is None or product.specs != step.specs or not passage.is_fixed(bias):
            continue
        plain = _plain(passage, product, made)
        if plain is not None and _varies_along(passage.spec(bias), plain, made):
            return _Product(product, plain.weight, bias, plain.outputs, plain.axis, 1, adding=step)
    return None


# -- folding --------------------------------------------------------------------------------------


class _Folding:
    """The steps that make the new weight and bias, and the product with them."""

    def __init__(self, passage: Passage, root: Step, product: _Product) -> None:
        self.passage = passage
        self.root = root
        self.product = product
        self.ahead: list[Step] = []

    def steps(self, change: _Change) -> list[Step]:
        factor = self._by_output(change.factor, change.by)
        shift = self._by_output(change.shift, change.by)
        product, weight = self.product, self.product.weight
        if factor is not None:
            layout = {"axis": product.weight_axis, "groups": product.groups}
            weight = self._made(weight, scaled_outputs, (weight, factor), "ScaledWeight", **layout)
        bias = self._bias(factor, shift)
        return [*self.ahead, *self._rebuilt(weight, bias)]

    def _by_output(self, operand: Operand | None, by: Op[Any] | None) -> Operand | None:
        """A factor or a shift as a vector."""
        if operand is None:
            return None
        outputs = self.product.outputs
        value: Any = self.passage.constant(operand)
        if value is not None:
            vector: Any = by_output(HOST, value if by is None else by(HOST, value), outputs=outputs)
            return Embedded(vector)
        if by is not None:
            operand = self._made(operand, by, (operand,), "Opposite")
        return self._made((outputs,), by_output, (operand,), "ByOutput", outputs=outputs)

    def _bias(self, factor: Operand | None, shift: Operand | None) -> Operand | None:
        bias = self.product.bias
        if bias is not None and self.product.beta != 1:
            beta = Embedded(np.asarray(self.product.beta, self.root.specs[0].dtype))
            bias = self._joined(Mul, bias, beta)
        if bias is not None and factor is not None:
            bias = self._joined(Mul, bias, factor)
        if bias is None or shift is None:
            return shift if bias is None else bias
        return self._joined(Add, bias, shift)

    def _joined(self, op: Any, one: Operand, other: Operand) -> int:
        shapes = [spec.shape for o in (one, other) if (spec := self.passage.spec(o)) is not None]
        return self._made(np.broadcast_shapes(*shapes), op, (one, other), op.name)

    def _made(
        self,
        like: Operand | tuple[int, ...],
        called: Called,
        operands: Sequence[Operand],
        title: str,
        **attributes: Any,
    ) -> int:
        """The register of one more array that is made ahead of the calls."""
        spec = None if isinstance(like, tuple) else self.passage.spec(like)
        shape = like if isinstance(like, tuple) else spec.shape if spec else ()
        made = self.passage.fresh(shape, self.root.specs[0].dtype)
        self.ahead.append(ahead_of(self.root, made, called, operands, title, **attributes))
        return made[0]

    def _rebuilt(self, weight: Operand, bias: Operand | None) -> list[Step]:
        """The product again, with these; it makes what the root made."""
        old = self.product.step
        function, attributes = call_of(old).function, dict(call_of(old).attributes)
        if calls(old, MatMul):
            operands = (old.operands[0], weight)
            if bias is None:
                return [calling(self.root, function, operands, old.title)]
            made = self.passage.fresh(*old.specs[0])
            first = ahead_of(self.root, made, function, operands, old.title)
            return [first, calling(self.root, Add, (made[0], bias), Add.name)]
        if calls(old, Gemm):
            attributes["beta"] = 1.0
        operands = (old.operands[0], weight, *(() if bias is None else (bias,)))
        arguments = (HOLE, HOLE, None if bias is None else HOLE)
        return [calling(self.root, function, operands, old.title, arguments, **attributes)]
