"""`sardonyx.profile`: measures a model with options whose names are no names of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.arguments import check_count
from sardonyx.errors import InvalidInput
from sardonyx.graph.model.model import Model
from sardonyx.graph.profiling.profile import Profile

MOST_CALLS = 1_000_000


def profile(
    model: Model, inputs: Sequence[Any] | Mapping[str, Any], *, calls: int | None = None
) -> Profile:
    """Measure where calls of a model spend their time, as `Model.profile` does.

    `inputs` are a list of arrays, or arrays by name. `calls` is the number of calls to measure; by
    default, as many as it takes until the fastest of them agree.

    >>> import numpy as np, sardonyx
    >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    >>> sardonyx.profile(model, [np.zeros((1, 8, 48), np.float32)], calls=2).calls
    2
    """
    if not isinstance(model, Model):
        raise InvalidInput(f"The first argument is a {type(model).__name__}: pass a loaded model.")
    if calls is not None:
        check_count(calls, "A profile measures at least one call", MOST_CALLS)
    is_named = isinstance(inputs, Mapping)
    if not is_named and not isinstance(inputs, (list, tuple)):
        raise InvalidInput(
            f"The inputs are a {type(inputs).__name__}: pass a list of arrays, or a dict by name."
        )
    ordered: Sequence[Any] = () if is_named else list(inputs)
    named: Mapping[str, Any] = inputs if isinstance(inputs, Mapping) else {}
    return model._form_for(ordered, named).profile(ordered, named, calls)
