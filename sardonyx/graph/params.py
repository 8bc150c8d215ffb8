"""A model's initializers as a mapping, and where each of them lives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from sardonyx.graph.mapped import let_go
from sardonyx.graph.standard.types import short_name
from sardonyx.graph.values import digest, is_finite, static

# Integers up to this many elements are shape arithmetic, axes, indices: known while tracing.
LARGEST_STATIC = 1024
# Of fewer bytes than these there may be copies.
SMALLEST_SHARED = 2**16
# So many elements tell which of them may be alike.
SAMPLE = 1024


class Params(MutableMapping[str, Any]):
    """Name -> array. Reading gives the backend's array, placed on the device once.

    Assigning replaces a weight; shape and dtype must stay. Programs take weights as arguments, so
    they stay valid, except where a value was read while tracing.
    """

    def __init__(self, host: Mapping[str, np.ndarray[Any, Any]], backend: Backend) -> None:
        self._host = dict(host)
        self._device: dict[str, Any] = {}
        self._backend = backend
        # What programs made of the weights, for those that make the same of them.
        self.bound: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self._placed: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        # Counts replacements: of any param, and of those that programs were recorded for.
        self.version = 0
        self.static_version = 0
        self.read_while_tracing: set[str] = set()
        # Of weights that programs were recorded for as finite, or as not.
        self.finite: dict[str, bool] = {}

    @property
    def backend(self) -> Backend:
        """Where the arrays live."""
        return self._backend

    def __getitem__(self, name: str) -> Any:
        if name not in self._host and name not in self._device:
            raise KeyError(f"the model has no initializer named '{name}'")
        if name not in self._device:
            value = self._host[name]
            if value.dtype == object:
                return value
            with self._backend.scope():
                self._device[name] = self._backend.put(value)
            self.let_go([name])
        return self._device[name]

    def let_go(self, names: Iterable[str]) -> None:
        """Take what was read of files out of memory, unless that is where weights are used."""
        for name in names:
            host = self._host.get(name)
            if host is not None and not self._backend.owns(host):
                let_go(host)

    def __setitem__(self, name: str, value: Any) -> None:
        old = self.host(name)
        backend = self._backend
        with backend.scope():
            array = value if backend.owns(value) else backend.put(np.array(value))
        dtype = backend.numpy_dtype(array.dtype)
        if tuple(array.shape) != old.shape or dtype != old.dtype:
            raise InvalidInput(
                f"The initializer '{name}' is {short_name(old.dtype)}{list(old.shape)}, and cannot "
                f"be replaced by {short_name(dtype)}{list(array.shape)}: cast or reshape it first."
            )
        self._device[name] = array
        self._host.pop(name, None)
        self.version += 1
        was = self.finite.pop(name, None)
        changes = was is not None and was != is_finite(backend.fetch(array))
        if changes or name in self.read_while_tracing or is_static(old):
            self.static_version += 1

    def is_finite(self, name: str) -> bool:
        """Whether a weight is finite. Programs that rely on it are recorded anew if it changes."""
        if name not in self.finite:
            self.finite[name] = is_finite(self.host(name))
        return self.finite[name]

    def __delitem__(self, name: str) -> None:
        raise TypeError("a model's initializers can be replaced, not removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self._device | self._host)

    def __len__(self) -> int:
        return len(self._device | self._host)

    def __repr__(self) -> str:
        return f"<{len(self)} params, {sum(self.host(n).nbytes for n in self):,} bytes>"

    def placed(self, value: np.ndarray[Any, Any]) -> Any:
        """What was made of weights, on the device: once, if it is made again for other shapes."""
        if value.nbytes < SMALLEST_SHARED or not self._backend.compiled:
            return self._backend.put(value)
        flat = value.reshape(-1)
        key = value.dtype.name, value.shape, flat[:: flat.size // SAMPLE + 1].tobytes()
        found = self._placed.get(key)
        if found is not None and np.array_equal(self._backend.fetch(found), value):
            return found
        self._placed[key] = array = self._backend.put(value)
        return array

    @property
    def bytes_held(self) -> int:
        """Bytes on the device: of weights that were placed there, and of what was made of them."""
        made = {id(a): a for bound in list(self.bound.values()) for a in bound.arrays}
        made.update((id(array), array) for array in self._device.values())
        return sum(map(self._backend.nbytes, made.values()))

    def release(self) -> None:
        """Give back what is on the device; it is placed there again when it is needed."""
        for name in list(self._device):
            self.host(name)
        self._device.clear()
        self.bound.clear()
        self.version += 1

    def host(self, name: str) -> np.ndarray[Any, Any]:
        """The initializer as a NumPy array, without placing it on the device."""
        if name not in self._host:
            if name not in self._device:
                raise KeyError(f"the model has no initializer named '{name}'")
            self._host[name] = static(self._backend.fetch(self._device[name])).value
        return self._host[name]


class Constants:
    """Static values on the device: one buffer for each content, however many nodes use it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._arrays: dict[Any, Any] = {}
        self._leaving: dict[int, tuple[np.ndarray[Any, Any], Any]] = {}

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def bytes_held(self) -> int:
        """Bytes on the device."""
        return sum(map(self._backend.nbytes, self._arrays.values()))

    def clear(self) -> None:
        """Forget them all."""
        self._arrays.clear()
        self._leaving.clear()

    def place(self, key: Any, value: np.ndarray[Any, Any]) -> Any:
        """The device array for `value`, whose digest is `key`."""
        if key not in self._arrays:
            with self._backend.scope():
                self._arrays[key] = self._backend.put(value)
        return self._arrays[key]

    def leaving(self, value: np.ndarray[Any, Any]) -> Any:
        """The array for a static value that is an output; found by identity, as calls repeat."""
        if id(value) not in self._leaving:
            array = value if value.dtype == object else self.place(digest(value), value)
            self._leaving[id(value)] = value, array
        array = self._leaving[id(value)][1]
        return array if isinstance(array, np.ndarray) else self._backend.shield(array)


def is_static(value: np.ndarray[Any, Any]) -> bool:
    """Whether an initializer counts as known while tracing, rather than as a weight."""
    if value.ndim == 0 or value.dtype == object:
        return True
    return value.dtype.kind in "biu" and value.size <= LARGEST_STATIC
