"""The shapes of the calls for which a model is compiled ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import ValueInfo


def completed_shapes(
    inputs: Sequence[ValueInfo], signature: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all inputs; those that are left out need shapes of fixed sizes."""
    shapes = dict(signature)
    for info in inputs:
        if info.dtype in (None, np.dtype(object)):
            raise InvalidInput(
                f"The input {info} is no array of numbers, so a shape is not enough: load the "
                "model with a folder as cache=, and call it once."
            )
        if info.name not in shapes:
            sizes = [size for size in info.shape or () if isinstance(size, int)]
            if info.shape is None or len(sizes) < len(info.shape):
                raise InvalidInput(
                    f"The sizes of the input {info} are not all fixed: pass them as in "
                    f"--shape {info.name}=1,3,224,224."
                )
            shapes[info.name] = tuple(sizes)
    return shapes
