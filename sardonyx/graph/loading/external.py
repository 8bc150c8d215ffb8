"""Weights that lie beside the model, in files of its folder: mapped, never read.

A model names such a file by itself, so the name is not trusted. It is opened one folder at a time,
from the model's folder down, following no link, and what was opened is examined through the open
handle: between a look at a path and its opening the file could be exchanged.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import onnx

from sardonyx.errors import InvalidModel, MissingFile

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

_KEYS = {"location", "offset", "length", "checksum"}
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_DRIVE = re.compile(r"[A-Za-z]:")

# A map keeps a file descriptor until Python 3.13, and a process has some hundred of them. What is
# smaller than this is read instead, so that a folder with one file per tensor can be loaded.
_WORTH_A_MAP = 64 * 1024
_UNTRACKED: Any = {"trackfd": False} if sys.version_info >= (3, 13) and os.name != "nt" else {}

# The standard library can open relative to a folder's handle everywhere but on Windows.
_BY_HANDLE = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_OPEN = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# A FIFO without a writer would block the one who opens it.
_OPEN_FILE = _OPEN | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)

# One map per file, shared by its tensors for as long as one of them lives. The key is safe: a file
# that is mapped keeps its inode.
_maps: WeakValueDictionary[tuple[int, int, int], mmap.mmap] = WeakValueDictionary()


def map_external(tensor: onnx.TensorProto, folder: Path | None, size: int) -> Bytes:
    """The `size` bytes that `tensor` has in a file of `folder`, read-only and without a copy."""
    entries = _entries(tensor)
    if folder is None:
        refuse(
            tensor,
            f"its data is in the file {entries['location'][:200]!r}, and only a model that is "
            "loaded from its path has a folder to look in: bytes have none, and neither has a file "
            "object that is no open file of that name. So load it from its path",
        )
    parts = _parts(tensor, entries["location"])
    offset = _number(tensor, entries, "offset", default=0)
    length = _number(tensor, entries, "length", default=size)
    if length != size:
        refuse(
            tensor,
            f"its length is given as {length:,} bytes, but its shape and type need {size:,}: "
            "export the model again",
        )
    file = repr("/".join(parts)[:200])
    try:
        with _opened(folder, parts) as (handle, status):
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                refuse(tensor, f"its data file {file} {_not_ours(status)}")
            if offset + size > status.st_size:
                refuse(
                    tensor,
                    f"it needs {size:,} bytes at {offset:,} of {file}, which has only "
                    f"{status.st_size:,}: the file is cut off, or belongs to another model",
                )
            return _bytes(handle, status, offset, size)
    except FileNotFoundError:
        raise MissingFile(
            f"{title(tensor)}: its data file {file} is not in {str(folder)!r}: put it beside the "
            "model, where it was exported."
        ) from None
    except OSError as error:
        refuse(tensor, f"its data file {file} {_explained(error, folder)}")


def title(tensor: onnx.TensorProto) -> str:
    """What a message calls a tensor. Its name may be anything, and of any length."""
    return f"Tensor {tensor.name[:100]!r}" if tensor.name else "A tensor without a name"


def refuse(tensor: onnx.TensorProto, reason: str) -> NoReturn:
    raise InvalidModel(f"{title(tensor)}: {reason}.")


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key not in _KEYS:
            refuse(
                tensor,
                f"its external data has the key {entry.key[:100]!r}, but ONNX knows only "
                f"{', '.join(sorted(_KEYS))}: export the model again",
            )
        if entry.key in entries:
            refuse(tensor, f"its external data has two {entry.key}s: export the model again")
        if not isinstance(entry.value, str):
            refuse(tensor, f"the {entry.key} of its external data is no valid UTF-8")
        entries[entry.key] = entry.value
    if not entries.get("location"):
        refuse(tensor, "its external data names no file: export the model again")
    return entries


def _number(tensor: onnx.TensorProto, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not _DIGITS.fullmatch(text) or int(text) >= 2**63:
        refuse(
            tensor,
            f"the {key} of its external data is {text[:100]!r}, where a number of bytes from 0 to "
            "2**63 - 1 belongs: export the model again",
        )
    return int(text)


def _parts(tensor: onnx.TensorProto, location: str) -> list[str]:
    """The path below the model's folder, as names of folders and lastly the file."""
    unwanted = "\\" in location or "\0" in location or location.startswith("/")
    parts = [part for part in location.split("/") if part not in ("", ".")]
    if unwanted or _DRIVE.match(location) or ".." in parts or not parts:
        refuse(
            tensor,
            f"its data is said to be in {location[:200]!r}, but external data must be in the "
            "model's own folder or below it, as a relative path with forward slashes and without "
            "'..': put the file beside the model and export again",
        )
    return parts


@contextmanager
def _opened(folder: Path, parts: list[str]) -> Iterator[tuple[int, os.stat_result]]:
    """An open handle of a file of `folder`, and what the system says of that handle."""
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
    """For Windows, where the path is looked at first and opened afterwards."""
    path = folder
    for name in parts:
        path /= name
        if stat.S_IFMT(os.lstat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise OSError(errno.ELOOP, "neither a file nor a folder")
    if not path.resolve(strict=True).is_relative_to(folder.resolve(strict=True)):
        raise OSError(errno.ELOOP, "outside of the folder")
    return os.open(path, _OPEN_FILE)


def _not_ours(status: os.stat_result) -> str:
    what = "is no regular file"
    if stat.S_ISREG(status.st_mode):
        what = f"has {status.st_nlink} names (hard links), and so may also be outside of its folder"
    return f"{what}: put a copy of the file in its place"


def _explained(error: OSError, folder: Path) -> str:
    match error.errno:
        case errno.ELOOP | errno.ENOTDIR | errno.ENXIO:
            return (
                "is or lies behind a symbolic link, or is no file at all: put a copy of the file "
                "in its place (a download cache made of links can be copied with `cp -rL`)"
            )
        case errno.EMFILE | errno.ENFILE:
            return (
                "cannot be opened, as too many files are open already: raise the limit "
                "(`ulimit -n`), or save the model with all tensors in one file"
            )
    return f"in {str(folder)!r} cannot be opened ({error.strerror}): look at its permissions"


def _bytes(handle: int, status: os.stat_result, offset: int, size: int) -> Bytes:
    if size == 0:
        return np.frombuffer(b"", np.uint8)
    if status.st_size < _WORTH_A_MAP:
        with open(handle, "rb", closefd=False) as file:
            file.seek(offset)
            return np.frombuffer(file.read(size), np.uint8)
    key = (status.st_dev, status.st_ino, status.st_size)
    file_map = _maps.get(key)
    if file_map is None:
        file_map = mmap.mmap(handle, status.st_size, access=mmap.ACCESS_READ, **_UNTRACKED)
        _maps[key] = file_map
    return np.frombuffer(file_map, np.uint8, size, offset)
