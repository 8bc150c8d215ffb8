"""The layouts that XLA chooses for cuDNN's convolutions."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np

from sardonyx.backends.executable import Spec

_HALVES = frozenset({np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)})
_FLOATS = _HALVES | {np.dtype(np.float32)}
_AMPERE, _HOPPER = (8, 0), (9, 0)


def capability_of(device: jax.Device) -> tuple[int, int] | None:
    """Return the compute capability of NVIDIA's GPUs, such as (9, 0); None for other devices."""
    words = getattr(device, "compute_capability", None)
    if device.platform != "gpu" or not isinstance(words, str):
        return None
    major, dot, minor = words.partition(".")
    is_known = dot and major.isdecimal() and minor.isdecimal()
    return (int(major), int(minor)) if is_known else None


def has_channels_last(x: Spec, weight: Spec, capability: tuple[int, int] | None) -> bool:
    """Whether XLA convolves such arrays with their channels last.

    As jaxlib 0.10.2 compiles for A100 and H100: one or two spatial axes in float32 and shorter
    floats on H100, two in shorter floats on A100. Where XLA decides otherwise, it transposes the
    filters at each call.
    """
    spatial = len(weight.shape) - 2
    if capability is None or x.dtype != weight.dtype or weight.dtype not in _FLOATS:
        return False
    if capability >= _HOPPER:
        return spatial in (1, 2)
    return capability >= _AMPERE and weight.dtype in _HALVES and spatial == 2
