"""Zeros around the input of a convolution, which its own padding adds without a copy.

TensorFlow's exporters write such a Pad before each convolution with a stride, and so do models of
PyTorch whose padding is not the same at both ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.graph.rewriting.rewriter import (
    Passage,
    Replacement,
    attributes_of,
    call_of,
    calls,
    instead_of,
    parameters_of,
)
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.axes import axes_within
from sardonyx.ops.convolution import Conv, windows_of_filters
from sardonyx.ops.layout import Pad, pad_with_attribute
from sardonyx.ops.windows import Windows

_LAYOUT = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def pad_within_convolution(passage: Passage, step: Step) -> Replacement:
    """Let a convolution add the zeros that a Pad before it adds."""
    pad = passage.producer(step.operands[0], Pad, pad_with_attribute)
    values = parameters_of(step, Conv)
    if pad is None or values["X"] != step.operands[0]:
        return None
    added = _zeros_of(passage, pad)
    if added is None or any((*added[0], *added[1])):
        return None
    windows = windows_of(passage, step)
    before, after = (
        [own[end] + more[end] for own, more in zip(windows.pads, added[2:], strict=True)]
        for end in (0, 1)
    )
    # Wider padding than a window reaches is a mistake to some libraries.
    reach = [(k - 1) * d for k, d in zip(windows.kernel, windows.dilations, strict=True)]
    if any(max(ends) > most for *ends, most in zip(before, after, reach, strict=True)):
        return None
    attributes = {**attributes_of(step), "auto_pad": "NOTSET", "pads": (*before, *after)}
    operands = (pad.operands[0], *step.operands[1:])
    return [instead_of(step, Conv, operands, call_of(step).arguments, **attributes)]


def _zeros_of(passage: Passage, pad: Step) -> list[tuple[int, int]] | None:
    """How many zeros the step adds to each axis, at both ends; None if it does anything else."""
    op = Pad if calls(pad, Pad) else pad_with_attribute
    values = parameters_of(pad, op)
    rank = len(passage.spec(pad.operands[0]).shape)
    number = values["value"] if op is pad_with_attribute else _number(passage, values)
    if values["data"] != pad.operands[0] or values["mode"] != "constant" or number != 0:
        return None
    pads, axes = values["pads"], values.get("axes")
    axes = axes_within(range(rank) if axes is None else axes, rank)
    if any(each < 0 for each in pads):
        return None
    widths = [(0, 0)] * rank
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        widths[axis] = (before, after)
    return widths


def _number(passage: Passage, values: dict[str, Any]) -> float | None:
    operand = values["constant_value"]
    return 0.0 if operand is None else passage.scalar(operand)


def windows_of(passage: Passage, convolution: Step) -> Windows:
    """Return the windows of a Conv, whose shapes and attributes are all known."""
    values = parameters_of(convolution, Conv)
    x, weight = (_without_data(passage.spec(values[name])) for name in ("X", "W"))
    return windows_of_filters(x, weight, **{name: values[name] for name in _LAYOUT})


def _without_data(spec: Spec) -> Any:
    """Return an array of that shape which takes no memory: only its shape is read."""
    return np.broadcast_to(np.empty((), np.bool_), spec.shape)
