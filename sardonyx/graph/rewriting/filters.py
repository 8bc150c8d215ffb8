"""Filters of convolutions in the order in which the device's library reads them."""

from __future__ import annotations

from sardonyx.backends.executable import Spec
from sardonyx.graph.rewriting.rewriter import Passage, Replacement, attributes_of, instead_of
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.fused_products import (
    convolution_by_filters_with_channels_last,
    filters_with_channels_last,
)


def turn_filters(passage: Passage, step: Step) -> Replacement:
    """Put the channels of fixed filters last ahead of all calls, if each call would do so."""
    source, weight, *others = step.operands
    x, w = passage.spec(source), passage.spec(weight)
    if not passage.is_fixed(weight) or all(map(passage.is_fixed, step.operands)):
        return None
    if not passage.backend.reads_filters_with_channels_last(x, w):
        return None
    count, channels, *kernel = w.shape
    turned = passage.ahead_of(
        step,
        Spec((count, *kernel, channels), w.dtype),
        filters_with_channels_last,
        (weight,),
        title="PackedWeight",
    )
    operands = (source, *turned.results, *others)
    attributes = attributes_of(step)
    called = convolution_by_filters_with_channels_last
    return [turned, instead_of(step, called, operands, title=step.title, **attributes)]
