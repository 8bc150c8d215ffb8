"""Conversion between the arrays of callers and of backends, without importing other libraries.

Results come back as arrays of the library whose arrays the caller passed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.dlpack import CODES, Exported, on_host
from sardonyx.backends.dtypes import kind_of
from sardonyx.backends.executable import Spec
from sardonyx.errors import InvalidInput, LimitExceeded
from sardonyx.graph.errors.node_errors import raise_translated
from sardonyx.graph.errors.translation import translated
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.standard.types import dtype_of_type, short_name
from sardonyx.graph.values.kinds import spec_text
from sardonyx.ops.definition import Map
from sardonyx.printable import first_line

Convert = Callable[[Any], Any]
# By which other libraries share their arrays.
_PROTOCOLS = ("__dlpack__", "__array__", "__cuda_array_interface__")
_TEXT = frozenset((str, np.str_))
# DLPack's numbers for memory that a CUDA device can read.
_CUDA_MEMORY = (2, 13)
MOST_AXES = 64  # NumPy's limit


def normalised(value: Any, info: ValueInfo) -> Any:
    """Convert lists and numbers in a caller's value to NumPy arrays of the declared type."""
    container = info.container
    if container == "optional":
        return None if value is None else normalised(value, element_of(info))
    if container == "seq":
        if not isinstance(value, (list, tuple)):
            raise InvalidInput(f"The input '{info.name}' is a {info.type}: pass a list of arrays.")
        return [normalised(one, element_of(info)) for one in value]
    if container == "map":
        return _map_of(value, info)
    if value is None:
        raise InvalidInput(f"The input '{info.name}' ({info}) is None: pass an array.")
    array = _with_shape(value, info)
    return _array_of(value, info) if array is None else _checked_array(array, info)


def _with_shape(value: Any, info: ValueInfo) -> Any:
    """Return an array, or what lends its memory, with a shape and a dtype; None for all else."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return value
    if hasattr(value, "__cuda_array_interface__"):
        return _described(value, info)
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return _from_dlpack(value, info)
    return None


def _map_of(value: Any, info: ValueInfo) -> Map:
    """Convert a dict, with its keys sorted, so that their order causes no new program."""
    has_integers = info.type and "map(int64" in info.type
    key_type = (int, np.integer) if has_integers else str
    if not isinstance(value, Mapping) or not all(isinstance(key, key_type) for key in value):
        expected = "integers" if has_integers else "strings"
        raise InvalidInput(
            f"The input '{info.name}' is a {info.type}: pass a dict from {expected}."
        )
    keys = sorted(value)
    return Map(tuple(keys), _array_of([value[key] for key in keys], element_of(info)))


def element_of(info: ValueInfo) -> ValueInfo:
    """Return the declaration of the elements of a sequence, an optional or a map."""
    inner = (info.type or "").partition("(")[2][:-1]
    if info.container == "map":
        inner = inner.partition(",")[2]
    return ValueInfo(info.name, inner, dtype_of_type(inner), None)


def leaf_of(info: ValueInfo) -> ValueInfo:
    """Return the declaration of the arrays inside an input."""
    while info.container:
        info = element_of(info)
    return info


def _checked_array(value: Any, info: ValueInfo) -> Any:
    try:
        hash((tuple(value.shape), value.dtype))
    except Exception as error:
        raise InvalidInput(
            f"The input '{info.name}', a {type(value).__name__}, has no readable shape and dtype "
            f"({first_line(error)}): pass an array."
        ) from None
    return value


class Described:
    """A caller's array that has `__cuda_array_interface__` and no attributes of an array."""

    def __init__(self, original: Any) -> None:
        interface = original.__cuda_array_interface__
        self.original = original
        self.shape = tuple(interface["shape"])
        self.dtype = np.dtype(interface["typestr"])

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.original.__cuda_array_interface__


