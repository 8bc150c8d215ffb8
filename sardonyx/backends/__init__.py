"""The array libraries that ops run on, by name, by device or by one of their arrays.

A library is imported when a caller names it or passes one of its arrays, not before.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.arguments import check_fraction
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.backends.own_draws import own_draws
from sardonyx.errors import BackendUnavailable, InvalidInput
from sardonyx.logs import Log

if TYPE_CHECKING:
    from sardonyx.backends.other import OtherBackend

_LOG = Log("backends")
_CLASSES = {
    "jax": ("sardonyx.backends.jax.backend", "JaxBackend"),
    "cupy": ("sardonyx.backends.cupy.backend", "CupyBackend"),
    "numpy": ("sardonyx.backends.numpy", "NumpyBackend"),
}
# Where all devices of JAX are CPUs, it is imported when something is compiled.
_JAX_ON_CPU = ("sardonyx.backends.jax.on_cpu", "JaxOnCpu")
_INSTALL = {
    "jax": "pip install sardonyx",
    "cupy": "pip install 'sardonyx[cuda]'",
    "numpy": "pip install numpy",
}
# Where the arrays are whose types CuPy lacks.
_CUPYS_OTHER_TYPES = "sardonyx.backends.cupy.bits"
_KINDS = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu", "tpu": "tpu"}
_CHOICE = {"cpu": ("jax", "numpy"), "gpu": ("jax", "cupy"), "tpu": ("jax",)}


def find(name: str | None = None, device: object = None) -> Backend:
    """Return the backend `name` ("jax", "cupy", "numpy") on `device`, or the best one here.

    A device is "cpu", "gpu" (or "cuda"), "tpu", one of them by its index as in "cuda:1", or a
    `jax.Device`. A backend or a device that you name and that is missing is an error: another one
    never takes its place.
    """
    if name is not None and not (isinstance(name, str) and name in _CLASSES):
        raise BackendUnavailable(
            f"There is no backend {name!r}: it may be {', '.join(map(repr, _CLASSES))}, or None "
            "for the best of them."
        )
    if device is None:
        return _on(name or _best(), None, None)
    if not isinstance(device, str):
        return _on_object(name, device)
    kind, index = _parsed(device)
    reasons = []
    for candidate in (name,) if name else _CHOICE[kind]:
        try:
            found = _on(candidate, kind, index)
        except BackendUnavailable as error:
            reasons.append(str(error))
            continue
        if name is None:
            _note_choice(candidate, f"which has the device {device!r}", reasons)
        return found
    raise BackendUnavailable(" ".join(reasons))


def limit_memory(backend: str | Backend | None, fraction: float) -> None:
    """Limit the libraries that may be chosen to a fraction of the memory of a GPU."""
    check_fraction(fraction, "A fraction of memory")
    named = backend.name if isinstance(backend, Backend) else backend
    for library in _installed(_CLASSES if named is None else (named,)):
        library.limit_memory(fraction)


def available() -> list[str]:
    """List the backends that work here, the best first. Imports those that are installed."""
    names = []
    for name in _CLASSES:
        with suppress(BackendUnavailable):
            names.append(find(name).name)
    return names


def backend_of(array: Any) -> Backend:
    """Return the backend of an array, on the array's device."""
    if isinstance(array, np.ndarray):
        return HOST
    kind: Any = type(array)
    name = _library(kind)
    if name is not None and hasattr(array, "shape"):
        return _shared(name, _class(name).device_of(array))
    if hasattr(array, "__array_namespace__"):
        return _other(array.__array_namespace__())
    raise InvalidInput(
        f"A {type(array).__name__} is no array: pass one of NumPy, JAX or CuPy, or of a library "
        "that follows the array API standard; `numpy.asarray` and `numpy.from_dlpack` make one."
    )


@functools.cache
def _library(kind: Any) -> str | None:
    """Tell JAX from CuPy by the modules of an array type's bases, without an import."""
    modules = {base.__module__ for base in kind.__mro__}
    libraries = {module.partition(".")[0] for module in modules}
    if libraries & {"jax", "jaxlib"}:
        return "jax"
    return "cupy" if "cupy" in libraries or _CUPYS_OTHER_TYPES in modules else None


