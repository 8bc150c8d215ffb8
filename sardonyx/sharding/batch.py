"""Data parallelism: every device has all weights, and its part of the batch."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.graph.ir import ValueInfo


def batch_axes(inputs: Sequence[ValueInfo]) -> dict[str, int]:
    """For each input that has one its axis of the batch: the first axis of the first input.

    Others have it where they declare the same name for an axis; if there is no name, where they
    declare the same size, or none, for their first one.
    """
    shapes = {info.name: info.shape for info in inputs if info.shape}
    if not shapes:
        return {info.name: 0 for info in inputs if info.shape is None}
    batch = next(iter(shapes.values()))[0]
    if isinstance(batch, str):
        return {name: shape.index(batch) for name, shape in shapes.items() if batch in shape}
    return {name: 0 for name, shape in shapes.items() if shape[0] in (batch, None)}
