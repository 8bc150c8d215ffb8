"""LoRA: small matrices that are trained in place of a model's weights, and added to them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from sardonyx.backends import random
from sardonyx.errors import InvalidInput
from sardonyx.to_jax.backend import inside_backend
from sardonyx.to_jax.params import Choice, is_trained_by_default, split_params

_FLOAT32 = np.dtype(np.float32)


class LowRank(NamedTuple):
    """An overlay: the matrix `up @ down` of low rank, which is added to a weight."""

    up: Any
    down: Any


def lora_init(
    params: Mapping[str, Any], rank: int, names: Choice | None = None, *, key: Any
) -> dict[str, LowRank]:
    """Create LoRA overlays for the matrices among the params; at first they add zero.

    For an array of more axes the first axis gives the matrix's rows, the others its columns.
    `names` chooses among the floats, as in `split_params`; `key` is a number or one of JAX's keys.

    >>> import sardonyx
    >>> fn, params = sardonyx.to_jax("examples/encoder.onnx")
    >>> adapters = sardonyx.lora_init(params, rank=2, key=0)
    >>> tuned = sardonyx.apply_overlays(params, adapters)
    >>> tuned.keys() == params.keys()
    True
    """
    if rank < 1:
        raise InvalidInput(f"The rank of an overlay is at least 1, not {rank}.")
    chosen, _ = split_params(params, names)
    backend = inside_backend()
    overlays = {}
    for name, array in chosen.items():
        if len(array.shape) < 2 or not is_trained_by_default(name, array):
            continue
        rows, columns = array.shape[0], math.prod(array.shape[1:])
        with backend.scope():
            own = random.fold_in(backend, backend.key(key), crc32(name.encode()))
            drawn = random.normal(backend, own, (rank, columns), _FLOAT32) / math.sqrt(columns)
            down = backend.astype(drawn, array.dtype)
            overlays[name] = LowRank(backend.zeros((rows, rank), dtype=array.dtype), down)
    return overlays


def apply_overlays(
    params: Mapping[str, Any], overlays: Mapping[str, Any], *, scale: float = 1.0
) -> dict[str, Any]:
    """The params with overlays applied; params without an overlay are shared, not copied.

    A `LowRank` is multiplied by `scale` and added to the param. An array replaces it.

    >>> import numpy as np, sardonyx
    >>> sardonyx.apply_overlays({"a": np.zeros(2), "b": np.zeros(2)}, {"b": np.ones(2)})["b"]
    array([1., 1.])
    """
    if unknown := [name for name in overlays if name not in params]:
        raise InvalidInput(
            f"There is no param '{unknown[0]}' to apply an overlay to; look at params.keys()."
        )
    return {
        name: _applied(array, overlays[name], scale) if name in overlays else array
        for name, array in params.items()
    }


def _applied(array: Any, overlay: Any, scale: float) -> Any:
    if not isinstance(overlay, LowRank):
        return overlay
    added = scale * (overlay.up @ overlay.down).reshape(array.shape)
    return array + added.astype(array.dtype)