def _described(value: Any, info: ValueInfo) -> Described:
    try:
        return Described(value)
    except Exception as error:
        raise InvalidInput(
            f"The input '{info.name}', a {type(value).__name__}, has a `__cuda_array_interface__` "
            f"that cannot be read ({first_line(error)}): pass an array."
        ) from None


def _from_dlpack(value: Any, info: ValueInfo) -> Any:
    """Return the elements of an object that has nothing of an array but DLPack's methods."""
    try:
        return on_host(value)
    except Exception as error:
        raise InvalidInput(
            f"The input '{info.name}', a {type(value).__name__} with `__dlpack__` alone, cannot be "
            f"read on the host ({first_line(error)}): pass an array, as from_dlpack of your "
            "library returns it."
        ) from None


def _array_of(value: Any, info: ValueInfo) -> Any:
    try:
        array = np.asarray(value) if info.dtype != object else np.asarray(value, dtype=object)
        if info.dtype is None:
            return array
        kind, target = kind_of(array.dtype), kind_of(info.dtype)
        if array.size and kind != target and (kind == "other" or kind in _LOSSY.get(target, ())):
            raise TypeError(f"{array.dtype} does not become {short_name(info.dtype)} without loss")
        return np.asarray(value, dtype=info.dtype)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"The input '{info.name}' ({info}) is a {type(value).__name__} that cannot be "
            f"converted to an array: {first_line(error)}."
        ) from None


_REAL = ("real floating", "complex floating")
# For each kind of dtype the kinds whose conversion to it loses values.
_LOSSY = {
    "bool": ("signed integer", "unsigned integer", *_REAL),
    "signed integer": _REAL,
    "unsigned integer": _REAL,
    "real floating": ("complex floating",),
}


def stand_ins(signature: Any, infos: Sequence[ValueInfo]) -> dict[str, Any]:
    """Return a signature with an array of zeros in place of each shape."""
    if not isinstance(signature, Mapping):
        raise InvalidInput(
            f"A signature is a {type(signature).__name__}: pass a dict from names of inputs to "
            'shapes, as in {"x": (1, 8, 48)}.'
        )
    by_name = {info.name: info for info in infos}
    return {name: _stand_in(value, by_name.get(name)) for name, value in signature.items()}


def _stand_in(value: Any, info: ValueInfo | None) -> Any:
    """Return an array of zeros for a shape; all other values unchanged."""
    if info is None or info.dtype in (None, np.dtype(object)) or not _is_shape(value):
        return value
    if any(n < 0 for n in value):
        raise InvalidInput(f"The input '{info.name}' cannot have the shape {list(value)}.")
    try:
        return np.zeros(value, info.dtype)
    except (MemoryError, ValueError, OverflowError) as error:
        raise LimitExceeded(
            f"The input '{info.name}' of shape {list(value)} is too large for this machine: "
            f"{first_line(error)}. Pass a smaller shape."
        ) from None


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in value
    )


def importer(
    array: Any,
    info: ValueInfo,
    backend: Backend,
    *,
    copies: bool = False,
    is_donated: bool = False,
) -> Convert | None:
    """Return the conversion of a caller's array to an array of `backend`; None if not needed.

    With `copies`, arrays that the caller can write to are copied, since the call can return before
    its results are computed.
    """
    if backend.owns(array) and not isinstance(array, np.ndarray):
        return _widening(array, info, backend)
    if not isinstance(array, np.ndarray):
        if not any(hasattr(array, protocol) for protocol in _PROTOCOLS):
            raise InvalidInput(
                f"The input '{info.name}' is a {type(array).__name__}, which is not a readable "
                "array: pass NumPy, JAX or CuPy arrays, or any with __dlpack__."
            )
        if isinstance(array, Described):
            return partial(_convert, backend, lambda each: backend.adopt(each.original), info)
        adopt = partial(_adopted_to_donate, backend) if is_donated else backend.adopt
        return partial(_convert, backend, adopt, info)
    # Asked of subclasses alone, because NumPy imports its masked arrays when they are first named.
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        raise InvalidInput(
            f"The input '{info.name}' is a masked array, but ONNX has no masks: pass "
            "array.filled(value) or array.data."
        )
    if array.dtype.kind in "UT" or array.dtype == object:
        return _strings if array.dtype.kind != "O" else partial(_checked_strings, info)
    if array.dtype.fields is not None or array.dtype.kind in "mMS":
        raise InvalidInput(
            f"The input '{info.name}' has dtype {array.dtype}, which ONNX does not have: convert "
            "it with astype."
        )
    # Checked here, because the backend's library may not have this dtype.
    check_dtype(Spec(array.shape, array.dtype.newbyteorder("=")), info)
    # A subclass can change the meaning of operators, as numpy.matrix does.
    is_plain = array.dtype.isnative and type(array) in (np.ndarray, np.memmap)
    plain = _copied if copies else _plain
    if backend.takes_numpy:
        return None if is_plain and not copies else plain
    return partial(_convert, backend, lambda a: backend.put(plain(a)), info)


