"""Feeds checked as onnxruntime checks them, and results that belong to the caller alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.compat.exceptions import InvalidArgument, RefusedCall, WrongType
from sardonyx.compat.memory import is_float8_dtype
from sardonyx.compat.nodes import Interface, NodeArg
from sardonyx.compat.values import unwrapped
from sardonyx.errors import InvalidInput
from sardonyx.graph.standard.types import ELEMENT_TYPES

_DTYPES = {f"tensor({row.name})": row.dtype for row in ELEMENT_TYPES.values()}
_STRING = "tensor(string)"


class Feeds:
    """Checks the feeds of calls against the inputs of a model."""

    def __init__(self, interface: Interface) -> None:
        self._tensors = {
            arg.name: Tensor(arg)
            for arg in (*interface.inputs, *interface.overridable)
            if arg.type in _DTYPES
        }
        self.names = {arg.name for arg in (*interface.inputs, *interface.overridable)}
        required = (arg for arg in interface.inputs if not arg.type.startswith("optional("))
        self._required = tuple(arg.name for arg in required)

    def checked(self, feeds: Any) -> dict[str, Any]:
        """Return the arrays of a call by name, and refuse those that do not fit."""
        self.require(feeds)
        for name in feeds:
            if not isinstance(name, str):
                raise WrongType(f"The name of a feed is {name!r:.100}: pass names as strings.")
            if name not in self.names:
                raise InvalidArgument(
                    f"The model has no input '{name}'; it takes "
                    f"{', '.join(sorted(self.names)) or 'none'}."
                )
        return {name: self.value(name, value) for name, value in feeds.items()}

    def value(self, name: str, value: Any) -> Any:
        """Return what the model is passed for one input."""
        value = unwrapped(value)
        tensor = self._tensors.get(name)
        return value if tensor is None else tensor.checked(value)

    def require(self, feeds: Any) -> None:
        """Refuse feeds without a required input."""
        if not isinstance(feeds, Mapping):
            raise WrongType(
                f"The feeds are a {type(feeds).__name__}: pass a dict from input names to arrays."
            )
        if missing := [name for name in self._required if name not in feeds]:
            raise InvalidInput(
                f"Required inputs ({missing}) are missing from the feeds, which have "
                f"{list(feeds)!r:.500}: pass an array for each."
            )


class Tensor:
    """What arrays for one input must be."""

    def __init__(self, arg: NodeArg) -> None:
        self._arg = arg
        self._dtype = _DTYPES[arg.type]
        self._rank = len(arg.shape) if arg.has_shape else None
        self._fixed = [(i, size) for i, size in enumerate(arg.shape) if isinstance(size, int)]

    def checked(self, value: Any) -> Any:
        """Return an array that fits; refuse any other dtype, rank or size."""
        if type(value) is not np.ndarray or value.dtype != self._dtype or self._dtype.kind == "O":
            value = self._converted(value)
        shape = getattr(value, "shape", None)
        if shape is not None:
            self._check_shape(tuple(shape))
        return value

    def _converted(self, value: Any) -> Any:
        arg = self._arg
        if value is None or isinstance(value, (str, bytes, Mapping)):
            kind = InvalidArgument if value is None else RefusedCall
            raise kind(
                f"The input '{arg.name}' is a {type(value).__name__}: pass an array that is "
                f"{arg.type}."
            )
        if isinstance(value, np.ndarray):
            if arg.type == _STRING and value.dtype.kind in "UTO":
                return _text(value)
            # Asked of subclasses alone, because NumPy imports its masked arrays when first named.
            if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):
                raise InvalidArgument(
                    f"The input '{arg.name}' is a masked array, but ONNX has no masks: pass "
                    "array.filled(value) or array.data."
                )
            # NumPy's own dtypes cannot hold all of ONNX's, so bits may come as bytes.
            if is_float8_dtype(self._dtype) and value.dtype == np.uint8:
                return value.view(self._dtype)
        dtype = getattr(value, "dtype", None)
        if isinstance(dtype, np.dtype) and dtype.newbyteorder("=") != self._dtype:
            raise InvalidArgument(
                f"The input '{arg.name}' is {arg.type}, but {dtype} was passed: convert it with "
                f"astype('{self._dtype}')."
            )
        if dtype is None and not hasattr(value, "__dlpack__"):
            return self._array_of(value)
        return value

    def _array_of(self, value: Any) -> np.ndarray[Any, Any]:
        """Convert lists and numbers."""
        try:
            return np.asarray(value, self._dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise RefusedCall(
                f"The input '{self._arg.name}' is {self._arg.type}, and a "
                f"{type(value).__name__} cannot be converted to that ({error}): pass an array."
            ) from error

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        arg = self._arg
        if self._rank is not None and len(shape) != self._rank:
            raise InvalidArgument(
                f"The input '{arg.name}' has {self._rank} dimensions {_shown(arg.shape)}, but "
                f"{len(shape)} were passed: {_shown(shape)}. Reshape the array."
            )
        for axis, size in self._fixed:
            if shape[axis] != size:
                raise InvalidArgument(
                    f"The input '{arg.name}' has size {size} on axis {axis} of "
                    f"{_shown(arg.shape)}, but {shape[axis]} was passed: {_shown(shape)}. Pass an "
                    "array of that size."
                )


def checked_names(names: Any, available: Sequence[str]) -> list[str]:
    """Return the names of the outputs of a call; None and [] mean all.

    >>> checked_names(None, ["y", "z"]), checked_names(["z"], ["y", "z"])
    (['y', 'z'], ['z'])
    """
    if names is None or (isinstance(names, (list, tuple)) and not names):
        return list(available)
    is_list = isinstance(names, Sequence) and not isinstance(names, (str, bytes))
    if not is_list or not all(isinstance(name, str) for name in names):
        raise WrongType(
            f"The output names are {names!r:.200}: pass a list of strings, or None for all."
        )
    for name in names:
        if name not in available:
            raise InvalidArgument(
                f"The model has no output '{name}'; it has {', '.join(available)}."
            )
    return list(names)


def as_bytes(value: Any) -> Any:
    """Return arrays of 8-bit floats as their bytes, as onnxruntime does; all else unchanged.

    >>> as_bytes([np.zeros(2, np.float16)])
    [array([0., 0.], dtype=float16)]
    """
    if isinstance(value, list):
        return [as_bytes(each) for each in value]
    is_float8 = isinstance(value, np.ndarray) and is_float8_dtype(value.dtype)
    return value.view(np.uint8) if is_float8 else value


def _text(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the elements of an array as strings."""
    if array.dtype != object:
        return array
    is_text = set(map(type, array.ravel().tolist())) <= {str}
    return array if is_text else np.array(list(map(str, array.flat)), object).reshape(array.shape)


def _shown(shape: Sequence[Any]) -> str:
    return str(list(shape)).replace("'", "")
