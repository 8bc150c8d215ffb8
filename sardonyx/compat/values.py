"""`OrtValue`: an array on the CPU or on a device, a sequence, a map, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, SupportsIndex, overload

import numpy as np

from sardonyx.backends import backend_of
from sardonyx.backends.base import Backend
from sardonyx.backends.dlpack import CODES, Exported
from sardonyx.compat.devices import DLPACK, OrtDevice, backend_on, name_of
from sardonyx.compat.exceptions import RefusedCall, WrongType, refused
from sardonyx.compat.memory import (
    is_float8_dtype,
    is_number,
    number_dtype,
    row_of_dtype,
    shape_of,
)
from sardonyx.errors import InvalidInput, SardonyxError


class OrtValue:
    """A value that calls take and return: a tensor, a sequence, a map, or an absent optional.

    Tensors on the CPU share the memory of the array that they were created from; those on devices
    are arrays of JAX or CuPy.

    >>> value = OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
    >>> value.shape(), value.data_type(), value.device_name()
    ([2, 3], 'tensor(float)', 'cpu')
    """

    __slots__ = ("_value",)

    def __init__(self, ortvalue: Any, *_others: Any) -> None:
        if not isinstance(ortvalue, OrtValue):
            raise InvalidInput(
                f"A value is created from an OrtValue, not a {type(ortvalue).__name__}: use "
                "OrtValue.ortvalue_from_numpy(array)."
            )
        self._value: Any = ortvalue._value

    @classmethod
    def _of(cls, value: Any) -> OrtValue:
        new = object.__new__(cls)
        new._value = value
        return new

    # -- creation ---------------------------------------------------------------------------------

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, /, device_type: Any = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Return a value with the memory of an array on the CPU, or with a copy on a device."""
        if not isinstance(numpy_obj, np.ndarray) or not is_number(numpy_obj.dtype):
            raise RefusedCall(
                f"A value cannot be created from a {_described(numpy_obj)}: pass a NumPy array of "
                "numbers."
            )
        array = np.ascontiguousarray(numpy_obj).reshape(numpy_obj.shape)
        backend = _backend(device_type, device_id)
        return cls._of(array if backend is None else _put(backend, array))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(
        cls, data: np.ndarray[Any, Any], /, onnx_element_type: int
    ) -> OrtValue:
        """Return a value with the memory of an array, whose elements are of another type."""
        dtype = number_dtype(onnx_element_type)
        if not isinstance(data, np.ndarray):
            raise WrongType(f"The data are a {type(data).__name__}: pass a NumPy array.")
        if data.dtype.itemsize != dtype.itemsize or not data.flags.c_contiguous:
            raise RefusedCall(
                f"The elements of a {_described(data)} cannot be read as {dtype} where they are: "
                f"pass a contiguous array with elements of {dtype.itemsize} bytes."
            )
        return cls._of(data.view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: Any = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: Any = None,
    ) -> OrtValue:
        """Return a value of zeros, whose memory calls can write to."""
        array = _zeros(shape_of(shape), number_dtype(element_type))
        backend = _backend(device_type, device_id)
        return cls._of(array if backend is None else _put(backend, array))

    # Names that onnxruntime's compiled module has for the same.
    ortvalue_from_shape_and_onnx_type = ortvalue_from_shape_and_type

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: Any) -> OrtValue:
        """Refuse a sparse tensor."""
        raise refused("Sparse tensors are", "create the value from a dense array")

    @classmethod
    def from_dlpack(cls, data: Any, /, is_bool_tensor: bool = False) -> OrtValue:
        """Return a value with the memory of another library's array, without a copy."""
        try:
            array = data if isinstance(data, np.ndarray) else _adopted(data)
        except SardonyxError:
            raise
        except Exception as error:
            raise WrongType(
                f"A {type(data).__name__} cannot be read by DLPack ({error}): pass an array with "
                "__dlpack__."
            ) from error
        is_of_bits = is_bool_tensor and isinstance(array, np.ndarray) and array.dtype == np.uint8
        return cls._of(array.view(np.bool_) if is_of_bits else array)

    # -- facts ------------------------------------------------------------------------------------

    def is_tensor(self) -> bool:
        """Return whether it is an array."""
        return hasattr(self._value, "dtype")

    def is_sparse_tensor(self) -> bool:
        """Return False: there are no sparse tensors."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Return whether it is a sequence of arrays."""
        value = self._value
        return isinstance(value, list) and not any(isinstance(each, dict) for each in value)

    def has_value(self) -> bool:
        """Return False for an absent optional."""
        return self._value is not None

    def shape(self) -> list[int]:
        """Return the sizes of a tensor."""
        return [int(size) for size in self._tensor("shape").shape]

    def data_type(self) -> str:
        """Return the type, such as "tensor(float)"."""
        if self.is_tensor():
            return f"tensor({row_of_dtype(self._dtype()).name})"
        if self.is_tensor_sequence() and self._value:
            return f"seq({OrtValue._of(self._value[0]).data_type()})"
        return "seq(tensor(float))" if isinstance(self._value, list) else ""

    def element_type(self) -> int:
        """Return the number of the element type of a tensor."""
        self._tensor("element type")
        return row_of_dtype(self._dtype()).number

    def tensor_size_in_bytes(self) -> int:
        """Return the bytes of a tensor."""
        count = 1
        for size in self._tensor("size").shape:
            count *= int(size)
        return count * self._dtype().itemsize

    def device_name(self) -> str:
        """Return the kind of device that has the memory: "cpu", "cuda" or "tpu"."""
        return self._device()[0]

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        array = self._tensor("address")
        if isinstance(array, np.ndarray):
            return int(array.ctypes.data)
        if self._device()[0] not in ("cuda", "cpu"):
            raise RefusedCall(f"The memory of a {type(array).__name__} has no address here.")
        # Whoever reads there does not know of the work that writes the elements.
        backend_of(array).wait([array])
        if hasattr(array, "unsafe_buffer_pointer"):
            return int(array.unsafe_buffer_pointer())
        return int(array.data.ptr)

    # -- contents ---------------------------------------------------------------------------------

    def numpy(self) -> Any:
        """Return a tensor as a NumPy array; on the CPU without a copy.

        Floats of 8 bits are returned as bytes, as onnxruntime does.
        """
        if isinstance(self._value, (list, dict)):
            raise RefusedCall(
                "This value is a sequence or a map, and no tensor: `session.run` returns such "
                "values as lists and dicts."
            )
        array = self._on_host()
        is_float8 = array is not None and is_float8_dtype(array.dtype)
        return array.view(np.uint8) if is_float8 else array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self._tensor("array") if isinstance(self._value, np.ndarray) else self.numpy()
        return np.array(array, dtype, copy=copy) if copy is not None else np.asarray(array, dtype)

    def update_inplace(self, data: Any) -> None:
        """Copy the elements of an array, or of another value, into this one.

        On the CPU they are written into the same memory. Arrays of JAX cannot change, so on its
        devices the value then has another array.
        """
        new = data._tensor("array") if isinstance(data, OrtValue) else data
        if not isinstance(data, (OrtValue, np.ndarray)):
            raise WrongType(f"The data are a {type(data).__name__}: pass an array or an OrtValue.")
        old = self._tensor("array")
        if tuple(new.shape) != tuple(old.shape) or np.dtype(new.dtype) != np.dtype(old.dtype):
            raise RefusedCall(
                f"The value is a {_described(old)}, but the data are a {_described(new)}: pass the "
                "same shape and dtype."
            )
        if isinstance(old, np.ndarray):
            host = new if isinstance(new, np.ndarray) else backend_of(new).fetch(new)
            np.copyto(old, host)
            return
        backend = backend_of(old).for_ops
        self._value = _put(backend, new) if isinstance(new, np.ndarray) else backend.adopt(new)

    def __dlpack__(self, *, stream: Any = None) -> Any:
        array = self._tensor("array")
        if isinstance(array, np.ndarray):
            shared = Exported(array) if array.dtype in CODES else array
            return shared.__dlpack__()
        return array.__dlpack__(stream=stream)

    to_dlpack = __dlpack__

    def __dlpack_device__(self) -> tuple[int, int]:
        name, index = self._device()
        return DLPACK.get(name, 0), index

    def as_sparse_tensor(self) -> Any:
        """Refuse a sparse tensor."""
        raise refused("Sparse tensors are", "use the dense array of numpy()")

    def __repr__(self) -> str:
        if self.is_tensor():
            return f"<OrtValue {self.data_type()}{self.shape()} on {self.device_name()}>"
        return f"<OrtValue {self.data_type() or type(self._value).__name__}>"

    def __reduce__(self) -> Any:
        value = self._value if isinstance(self._value, (list, dict)) else self.numpy()
        return OrtValue._of, (value,)

    # -- the private names that callers of onnxruntime's compiled module use -----------------------

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    # -- parts ------------------------------------------------------------------------------------

    def _on_host(self) -> Any:
        """Return a tensor, or None, in the memory of the CPU."""
        array = self._value
        if array is None or isinstance(array, np.ndarray):
            return array
        return np.array(backend_of(array).fetch(array))

    def _tensor(self, what: str) -> Any:
        if not self.is_tensor():
            raise RefusedCall(f"This value is no tensor, and has no {what}: it is {self!r}.")
        return self._value

    def _dtype(self) -> np.dtype[Any]:
        array = self._value
        return array.dtype if isinstance(array, np.ndarray) else backend_of(array).spec(array).dtype

    def _device(self) -> tuple[str, int]:
        array = self._value
        if not self.is_tensor() or isinstance(array, np.ndarray):
            return "cpu", 0
        with suppress(AttributeError, BufferError):
            kind, index = array.__dlpack_device__()
            if kind == DLPACK["cuda"]:
                return "cuda", int(index)
        device = next(iter(array.devices())) if hasattr(array, "devices") else None
        return str(getattr(device, "platform", "cpu")), int(getattr(device, "id", 0))


