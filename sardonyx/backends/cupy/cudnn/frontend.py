"""cuDNN's Python frontend: where it is, and the types and settings of its graphs."""

from __future__ import annotations

import importlib
import importlib.util
import os
from functools import cache, partial
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.logs import Log

_LOG = Log("cupy")
# Before this version the library has another interface.
OLDEST = 90000

_TYPES = {
    np.dtype(np.float16): "HALF",
    np.dtype(ml_dtypes.bfloat16): "BFLOAT16",
    np.dtype(np.float32): "FLOAT",
    np.dtype(np.float64): "DOUBLE",
}
# Kernels with other sums than plain ones, or with another result at each call.
_INEXACT = ("REDUCED_PRECISION_REDUCTION", "FFT", "NONDETERMINISTIC", "WINOGRAD")
# Kernels that round factors of float32 to TF32.
_OF_TF32 = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")


@cache
def frontend() -> Any | None:
    """Return the frontend's module, if it and a library that it can load are installed."""
    if importlib.util.find_spec("cudnn") is None:
        return None
    try:
        module: Any = importlib.import_module("cudnn")
        version = module.backend_version()
    except Exception as error:
        # The frontend is there without the library, or is broken: all goes on without it.
        _LOG.warning(
            "cuDNN is not used, though its frontend is installed: %s.", partial(str, error)
        )
        return None
    if version >= OLDEST:
        return module
    _LOG.warning("cuDNN is not used, as its version %s is older than %d.", str(version), OLDEST)
    return None


def has_type(dtype: np.dtype[Any]) -> bool:
    return dtype in _TYPES


def data_type(cudnn: Any, dtype: np.dtype[Any]) -> Any:
    return getattr(cudnn.data_type, _TYPES[dtype])


def new_graph(cudnn: Any, handle: Any, dtype: np.dtype[Any]) -> Any:
    """Return an empty graph that computes in float32 or wider."""
    wide = data_type(cudnn, np.result_type(dtype, np.float32))
    return cudnn.pygraph(
        io_data_type=data_type(cudnn, dtype),
        intermediate_data_type=wide,
        compute_data_type=wide,
        handle=handle,
    )


def rounds_float32(*, is_exact: bool) -> bool:
    """Whether factors of float32 may be rounded to TF32."""
    return not is_exact or os.environ.get("CUPY_TF32", "0") not in ("", "0")


def excluded_notes(cudnn: Any, dtype: np.dtype[Any], *, is_exact: bool) -> list[Any]:
    """Return the notes of the kernels that round more than the library's other ones.

    If it is not exact, factors of float32 may be rounded to TF32.
    """
    is_rounded = rounds_float32(is_exact=is_exact) or dtype != np.float32
    names = (*_INEXACT, *(() if is_rounded else _OF_TF32))
    notes = cudnn.numerical_note.__members__
    return [note for name, note in notes.items() if name.startswith(names)]
