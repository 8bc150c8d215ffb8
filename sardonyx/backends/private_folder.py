"""A folder that only its owner can write to, with entries that are whole or absent.

The files may be code. So the folder, and each file in it, is checked through its open handle,
since a path may lead elsewhere a moment later; links inside are never followed. An entry ends in a
seal: a checksum over its name and its content, verified before anything is interpreted.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

from sardonyx.errors import InvalidInput
from sardonyx.logs import Log, Once

_LOG = Log("cache")
_DAMAGED = "Removed the entry %.12s of %s, which cannot be trusted: %s."
_UNUSABLE = "The cache %s cannot be %s, and calls go on without it: %s."

# The least recently used entries are removed when all of them have more bytes than this.
MOST_BYTES = 2**32
# Seconds after which a file that is still unfinished belongs to a process that was killed.
ABANDONED = 3600.0

# Only names like these are ever removed: people may point to a folder with other things in it.
_ENTRY = re.compile(r"[0-9a-f]{64}\.[a-z]+")
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}\.unfinished")

_MAGIC, _VERSION = b"sardonyx", 1
# Magic, version of the format, length of the content, checksum.
_SEAL = struct.Struct("<8sIQ32s")

_ROOT = 0
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_IS_POSIX = hasattr(os, "geteuid") and hasattr(os, "O_DIRECTORY")
_AS_FOLDER: int = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_CAREFULLY: int = (
    getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)


class Entry(NamedTuple):
    """A file that is whole: its open handle, and its content without the seal."""

    handle: int
    content: bytes


class PrivateFolder:
    """Bytes by name. Reading and writing never fail: there is an entry, or there is none.

    >>> import tempfile
    >>> folder = PrivateFolder(tempfile.mkdtemp() + "/cache")
    >>> folder.write("greeting", b"hello")
    >>> folder.read("greeting"), folder.read("farewell")
    (b'hello', None)
    """

    def __init__(self, folder: Any, *, most_bytes: int = MOST_BYTES) -> None:
        self.path = path_of(folder)
        self.most_bytes = most_bytes
        # Why it could not be read or written.
        self._failures = Once()
        try:
            with self._opened(makes=True):
                pass
        except (OSError, ValueError) as error:
            raise InvalidInput(
                f"The cache {str(self.path)!r} is not a folder that can be used "
                f"({_reason(error, self.path)}): pass another."
            ) from None

    def read(self, name: str) -> bytes | None:
        """The content of an entry; None if there is none that is whole and ours."""
        with self.entry(name) as entry:
            return None if entry is None else entry.content

    @contextmanager
    def entry(self, name: str) -> Iterator[Entry | None]:
        """An entry with its open file, for as long as the context; damaged ones are removed."""
        handle = entry = None
        try:
            try:
                with self._opened() as folder:
                    flags = os.O_RDONLY | _CAREFULLY
                    handle = os.open(self._at(folder, name), flags, dir_fd=folder)
                    entry = self._checked(folder, handle, name)
            except FileNotFoundError:
                pass
            except (OSError, ValueError, InvalidInput) as error:
                self._note_failure("read", error)
            yield entry
        finally:
            if handle is not None:
                os.close(handle)

    def names(self) -> list[str]:
        """The names of all entries, damaged ones included."""
        with suppress(OSError, ValueError, InvalidInput), self._opened() as folder:
            names = os.listdir(self.path if folder is None else folder)
            return sorted(filter(_ENTRY.fullmatch, names))
        return []

    def write(self, name: str, content: bytes) -> None:
        """Write an entry; on a full or a read-only disk there is none, never a part of one."""
        size, path = len(content), str(self.path)
        if size + _SEAL.size > self.most_bytes:
            _LOG.info("%s is too small for an entry of %d bytes.", path, size, path=path)
            return
        try:
            with self._opened(makes=True) as folder:
                self._write(folder, name, content)
                _LOG.debug("Wrote the entry %.12s, of %d bytes, to %s.", name, size, path)
                self._trim(folder)
        except (OSError, ValueError, InvalidInput) as error:
            self._note_failure("written", error)

    # -- on an open folder ------------------------------------------------------------------------

    @contextmanager
    def _opened(self, *, makes: bool = False) -> Iterator[int | None]:
        """A handle of the folder, which is checked to be private; None on Windows.

        Windows has no handles of folders, and controls access by lists that Python cannot read.
        """
        is_new = makes and _make(self.path)
        if not _IS_POSIX:
            if not self.path.is_dir():
                raise NotADirectoryError(None, "Not a directory")
            yield None
            return
        handle = os.open(self.path, os.O_RDONLY | _AS_FOLDER)
        try:
            if is_new and os.fstat(handle).st_uid == os.geteuid():
                _restrict(handle, 0o700)
            check_private(os.fstat(handle), self.path)
            yield handle
        finally:
            os.close(handle)

    def _checked(self, folder: int | None, handle: int, name: str) -> Entry | None:
        """The entry in an open file; a damaged one is removed."""
        entry = _whole(handle, name)
        if isinstance(entry, Entry):
            return entry
        self._remove(folder, name)
        path = str(self.path)
        _LOG.warning(_DAMAGED, name, path, entry, entry=name, path=path, reason=entry)
        return None

    def _note_failure(self, what: str, error: Exception) -> None:
        """Log why the folder cannot be read or written, once for each reason."""
        reason = str(error) if isinstance(error, InvalidInput) else _reason(error, self.path)
        if self._failures.is_new((what, reason)):
            path = str(self.path)
            _LOG.warning(_UNUSABLE, path, what, reason.rstrip("."), path=path, reason=reason)

    def _at(self, folder: int | None, name: str) -> str:
        """How to name an entry beside the folder's handle."""
        return name if folder is not None else str(self.path / name)

    def _write(self, folder: int | None, name: str, content: bytes) -> None:
        unfinished = self._at(folder, f".{name}.{token_hex(8)}.unfinished")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CAREFULLY
        handle = os.open(unfinished, flags, 0o600, dir_fd=folder)
        try:
            with open(handle, "wb") as file:
                _restrict(handle, 0o600)
                file.write(content)
                file.write(_seal(name, content))
            os.replace(unfinished, self._at(folder, name), src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished, dir_fd=folder)
            raise

    def _remove(self, folder: int | None, name: str) -> None:
        with suppress(OSError):
            try:
                os.unlink(self._at(folder, name), dir_fd=folder)
            except (IsADirectoryError, PermissionError):
                os.rmdir(self._at(folder, name), dir_fd=folder)

    def _trim(self, folder: int | None) -> None:
        """Remove abandoned files, and the least recently used entries beyond `most_bytes`.

        Other processes may do so at the same time, so a file may be gone already.
        """
        entries = []
        with os.scandir(self.path if folder is None else folder) as files:
            for file in files:
                with suppress(OSError):
                    status = file.stat(follow_symlinks=False)
                    if _ENTRY.fullmatch(file.name):
                        used = max(status.st_atime_ns, status.st_mtime_ns)
                        entries.append((used, status.st_size, file.name))
                    elif _UNFINISHED.fullmatch(file.name) and _is_abandoned(status):
                        self._remove(folder, file.name)
        total = sum(size for _, size, _ in entries)
        for _, size, name in sorted(entries):
            if total <= self.most_bytes:
                return
            self._remove(folder, name)
            _LOG.debug("Removed the entry %.12s of %s, which is full.", name, str(self.path))
            total -= size


