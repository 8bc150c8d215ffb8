"""`IOBinding`: inputs and outputs that are bound to memory before a call."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from sardonyx.backends import backend_of, find
from sardonyx.backends.base import Backend
from sardonyx.backends.dlpack import CudaMemory
from sardonyx.compat.devices import backend_on, check_index
from sardonyx.compat.exceptions import RefusedCall, WrongType, refused
from sardonyx.compat.feeds import Feeds, as_bytes
from sardonyx.compat.memory import (
    array_at,
    check_address,
    number_dtype,
    shape_of,
)
from sardonyx.compat.values import OrtValue, OrtValueVector, unwrapped
from sardonyx.errors import BackendUnavailable, InvalidInput, SardonyxError
from sardonyx.graph.calls.results import fresh


class Session(Protocol):
    """What a binding needs of its session."""

    _feeds: Feeds
    _output_names: list[str]

    def _outputs(
        self, names: list[str], feeds: dict[str, Any], run_options: Any, *, to_numpy: bool
    ) -> list[Any]: ...


class _Target(NamedTuple):
    """Where an output goes: to a backend (None is NumPy), a value, or memory on a device."""

    backend: Backend | None = None
    value: OrtValue | None = None
    memory: CudaMemory | None = None
    device: str = "cpu"


class IOBinding:
    """Inputs and outputs of a session by name, for any number of calls.

    Inputs are read when a call runs, and so are changes that were made to their memory before.
    Outputs that are bound to a device stay there.

    >>> import sardonyx.compat as ort
    >>> session = ort.InferenceSession("examples/encoder.onnx", providers=["CPUExecutionProvider"])
    >>> binding = session.io_binding()
    >>> binding.bind_cpu_input("x", np.zeros((1, 8, 48), np.float32))
    >>> binding.bind_output("y")
    >>> session.run_with_iobinding(binding)
    >>> binding.copy_outputs_to_cpu()[0].shape
    (1, 8, 48)
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._targets: dict[str, _Target] = {}
        self._results: list[OrtValue] = []

    # -- inputs -----------------------------------------------------------------------------------

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an input to a NumPy array."""
        if not isinstance(arr_on_cpu, np.ndarray):
            raise RefusedCall(
                f"The input {name!r:.200} is bound to a {type(arr_on_cpu).__name__}: pass a NumPy "
                "array."
            )
        self._bind(name, arr_on_cpu)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Any,
        buffer_ptr: int,
    ) -> None:
        """Bind an input to memory of the CPU or of CUDA, by its address."""
        dtype, sizes = number_dtype(element_type), shape_of(shape)
        backend = backend_on(device_type, device_id)
        if backend is None:
            self._bind(name, array_at(buffer_ptr, dtype, sizes))
        else:
            place = device_type, device_id
            self._bind(name, _device_memory(place, buffer_ptr, dtype, sizes))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value."""
        self._bind(name, _checked_value(ortvalue))

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs.clear()

    def synchronize_inputs(self) -> None:
        """Wait until the inputs on devices are there."""
        _wait(unwrapped(value) for value in self._inputs.values())

    # -- outputs ----------------------------------------------------------------------------------

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Any = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to a device, or to memory of it by its address."""
        backend = backend_on(device_type, device_id)
        if buffer_ptr is None:
            self._aim(name, _Target(backend))
            return
        if element_type is None or shape is None:
            raise InvalidInput(
                f"The output {name!r:.200} is bound to memory without its element type or shape: "
                "pass both."
            )
        dtype, sizes = number_dtype(element_type), shape_of(shape)
        if backend is None:
            array = array_at(buffer_ptr, dtype, sizes)
            self._aim(name, _Target(value=OrtValue._of(array)))
            return
        memory = _device_memory((device_type, device_id), buffer_ptr, dtype, sizes)
        self._aim(name, _Target(backend, memory=memory, device=f"cuda:{check_index(device_id)}"))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output to a value, which calls write to."""
        array = unwrapped(_checked_value(ortvalue))
        is_host = isinstance(array, np.ndarray)
        self._aim(name, _Target(None if is_host else backend_of(array), value=ortvalue))

    def clear_binding_outputs(self) -> None:
        """Forget all outputs, and the results of calls."""
        self._targets.clear()
        self._results = []

    def synchronize_outputs(self) -> None:
        """Wait until the outputs on devices are computed."""
        _wait(unwrapped(value) for value in self._results)

    # -- results ----------------------------------------------------------------------------------

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last call, in the order in which they were bound."""
        return list(self._results)

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """Return the outputs of the last call as one object."""
        return OrtValueVector(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return the outputs of the last call as arrays of NumPy that belong to the caller."""
        values = [unwrapped(value) for value in self._results]
        host = [_on_host(value) for value in values]
        return [as_bytes(fresh(each)) for each in host]

    # -- the call ---------------------------------------------------------------------------------

    def _run(self, run_options: Any) -> None:
        if not self._targets:
            raise RefusedCall("No output is bound: call bind_output before the call.")
        names = list(self._targets)
        if unknown := [name for name in names if name not in self._session._output_names]:
            raise RefusedCall(
                f"The model has no output '{unknown[0]}'; it has "
                f"{', '.join(self._session._output_names)}."
            )
        try:
            feeds = self._session._feeds.checked(self._inputs)
            results = self._computed(names, feeds, run_options)
        except SardonyxError as error:
            raise RefusedCall(str(error)) from error
        pairs = zip(self._targets.items(), results, strict=True)
        self._results = [_delivered(name, target, result) for (name, target), result in pairs]

    def _computed(self, names: list[str], feeds: dict[str, Any], run_options: Any) -> list[Any]:
        on_device = next((t.backend for t in self._targets.values() if t.backend), None)
        if on_device is None:
            outputs = self._session._outputs(names, feeds, run_options, to_numpy=True)
            return list(map(fresh, outputs))
        # With one input on the device, results stay there.
        for name, value in feeds.items():
            if isinstance(value, np.ndarray) and value.dtype != object:
                with on_device.scope():
                    feeds = {**feeds, name: on_device.put(value)}
                break
        return self._session._outputs(names, feeds, run_options, to_numpy=False)

    def _bind(self, name: Any, value: Any) -> None:
        if name not in self._session._feeds.names:
            raise RefusedCall(
                f"The model has no input {name!r:.200}; it takes "
                f"{', '.join(sorted(self._session._feeds.names)) or 'none'}."
            )
        self._inputs[name] = value

    def _aim(self, name: Any, target: _Target) -> None:
        if not isinstance(name, str):
            raise WrongType(f"The name of an output is {name!r:.100}: pass a string.")
        self._targets[name] = target


