"""Convolutions of transposed arrays, as TensorFlow's exporter writes them, without transposing."""

from __future__ import annotations

from sardonyx.backends.executable import Spec
from sardonyx.graph.rewriting.rewriter import (
    Passage,
    Replacement,
    attributes_of,
    instead_of,
    parameters_of,
)
from sardonyx.graph.tracing.steps import Operand, Step
from sardonyx.ops.fused_products import convolution_of_channels_last, filters_with_channels_last
from sardonyx.ops.layout import Transpose


def keep_channels_last(passage: Passage, step: Step) -> Replacement:
    """Convolve an array as it is before a transposition that puts its channels first.

    The result is transposed instead, which the next convolution undoes. Filters are transposed
    ahead of all calls.
    """
    source, weight, *others = step.operands
    before = _with_channels_last(passage, source)
    if before is None:
        return None
    rank = len(passage.spec(source).shape)
    spec, filters = (_transposed(passage.spec(o), _last(rank)) for o in (source, weight))
    biases = [o for o in others if len(passage.spec(o).shape) == 1]
    addends = [o for o in others if len(passage.spec(o).shape) == rank]
    specs = [*map(passage.spec, biases)]
    specs += [_transposed(passage.spec(o), _last(rank)) for o in addends]
    attributes = attributes_of(step)
    if not passage.backend.convolves_channels_last(spec, filters, specs, **attributes):
        return None
    turned = passage.ahead_of(
        step, filters, filters_with_channels_last, (weight,), title="PackedWeight"
    )
    ahead = [turned]
    operands: list[Operand] = [before, *turned.results]
    for addend, turned_spec in zip(addends, specs[len(biases) :], strict=True):
        same = _with_channels_last(passage, addend)
        if same is None:
            ahead.append(
                passage.ahead_of(step, turned_spec, Transpose, (addend,), perm=_last(rank))
            )
            same = ahead[-1].results[0]
        operands.append(same)
    operands[2:2] = biases
    result = _transposed(step.specs[0], _last(rank))
    whole = passage.ahead_of(
        step, result, convolution_of_channels_last, operands, title=step.title, **attributes
    )
    back = instead_of(step, Transpose, whole.results, perm=_first(rank))
    return [*ahead, whole, back]


def _with_channels_last(passage: Passage, operand: Operand) -> Operand | None:
    """The operand before its channels became the second axis."""
    step = passage.producer(operand, Transpose)
    if step is None:
        return None
    perm = parameters_of(step, Transpose)["perm"]
    rank = len(passage.spec(operand).shape)
    return step.operands[0] if perm is not None and tuple(perm) == _first(rank) else None


def _transposed(spec: Spec, perm: tuple[int, ...]) -> Spec:
    return Spec(tuple([spec.shape[axis] for axis in perm]), spec.dtype)


def _last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))
