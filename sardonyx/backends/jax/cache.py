"""Executables of XLA in a folder or a file, for the next process.

JAX's own persistent cache is one for the whole process, in the folder of the first compilation;
this one belongs to the models that were loaded with it. A compiled program is machine code in a
pickle.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
from jax.experimental import serialize_executable

from sardonyx.backends.compiled_folder import Place, digest, own_sources
from sardonyx.backends.jax import folder
from sardonyx.backends.jax.compiling import compiled
from sardonyx.backends.jax.folder import JaxFolder
from sardonyx.logs import Log, Once
from sardonyx.printable import first_line

_LOG = Log("cache")
_UNLOADABLE = "JAX cannot load the program %.12s of %s, and it is compiled again: %s."

# The number of a program's arguments and of its results.
_COUNTS = struct.Struct("<II")

# The settings of JAX that change a compiled program.
_SETTINGS = (
    "jax_allow_f16_reductions",
    "jax_compiler_enable_remat_pass",
    "jax_default_matmul_precision",
    "jax_disable_most_optimizations",
    "jax_exec_time_optimization_effort",
    "jax_memory_fitting_effort",
    "jax_memory_fitting_level",
    "jax_numpy_dtype_promotion",
    "jax_optimization_level",
    "jax_threefry_partitionable",
)


# The packages with XLA's compilers for a platform. What the client of a device says of itself is
# not what that of the same device's description says.
_COMPILERS = {
    "tpu": ("libtpu",),
    "gpu": ("jax-cuda13-plugin", "jax-cuda13-pjrt", "jax-cuda12-plugin", "jax-cuda12-pjrt"),
}


class ExecutableFolder(JaxFolder):
    """Executables by their program, the machine and the versions that compiled them.

    Those for a TPU or a GPU may be written where there is none, and on another processor.
    """

    def __init__(self, place: Place, *, of_processor: bool = True) -> None:
        super().__init__(place, of_processor=of_processor)
        self._missed = Once()

    def stored(self, name: str, options: Mapping[str, Any], device: jax.Device) -> Any:
        """Return the executable of the program with this name; None if the folder lacks it."""
        return self._loaded(_file_of(_content_of(name), options, device), device)

    def compiled(
        self,
        lower: Callable[[], Any],
        name: str | None,
        options: Mapping[str, Any],
        device: jax.Device,
        note: Callable[[str], None],
    ) -> tuple[Any, bool]:
        """Return the executable of the program that `lower` returns, and whether the folder has it.

        If not, compile and store it. A program with a name is looked up without lowering it.
        `note` gets the reason if the usual options of the compiler did not do.
        """
        lowered = lower() if name is None else None
        content = _nameless(lowered.as_text()) if lowered is not None else _content_of(str(name))
        file = _file_of(content, options, device)
        executable = self._loaded(file, device)
        if executable is not None:
            return executable, True
        lowered = lower() if lowered is None else lowered
        executable, workaround = compiled(lowered, device.platform)
        if workaround is not None:
            note(workaround)
        self._keep(executable, file)
        return executable, False

    def keep(
        self,
        executable: Any,
        lowered: Any,
        name: str | None,
        options: Mapping[str, Any],
        device: jax.Device,
    ) -> bool:
        """Store an executable for a device that need not be here; return whether that can be."""
        content = _nameless(lowered.as_text()) if name is None else _content_of(name)
        return self._keep(executable, _file_of(content, options, device))

    def _keep(self, executable: Any, file: str) -> bool:
        written = _written(executable)
        if written is None:
            _LOG.info("The cache keeps no programs: JAX cannot write those of this device.")
        else:
            self.entries.write(file, written)
            self._missed.forget(file)
        return written is not None

    def _loaded(self, file: str, device: jax.Device) -> Any:
        """Return the executable in an entry; None if there is none that JAX can load."""
        content = self.entries.read(file)
        if content is None:
            # A program that runs step by step at first is looked up twice.
            if self._missed.is_new(file):
                _LOG.debug("Cache miss: no compiled program %.12s in %s.", file, self._place)
            return None
        try:
            executable = _executable(content, device)
        except Exception as error:  # A library changed without a new version: compile again.
            reason = partial(first_line, error)
            _LOG.warning(_UNLOADABLE, file, self._place, reason, path=self._place, reason=reason)
            return None
        _LOG.debug("Cache hit: compiled program %.12s of %s.", file, self._place)
        return executable

    @property
    def _place(self) -> str:
        return str(self.path)


def _nameless(text: str) -> str:
    """Return a program's text without its name, which is that of a graph."""
    return re.sub(r"^module @\S+", "module", text, count=1)


def _content_of(name: str) -> str:
    return f"{name} {own_sources()}"


def _file_of(content: str, options: Mapping[str, Any], device: jax.Device) -> str:
    parts = (
        content,
        repr(sorted(options.items())),
        os.environ.get("XLA_FLAGS", ""),
        *(f"{name} {getattr(jax.config, name, None)}" for name in _SETTINGS),
        *folder.libraries().values(),
        device.platform,
        device.device_kind,
        _compiler_of(device),
        folder.processor() if device.platform == "cpu" else "",
    )
    return f"{digest(parts)}.xla"


def _compiler_of(device: jax.Device) -> str:
    """The version of XLA's compiler for a device."""
    packages = {name: _installed(name) for name in _COMPILERS.get(device.platform, ())}
    known = [f"{name} {number}" for name, number in packages.items() if number is not None]
    return " ".join(known) or device.client.platform_version


@cache
def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _executable(content: bytes, device: jax.Device) -> Any:
    counts = _COUNTS.unpack_from(content)
    return serialize_executable.deserialize_and_load(
        content[_COUNTS.size :],
        *_trees(*counts),
        backend=device.client,
        execution_devices=[device],
    )


def _written(compiled: Any) -> bytes | None:
    """An executable as bytes; None on platforms that cannot serialize them."""
    try:
        content, *trees = serialize_executable.serialize(compiled)
    except (ValueError, NotImplementedError, jax.errors.JaxRuntimeError):
        return None
    counts = [tree.num_leaves for tree in trees]
    return _COUNTS.pack(*counts) + content if tuple(trees) == _trees(*counts) else None


def _trees(arguments: int, results: int) -> tuple[Any, Any]:
    """The structures of a program's arguments and results: one by one, and as a list."""
    return jax.tree.structure(((0,) * arguments, {})), jax.tree.structure([0] * results)
