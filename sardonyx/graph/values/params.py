"""A model's initializers as a mapping, and where each of them lives.

People see `Params`, which they may write to at any time, from any thread. A call sees `Weights`:
the initializers as they were at one moment, so that it never mixes two states of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from threading import RLock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.errors import InvalidInput
from sardonyx.graph.standard.types import is_string, short_name
from sardonyx.graph.values.kinds import digest, is_finite, static
from sardonyx.graph.values.mmap import let_go

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
        self._backend = backend
        self._lock = RLock()
        self._cells = {name: _Cell(array) for name, array in host.items()}
        self._now: Weights | None = None
        # Arrays prepared from weights, for other programs that prepare the same ones.
        self.bound: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self._placed: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        # Counts replacements: of any param, and of those that programs were recorded for.
        self._version = 0
        self.static_version = 0
        self.read_while_tracing: set[str] = set()
        # Of weights that programs were recorded for as finite, or as not.
        self.finite: dict[str, bool] = {}

    @property
    def backend(self) -> Backend:
        """Where the arrays live."""
        return self._backend

    def now(self) -> Weights:
        """The initializers as they are now; later replacements do not change it."""
        found = self._now
        if found is not None:
            return found
        with self._lock:
            self._now = Weights(self, dict(self._cells), self._version, self.static_version)
            return self._now

    def __getitem__(self, name: str) -> Any:
        return self.now()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        old = self._spec_of(self._cell(name))
        array = self._array(name, value, old)
        with self._lock:
            self._cells[name] = _Cell(device=array, is_new=True)
            self._version += 1
            if name in self.read_while_tracing or is_static(old) or self._turns(name):
                self.static_version += 1
            self._now = None

    def _turns(self, name: str) -> bool:
        """Whether programs were recorded for a finite weight, and it is one no more, or so."""
        was = self.finite.get(name)
        if was is None:
            return False
        self.finite[name] = is_finite(self.bring(self._cells[name]))
        return self.finite[name] != was

    def __delitem__(self, name: str) -> None:
        raise TypeError("a model's initializers can be replaced, not removed")

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._cells))

    def __len__(self) -> int:
        return len(self._cells)

    def __repr__(self) -> str:
        return f"<{len(self)} params, {sum(self.host(n).nbytes for n in self):,} bytes>"

    def host(self, name: str) -> np.ndarray[Any, Any]:
        """The initializer as a NumPy array, without placing it on the device."""
        return self.now().host(name)

    def note_read(self, name: str, weights: Weights) -> None:
        """Remember that a program was recorded for this value of the initializer."""
        with self._lock:
            self.read_while_tracing.add(name)
            if not weights.has(name, self._cells[name]):
                # It was replaced during the trace: the recording is one of the past.
                self.static_version += 1
                self._now = None

    def note_finite(self, name: str, weights: Weights) -> bool:
        """Whether a weight is finite, for which a program is recorded; a change is noticed."""
        found = is_finite(weights.host(name))
        with self._lock:
            self.finite[name] = found
            if self._turns(name):  # It was replaced during the trace.
                self.static_version += 1
                self._now = None
        return found

    def placed(self, value: Any) -> Any:
        """An array prepared from weights, on the device: one buffer for equal contents."""
        backend = self._backend
        if backend.owns(value):
            return value
        if not backend.compiled or value.nbytes < SMALLEST_SHARED:
            return backend.put(value)
        flat = value.reshape(-1)
        key = value.dtype.name, value.shape, flat[:: flat.size // SAMPLE + 1].tobytes()
        found = self._placed.get(key)
        if found is not None and np.array_equal(backend.fetch(found), value):
            return found
        self._placed[key] = array = backend.put(value)
        return array

    @property
    def bytes_held(self) -> int:
        """Bytes on the device: of weights that were placed there, and of what was made of them."""
        bound = [reference() for reference in self.bound.valuerefs()]
        made = {id(a): a for each in bound if each is not None for a in each.arrays}
        cells = [cell.device for cell in list(self._cells.values())]
        made.update((id(array), array) for array in cells if array is not None)
        return sum(map(self._backend.nbytes, made.values()))

    def release(self) -> None:
        """Give back what is on the device; it is placed there again when it is needed."""
        with self._lock:
            self._cells = {
                name: _Cell(self.bring(cell), is_new=cell.is_new)
                for name, cell in self._cells.items()
            }
            self.bound.clear()
            self._version += 1
            self._now = None

    def replaced(self) -> dict[str, np.ndarray[Any, Any]]:
        """The initializers that were replaced since the model was loaded, as NumPy arrays."""
        with self._lock:
            return {name: self.bring(cell) for name, cell in self._cells.items() if cell.is_new}

    def place(self, cell: _Cell) -> Any:
        """The array of a cell on the device, placed there at its first use."""
        with self._lock:
            if cell.device is None:
                assert cell.host is not None
                with self._backend.scope():
                    cell.device = self._backend.put(cell.host)
                self.let_go(cell)
            return cell.device

    def bring(self, cell: _Cell) -> np.ndarray[Any, Any]:
        """The array of a cell on the host, fetched at its first use there."""
        with self._lock:
            if cell.host is None:
                device: Any = cell.device
                cell.host = static(self._backend.fetch(device)).value
            return cell.host

    def let_go(self, cell: _Cell) -> None:
        """Drop the pages that were read from a file, unless weights are used from there."""
        if cell.host is not None and not self._backend.owns(cell.host):
            let_go(cell.host)

    def _cell(self, name: str) -> _Cell:
        if name not in self._cells:
            raise _unknown(name)
        return self._cells[name]

    def _array(self, name: str, value: Any, old: Spec) -> Any:
        """A caller's value on the device; NumPy's are copied, as the caller may write to them."""
        backend = self._backend
        if backend.is_abstract(value):
            raise InvalidInput(
                f"The initializer '{name}' cannot be replaced by a traced value: pass weights as "
                "arguments of the function that `sardonyx.to_jax` returns."
            )
        with backend.scope():
            if backend.owns(value) and not isinstance(value, np.ndarray):
                _refuse_other(name, backend.spec(value), old)
                return value
            host = _readable(name, value)
            _refuse_other(name, Spec(host.shape, host.dtype), old)
            return host if host.dtype == object else backend.put(host)

    def _spec_of(self, cell: _Cell) -> Spec:
        if cell.host is not None:
            return Spec(cell.host.shape, cell.host.dtype)
        return self._backend.spec(cell.device)


class Weights:
    """A model's initializers as they were at one moment: those of one call."""

    __slots__ = ("_cells", "params", "static_version", "version")

    def __init__(
        self, params: Params, cells: Mapping[str, _Cell], version: int, static_version: int
    ) -> None:
        self.params = params
        self.version = version
        self.static_version = static_version
        self._cells = cells

    @property
    def backend(self) -> Backend:
        """Where the arrays live."""
        return self.params.backend

    def __getitem__(self, name: str) -> Any:
        """The array on the device; strings stay on the host."""
        cell = self._cell(name)
        return self.params.place(cell) if cell.device is None else cell.device

    def host(self, name: str) -> np.ndarray[Any, Any]:
        """The initializer as a NumPy array, without placing it on the device."""
        cell = self._cell(name)
        return self.params.bring(cell) if cell.host is None else cell.host

    def let_go(self, names: Iterable[str]) -> None:
        """Drop the pages that were read from files, unless weights are used from there."""
        for name in names:
            self.params.let_go(self._cell(name))

    def note_read(self, name: str) -> None:
        """Remember that a program was recorded for this value of the initializer."""
        self.params.note_read(name, self)

    def is_finite(self, name: str) -> bool:
        """Whether the initializer is finite, for which a program is recorded."""
        return self.params.note_finite(name, self)

    def has(self, name: str, cell: _Cell) -> bool:
        """Whether this is the initializer's value here."""
        return self._cells[name] is cell

    def _cell(self, name: str) -> _Cell:
        try:
            return self._cells[name]
        except KeyError:
            raise _unknown(name) from None


