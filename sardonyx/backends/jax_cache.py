"""Compiled programs in a folder, for the next process.

JAX's own persistent cache is one for the whole process, and whoever compiles first decides where
it lies; this one belongs to the models that were loaded with it. What is read from it is code: a
folder that others may write to is no place for it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

import sardonyx
from sardonyx.errors import InvalidInput


class CompiledFolder:
    """Executables by what they were compiled from, for which machine and by which versions."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).expanduser().absolute()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise InvalidInput(
                f"The cache '{folder}' is no folder that can be written to ({error.strerror}): "
                "pass another."
            ) from None

    def compiled(
        self,
        lower: Callable[[], Any],
        name: str | None,
        options: Mapping[str, Any],
        device: jax.Device,
    ) -> Any:
        """The executable for a program that `lower` makes; compiled, and kept, if it is not there.

        One that has a name is found by that, without making it.
        """
        lowered = lower() if name is None else None
        content = lowered.as_text() if lowered is not None else f"{name} {_own_sources()}"
        path = self.folder / f"{_key(content, options, device)}.xla"
        found = _read(path, device)
        if found is None:
            found = (lower() if lowered is None else lowered).compile()
            _write(path, found)
        return found

    def kept(self, name: str) -> Any:
        """What was kept under the name; None if there is nothing, or nothing that can be read."""
        return _unpickled(self._path(name))

    def keep(self, name: str, value: Any) -> None:
        """Keep the value, which pickle can write, under the name."""
        _write_whole(self._path(name), pickle.dumps(value))

    def _path(self, name: str) -> Path:
        parts = name, _own_sources(), jax.__version__, version("jaxlib"), _processor()
        return self.folder / f"{_digest(parts)}.pickle"


def _key(content: str, options: Mapping[str, Any], device: jax.Device) -> str:
    parts = (
        content,
        repr(sorted(options.items())),
        os.environ.get("XLA_FLAGS", ""),
        jax.__version__,
        version("jaxlib"),
        device.platform,
        device.device_kind,
        device.client.platform_version,
        _processor() if device.platform == "cpu" else "",
    )
    return _digest(parts)


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _own_sources() -> str:
    """What tells one state of this package from another: names stand for what its code does.

    Sizes and times tell it too, and are read faster than what is in the files.
    """
    hashed = hashlib.sha256()
    package = Path(sardonyx.__file__).parent
    for folder, _, names in sorted(os.walk(package)):
        for name in sorted(name for name in names if name.endswith(".py")):
            path = os.path.join(folder, name)
            found = os.stat(path)
            hashed.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
    return hashed.hexdigest()


@cache
def _processor() -> str:
    """What instructions there are: code for one processor may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    known = next((x for x in lines if x.startswith(("flags", "Features"))), "")
    return known or platform.processor()


def _read(path: Path, device: jax.Device) -> Any:
    try:
        content, taken, made = _unpickled(path)
        return serialize_executable.deserialize_and_load(
            content, taken, made, backend=device.client, execution_devices=[device]
        )
    except Exception:  # Absent, cut short, or of a library that changed: it is compiled again.
        return None


def _unpickled(path: Path) -> Any:
    try:
        return pickle.loads(path.read_bytes())
    except Exception:  # As above; pickle raises what it likes.
        return None


def _write(path: Path, compiled: Any) -> None:
    try:
        content: Sequence[Any] = serialize_executable.serialize(compiled)
    except (ValueError, NotImplementedError, jax.errors.JaxRuntimeError):
        return  # Not every platform's executables can be written down.
    _write_whole(path, pickle.dumps(content))


def _write_whole(path: Path, content: bytes) -> None:
    """Whole or not at all, whoever else writes it at the same time."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    except OSError:
        pass  # A full disk: the next process does it all again.
