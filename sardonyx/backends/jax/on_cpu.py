"""JAX on this machine's CPU, which is imported when something is compiled, and not before.

To import JAX and to start XLA takes about half a second and 200 MB. Until then the steps of a call
run on NumPy and oneDNN. So a process that makes a few calls never imports JAX, and neither does one
whose segments are all written out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.compiled_folder import Place
from sardonyx.backends.deferred_scope import DeferredScope
from sardonyx.backends.dlpack import on_host
from sardonyx.backends.executable import Executable, FirstTier, Replay, Spec
from sardonyx.backends.forks import Unforked
from sardonyx.backends.host_memory import aligned
from sardonyx.backends.interpreter import NumpyTier
from sardonyx.backends.jax import arrays, presence
from sardonyx.backends.jax.folder import JaxFolder, identity, kernels_of
from sardonyx.backends.jax.onednn.threads import threads_of_process
from sardonyx.backends.jax.padding.arrays import JaxPadding
from sardonyx.backends.jax.traits import SIX_BITS, JaxTraits
from sardonyx.backends.own_draws import own_draws
from sardonyx.backends.padding.protocols import Padding
from sardonyx.backends.stopwatch import OpTimes
from sardonyx.errors import BackendUnavailable

# Held while JAX is imported.
_IMPORTING = Unforked()


class JaxOnCpu(JaxTraits):
    """JAX where it has nothing but CPUs.

    Weights and constants are arrays of NumPy, which XLA reads in place. Programs are compiled by
    the `library`, which also does all that only JAX can do.
    """

    compiled = True
    names_steps = True
    takes_numpy = True
    fuses = True
    packs_matrices = True
    missing_types = SIX_BITS
    interprets = True
    reads_host_memory = True
    leaves_channels_last = True

    def __init__(self, *, precision: str = "highest", cache: Place | None = None) -> None:
        self.precision = precision
        self._folder = None if cache is None else JaxFolder(cache)
        self._library: Backend | None = None
        self._fork = presence.fork()

    @classmethod
    def has_only_cpus(cls) -> bool:
        """Whether JAX is certain to have no devices but CPUs, though it may not be imported yet."""
        return presence.has_only_cpus()

    def __reduce__(self) -> Any:
        cache = None if self._folder is None else self._folder.path
        return partial(type(self), precision=self.precision, cache=cache), ()

    def __getattr__(self, name: str) -> Any:
        """Take the functions of the standard from the library."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.library, name)

    @property
    def library(self) -> Backend:
        """The backend of JAX; the first thread that asks imports it, and is in its scope then."""
        library = self._library
        if library is None:
            with _IMPORTING:
                library = self._library = self._library or self._imported()
        scope = DeferredScope.of_thread()
        if scope is not None:
            scope.enter(library.scope)
        return library

    @property
    def folder(self) -> JaxFolder | None:  # type: ignore[override]  # an attribute of the base
        return self._folder

    @property
    def _entries(self) -> Place | None:
        return None if self._folder is None else self._folder.entries

    @property
    def has_started(self) -> bool:  # type: ignore[override]  # an attribute of the base
        return self._library is not None or presence.has_started()

    @property
    def for_ops(self) -> Backend:
        return self.library

    # -- without JAX -------------------------------------------------------------------------------

    def scope(self) -> AbstractContextManager[object]:
        if self._library is not None:
            return self._library.scope()
        # Somebody else may have started JAX before the fork.
        self._fork.refuse()
        return DeferredScope()

    def watches(self) -> bool:
        return presence.looks_for_nan()

    def first_tier(self, is_overtaken: Callable[[], bool], *, is_final: bool = False) -> FirstTier:
        return NumpyTier(self, is_overtaken, self.host_kernels, is_final=is_final)

    def place(self, value: Any) -> Any:
        if self.owns(value):
            return value
        placed = aligned(value)
        if placed.flags.writeable:
            placed = placed.view()
            placed.flags.writeable = False
        return placed

    def adopt(self, value: Any) -> Any:
        return on_host(value)

    def padding(self) -> Padding | None:
        return JaxPadding(lambda: self.for_ops)

    # -- with JAX ----------------------------------------------------------------------------------

    def put(self, value: np.ndarray[Any, Any]) -> Any:
        return self.library.put(value)

    def ready(self, arrays: list[Any]) -> list[Any]:
        return [array if self.owns(array) else self.put(array) for array in arrays]

    def key(self, value: Any) -> Any:
        return self.library.key(value) if arrays.is_array(value) else super().key(value)

    def is_here(self, array: Any) -> bool:
        return not arrays.is_array(array) or self.library.is_here(array)

    def infer(self, function: Replay, *specs: Spec) -> list[Spec]:
        return self.library.infer(function, *specs)

    def outline(self) -> Backend:
        return self.library.outline()

    def compile(
        self,
        replay: Replay,
        arguments: Sequence[Any],
        *,
        donated: Sequence[int] = (),
        name: str | None = None,
    ) -> Executable:
        executable = self.library.compile(replay, arguments, donated=donated, name=name)

        def run(*arrays: Any) -> Sequence[Any]:
            scope = DeferredScope.of_thread()
            if scope is not None:
                scope.enter(self.scope)
            return executable.run(*arrays)

        return replace(executable, run=run)

    def op_times(self) -> AbstractContextManager[OpTimes] | None:
        return self.library.op_times()

    @property
    def identity(self) -> str:
        kernels = kernels_of(threads_of_process())
        return identity("cpu", "cpu", self.precision, True, False, kernels, None)

    def stored(
        self,
        replay: Replay,
        arguments: Sequence[Any],
        *,
        donated: Sequence[int] = (),
        name: str | None = None,
    ) -> Executable | None:
        return self.library.stored(replay, arguments, donated=donated, name=name)

    def uncompiled(self) -> Backend:
        return self.library.uncompiled()

    def with_cache(self, folder: str | os.PathLike[str] | None) -> Backend:
        return JaxOnCpu(precision=self.precision, cache=folder)

    def with_precision(self, precision: str) -> Backend:
        # Only XLA rounds factors to bfloat16.
        is_exact = precision != "bfloat16"
        if not is_exact:
            return self.library.with_precision(precision)
        return JaxOnCpu(precision=precision, cache=self._entries)

    def with_threads(self, threads: int) -> Backend:
        return self.library.with_threads(threads)

    def with_checks(self) -> Backend:
        checking: Backend = self.library.with_checks()
        return checking

    def _imported(self) -> Backend:
        library = _imported(self.precision)
        cached: Backend = library.with_cache(self._entries)
        return cached


def _imported(precision: str) -> Any:
    try:
        with own_draws():
            backend: Backend = import_module("sardonyx.backends.jax.backend").JaxBackend()
    except ImportError as error:
        raise BackendUnavailable(
            f"JAX is installed and cannot be imported ({error}): pip install --upgrade jax, or "
            "load the model with backend='numpy'."
        ) from error
    return backend if precision == "highest" else backend.with_precision(precision)
