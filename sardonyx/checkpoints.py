"""Params in safetensors files: `save_params` and `load_params`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.errors import BackendUnavailable, InvalidInput, MissingFile
from sardonyx.to_jax.backend import inside_backend
from sardonyx.to_jax.pure_function import placed

_TYPES: Mapping[str, Any] = {
    "BOOL": np.bool_,
    "I8": np.int8,
    "U8": np.uint8,
    "I16": np.int16,
    "U16": np.uint16,
    "I32": np.int32,
    "U32": np.uint32,
    "I64": np.int64,
    "U64": np.uint64,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F32": np.float32,
    "F64": np.float64,
    "C64": np.complex64,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}
_DTYPES = {np.dtype(kind) for kind in _TYPES.values()}


def save_params(path: str | os.PathLike[str], params: Mapping[str, Any]) -> None:
    """Write params to a safetensors file.

    >>> import sardonyx, tempfile
    >>> fn, params = sardonyx.to_jax("examples/encoder.onnx")
    >>> path = tempfile.mkdtemp() + "/params.safetensors"
    >>> sardonyx.save_params(path, params)
    >>> sardonyx.load_params(path).keys() == params.keys()
    True
    """
    # The format stores the bytes in the order of memory.
    arrays = {name: np.array(array, order="C") for name, array in params.items()}
    for name, array in arrays.items():
        if array.dtype not in _DTYPES:
            raise InvalidInput(
                f"The param '{name}' is {array.dtype}, which safetensors files cannot hold: "
                "convert it with astype, and back after loading."
            )
    _safetensors("safetensors.numpy").save_file(arrays, os.fspath(path))


def load_params(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read params from a safetensors file, as arrays of JAX.

    >>> import sardonyx, tempfile
    >>> path = tempfile.mkdtemp() + "/params.safetensors"
    >>> sardonyx.save_params(path, {"scale": np.ones(2, np.float32)})
    >>> sardonyx.load_params(path)
    {'scale': Array([1., 1.], dtype=float32)}
    """
    safetensors = _safetensors("safetensors")
    try:
        entries = safetensors.deserialize(Path(path).read_bytes())
    except FileNotFoundError:
        raise MissingFile(f"There is no file {os.fspath(path)!r}: check the path.") from None
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise InvalidInput(
            f"No params can be read from {os.fspath(path)!r}: {error}. Pass a safetensors file."
        ) from None
    backend = inside_backend()
    return {name: placed(name, _array(name, entry), backend) for name, entry in entries}


def _array(name: str, entry: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    if entry["dtype"] not in _TYPES:
        raise InvalidInput(f"The param '{name}' has the type {entry['dtype']}, unknown to NumPy.")
    return np.frombuffer(entry["data"], _TYPES[entry["dtype"]]).reshape(entry["shape"])


def _safetensors(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise BackendUnavailable(
            "Params are stored in safetensors files: pip install 'sardonyx[safetensors]'."
        ) from error
