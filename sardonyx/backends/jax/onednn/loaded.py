"""The compiled kernels: loaded once, and made known to XLA."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias

import jax
import numpy as np

from sardonyx.backends.host_memory import zero_bytes
from sardonyx.backends.jax.onednn.build import BuildError, Kernels, built

PACK, RUN = TARGETS = ("sardonyx_onednn_pack", "sardonyx_onednn_run")
Bytes: TypeAlias = np.ndarray[Any, Any]

# The releases whose interface the kernels were written for.
SERIES = 3

_loading = Lock()
_outcome: list[Kernels | str] = []


@dataclass(frozen=True)
class Plan:
    """How oneDNN computes something: by which kernel, in how many pieces, with which weights."""

    kernel: str
    pieces: int
    packed_bytes: int


def status() -> str:
    """Whether oneDNN is used, and why not, in a sentence."""
    found = _found()
    if isinstance(found, str):
        return f"XLA's own kernels are used, not oneDNN's: {found}"
    return "oneDNN's kernels are used for products and convolutions on the CPU"


def is_available() -> bool:
    return _library() is not None


def identity() -> str:
    """What tells one build of the kernels from another; nothing where there are none."""
    found = _found()
    return "" if isinstance(found, str) else found.identity


def plan_of(spec: Sequence[int]) -> Plan | None:
    """None where oneDNN has no fast kernel for it."""
    library = _library()
    if library is None:
        return None
    kernel, pieces = ctypes.create_string_buffer(64), ctypes.c_int64()
    packed_bytes = library.sardonyx_onednn_plan(
        *_passed(spec), kernel, len(kernel), ctypes.byref(pieces)
    )
    if packed_bytes < 0:
        return None
    return Plan(kernel.value.decode(), pieces.value, packed_bytes)


def pack(spec: Sequence[int], packed_bytes: int, weight: Bytes) -> Bytes:
    """The weight as the kernels of this plan want it."""
    library = _library()
    packed = zero_bytes(packed_bytes)
    weight = np.ascontiguousarray(weight)
    plan = plan_of(spec)
    fits = plan is not None and plan.packed_bytes == packed_bytes
    if (
        library is None
        or not fits
        or library.sardonyx_onednn_pack_now(*_passed(spec), weight.ctypes.data, packed.ctypes.data)
    ):
        raise RuntimeError(f"oneDNN cannot pack a weight of shape {weight.shape}")
    return packed


def _passed(spec: Sequence[int]) -> tuple[ctypes.Array[ctypes.c_int64], int]:
    return (ctypes.c_int64 * len(spec))(*spec), len(spec)


def _library() -> ctypes.CDLL | None:
    found = _found()
    return None if isinstance(found, str) else found.library


def _found() -> Kernels | str:
    """The library, or why there is none."""
    with _loading:
        if not _outcome:
            _outcome.append(_loaded())
        return _outcome[0]


def _loaded() -> Kernels | str:
    try:
        kernels = built()
    except BuildError as error:
        return str(error)
    except OSError as error:
        return f"its library does not load ({error})"
    library = kernels.library
    if library.sardonyx_onednn_series() != SERIES:
        return f"it is not of the series {SERIES}"
    _declare(library)
    for name in TARGETS:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(library[name]), platform="cpu")
    return kernels


def _declare(library: ctypes.CDLL) -> None:
    numbers = (ctypes.POINTER(ctypes.c_int64), ctypes.c_int64)
    library.sardonyx_onednn_plan.restype = ctypes.c_int64
    library.sardonyx_onednn_plan.argtypes = (
        *numbers, ctypes.c_char_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)
    )  # fmt: skip
    library.sardonyx_onednn_pack_now.restype = ctypes.c_int64
    library.sardonyx_onednn_pack_now.argtypes = (*numbers, ctypes.c_void_p, ctypes.c_void_p)