# -- paths ----------------------------------------------------------------------------------------


def path_of(folder: Any, what: str = "A cache is the path of a folder or a file") -> Path:
    """The absolute path that a user passed, or an error that begins with `what` it is."""
    try:
        path = os.fspath(folder)
    except TypeError:
        path = None
    if not isinstance(path, str) or not path or "\0" in path:
        raise InvalidInput(f"{what}, not {folder!r:.200}.")
    try:
        return Path(path).expanduser().absolute()
    except (OSError, RuntimeError) as error:
        reason = str(error).rstrip(".")
        raise InvalidInput(f"{what}, and {path!r:.200} leads nowhere: {reason}.") from None


def _make(path: Path) -> bool:
    """Make a folder, and those above it, for their owner alone; False if it is there already."""
    for folder in reversed(path.parents):
        _make_one(folder)
    return _make_one(path)


def _make_one(path: Path) -> bool:
    try:
        os.mkdir(path, 0o700)
    except OSError:
        # Another process may have made it; a read-only file system then reports another error.
        if os.path.lexists(path):
            return False
        raise
    return True


def _restrict(handle: int, mode: int) -> None:
    """Set the mode whatever the umask is; some file systems have no modes."""
    if _IS_POSIX:
        with suppress(OSError):
            os.fchmod(handle, mode)


def check_private(status: os.stat_result, path: Path) -> None:
    """Refuse a folder or a file that another user can write to."""
    if _is_private(status):
        return
    is_folder = stat.S_ISDIR(status.st_mode)
    if status.st_uid in (os.geteuid(), _ROOT):
        fault = f"can be written by others (its mode is {stat.S_IMODE(status.st_mode):04o})"
        remedy = f"run `chmod {'700' if is_folder else 'go-w'}` on it"
    else:
        fault, remedy = f"belongs to another user ({status.st_uid})", "make it your own"
    raise InvalidInput(
        f"The cache {str(path)!r} {fault}, and sardonyx runs code from it: {remedy}, or pass "
        f"another {'folder' if is_folder else 'file'}."
    )


def _is_private(status: os.stat_result) -> bool:
    """Whether only this user, or root, could have written it."""
    if not _IS_POSIX:
        return True
    return status.st_uid in (os.geteuid(), _ROOT) and not status.st_mode & _WRITABLE_BY_OTHERS


def _is_abandoned(status: os.stat_result) -> bool:
    # A clock that was set back leaves times in the future.
    return abs(time.time() - status.st_mtime) > ABANDONED


def _reason(error: Exception, path: Path) -> str:
    with suppress(OSError, ValueError):
        if path.is_symlink():
            return f"it is a symbolic link to {os.readlink(path)!r}"
    return getattr(error, "strerror", None) or str(error)


# -- files ----------------------------------------------------------------------------------------


def _whole(handle: int, name: str) -> Entry | str:
    """The entry in an open file, or why it is not private or has changed; note that it was used."""
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        return "it is not a file"
    if not _is_private(status):
        return "another user owns it or can write to it"
    if status.st_size < _SEAL.size:
        return "it is too short"
    with open(handle, "rb", closefd=False) as file:
        content = file.read(status.st_size - _SEAL.size)
        if file.read() != _seal(name, content):
            return "its checksum is wrong"
    if os.utime in os.supports_fd:
        with suppress(OSError):  # It is on a read-only file system.
            os.utime(handle, ns=(time.time_ns(), status.st_mtime_ns))
    return Entry(handle, content)


def _seal(name: str, content: bytes) -> bytes:
    """The bytes that follow the content, different for each name."""
    checksum = hashlib.sha256(f"{name}\0".encode())
    checksum.update(content)
    return _SEAL.pack(_MAGIC, _VERSION, len(content), checksum.digest())
