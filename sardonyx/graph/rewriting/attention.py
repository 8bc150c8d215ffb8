"""Attention as exporters spell it out: products, scale, mask and softmax in one step.

For the sake of what a backend has for it, be it a kernel or fewer passes over the scores; and so
that heads which share keys and values need no copies of these. Elsewhere left as it is. The same
sums in the same type: results differ by a few units in the last place of the largest value. Narrow
floats are rounded where their products end, and no more in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sardonyx.backends.dtypes import kind_of
from sardonyx.graph.rewriting.cancelling import RESHAPES, order_of
from sardonyx.graph.rewriting.rewriter import (
    Called,
    Passage,
    Replacement,
    ahead_of,
    calling,
    calls,
    given,
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
    """A product of values with weights that are a softmax of another product."""
    if not passage.can_add or kind_of(step.specs[0].dtype) != "real floating":
        return None
    found = _Found(passage)
    weights = found.unguarded(step.operands[0])
    scores = None if weights is None else found.below_softmax(weights)
    product = None if scores is None else found.below_bias(scores)
    if product is None or not passage.is_closed(found.chain, step):
        return None
    first, second = (found.unscaled(operand) for operand in product.operands)
    if not found.fits(first, second, step):
        return None
    fusing = _Fusing(passage, step, found)
    steps = fusing.steps(first, second)
    attends = passage.backend is not None and passage.backend.attends
    return steps if attends or fusing.is_shared else None


# -- finding it -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """What has been learnt of the steps that lead up to the weights."""

    passage: Passage
    chain: list[Step] = field(default_factory=list)
    scale: float = 1.0
    bias: Operand | None = None
    is_guarded: bool = False

    def unguarded(self, weights: Operand) -> Operand | None:
        """The weights before those that are no numbers were made zero, if they were."""
        chosen = self.passage.maker(weights, Where)
        if chosen is None:
            return weights
        is_nan, zero, otherwise = chosen.operands
        asked = self.passage.maker(is_nan, IsNaN)
        if asked is None or asked.operands[0] != otherwise or self.passage.scalar(zero) != 0:
            return None
        self.is_guarded = True
        self.chain += [chosen, asked]
        return otherwise

    def below_softmax(self, weights: Operand) -> Operand | None:
        """What the softmax over the last axis is taken of; it may be taken in a wider type."""
        narrowed = self.passage.maker(weights, Cast)
        source = weights if narrowed is None else narrowed.operands[0]
        softmax = self.passage.maker(source, Softmax, softmax_of_flattened)
        if softmax is None or not _is_over_last(softmax):
            return None
        self.chain.append(softmax)
        if narrowed is None:
            return softmax.operands[0]
        widened = self.passage.maker(softmax.operands[0], Cast)
        is_wide = softmax.specs[0].dtype == np.float32
        if widened is None or not is_wide or narrowed.specs[0].dtype.itemsize != 2:
            return None
        self.chain += [narrowed, widened]
        same = self.passage.spec(widened.operands[0])
        return widened.operands[0] if same == narrowed.specs[0] else None

    def below_bias(self, scores: Operand) -> Step | None:
        """The product of queries and keys, to which something may have been added."""
        total = self.passage.maker(scores, Add)
        if total is None:
            return self._product(scores)
        self.chain.append(total)
        for operand, bias in (total.operands, total.operands[::-1]):
            product = self._product(operand)
            if product is not None:
                self.bias = None if self._is_zero(bias) else bias
                return product
        return None

    def _product(self, scores: Operand) -> Step | None:
        product = self.passage.maker(self.unscaled(scores), MatMul)
        if product is not None:
            self.chain.append(product)
        return product

    def unscaled(self, operand: Operand) -> Operand:
        """What was multiplied by a scalar to make this, if nobody else reads it."""
        scaled = self.passage.inner(operand, Mul, Div)
        if scaled is None:
            return operand
        pairs = [scaled.operands]
        if calls(scaled, Mul):
            pairs.append(scaled.operands[::-1])
        for source, factor in pairs:
            value = self.passage.scalar(factor)
            if value and self.passage.spec(source) == scaled.specs[0]:
                self.scale *= value if calls(scaled, Mul) else 1 / value
                self.chain.append(scaled)
                return source
        return operand

    def _is_zero(self, bias: Operand) -> bool:
        value = self.passage.constant(bias)
        return value is not None and not value.any()

    def fits(self, query: Operand, keys: Operand, step: Step) -> bool:
        """Whether all have the same heads and type, and the bias does not reach beyond scores."""
        operands = (query, keys, step.operands[1])
        specs = [spec for o in operands if (spec := self.passage.spec(o)) is not None]
        dtypes, outer = {spec.dtype for spec in specs}, {spec.shape[:-2] for spec in specs}
        if len(specs) < 3 or dtypes != {step.specs[0].dtype} or len(outer) != 1:
            return False
        if min(len(spec.shape) for spec in specs) < 3:
            return False
        scores = (*specs[0].shape[:-1], specs[1].shape[-1])
        return 0 not in scores and self._bias_fits(scores, step)

    def _bias_fits(self, scores: Ints, step: Step) -> bool:
        if self.bias is None:
            return True
        spec = self.passage.spec(self.bias)
        if spec is None or spec.dtype != step.specs[0].dtype or len(spec.shape) > len(scores):
            return False
        tail = scores[len(scores) - len(spec.shape) :]
        return all(size in (1, whole) for size, whole in zip(spec.shape, tail, strict=True))


def _is_over_last(softmax: Step) -> bool:
    op: Called = Softmax if calls(softmax, Softmax) else softmax_of_flattened
    axis: int = given(softmax, op)["axis"]
    return axis in (-1, len(softmax.specs[0].shape) - 1)


# -- fusing it ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Fusing:
    """The steps that bring queries, keys and values into place, and the one that uses them."""

    passage: Passage
    root: Step
    found: _Found
    ahead: list[Step] = field(default_factory=list)
    # Whether several heads of queries share keys and values that were repeated for them.
    is_shared: bool = False

    def steps(self, query: Operand, transposed: Operand) -> list[Step]:
        keys = self._unrepeated(self._transposed_back(transposed))
        values = self._unrepeated(self.root.operands[1])
        if self._heads(keys) != self._heads(values):
            keys, values = self._transposed_back(transposed), self.root.operands[1]
        self.is_shared = self._heads(keys) != self._heads(query)
        operands = [query, keys, values]
        if self.found.bias is not None:
            operands.append(self.found.bias)
        fused = calling(
            self.root,
            attended,
            operands,
            "Attention",
            scale=self.found.scale,
            is_guarded=self.found.is_guarded,
        )
        return [*self.ahead, fused]

    def _heads(self, operand: Operand) -> int:
        return self._shape(operand)[-3]

    def _shape(self, operand: Operand) -> Ints:
        spec = self.passage.spec(operand)
        assert spec is not None
        return spec.shape

    def _transposed_back(self, operand: Operand) -> Operand:
        """Keys as they were before their last two axes were swapped."""
        shape = self._shape(operand)
        wanted = (*shape[:-2], shape[-1], shape[-2])
        source = self._unshaped(operand)
        transposed = self.passage.maker(source, Transpose)
        if transposed is not None:
            order = order_of(transposed)
            whole = (*order[:-2], order[-1], order[-2])
            swapped = (*range(len(order) - 2), len(order) - 1, len(order) - 2)
            if self._shape(source) == shape:
                return self._transposed(transposed.operands[0], whole, wanted)
            if order == swapped and self._shape(source)[-2:] == shape[-2:]:
                return self._shaped(transposed.operands[0], wanted)
        swapped = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        return self._transposed(operand, swapped, wanted)

    def _unrepeated(self, operand: Operand) -> Operand:
        """Keys or values before they were repeated for the queries that share them."""
        batch_and_heads, last = self._shape(operand)[:-2], self._shape(operand)[-2:]
        repeated = self.passage.maker(self._unshaped(operand), Expand)
        if repeated is None or len(batch_and_heads) != 2:
            return operand
        source, whole = self._shape(repeated.operands[0]), repeated.specs[0].shape
        if (
            len(whole) != 5
            or len(source) != 5
            or (whole[0], whole[3:]) != (batch_and_heads[0], last)
        ):
            return operand
        if source != (*whole[:2], 1, *whole[3:]):
            return operand
        return self._shaped(repeated.operands[0], (*source[:2], *last))

    def _unshaped(self, operand: Operand) -> Operand:
        while (reshaped := self.passage.maker(operand, *RESHAPES)) is not None:
            operand = reshaped.operands[0]
        return operand

    def _shaped(self, operand: Operand, shape: Ints) -> Operand:
        """The operand in this shape, which a step on its way to it may have had."""
        source: Operand | None = operand
        while source is not None:
            if self._shape(source) == shape:
                return source
            reshaped = self.passage.maker(source, *RESHAPES)
            source = None if reshaped is None else reshaped.operands[0]
        return self._made(shape, Reshape, operand, (HOLE, shape), allowzero=1)

    def _transposed(self, operand: Operand, order: Ints, shape: Ints) -> Operand:
        if order == tuple(range(len(order))):
            return operand
        return self._made(shape, Transpose, operand, (HOLE,), perm=order)

    def _made(
        self, shape: Ints, op: Called, operand: Operand, arguments: Sequence[Any], **attributes: Any
    ) -> int:
        made = self.passage.fresh(shape, self.root.specs[0].dtype)
        title = "Transpose" if op is Transpose else "Reshape"
        step = ahead_of(self.root, made, op, (operand,), title, arguments, **attributes)
        self.ahead.append(step)
        return made[0]
