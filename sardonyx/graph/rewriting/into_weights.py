"""A product with weights, then a factor or a shift for each output: both go into the weights.

The terms of the sums are the same, but multiplied before instead of after: results differ by a few
units in the last place of the largest term. Only in float32 and float64, where weights lose as
little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.graph.rewriting.rewriter import (
    Called,
    Passage,
    Replacement,
    attributes_of,
    call_of,
    calls,
    instead_of,
    orders,
    parameters_of,
)
from sardonyx.graph.tracing.op_call import HOLE
from sardonyx.graph.tracing.steps import Embedded, Operand, Step
from sardonyx.ops.convolution import Conv, ConvTranspose
from sardonyx.ops.definition import Ints, Op
from sardonyx.ops.elementwise import Add, Div, Mul, Neg, Reciprocal, Sub
from sardonyx.ops.linalg import Gemm, MatMul
from sardonyx.ops.weight_ops import by_output, scaled_and_shifted, scaled_outputs


def fold_into_weights(passage: Passage, step: Step) -> Replacement:
    """Change the weight and the bias of a product instead of its result."""
    (spec,) = step.specs
    if spec.dtype not in (np.float32, np.float64):
        return None
    change = _change(passage, step)
    product = None if change is None else _product(passage, change.source)
    if change is None or product is None or not _fits(passage, change, product, spec):
        return None
    return _Folding(passage, step, product).steps(change)


# -- what is done to each output ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Change:
    """What a step does with its operand: times a factor, or plus a shift, or both."""

    source: Operand
    factor: Operand | None = None
    shift: Operand | None = None
    # The op to apply to the factor or the shift first.
    by: Op[Any] | None = None


def _change(passage: Passage, step: Step) -> _Change | None:
    if calls(step, scaled_and_shifted):
        source, factor, shift = step.operands
        return _Change(source, factor, shift)
    for source, other in orders(step):
        if passage.is_fixed(other) and not passage.is_fixed(source):
            if calls(step, Mul, Div):
                by = Reciprocal if calls(step, Div) else None
                return _Change(source, factor=other, by=by)
            return _Change(source, shift=other, by=Neg if calls(step, Sub) else None)
    return None


def _fits(passage: Passage, change: _Change, product: _Product, result: Spec) -> bool:
    """Whether factor and shift vary with the output alone, and the result has the same shape."""
    if passage.spec(change.source) != result:
        return False
    if change.factor is None and product.adding is None and calls(product.step, MatMul):
        return False  # The shift would remain a step of its own.
    if change.factor is not None and change.shift is not None:
        return product.axis == 1  # As that of a normalisation does.
    changing = (operand for operand in (change.factor, change.shift) if operand is not None)
    return all(_varies_along(passage.spec(operand), product, result) for operand in changing)


def _varies_along(spec: Spec, product: _Product, result: Spec) -> bool:
    rank = len(result.shape)
    if spec.dtype != result.dtype or len(spec.shape) > rank:
        return False
    return all(
        size == 1 or (axis == product.axis and size == product.outputs)
        for axis, size in enumerate(spec.shape, rank - len(spec.shape))
    )


# -- products with weights ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Product:
    """A step that multiplies by a weight, and where its outputs lie."""

    step: Step
    weight: Operand
    bias: Operand | None
    # The axis of the outputs in the result, and in the weight.
    axis: int
    weight_axis: int
    groups: int = 1
    # The factor by which a Gemm multiplies its bias.
    beta: float = 1.0
    # The step that adds the bias, where the product itself does not.
    adding: Step | None = None

    @property
    def outputs(self) -> int:
        return self.step.specs[0].shape[self.axis]


def _product(passage: Passage, source: Operand) -> _Product | None:
    """The product that `source` alone is the result of, if nothing else reads its weight."""
    step = passage.sole_producer(source, Conv, ConvTranspose, Gemm, MatMul, Add)
    if step is None:
        return None
    product = (_sum if calls(step, Add) else _plain)(passage, step)
    if product is None or not passage.is_fixed(product.weight):
        return None
    if product.bias is not None and not passage.is_fixed(product.bias):
        return None
    is_same_type = passage.spec(product.weight).dtype == step.specs[0].dtype
    return product if is_same_type and passage.is_read_once(product.weight) else None


def _plain(passage: Passage, step: Step) -> _Product | None:
    if calls(step, Conv):
        values = parameters_of(step, Conv)
        return _Product(step, values["W"], values["B"], 1, 0)
    if calls(step, ConvTranspose):
        values = parameters_of(step, ConvTranspose)
        return _Product(step, values["W"], values["B"], 1, 1, groups=values["group"])
    if calls(step, Gemm):
        values = parameters_of(step, Gemm)
        beta, axis = values["beta"], 0 if values["transB"] else 1
        return _Product(step, values["B"], values["C"] if beta else None, 1, axis, beta=beta)
    weight, rank = step.operands[1], len(step.specs[0].shape)
    if len(passage.spec(weight).shape) != 2 or not rank:
        return None
    return _Product(step, weight, None, rank - 1, 1)


def _sum(passage: Passage, step: Step) -> _Product | None:
    """A MatMul and the bias that is added to it, which varies with the output alone."""
    for source, bias in orders(step):
        product = passage.sole_producer(source, MatMul)
        if product is None or product.specs != step.specs or not passage.is_fixed(bias):
            continue
        plain = _plain(passage, product)
        if plain is not None and _varies_along(passage.spec(bias), plain, step.specs[0]):
            return _Product(product, plain.weight, bias, plain.axis, 1, adding=step)
    return None


# -- folding --------------------------------------------------------------------------------------


class _Folding:
    """The steps that compute the new weight and bias, and the product with them."""

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
            shape = self.passage.spec(weight).shape
            scaled = (weight, factor)
            weight = self._prepared(shape, scaled_outputs, scaled, "ScaledWeight", **layout)
        bias = self._bias(factor, shift)
        return [*self.ahead, *self._rebuilt(weight, bias)]

    def _by_output(self, operand: Operand | None, by: Op[Any] | None) -> Operand | None:
        """A factor or a shift as a vector."""
        if operand is None:
            return None
        outputs = self.product.outputs
        if by is not None:
            operand = self._prepared(self.passage.spec(operand).shape, by, (operand,), "Opposite")
        return self._prepared((outputs,), by_output, (operand,), "ByOutput", outputs=outputs)

    def _bias(self, factor: Operand | None, shift: Operand | None) -> Operand | None:
        bias = self.product.bias
        if bias is None:
            return shift
        if self.product.beta != 1:
            beta = Embedded(np.asarray(self.product.beta, self.root.specs[0].dtype))
            bias = self._joined(Mul, bias, beta)
        if factor is not None:
            bias = self._joined(Mul, bias, factor)
        return bias if shift is None else self._joined(Add, bias, shift)

    def _joined(self, op: Op[Any], one: Operand, other: Operand) -> int:
        shape = np.broadcast_shapes(self.passage.spec(one).shape, self.passage.spec(other).shape)
        return self._prepared(shape, op, (one, other), op.name)

    def _prepared(
        self, shape: Ints, called: Called, operands: Sequence[Operand], title: str, **options: Any
    ) -> int:
        """The register of one more array that is computed ahead of the calls."""
        spec = Spec(shape, self.root.specs[0].dtype)
        step = self.passage.ahead_of(self.root, spec, called, operands, title=title, **options)
        self.ahead.append(step)
        return step.results[0]

    def _rebuilt(self, weight: Operand, bias: Operand | None) -> list[Step]:
        """The product with these, in place of the root."""
        old = self.product.step
        function, attributes = call_of(old).function, attributes_of(old) | {"title": old.title}
        operands = (old.operands[0], weight)
        if calls(old, MatMul):
            if bias is None:
                return [instead_of(self.root, function, operands, **attributes)]
            first = self.passage.ahead_of(self.root, old.specs[0], function, operands, **attributes)
            return [first, instead_of(self.root, Add, (*first.results, bias))]
        if calls(old, Gemm):
            attributes["beta"] = 1.0
        if bias is None:
            return [instead_of(self.root, function, operands, (HOLE, HOLE, None), **attributes)]
        return [instead_of(self.root, function, (*operands, bias), **attributes)]