def _delivered(name: str, target: _Target, result: Any) -> OrtValue:
    """Put a result where it is bound to, and return the value that has it."""
    if target.memory is not None:
        _check_alike(name, target.memory, result)
        _write(target, result)
        return OrtValue._of(target.memory)
    if target.value is not None:
        _check_alike(name, unwrapped(target.value), result)
        target.value.update_inplace(OrtValue._of(result))
        return target.value
    if target.backend is None:
        return OrtValue._of(_on_host(result))
    if isinstance(result, np.ndarray) and result.dtype != object:
        with target.backend.scope():
            result = target.backend.put(result)
    return OrtValue._of(result)


def _check_alike(name: str, bound: Any, result: Any) -> None:
    is_alike = hasattr(result, "shape") and tuple(bound.shape) == tuple(result.shape)
    if not is_alike or np.dtype(bound.dtype) != np.dtype(result.dtype):
        shown = f"{result.dtype}{list(result.shape)}" if hasattr(result, "shape") else "no tensor"
        raise RefusedCall(
            f"The output '{name}' is bound to memory for {bound.dtype}{list(bound.shape)}, but it "
            f"is {shown}: bind it to memory of that type and shape."
        )


def _write(target: _Target, result: Any) -> None:
    """Write a result into memory of a CUDA device, which JAX cannot do."""
    try:
        cupy = find("cupy", target.device)
    except BackendUnavailable as error:
        raise refused("Writing to memory of a CUDA device without CuPy is", str(error)) from error
    with cupy.scope():
        source = cupy.put(result) if isinstance(result, np.ndarray) else cupy.adopt(result)
        memory: Any = cupy.adopt(target.memory)
        memory[...] = source
        # Whoever reads there does not know of this stream.
        cupy.wait([memory])


def _device_memory(
    place: tuple[str, int], address: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> CudaMemory:
    kind, index = place
    if kind not in ("cuda", "gpu"):
        raise refused(f"An address of memory of '{kind}' is", "bind an OrtValue")
    check_address(address, math.prod(shape) * dtype.itemsize)
    return CudaMemory(int(address), shape, dtype, check_index(index))


def _checked_value(value: Any) -> OrtValue:
    if not isinstance(value, OrtValue):
        raise WrongType(f"The value to bind is a {type(value).__name__}: pass an OrtValue.")
    return value


def _on_host(value: Any) -> Any:
    if isinstance(value, list):
        return [_on_host(each) for each in value]
    if value is None or isinstance(value, (dict, np.ndarray)):
        return value
    return np.array(backend_of(value).fetch(value))


def _wait(values: Any) -> None:
    for value in values:
        if hasattr(value, "dtype") and not isinstance(value, (np.ndarray, CudaMemory)):
            backend_of(value).wait([value])
