"""The entries of a cache in one file, which lies beside a model and is only read.

`sardonyx compile` writes it. Its entries may be code, as those of a `PrivateFolder` are. So the
file must be this user's or root's, and no other user may be able to write to it. It is read through
one handle, and its checksum is verified before anything in it is interpreted.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from sardonyx.backends.private_folder import check_private, path_of
from sardonyx.errors import InvalidInput

_MAGIC = b"sardonyx cache 1"
# Magic with the version of the format, checksum of the rest, its length, and the table's length.
_OPENING = struct.Struct("<16s32sQQ")
# Without waiting for the other end, if it is a pipe.
_FLAGS: int = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class CacheFile:
    """Bytes by name, all read from the file at once.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/greetings"
    >>> write_cache_file(path, {"language": "English"}, {"greeting": b"hello"})
    >>> file = CacheFile(path)
    >>> file.read("greeting"), file.read("farewell"), file.origin
    (b'hello', None, {'language': 'English'})
    """

    def __init__(self, path: Any) -> None:
        self.path = path_of(path)
        self.origin, self._entries = _unpacked(_content_of(self.path), self.path)

    def names(self) -> list[str]:
        """The names of all entries."""
        return sorted(self._entries)

    def read(self, name: str) -> bytes | None:
        """The content of an entry; None if there is none."""
        return self._entries.get(name)

    def write(self, name: str, content: bytes) -> None:
        """Write nothing: the file stays as it was shipped."""


def write_cache_file(
    path: str | os.PathLike[str], origin: Mapping[str, str], entries: Mapping[str, bytes]
) -> None:
    """Write entries to a file, as a whole or not at all; `origin` says where they hold."""
    table = json.dumps({"origin": dict(origin), "entries": _places(entries)}).encode()
    rest = b"".join((table, *entries.values()))
    opening = _OPENING.pack(_MAGIC, hashlib.sha256(rest).digest(), len(rest), len(table))
    target = Path(path)
    unfinished = target.parent / f".{token_hex(8)}.unfinished"
    try:
        with open(unfinished, "xb", opener=_readable_by_all) as file:
            file.write(opening + rest)
        os.replace(unfinished, target)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"The cache file {str(path)!r} cannot be written: {reason}.") from None
    finally:
        with suppress(OSError, ValueError):
            unfinished.unlink(missing_ok=True)


def _readable_by_all(path: str, flags: int) -> int:
    """Open a file that its owner alone can write to: services may run as another user."""
    return os.open(path, flags, 0o644)


def _places(entries: Mapping[str, bytes]) -> dict[str, tuple[int, int]]:
    """Return where each entry begins and ends, counted from the end of the table."""
    places, end = {}, 0
    for name, content in entries.items():
        places[name] = (end, end + len(content))
        end += len(content)
    return places


# -- reading --------------------------------------------------------------------------------------


def _content_of(path: Path) -> bytes:
    """The file's bytes, if nobody but this user and root could have written them.

    Of a file of another format, only the first ones.
    """
    try:
        # A link may lead to it, since the file is checked and not its path.
        with open(os.open(path, _FLAGS), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InvalidInput(f"The cache {str(path)!r} is neither a folder nor a file.")
            check_private(status, path)
            start = file.read(len(_MAGIC))
            # Somebody may pass a model of many gigabytes.
            return start + file.read() if start == _MAGIC else start
    except OSError as error:
        raise InvalidInput(
            f"The cache file {str(path)!r} cannot be read: {error.strerror or error}."
        ) from None


def _unpacked(content: bytes, path: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """The origin and the entries of a file that is whole and unchanged."""
    if content[: len(_MAGIC)] != _MAGIC:
        raise InvalidInput(
            f"The cache {str(path)!r} is a file that `sardonyx compile` of this version did not "
            "write: pass one that it wrote, or a folder."
        )
    try:
        _, checksum, length, table_length = _OPENING.unpack_from(content)
        rest = memoryview(content)[_OPENING.size :]
        if len(rest) != length or hashlib.sha256(rest).digest() != checksum:
            raise ValueError
        table = json.loads(bytes(rest[:table_length]))
        places, contents = table["entries"].items(), rest[table_length:]
        return dict(table["origin"]), {name: bytes(contents[a:b]) for name, (a, b) in places}
    except (ValueError, LookupError, TypeError, AttributeError, struct.error):
        raise InvalidInput(
            f"The cache file {str(path)!r} is truncated or was altered: write it again with "
            "`sardonyx compile`."
        ) from None
