"""Params as plain dicts: told apart, kept in files, and laid over one another."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import ml_dtypes
import numpy as np

from sardonyx.backends import random
from sardonyx.backends.dtypes import isdtype
from sardonyx.errors import BackendUnavailable, InvalidInput
from sardonyx.to_jax.backend import inside_backend
from sardonyx.to_jax.pure_function import placed

Params: TypeAlias = dict[str, Any]
# Names, or patterns of names, or a question about a name and its array.
Choice: TypeAlias = str | Iterable[str] | Callable[[str, Any], bool]

FLOAT32 = np.dtype(np.float32)

# -- told apart -----------------------------------------------------------------------------------


def split_params(
    params: Mapping[str, Any], trainable: Choice | None = None
) -> tuple[Params, Params]:
    """The params to train, and the rest; `trained | rest` is what the function takes.

    `trainable` is `fn.trainable`, or other names, patterns of names, or a predicate of a name and
    its array. Without it these are floats with at least one axis: what a file holds as a single
    number is rarely learned. Which of them are running means, only `fn.trainable` knows.

    >>> import sardonyx
    >>> fn, params = sardonyx.to_jax("examples/encoder.onnx")
    >>> trained, rest = sardonyx.split_params(params, fn.trainable)
    >>> (trained | rest).keys() == params.keys()
    True
    """
    is_chosen = _learns if trainable is None else _predicate(trainable, params)
    trained = {name: array for name, array in params.items() if is_chosen(name, array)}
    return trained, {name: array for name, array in params.items() if name not in trained}


def _learns(name: str, array: Any) -> bool:
    return len(array.shape) > 0 and isdtype(np.dtype(array.dtype), "real floating")


def _predicate(choice: Choice, params: Mapping[str, Any]) -> Callable[[str, Any], bool]:
    if callable(choice):
        return choice
    patterns = [choice] if isinstance(choice, str) else list(choice)
    exact = params.keys() & set(patterns)
    others = [pattern for pattern in patterns if pattern not in exact]
    for pattern in others:
        if not any(fnmatchcase(name, pattern) for name in params):
            raise InvalidInput(f"No param is called {pattern!r}; look at params.keys().")
    return lambda name, _: name in exact or any(fnmatchcase(name, each) for each in others)


# -- kept in files --------------------------------------------------------------------------------

_KEPT_TYPES: Mapping[str, Any] = {
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


def save_params(path: str | os.PathLike[str], params: Mapping[str, Any]) -> None:
    """Write params to a safetensors file.

    >>> import sardonyx, tempfile
    >>> fn, params = sardonyx.to_jax("examples/encoder.onnx")
    >>> path = tempfile.mkdtemp() + "/params.safetensors"
    >>> sardonyx.save_params(path, params)
    >>> sardonyx.load_params(path).keys() == params.keys()
    True
    """
    # The format takes the bytes as they lie in memory.
    arrays = {name: np.array(array, order="C") for name, array in params.items()}
    kept = {np.dtype(kind) for kind in _KEPT_TYPES.values()}
    for name, array in arrays.items():
        if array.dtype not in kept:
            raise InvalidInput(
                f"The param '{name}' is {array.dtype}, which safetensors files cannot hold: "
                "convert it with astype, and back after loading."
            )
    _safetensors("safetensors.numpy").save_file(arrays, os.fspath(path))


def load_params(path: str | os.PathLike[str]) -> Params:
    """Read params from a safetensors file, as arrays of JAX; `save_params` has an example."""
    library_of_format = _safetensors("safetensors")
    try:
        found = library_of_format.deserialize(Path(path).read_bytes())
    except (OSError, ValueError, library_of_format.SafetensorError) as error:
        raise InvalidInput(f"No params can be read from {os.fspath(path)!r}: {error}.") from None
    backend = inside_backend()
    return {name: placed(name, _array_of(name, told), backend) for name, told in found}


def _array_of(name: str, told: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    if told["dtype"] not in _KEPT_TYPES:
        raise InvalidInput(f"The param '{name}' has the type {told['dtype']}, unknown to NumPy.")
    return np.frombuffer(told["data"], _KEPT_TYPES[told["dtype"]]).reshape(told["shape"])


def _safetensors(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise BackendUnavailable(
            "Params are kept in safetensors files: pip install 'sardonyx[safetensors]'."
        ) from error


# -- laid over one another ------------------------------------------------------------------------


class LowRank(NamedTuple):
    """What is added to a weight, as the product of two thin matrices."""

    up: Any
    down: Any


def low_rank(
    params: Mapping[str, Any], rank: int, names: Choice | None = None, *, key: Any
) -> dict[str, LowRank]:
    """Overlays for the matrices among the params, as LoRA has them: they begin as zero.

    Of an array with more axes the first is the matrix's rows, and all others are its columns.
    `names` chooses among the floats, as in `split_params`; `key` is a number or one of JAX's keys.

    >>> import sardonyx
    >>> fn, params = sardonyx.to_jax("examples/encoder.onnx")
    >>> adapters = sardonyx.low_rank(params, rank=2, key=0)
    >>> tuned = sardonyx.overlaid(params, adapters)
    >>> tuned.keys() == params.keys()
    True
    """
    if rank < 1:
        raise InvalidInput(f"The rank of an overlay is at least 1, not {rank}.")
    chosen, _ = split_params(params, names)
    backend = inside_backend()
    made = {}
    for name, array in chosen.items():
        if len(array.shape) < 2 or not _learns(name, array):
            continue
        rows, columns = array.shape[0], math.prod(array.shape[1:])
        with backend.scope():
            own = random.fold_in(backend, backend.key(key), crc32(name.encode()))
            drawn = random.normal(backend, own, (rank, columns), FLOAT32) / math.sqrt(columns)
            down = backend.astype(drawn, array.dtype)
            made[name] = LowRank(backend.zeros((rows, rank), dtype=array.dtype), down)
    return made


def overlaid(
    params: Mapping[str, Any], overlays: Mapping[str, Any], *, scale: float = 1.0
) -> Params:
    """The params with others laid over them; all else is shared, and not copied.

    An array takes a param's place. A `LowRank`, times `scale`, is added to it, as in the example
    of `low_rank`.
    """
    if unknown := [name for name in overlays if name not in params]:
        raise InvalidInput(f"There is no param '{unknown[0]}' to lay anything over.")
    return {
        name: _laid_over(array, overlays[name], scale) if name in overlays else array
        for name, array in params.items()
    }


def _laid_over(array: Any, overlay: Any, scale: float) -> Any:
    if not isinstance(overlay, LowRank):
        return overlay
    added = scale * (overlay.up @ overlay.down).reshape(array.shape)
    return array + added.astype(array.dtype)