class _Cell:
    """One value of an initializer: on the host, on the device, or both."""

    __slots__ = ("device", "host", "is_new")

    def __init__(
        self,
        host: np.ndarray[Any, Any] | None = None,
        device: Any = None,
        *,
        is_new: bool = False,
    ) -> None:
        self.host = host
        # Strings have no other place than the host.
        self.device = host if host is not None and host.dtype == object else device
        self.is_new = is_new


def _unknown(name: str) -> KeyError:
    return KeyError(f"the model has no initializer named '{name}'")


def _readable(name: str, value: Any) -> np.ndarray[Any, Any]:
    """A copy of a caller's value as a NumPy array of numbers or of strings."""
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
            f"The initializer '{name}' is {short_name(old.dtype)}{list(old.shape)}, and cannot be "
            f"replaced by {short_name(new.dtype)}{list(new.shape)}: cast or reshape it first."
        )


class Constants:
    """Static values on the device: one buffer for each content, however many nodes use it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = RLock()
        self._arrays: dict[Any, Any] = {}
        self._leaving: dict[int, tuple[np.ndarray[Any, Any], Any]] = {}

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def bytes_held(self) -> int:
        """Bytes on the device."""
        return sum(map(self._backend.nbytes, list(self._arrays.values())))

    def clear(self) -> None:
        """Forget them all."""
        self._arrays.clear()
        self._leaving.clear()

    def place(self, key: Any, value: np.ndarray[Any, Any]) -> Any:
        """The device array for `value`, whose digest is `key`."""
        found = self._arrays.get(key)
        if found is None:
            with self._lock, self._backend.scope():
                found = self._arrays.get(key)
                if found is None:
                    found = self._arrays[key] = self._backend.put(value)
        return found

    def leaving(self, value: np.ndarray[Any, Any]) -> Any:
        """The array for a static value that is an output; found by identity, as calls repeat."""
        known = self._leaving.get(id(value))
        if known is None:
            array = value if value.dtype == object else self.place(digest(value), value)
            known = self._leaving[id(value)] = value, array
        array = known[1]
        return array if isinstance(array, np.ndarray) else self._backend.shield(array)


def is_static(value: Spec | np.ndarray[Any, Any]) -> bool:
    """Whether an initializer counts as known while tracing, rather than as a weight."""
    if not value.shape or is_string(value.dtype):
        return True
    return value.dtype.kind in "biu" and math.prod(value.shape) <= LARGEST_STATIC
