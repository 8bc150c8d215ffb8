"""Data parallelism: every device has all weights and a part of the batch."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.graph.ir import ValueInfo


def batch_axes(inputs: Sequence[ValueInfo]) -> dict[str, int]:
    """Return the batch axis of each input that has one; for the first input it is axis 0.

    Other inputs have their batch axis where they declare the same name. If it has no name, it is
    axis 0 of inputs that declare the same size there, or none.
    """
    shapes = {info.name: info.shape for info in inputs if info.shape}
    if not shapes:
        return {info.name: 0 for info in inputs if info.shape is None}
    batch = next(iter(shapes.values()))[0]
    if isinstance(batch, str):
        return {name: shape.index(batch) for name, shape in shapes.items() if batch in shape}
    return {name: 0 for name, shape in shapes.items() if shape[0] in (batch, None)}
