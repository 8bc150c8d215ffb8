"""Attention written in small operators: products, scale, mask and softmax in one step.

A backend may have a kernel for it, or fewer passes over the scores; and heads that share keys and
values need no copies of these. Otherwise the steps stay. The sums and their type are the same:
results differ by a few units in the last place of the largest value. Narrow floats are rounded
where their products end, and no more in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sardonyx.backends.dtypes import kind_of
from sardonyx.backends.executable import Spec
from sardonyx.graph.rewriting.rewriter import (
    RESHAPES,
    Called,
    Passage,
    Replacement,
    calls,
    instead_of,
    orders,
    parameters_of,
)
from sardonyx.graph.tracing.op_call import HOLE
from sardonyx.graph.tracing.steps import Operand, Step
from sardonyx.ops.activation import Softmax, softmax_of_flattened
from sardonyx.ops.attention import attended
from sardonyx.ops.casting import Cast
from sardonyx.ops.definition import Ints
from sardonyx.ops.elementwise import Add, Div, IsNaN, Mul, Where
from sardonyx.ops.layout import Expand, Reshape, Transpose
from sardonyx.ops.linalg import MatMul


def fuse_attention(passage: Passage, step: Step) -> Replacement:
    """Fuse a product of values with weights that are a softmax of another product."""
    if kind_of(step.specs[0].dtype) != "real floating":
        return None
    match = _Match(passage)
    weights = match.unguarded(step.operands[0])
    scores = None if weights is None else match.below_softmax(weights)
    product = None if scores is None else match.below_bias(scores)
    if product is None or not passage.is_closed(match.chain, step):
        return None
    query, keys = map(match.unscaled, product.operands)
    if not match.fits(query, keys, step):
        return None
    fusion = _Fusion(passage, step)
    steps = fusion.steps(match, query, keys)
    return steps if passage.backend.attends or fusion.is_shared else None


# -- finding it -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Match:
    """The steps that lead up to the weights, and what they do."""

    passage: Passage
    chain: list[Step] = field(default_factory=list)
    scale: float = 1.0
    bias: Operand | None = None
    is_guarded: bool = False

    def unguarded(self, weights: Operand) -> Operand | None:
        """The weights before NaN was replaced by zero, if it was."""
        chosen = self.passage.producer(weights, Where)
        if chosen is None:
            return weights
        is_nan, zero, otherwise = chosen.operands
        condition = self.passage.producer(is_nan, IsNaN)
        if condition is None or condition.operands[0] != otherwise:
            return None
        if self.passage.scalar(zero) != 0:
            return None
        self.is_guarded = True
        self.chain += [chosen, condition]
        return otherwise

    def below_softmax(self, weights: Operand) -> Operand | None:
        """The operand of the softmax over the last axis, which may be taken in a wider type."""
        narrowed = self.passage.producer(weights, Cast)
        source = weights if narrowed is None else narrowed.operands[0]
        softmax = self.passage.producer(source, Softmax, softmax_of_flattened)
        if softmax is None or not _is_over_last(softmax):
            return None
        self.chain.append(softmax)
        if narrowed is None:
            return softmax.operands[0]
        widened = self.passage.producer(softmax.operands[0], Cast)
        is_wide = softmax.specs[0].dtype == np.float32
        if widened is None or not is_wide or narrowed.specs[0].dtype.itemsize != 2:
            return None
        self.chain += [narrowed, widened]
        is_same = self.passage.spec(widened.operands[0]) == narrowed.specs[0]
        return widened.operands[0] if is_same else None

    def below_bias(self, scores: Operand) -> Step | None:
        """The product of queries and keys, to which a bias may have been added."""
        total = self.passage.producer(scores, Add)
        if total is None:
            return self._product(scores)
        self.chain.append(total)
        for operand, bias in orders(total):
            product = self._product(operand)
            if product is not None:
                value = self.passage.constant(bias)
                self.bias = bias if value is None or value.any() else None
                return product
        return None

    def _product(self, scores: Operand) -> Step | None:
        product = self.passage.producer(self.unscaled(scores), MatMul)
        if product is not None:
            self.chain.append(product)
        return product

    def unscaled(self, operand: Operand) -> Operand:
        """The operand before it was multiplied by a scalar, if nothing else reads the product."""
        scaled = self.passage.sole_producer(operand, Mul, Div)
        for source, factor in () if scaled is None else orders(scaled):
            value = self.passage.scalar(factor)
            if scaled and value and self.passage.spec(source) == scaled.specs[0]:
                self.scale *= value if calls(scaled, Mul) else 1 / value
                self.chain.append(scaled)
                return source
        return operand

    def fits(self, query: Operand, keys: Operand, step: Step) -> bool:
        """Whether all have the same heads and type, and the bias does not reach beyond scores."""
        specs = [self.passage.spec(operand) for operand in (query, keys, step.operands[1])]
        dtypes, outer = {spec.dtype for spec in specs}, {spec.shape[:-2] for spec in specs}
        if dtypes != {step.specs[0].dtype} or len(outer) != 1:
            return False
        if min(len(spec.shape) for spec in specs) < 3:
            return False
        scores = (*specs[0].shape[:-1], specs[1].shape[-1])
        return 0 not in scores and self._bias_fits(scores, step)

    def _bias_fits(self, scores: Ints, step: Step) -> bool:
        if self.bias is None:
            return True
        shape, dtype = self.passage.spec(self.bias)
        if dtype != step.specs[0].dtype or len(shape) > len(scores):
            return False
        tail = scores[len(scores) - len(shape) :]
        return all(size in (1, whole) for size, whole in zip(shape, tail, strict=True))


def _is_over_last(softmax: Step) -> bool:
    op: Called = Softmax if calls(softmax, Softmax) else softmax_of_flattened
    axis: int = parameters_of(softmax, op)["axis"]
    return axis in (-1, len(softmax.specs[0].shape) - 1)


# -- fusing it ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Fusion:
    """The steps that bring queries, keys and values into place, and the one that uses them."""

    passage: Passage
    root: Step
    ahead: list[Step] = field(default_factory=list)
    # Whether several heads of queries share keys and values that were repeated for them.
    is_shared: bool = False

    def steps(self, match: _Match, query: Operand, transposed: Operand) -> list[Step]:
        keys = self._unrepeated(self._transposed_back(transposed))
        values = self._unrepeated(self.root.operands[1])
        if self._heads(keys) != self._heads(values):
            keys, values = self._transposed_back(transposed), self.root.operands[1]
        self.is_shared = self._heads(keys) != self._heads(query)
        operands = [query, keys, values, *([] if match.bias is None else [match.bias])]
        fused = instead_of(
            self.root,
            attended,
            operands,
            title="Attention",
            scale=match.scale,
            is_guarded=match.is_guarded,
        )
        return [*self.ahead, fused]

    def _heads(self, operand: Operand) -> int:
        return self._shape(operand)[-3]

    def _shape(self, operand: Operand) -> Ints:
        return self.passage.spec(operand).shape

    def _transposed_back(self, operand: Operand) -> Operand:
        """Keys as they were before their last two axes were swapped."""
        shape = self._shape(operand)
        wanted = _swapped(shape)
        source = self._unshaped(operand)
        transposed = self.passage.producer(source, Transpose)
        if transposed is not None:
            order = _order(transposed)
            if self._shape(source) == shape:
                return self._transposed(transposed.operands[0], _swapped(order), wanted)
            is_swap = order == _swapped(range(len(order)))
            if is_swap and self._shape(source)[-2:] == shape[-2:]:
                return self._shaped(transposed.operands[0], wanted)
        return self._transposed(operand, _swapped(range(len(shape))), wanted)

    def _unrepeated(self, operand: Operand) -> Operand:
        """Keys or values before they were repeated for the queries that share them."""
        repeated = self.passage.producer(self._unshaped(operand), Expand)
        if repeated is None or len(self._shape(operand)) != 4:
            return operand
        batch, _, *last = self._shape(operand)
        source, whole = self._shape(repeated.operands[0]), repeated.specs[0].shape
        if len(whole) != 5 or (whole[0], *whole[3:]) != (batch, *last):
            return operand
        if source != (*whole[:2], 1, *whole[3:]):
            return operand
        return self._shaped(repeated.operands[0], (*source[:2], *last))

    def _unshaped(self, operand: Operand) -> Operand:
        while (reshaped := self.passage.producer(operand, *RESHAPES)) is not None:
            operand = reshaped.operands[0]
        return operand

    def _shaped(self, operand: Operand, shape: Ints) -> Operand:
        """The operand in this shape, which a step on its way to it may have had."""
        source: Operand | None = operand
        while source is not None:
            if self._shape(source) == shape:
                return source
            reshaped = self.passage.producer(source, *RESHAPES)
            source = None if reshaped is None else reshaped.operands[0]
        return self._placed(shape, Reshape, operand, (HOLE, shape), allowzero=1)

    def _transposed(self, operand: Operand, order: Ints, shape: Ints) -> Operand:
        if order == tuple(range(len(order))):
            return operand
        return self._placed(shape, Transpose, operand, (HOLE,), perm=order)

    def _placed(
        self, shape: Ints, op: Called, operand: Operand, arguments: Sequence[Any], **attributes: Any
    ) -> int:
        """The register of a step that runs ahead of the fused one."""
        spec = Spec(shape, self.root.specs[0].dtype)
        step = self.passage.ahead_of(self.root, spec, op, (operand,), arguments, **attributes)
        self.ahead.append(step)
        return step.results[0]


def _order(transpose: Step) -> Ints:
    """The axes of the operand, in the order of the result's."""
    order: Ints | None = parameters_of(transpose, Transpose)["perm"]
    return tuple(reversed(range(len(transpose.specs[0].shape)))) if order is None else order


def _swapped(axes: Sequence[int]) -> Ints:
    """The same numbers with the last two exchanged."""
    return (*axes[:-2], axes[-1], axes[-2])
