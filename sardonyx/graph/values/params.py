"""A model's initializers: for users, for programs, and for one call.

Users have `Params`, which they can write to at any time, from any thread. It writes to the model's
`WeightStore`. A call uses `Weights`: a snapshot, so that it never mixes two states of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.display.markup import displayed
from sardonyx.errors import InvalidInput
from sardonyx.graph.standard.types import is_string
from sardonyx.graph.values.kinds import digest, is_finite, is_zero, spec_text, static
from sardonyx.graph.values.mmap import content, drop_pages
from sardonyx.graph.values.params_display import Entry, head_of, params_parts, params_text
from sardonyx.logs import Log

T = TypeVar("T")
_LOG = Log("tracing")

# Integer initializers of at most this many elements are static: shapes, axes, indices.
LARGEST_STATIC = 1024
# Minimum bytes of prepared arrays that are shared between equal contents.
SMALLEST_SHARED = 2**16
# Number of elements that are compared first, to find arrays with equal contents.
SAMPLE = 1024


class Params(MutableMapping[str, Any]):
    """A mapping from names to arrays of the backend, each placed on the device once.

    Assigning replaces a weight by an array of the same shape and dtype. Programs take weights as
    arguments, so they stay valid, unless the trace read the value.
    """

    def __init__(self, store: WeightStore) -> None:
        self._store = store

    def __getitem__(self, name: str) -> Any:
        return self._store.now().in_library(name)

    def __setitem__(self, name: str, value: Any) -> None:
        old = self._store.spec(name)
        self._store.replace(name, self._array(name, value, old))

    def __delitem__(self, name: str) -> None:
        raise TypeError("a model's initializers can be replaced, not removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self._store)

    def __len__(self) -> int:
        return len(list(self._store))

    def __repr__(self) -> str:
        return params_text(self._entries())

    def _repr_html_(self) -> str:
        entries = self._entries()
        return displayed(head_of(entries), *params_parts(entries))

    def _entries(self) -> list[Entry]:
        now = self._store.now()
        return [Entry(name, self._store.spec(name), now.at_hand) for name in self]

    def host(self, name: str) -> np.ndarray[Any, Any]:
        """Return the initializer as a NumPy array, without placing it on the device."""
        return content(self._store.host(name))

    def _array(self, name: str, value: Any, old: Spec) -> Any:
        """Place a caller's value on the device; NumPy arrays are copied, as they can change."""
        backend = self._store.backend
        if backend.is_abstract(value):
            raise InvalidInput(
                f"The initializer '{name}' cannot be replaced by a traced value: pass weights as "
                "arguments of the function that `sardonyx.to_jax` returns."
            )
        with backend.scope():
            if backend.owns(value) and not isinstance(value, np.ndarray):
                _refuse_other(name, backend.spec(value), old)
                return backend.place(value)
            host = _readable(name, value)
            _refuse_other(name, Spec(host.shape, host.dtype), old)
            return host if host.dtype == object else backend.place(host)


