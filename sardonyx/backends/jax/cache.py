"""Compiled programs in a folder or a file, for the next process.

JAX's own persistent cache is one for the whole process, in the folder of the first compilation;
this one belongs to the models that were loaded with it. Its entries are code: a compiled program is
machine code in a pickle. So they lie in a `PrivateFolder` or a `CacheFile`, which verify checksums
before JAX reads them.
"""

from __future__ import annotations

import hashlib
import os
import platform
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax.experimental import serialize_executable

from sardonyx.backends.cache_file import CacheFile, write_cache_file
from sardonyx.backends.jax.compiling import compiled
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.onednn import Chain, PackedWeight, Product
from sardonyx.backends.jax.xla_cpu.packed import TurnedConvolution, TurnedMatrix
from sardonyx.backends.operations.products import Link
from sardonyx.backends.private_folder import PrivateFolder
from sardonyx.version import PACKAGE

# The number of a program's arguments and of its results.
_COUNTS = struct.Struct("<II")

# The properties of a processor in Linux's list that do not change while it runs.
_OF_PROCESSORS = (
    "vendor_id", "cpu family", "model", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",
)  # fmt: skip

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


class CompiledFolder:
    """Executables by their program, the machine and the versions that compiled them."""

    dataclasses = (
        Product,
        PackedWeight,
        Chain,
        Link,
        TurnedConvolution,
        TurnedMatrix,
        ConvolutionLayout,
    )

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._folder = CacheFile(path) if os.path.isfile(path) else PrivateFolder(path)

    def __reduce__(self) -> Any:
        return CompiledFolder, (self._folder.path,)

    def stored(self, name: str, options: Mapping[str, Any], device: jax.Device) -> Any:
        """Return the executable of the program with this name; None if the folder lacks it."""
        return _loaded(self._folder.read(_file_of(_content_of(name), options, device)), device)

    def compiled(
        self,
        lower: Callable[[], Any],
        name: str | None,
        options: Mapping[str, Any],
        device: jax.Device,
        note: Callable[[str], None],
    ) -> Any:
        """Return the executable of the program that `lower` returns, from the folder if it has it.

        Otherwise compile and store it. A program with a name is looked up without lowering it.
        `note` gets the reason if the usual options of the compiler did not do.
        """
        lowered = lower() if name is None else None
        content = lowered.as_text() if lowered is not None else _content_of(str(name))
        file = _file_of(content, options, device)
        executable = _loaded(self._folder.read(file), device)
        if executable is None:
            lowered = lower() if lowered is None else lowered
            executable, workaround = compiled(lowered, device.platform)
            if workaround is not None:
                note(workaround)
            written = _written(executable)
            if written is not None:
                self._folder.write(file, written)
        return executable

    def read(self, name: str) -> bytes | None:
        return self._folder.read(_entry(name))

    def write(self, name: str, content: bytes) -> None:
        self._folder.write(_entry(name), content)

    def save(self, path: str | os.PathLike[str], identity: str) -> None:
        folder = self._folder
        names = folder.names() if isinstance(folder, PrivateFolder) else []
        contents = {name: folder.read(name) for name in names}
        whole = {name: content for name, content in contents.items() if content is not None}
        write_cache_file(path, {**_origin(), _OPTIONS: identity}, whole)

    def misfit(self, identity: str) -> str | None:
        if isinstance(self._folder, PrivateFolder):
            return None
        here, there = {**_origin(), _OPTIONS: identity}, self._folder.origin
        differences = (reason for reason, value in here.items() if there.get(reason) != value)
        return next(differences, "from another model or with other options")


def _entry(name: str) -> str:
    return f"{_digest((name, _own_sources(), *_versions(), _processor()))}.kept"


def _content_of(name: str) -> str:
    return f"{name} {_own_sources()}"


def _file_of(content: str, options: Mapping[str, Any], device: jax.Device) -> str:
    parts = (
        content,
        repr(sorted(options.items())),
        os.environ.get("XLA_FLAGS", ""),
        *(f"{name} {getattr(jax.config, name, None)}" for name in _SETTINGS),
        *_versions(),
        device.platform,
        device.device_kind,
        device.client.platform_version,
        _processor() if device.platform == "cpu" else "",
    )
    return f"{_digest(parts)}.xla"


def _digest(parts: Iterable[str]) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        encoded = part.encode(errors="surrogatepass")
        hashed.update(f"{len(encoded)} ".encode())
        hashed.update(encoded)
    return hashed.hexdigest()


@cache
def _own_sources() -> str:
    """A digest of this package's code, which decides what the names of programs stand for."""
    files = sorted(PACKAGE.rglob("*.py"))
    sources = ((str(f.relative_to(PACKAGE)), f.read_text(encoding="utf-8")) for f in files)
    return _digest(chain.from_iterable(sources))


@cache
def _versions() -> tuple[str, ...]:
    """The versions of Python and of all libraries that record and compile programs."""
    return (
        str(sys.implementation.cache_tag),
        jax.__version__,
        version("jaxlib"),
        np.__version__,
        ml_dtypes.__version__,
    )


# The reason why a file does not fit if the identity of its backend differs.
_OPTIONS = "for another device or number of processors, or with other options"


def _origin() -> dict[str, str]:
    """What programs in a file depend on, besides the backend's identity.

    The keys are the reasons why a file does not fit if such a value differs.
    """
    names = ("Python", "jax", "jaxlib", "numpy", "ml_dtypes")
    libraries = zip(names, _versions(), strict=True)
    return {
        "on another processor": _processor(),
        **{f"with another version of {name}": number for name, number in libraries},
        "with another version of sardonyx": _own_sources(),
    }


@cache
def _processor() -> str:
    """The processor's instruction set, because code for another may not run on it."""
    try:
        first, _, _ = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")
    except OSError:
        first = ""
    lines = [line for line in first.splitlines() if line.startswith(_OF_PROCESSORS)]
    return "\n".join(lines) or f"{platform.machine()} {platform.processor()}"


def _loaded(content: bytes | None, device: jax.Device) -> Any:
    if content is None:
        return None
    try:
        counts = _COUNTS.unpack_from(content)
        return serialize_executable.deserialize_and_load(
            content[_COUNTS.size :],
            *_trees(*counts),
            backend=device.client,
            execution_devices=[device],
        )
    except Exception:  # A library changed without a new version: compile again.
        return None


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