def _best() -> str:
    """The library that has an accelerator here; otherwise JAX, which compiles."""
    present: list[str] = []
    reasons: list[str] = []
    candidates = ["jax", "cupy"]
    if _can_jax_wait():
        present.append(candidates.pop(0))
    for library in _installed(candidates, reasons):
        if library.has_accelerator():
            _note_choice(library.name, "which has an accelerator here", reasons)
            return library.name
        present.append(library.name)
        reasons.append(f"The backend {library.name!r} finds no GPU or TPU here")
    best = "jax" if "jax" in present else "numpy"
    _note_choice(best, "the best one on a CPU", reasons)
    return best


def _note_choice(name: str, reason: str, against_others: Sequence[str]) -> None:
    others = "".join(f" {text.rstrip('.')}." for text in against_others)
    _LOG.info("Chose the backend %r, %s.%s", name, reason, others, backend=name)


def _on(name: str, kind: str | None, index: int | None) -> Backend:
    is_default = name == "jax" and kind in (None, "cpu") and not index
    device = None if is_default and _can_jax_wait() else _class(name).device_for(kind, index)
    return _shared(name, device)


def _can_jax_wait() -> bool:
    """Whether JAX is not imported, though installed, and is certain to bring CPUs alone."""
    is_imported = "jax" in sys.modules or find_spec("jax") is None
    return not is_imported and bool(_imported(_JAX_ON_CPU).has_only_cpus())


def _on_object(name: str | None, device: object) -> Backend:
    is_jax = type(device).__module__.startswith("jax") and hasattr(device, "device_kind")
    if is_jax and name in (None, "jax"):
        return _shared("jax", device)
    raise BackendUnavailable(
        f"The device {device!r} is no device of {name or 'any backend'}: pass 'cpu', 'gpu', "
        "'cuda:1', 'tpu' or a jax.Device."
    )


def _parsed(device: str) -> tuple[str, int | None]:
    kind, colon, index = device.partition(":")
    is_index = index.isascii() and index.isdigit() and len(index) < 10
    if kind not in _KINDS or (colon and not is_index):
        raise BackendUnavailable(
            f"There is no device {device!r}: it may be 'cpu', 'gpu' (or 'cuda'), 'tpu', or one of "
            "them by its index, as in 'cuda:1'."
        )
    return _KINDS[kind], int(index) if colon else None


def _installed(names: Iterable[str], reasons: list[str] | None = None) -> Iterator[type[Backend]]:
    """The classes of the libraries that are installed, each imported when it is its turn.

    `reasons` gets why others are not.
    """
    for name in names:
        try:
            library = _class(name)
        except BackendUnavailable as error:
            if reasons is not None:
                reasons.append(str(error))
            continue
        yield library


def _class(name: str) -> type[Backend]:
    try:
        if name not in sys.modules and find_spec(name) is None:
            # A failed import is not remembered, and would be tried at each load.
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        # Once is enough, because a generator of random numbers takes longer than a small model.
        with nullcontext() if _CLASSES[name][0] in sys.modules else own_draws():
            library: type[Backend] = _imported(_CLASSES[name])
            return library
    except ImportError as error:
        raise BackendUnavailable(
            f"The backend {name!r} is not installed ({error}): {_INSTALL[name]}"
        ) from error


def _imported(place: tuple[str, str]) -> Any:
    module, name = place
    return getattr(import_module(module), name)


@functools.cache
def _shared(name: str, device: Any) -> Backend:
    """The backend on a device, one for all models, so that they share its caches."""
    if name == "numpy":
        return HOST
    if name == "jax" and device is None and _imported(_JAX_ON_CPU).has_only_cpus():
        backend: Backend = _imported(_JAX_ON_CPU)()
        return backend
    library: Callable[..., Backend] = _class(name)
    return library(device)


@functools.cache
def _other(namespace: Any) -> Backend:
    library: type[OtherBackend] = import_module("sardonyx.backends.other").OtherBackend
    return library(namespace)
