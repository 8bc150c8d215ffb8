"""What cuDNN's plans compute, and what it should be."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from sardonyx.backends.numpy import HOST

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HALF = np.dtype(np.float16)
FLOATS = [np.dtype(d) for d in ("float16", "float32", "float64", BFLOAT16)]
NARROW = [HALF, BFLOAT16]


def plans(backend: CupyBackend) -> dict[Any, Any]:
    from sardonyx.backends.cupy.cudnn.plans import plans_of  # noqa: PLC0415

    return {**plans_of(backend.device)._known, **backend.convolution_plans._known}


def trusted(backend: CupyBackend) -> list[bool]:
    return [plan.is_trusted for plan in plans(backend).values()]


def fused(backend: CupyBackend, function: Any, *arrays: Any) -> tuple[np.ndarray[Any, Any], Any]:
    """Return the result of a fused segment, and the reasons that were noted."""
    reasons: list[str] = []
    placed = [backend.put(array) for array in arrays]
    executable = backend.bind(function, placed, reasons.append)
    for _ in range(2):
        (found,) = executable.run(*placed)
    return np.asarray(backend.fetch(found)), reasons


# What cuDNN itself says, on a GPU, of graphs that it has no kernels for; and what its kernels do
# with NaN and infinities where sardonyx must not use them.
REFUSALS = ("No valid engine configs", "NaN and infinities differ")


def unexpected(reasons: Iterable[str]) -> list[str]:
    """Return the reasons that the device cannot have: the emulated one computes all graphs."""
    counts = importlib.import_module("emulated_cuda.counts")
    is_emulated = counts.available()
    return [each for each in reasons if is_emulated or not any(word in each for word in REFUSALS)]


def on_host(function: Any, *arrays: Any) -> np.ndarray[Any, Any]:
    wide = [array.astype(np.float64) for array in arrays]
    with HOST.scope():
        (expected,) = function(HOST, *wide)
    return np.asarray(expected)