def _adopted_to_donate(backend: Backend, array: Any) -> Any:
    return backend.to_donate(backend.adopt(array))


def _convert(backend: Backend, conversion: Convert, info: ValueInfo, array: Any) -> Any:
    try:
        return conversion(array)
    except Exception as error:
        original = type(array.original if isinstance(array, Described) else array)
        kind = f"{original.__module__}.{original.__name__}"
        summary = f"The input '{info.name}', a {kind}, cannot be read"
        if backend.explain(error):
            raise translated(error, summary, backend) from error
        raise InvalidInput(f"{summary}: {first_line(error)}.") from error


def _widening(array: Any, info: ValueInfo, backend: Backend) -> Convert | None:
    """Return the cast of an array that its library narrowed, as JAX does without 64-bit mode.

    An array on another device is moved first.
    """
    move = backend.mover(array)
    dtype = backend.spec(array).dtype
    if info.dtype is None or dtype == info.dtype or dtype != backend.narrowed(info.dtype):
        return move
    wide = backend.dtype(info.dtype)
    if move is not None:
        return lambda array: backend.astype(move(array), wide)
    return lambda array: backend.astype(array, wide)


def exporter(arguments: Sequence[Any], backend: Backend) -> Convert:
    """Return the conversion of a program's results to the library of the caller's arrays."""
    foreign = next((array for array in arguments if not isinstance(array, np.ndarray)), None)
    if foreign is None:
        return partial(_as_numpy, backend)
    if backend.owns(foreign) or backend.is_abstract(foreign):
        return lambda array: _as_native(array, backend)
    library = _library_of(foreign)
    if not hasattr(library, "from_dlpack") and _is_on_cuda(foreign):
        return lambda array: _as_native(array, backend)
    return lambda array: _in_library(array, type(foreign), library, backend)


def _as_numpy(backend: Backend, array: Any) -> Any:
    if type(array) is np.ndarray:
        return array
    # With NumPy inputs and a traced random key, the results are traced arrays.
    has_data = backend.owns(array) and not backend.is_abstract(array)
    return fetched(array, backend) if has_data else array


def fetched(array: Any, backend: Backend) -> Any:
    """Return a result as a NumPy array. An asynchronous library may raise its errors only here."""
    try:
        return backend.fetch(array)
    except Exception as error:
        if array.ndim > MOST_AXES:
            raise LimitExceeded(
                f"A result has {array.ndim} axes, but NumPy arrays have at most {MOST_AXES}: "
                f"pass arrays of {backend.name}, so that results are not converted to NumPy."
            ) from None
        raise_translated(error, "A result could not be computed or converted to NumPy", backend)


def _library_of(foreign: Any) -> Any:
    """Return the module that creates arrays like `foreign`: its array namespace or its library."""
    if hasattr(foreign, "__array_namespace__"):
        return foreign.__array_namespace__()
    return sys.modules[type(foreign).__module__.partition(".")[0]]


