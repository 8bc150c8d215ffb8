"""External data: weights in files beside the model, mapped into memory.

The model file chooses the path, so the path is not trusted. It is opened one folder at a time, from
the model's folder down, without following links. The checks use the open handle, because the file
behind a path could be replaced between a check and the opening.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import onnx

from sardonyx.errors import MissingFile
from sardonyx.graph.loading.refusals import refuse, title
from sardonyx.graph.values.mmap import UNTRACKED

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

_KEYS = {"location", "offset", "length", "checksum"}
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_DRIVE = re.compile(r"[A-Za-z]:")

# Before Python 3.13 each map holds a file descriptor, and a process may have only some hundreds.
# Smaller files are read instead, so that a model with one file per tensor can be loaded.
_SMALLEST_MAP = 64 * 1024

# The standard library can open a path relative to a folder's handle, except on Windows.
_BY_HANDLE = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_OPEN = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# Non-blocking, since opening a FIFO without a writer would wait forever.
_OPEN_FILE = _OPEN | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)

# One map per file, shared by its tensors while one of them is alive. The key (device, inode, size)
# stays valid, because a mapped file keeps its inode.
_maps: WeakValueDictionary[tuple[int, int, int], mmap.mmap] = WeakValueDictionary()


def map_external(tensor: onnx.TensorProto, folder: Path | None, size: int) -> Bytes:
    """Return the `size` bytes of `tensor` in a file below `folder`, read-only, without a copy."""
    entries = _entries(tensor)
    if folder is None:
        refuse(
            tensor,
            f"its data is in the external file {entries['location'][:200]!r}, but a model from "
            "bytes, a ModelProto or a file object without a path has no folder",
            "load the model from its path",
        )
    parts = _parts(tensor, entries["location"])
    offset = _number(tensor, entries, "offset", default=0)
    length = _number(tensor, entries, "length", default=size)
    if length != size:
        refuse(
            tensor,
            f"the length of its external data is {length:,} bytes, but its shape and type need "
            f"{size:,}",
        )
    file = repr("/".join(parts)[:200])
    try:
        with _opened(folder, parts) as (handle, status):
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                problem, advice = _unsafe(status)
                refuse(tensor, f"its data file {file} {problem}", advice)
            if offset + size > status.st_size:
                refuse(
                    tensor,
                    f"it needs {size:,} bytes at offset {offset:,} of {file}, which has only "
                    f"{status.st_size:,}",
                    "the file is truncated, or belongs to another model",
                )
            return _bytes(handle, status, offset, size)
    except FileNotFoundError:
        raise MissingFile(
            f"{title(tensor)}: its data file {file} is not in {str(folder)!r}: put it beside the "
            "model, where it was exported."
        ) from None
    except OSError as error:
        problem, advice = _open_failure(error, folder)
        refuse(tensor, f"its data file {file} {problem}", advice)


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key not in _KEYS:
            refuse(
                tensor,
                f"its external data has the key {entry.key[:100]!r}, but ONNX defines only "
                f"{', '.join(sorted(_KEYS))}",
            )
        if entry.key in entries:
            refuse(tensor, f"its external data has two {entry.key}s")
        if not isinstance(entry.value, str):
            refuse(tensor, f"the {entry.key} of its external data is not valid UTF-8")
        entries[entry.key] = entry.value
    if not entries.get("location"):
        refuse(tensor, "its external data has no file name")
    return entries


def _number(tensor: onnx.TensorProto, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not _DIGITS.fullmatch(text) or int(text) >= 2**63:
        refuse(
            tensor,
            f"the {key} of its external data is {text[:100]!r}, not a number of bytes from 0 to "
            "2**63 - 1",
        )
    return int(text)


def _parts(tensor: onnx.TensorProto, location: str) -> list[str]:
    """Return the path below the model's folder, as the names of its folders and the file."""
    has_bad_characters = "\\" in location or "\0" in location or location.startswith("/")
    parts = [part for part in location.split("/") if part not in ("", ".")]
    if has_bad_characters or _DRIVE.match(location) or ".." in parts or not parts:
        refuse(
            tensor,
            f"its external data is in {location[:200]!r}, but it must be a relative path in the "
            "model's own folder or below it, with forward slashes and without '..'",
            "put the file beside the model and export again",
        )
    return parts


@contextmanager
def _opened(folder: Path, parts: list[str]) -> Iterator[tuple[int, os.stat_result]]:
    """Open a file below `folder`; yield its handle and the status of that handle."""
    handle = (_open_by_handle if _BY_HANDLE else _open_by_path)(folder, parts)
    try:
        yield handle, os.fstat(handle)
    finally:
        os.close(handle)


def _open_by_handle(folder: Path, parts: list[str]) -> int:
    beneath = os.open(folder, _OPEN | os.O_DIRECTORY)
    try:
        for name in parts[:-1]:
            above = beneath
            beneath = os.open(name, _OPEN | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            os.close(above)
        return os.open(parts[-1], _OPEN_FILE | os.O_NOFOLLOW, dir_fd=beneath)
    finally:
        os.close(beneath)


def _open_by_path(folder: Path, parts: list[str]) -> int:
    """Open a file on Windows, where the path can only be checked before it is opened."""
    path = folder
    for name in parts:
        path /= name
        if stat.S_IFMT(os.lstat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise OSError(errno.ELOOP, "neither a file nor a folder")
    if not path.resolve(strict=True).is_relative_to(folder.resolve(strict=True)):
        raise OSError(errno.ELOOP, "outside the folder")
    return os.open(path, _OPEN_FILE)


def _unsafe(status: os.stat_result) -> tuple[str, str]:
    """Return what is wrong with a file that is not opened, and what to do."""
    problem = "is not a regular file"
    if stat.S_ISREG(status.st_mode):
        problem = f"has {status.st_nlink} names (hard links), so it may also be outside the folder"
    return problem, "put a copy of the file in its place"


def _open_failure(error: OSError, folder: Path) -> tuple[str, str]:
    """Return why a file cannot be opened, and what to do."""
    match error.errno:
        case errno.ELOOP | errno.ENOTDIR | errno.ENXIO:
            return (
                "is a symbolic link, is behind one, or is not a file",
                "put a copy of the file in its place (copy a download cache that consists of "
                "links with `cp -rL`)",
            )
        case errno.EMFILE | errno.ENFILE:
            return (
                "cannot be opened, because too many files are open",
                "raise the limit (`ulimit -n`), or save the model with all tensors in one file",
            )
    return f"in {str(folder)!r} cannot be opened ({error.strerror})", "check its permissions"


def _bytes(handle: int, status: os.stat_result, offset: int, size: int) -> Bytes:
    if size == 0:
        return np.frombuffer(b"", np.uint8)
    if status.st_size < _SMALLEST_MAP:
        with open(handle, "rb", closefd=False) as file:
            file.seek(offset)
            return np.frombuffer(file.read(size), np.uint8)
    key = (status.st_dev, status.st_ino, status.st_size)
    file_map = _maps.get(key)
    if file_map is None:
        file_map = mmap.mmap(handle, status.st_size, access=mmap.ACCESS_READ, **UNTRACKED)
        _maps[key] = file_map
    return np.frombuffer(file_map, np.uint8, size, offset)