class OrtValueVector(Sequence[OrtValue]):
    """A list of values.

    >>> len(OrtValueVector([OrtValue.ortvalue_from_numpy(np.zeros(2))]))
    1
    """

    def __init__(self, values: Iterable[OrtValue] = ()) -> None:
        self._values = list(values)

    def push_back(self, value: OrtValue) -> None:
        """Add a value at the end."""
        self._values.append(OrtValue(value))

    def reserve(self, count: int) -> None:
        """Do nothing: Python's lists grow."""

    def shrink_to_fit(self) -> None:
        """Do nothing: Python's lists shrink."""

    def element_type_at(self, index: int) -> int:
        """Return the number of the element type of a tensor."""
        return self._values[index].element_type()

    def dlpack_at(self, index: int) -> Any:
        """Return a tensor as DLPack's capsule."""
        return self._values[index].__dlpack__()

    def bool_tensor_indices(self) -> list[int]:
        """Return the places of tensors of booleans."""
        types = [value.data_type() for value in self._values]
        return [place for place, kind in enumerate(types) if kind == "tensor(bool)"]

    def to_dlpacks(self, to_tensor: Any) -> list[Any]:
        """Return all tensors as DLPack's capsules, or what a function makes of them."""
        capsules = [value.__dlpack__() for value in self._values]
        return capsules if to_tensor is None else list(map(to_tensor, capsules))

    @overload
    def __getitem__(self, place: SupportsIndex) -> OrtValue: ...
    @overload
    def __getitem__(self, place: slice) -> list[OrtValue]: ...
    def __getitem__(self, place: Any) -> Any:
        return self._values[place]

    def __len__(self) -> int:
        return len(self._values)


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy the elements of values into others, on whatever devices.

    >>> one, two = (OrtValue.ortvalue_from_numpy(np.full(2, n)) for n in (1, 2))
    >>> copy_tensors([one], [two])
    >>> two.numpy()
    array([1, 1])
    """
    if len(src) != len(dst):
        raise RefusedCall(f"There are {len(src)} values to copy to {len(dst)}: pass as many.")
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


def device_of(backend: Backend) -> tuple[str, int]:
    """Return the kind and the index of the device on which a backend creates arrays.

    >>> from sardonyx.backends import find
    >>> device_of(find("numpy"))
    ('cpu', 0)
    """
    return OrtValue._of(_put(backend, np.zeros(1, np.float32)))._device()


def unwrapped(value: Any) -> Any:
    """Return the arrays of a feed that may be, or contain, values.

    >>> unwrapped([OrtValue.ortvalue_from_numpy(np.zeros(2))])
    [array([0., 0.])]
    """
    if isinstance(value, OrtValue):
        return value._value
    if type(value) is list and any(isinstance(each, OrtValue) for each in value):
        return [unwrapped(each) for each in value]
    return value


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise RefusedCall(
            f"A value of shape {list(shape)} and dtype {dtype} is too large for this machine: "
            f"{error}. Pass a smaller shape."
        ) from None


def _backend(device_type: Any, device_id: int) -> Backend | None:
    if isinstance(device_type, OrtDevice):
        return backend_on(name_of(device_type.device_type()), device_type.device_id())
    return backend_on(device_type, device_id)


def _put(backend: Backend, array: np.ndarray[Any, Any]) -> Any:
    with backend.scope():
        return backend.put(array)


def _adopted(data: Any) -> Any:
    if isinstance(data, OrtValue):
        return data._value
    if not hasattr(data, "__dlpack_device__"):
        return np.from_dlpack(_Capsule(data))
    if data.__dlpack_device__()[0] == DLPACK["cpu"]:
        return np.from_dlpack(data)
    return backend_of(data) and data


class _Capsule:
    """DLPack's capsule of memory on the CPU, with the methods by which NumPy reads it."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK["cpu"], 0


def _described(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{value.dtype} array of shape {tuple(value.shape)}"
    return type(value).__name__