def _is_on_cuda(foreign: Any) -> bool:
    if hasattr(foreign, "__dlpack_device__"):
        return foreign.__dlpack_device__()[0] in _CUDA_MEMORY
    return hasattr(foreign, "__cuda_array_interface__")


def _in_library(array: Any, kind: type, library: Any, backend: Backend) -> Any:
    array = _own(array, backend) if backend.owns(array) else array
    if isinstance(array, kind) or _holds_strings(array):
        return array
    read_only = isinstance(array, np.ndarray) and not array.flags.writeable
    try:
        # In the scope of the device, whose current stream the library's stream waits for. DLPack
        # cannot express that an array is read-only.
        with backend.scope():
            shared = array.copy() if read_only else array
            is_numpys = isinstance(array, np.ndarray) and array.dtype in CODES
            return library.from_dlpack(Exported(shared) if is_numpys else shared)
    except (AttributeError, BufferError, TypeError, RuntimeError, ValueError, AssertionError):
        # Not every library exchanges every dtype through DLPack; all accept NumPy arrays.
        host = fetched(array, backend) if backend.owns(array) else array
        return _in_other_memory(host, library)


def _in_other_memory(host: np.ndarray[Any, Any], library: Any) -> Any:
    """Return a copy in an array of the library; NumPy's array if the library lacks the type."""
    if not hasattr(library, "asarray"):
        return host
    try:
        return library.asarray(host)
    except (TypeError, ValueError):
        return host


def _as_native(array: Any, backend: Backend) -> Any:
    if backend.owns(array):
        return _own(array, backend)
    return array if _holds_strings(array) else backend.put(array)


def _own(array: Any, backend: Backend) -> Any:
    try:
        return backend.own_result(array)
    except Exception as error:
        raise_translated(error, "A result could not be copied from the weights", backend)


def _strings(array: Any) -> Any:
    return array.astype(object)


def _checked_strings(info: ValueInfo, array: Any) -> Any:
    elements = array.ravel().tolist()
    if _TEXT.issuperset(map(type, elements)):
        return array
    for element in elements:
        if not isinstance(element, str):
            raise InvalidInput(
                f"The input '{info.name}' is an array of Python objects and holds a "
                f"{type(element).__name__}: pass numbers in a numeric dtype, text as str."
            )
    return array


def _plain(array: Any) -> Any:
    return np.asarray(array).astype(array.dtype.newbyteorder("="), copy=False)


def _copied(array: Any) -> Any:
    return np.array(array, dtype=array.dtype.newbyteorder("="), subok=False)


def check_dtype(spec: Spec, info: ValueInfo) -> None:
    """Refuse an array that does not have the declared dtype."""
    if info.dtype is not None and spec.dtype != info.dtype:
        raise InvalidInput(
            f"The input '{info.name}' must be {short_name(info.dtype)}, but is {spec_text(spec)}: "
            "convert it with astype, or export the model for that dtype."
        )


def check_input(spec: Spec, info: ValueInfo, sizes: dict[str, int]) -> None:
    """Refuse an array that does not have the declared dtype and shape.

    `sizes` holds the sizes of named dimensions, and receives new ones.
    """
    check_dtype(spec, info)
    if info.shape is None:
        return
    if len(spec.shape) != len(info.shape):
        raise InvalidInput(
            f"The input '{info.name}' must have {len(info.shape)} dimensions ({info}), but is "
            f"{spec_text(spec)} with {len(spec.shape)}."
        )
    for axis, (size, declared) in enumerate(zip(spec.shape, info.shape, strict=True)):
        expected = sizes.setdefault(declared, size) if type(declared) is str else declared
        if expected != size and expected is not None:
            raise InvalidInput(
                f"The input '{info.name}' must have size {expected} on axis {axis} ({info}), "
                f"but is {spec_text(spec)}."
            )


def _holds_strings(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == object