class WeightStore:
    """A model's initializers, what was prepared from them, and what programs know of them."""

    def __init__(self, host: Mapping[str, np.ndarray[Any, Any]], backend: Backend) -> None:
        self.backend = backend
        self._lock = RLock()
        self._cells = {name: _Cell(array) for name, array in host.items()}
        self._specs = {name: Spec(array.shape, array.dtype) for name, array in host.items()}
        self.size = sum(array.nbytes for array in host.values())
        self._now: Weights | None = None
        # What programs take of weights, and what is prepared for them, shared by equal ones.
        self.bound: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self.prepared: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self._placed: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        # Number of replacements: of any weight, and of weights whose values programs depend on.
        self._version = 0
        self.static_version = 0
        self.read_while_tracing: set[str] = set()
        # Whether a weight is finite, for the weights where programs depend on that.
        self.finite: dict[str, bool] = {}

    def now(self) -> Weights:
        """Return a snapshot of the initializers, which later replacements do not change."""
        snapshot = self._now
        if snapshot is not None:
            return snapshot
        with self._lock:
            self._now = Weights(self, dict(self._cells), self._version, self.static_version)
            return self._now

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._cells))

    def host(self, name: str) -> np.ndarray[Any, Any]:
        """Return the initializer where it is on the host, mapped or unaligned."""
        return self.now().host(name)

    def spec(self, name: str) -> Spec:
        """Return the shape and dtype of the initializer."""
        return _named(name, self._specs)

    def replace(self, name: str, array: Any) -> None:
        """Replace an initializer by an array of the same shape and dtype."""
        with self._lock:
            is_read = name in self.read_while_tracing or is_static(self._specs[name])
            self._cells[name] = _Cell(device=array, is_new=True)
            self._version += 1
            self._now = None
            if is_read or self._finiteness_changed(name):
                self.static_version += 1
                is_read = True
        if is_read:
            _LOG.info("Replaced the weight %s, which tracing reads: calls are traced anew.", name)

    def note_read(self, name: str, weights: Weights) -> None:
        """Remember that a program depends on this value of the initializer."""
        with self._lock:
            self.read_while_tracing.add(name)
            if not weights.has(name, self._cells[name]):
                self._outdate_recordings()

    def note_finite(self, name: str, weights: Weights) -> bool:
        """Return whether a weight is finite, and remember that a program depends on it."""
        finite = is_finite(weights.content(name))
        with self._lock:
            self.finite[name] = finite
            if self._finiteness_changed(name):
                self._outdate_recordings()
        return finite

    def _finiteness_changed(self, name: str) -> bool:
        """Update whether a weight is finite; return whether that changed."""
        before = self.finite.get(name)
        if before is None:
            return False
        self.finite[name] = is_finite(content(self.to_host(self._cells[name])))
        return self.finite[name] != before

    def _outdate_recordings(self) -> None:
        """Drop the recordings, because a value was replaced while a trace read it."""
        self.static_version += 1
        self._now = None

    def placed(self, value: Any) -> Any:
        """Place an array prepared from weights on the device, once for equal contents."""
        backend = self.backend
        if backend.owns(value) or not backend.compiled or value.nbytes < SMALLEST_SHARED:
            return backend.place(value)
        flat = value.reshape(-1)
        key = value.dtype.name, value.shape, flat[:: flat.size // SAMPLE + 1].tobytes()
        cached = self._placed.get(key)
        if cached is not None and np.array_equal(backend.fetch(cached), value):
            return cached
        self._placed[key] = array = backend.place(value)
        drop_pages(value)
        return array

    @property
    def bytes_held(self) -> int:
        """Bytes on the device, of weights and of arrays that were prepared from them."""
        arrays = {id(array): array for each in self._bound() for array in each.arrays}
        weights = [cell.device for cell in list(self._cells.values())]
        arrays.update((id(array), array) for array in weights if array is not None)
        return sum(map(self.backend.nbytes, arrays.values()))

    def release(self) -> None:
        """Free the arrays on the device; they are placed there again when needed."""
        with self._lock:
            self._cells = {
                name: _Cell(self.to_host(cell), is_new=cell.is_new)
                for name, cell in self._cells.items()
            }
            self.bound.clear()
            self.prepared.clear()
            self._version += 1
            self._now = None

    def replaced(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the initializers that were replaced since the load, as NumPy arrays."""
        with self._lock:
            return {name: self.to_host(cell) for name, cell in self._cells.items() if cell.is_new}

    def place(self, cell: _Cell) -> Any:
        """Return the array of a cell on the device, placed there at its first use."""
        with self._lock:
            if cell.device is None:
                assert cell.host is not None
                with self.backend.scope():
                    cell.device = self.backend.place(content(cell.host))
                if cell.device is not cell.host:
                    drop_pages(cell.host)
            return cell.device

    def in_library(self, cell: _Cell) -> Any:
        """Return the array of a cell as one of the backend's library, which it is from now on."""
        with self._lock:
            array, backend = self.place(cell), self.backend
            if not backend.owns(array) and array.dtype != object:
                with backend.scope():
                    cell.device = array = backend.put(array)
            return array

    def free_unread(self, cell: _Cell) -> None:
        """Free the array of a cell on the device, as it is placed there again when needed."""
        with self._lock:
            device = cell.device
            if device is None or cell.host is None or isinstance(device, np.ndarray):
                return
            if not any(array is device for each in self._bound() for array in each.arrays):
                cell.device = None

    def _bound(self) -> list[Any]:
        each = [reference() for reference in self.bound.valuerefs()]
        return [arrays for arrays in each if arrays is not None]

    def hold(self, cell: _Cell) -> np.ndarray[Any, Any]:
        """Return the array of a cell on the host, whose data stays in memory from now on."""
        with self._lock:
            cell.host = cell.held = content(self.to_host(cell))
            return cell.host

    def to_host(self, cell: _Cell) -> np.ndarray[Any, Any]:
        """Return the array of a cell on the host, fetched at its first use there."""
        with self._lock:
            if cell.host is None:
                device: Any = cell.device
                cell.host = static(self.backend.fetch(device)).value
            return cell.host


@dataclass(frozen=True, eq=False, slots=True)
class Weights:
    """A snapshot of a model's initializers, for one call."""

    store: WeightStore
    _cells: Mapping[str, _Cell]
    version: int
    static_version: int

    def now(self) -> Weights:
        """Return the snapshot itself, so that it can stand for the initializers."""
        return self

    @property
    def backend(self) -> Backend:
        """The backend of the arrays."""
        return self.store.backend

    def __getitem__(self, name: str) -> Any:
        """Return the array on the device; strings stay on the host."""
        cell = _named(name, self._cells)
        device = cell.device  # Read once: another thread may free it.
        return self.store.place(cell) if device is None else device

    def in_library(self, name: str) -> Any:
        """Return the array for a caller, who is to get one of the library even on CPUs."""
        return self.store.in_library(_named(name, self._cells))

    def free_unread(self, name: str) -> None:
        """Free the array on the device if no program reads it there, and the host has it too."""
        self.store.free_unread(_named(name, self._cells))

    def stand_in(self, name: str) -> Any:
        """Return the array on the device, or only its shape and dtype if it is not there yet."""
        device = _named(name, self._cells).device
        return self.store.spec(name) if device is None else device

    def host(self, name: str) -> np.ndarray[Any, Any]:
        """Return the initializer where it is on the host, mapped or unaligned."""
        cell = _named(name, self._cells)
        return self.store.to_host(cell) if cell.host is None else cell.host

    def at_hand(self, name: str) -> np.ndarray[Any, Any] | None:
        """Return the initializer if it is on the host already, mapped or unaligned."""
        cell = _named(name, self._cells)
        return cell.device if isinstance(cell.device, np.ndarray) else cell.host

    def on_host(self, name: str) -> np.ndarray[Any, Any]:
        """Return the initializer for calls on the host, which compute with it each time."""
        cell = _named(name, self._cells)
        return self.store.hold(cell) if cell.held is None else cell.held

    def content(self, name: str) -> np.ndarray[Any, Any]:
        """Return the initializer with data to compute with, without placing it on the device."""
        return content(self.host(name))

    def note_read(self, name: str) -> None:
        """Remember that a program depends on this value of the initializer."""
        self.store.note_read(name, self)

    def is_finite(self, name: str) -> bool:
        """Return whether the initializer is finite, and remember that a program depends on it."""
        return self.store.note_finite(name, self)

    def is_zero(self, name: str) -> bool:
        """Return whether the initializer is 0 everywhere; if so, a program depends on that."""
        found = is_zero(self.content(name))
        if found:
            self.note_read(name)
        return found

    def has(self, name: str, cell: _Cell) -> bool:
        """Whether `cell` is the initializer's value in this snapshot."""
        return self._cells[name] is cell


@dataclass(eq=False, slots=True)
class _Cell:
    """One value of an initializer: on the host, on the device, or both."""

    host: np.ndarray[Any, Any] | None = None
    # The array on the host again, once its data stays in memory.
    held: np.ndarray[Any, Any] | None = None
    device: Any = None
    is_new: bool = False

    def __post_init__(self) -> None:
        if self.host is not None and self.host.dtype == object:
            self.device = self.host  # Strings exist only on the host.


def _named(name: str, values: Mapping[str, T]) -> T:
    try:
        return values[name]
    except KeyError:
        raise KeyError(f"the model has no initializer named '{name}'") from None


def _readable(name: str, value: Any) -> np.ndarray[Any, Any]:
    """Return a copy of a caller's value as a NumPy array of numbers or strings."""
    try:
        array = np.array(value)
    except Exception as error:
        raise InvalidInput(
            f"The initializer '{name}' cannot be replaced by a {type(value).__name__}, which is "
            f"not a readable array ({error}): pass a NumPy array."
        ) from error
    return array.astype(object) if is_string(array.dtype) else array


def _refuse_other(name: str, new: Spec, old: Spec) -> None:
    if new != old:
        raise InvalidInput(
            f"The initializer '{name}' is {spec_text(old)} and cannot be replaced by "
            f"{spec_text(new)}: cast or reshape the new array first."
        )


class Constants:
    """Static values on the device: one buffer for equal contents, shared by all nodes."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = RLock()
        self._arrays: dict[Any, Any] = {}
        self._outputs: dict[int, tuple[np.ndarray[Any, Any], Any]] = {}

    @property
    def bytes_held(self) -> int:
        """Bytes on the device."""
        return sum(map(self._backend.nbytes, list(self._arrays.values())))

    def clear(self) -> None:
        """Drop all arrays."""
        self._arrays.clear()
        self._outputs.clear()

    def place(self, key: Any, value: np.ndarray[Any, Any]) -> Any:
        """Return the device array for `value`, whose digest is `key`."""
        array = self._arrays.get(key)
        if array is None:
            with self._lock, self._backend.scope():
                array = self._arrays.get(key)
                if array is None:
                    array = self._arrays[key] = self._backend.place(value)
        return array

    def for_output(self, value: np.ndarray[Any, Any]) -> Any:
        """Return the array for a static output, cached by identity, since calls repeat."""
        cached = self._outputs.get(id(value))
        if cached is None:
            array = value if value.dtype == object else self.place(digest(value), value)
            cached = self._outputs[id(value)] = value, array
        array = cached[1]
        return array if isinstance(array, np.ndarray) else self._backend.shield(array)


def is_static(value: Spec | np.ndarray[Any, Any]) -> bool:
    """Whether an initializer is a static value rather than a weight."""
    if not value.shape or is_string(value.dtype):
        return True
    return value.dtype.kind in "biu" and math.prod(value.shape) <= LARGEST_STATIC
