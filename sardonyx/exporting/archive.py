"""The file of an exported program: a ZIP archive of a description, the program and its weights.

Its entries are not compressed and its weights are aligned, so that they can be memory-mapped.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from sardonyx.errors import InvalidModel, UnsupportedModel
from sardonyx.graph.values.mmap import content

MAGIC = b"PK\x03\x04"
FORMAT, VERSION = "sardonyx program", 1
DESCRIPTION, PROGRAM, WEIGHTS = "description.json", "program.stablehlo", "weights.bin"

ALIGNMENT = 64
LARGEST_DESCRIPTION = 2**26
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_LOCAL_HEADER = struct.Struct("<4s2B4HL2L2H")
# Our own identifier, which ZIP permits, for the extra field that pads the weights.
_PADDING = 0xD935
# The bytes that zipfile adds to the header of an entry that may exceed four gigabytes.
_WIDE_SIZES = 20


@dataclass(frozen=True)
class Content:
    """The content of an archive."""

    description: Mapping[str, Any]
    program: bytes
    weights: np.ndarray[Any, np.dtype[np.uint8]]
    origin: str


def is_archive(source: Any) -> bool:
    """Return whether a path, bytes or an open file starts like an exported program."""
    try:
        return _start(source) == MAGIC
    except Exception:
        return False  # A reader may raise anything; loading the model will report the error.


def _start(source: Any) -> bytes | None:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source[: len(MAGIC)])
    if isinstance(source, (str, os.PathLike)):
        if not os.path.isfile(source):
            return None
        with open(source, "rb") as file:
            return file.read(len(MAGIC))
    if not source.seekable():
        return None
    here = source.tell()
    start: bytes = source.read(len(MAGIC))
    source.seek(here)
    return start


# -- writing ------------------------------------------------------------------------------------


def write(
    file: IO[bytes],
    description: Mapping[str, Any],
    program: bytes,
    arrays: Mapping[str, np.ndarray[Any, Any]],
) -> None:
    """Write an archive to a binary file object."""
    table = _table(arrays)
    header = {"format": FORMAT, "version": VERSION, **description, "arrays": table}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_entry(DESCRIPTION), json.dumps(header, indent=1))
        archive.writestr(_entry(PROGRAM), program)
        weights = _entry(WEIGHTS)
        start = file.tell() + _LOCAL_HEADER.size + len(WEIGHTS) + _WIDE_SIZES + 4
        padding = -start % ALIGNMENT
        weights.extra = struct.pack("<HH", _PADDING, padding) + bytes(padding)
        with archive.open(weights, "w", force_zip64=True) as entry:
            written = 0
            for row, array in zip(table, arrays.values(), strict=True):
                entry.write(bytes(row["offset"] - written))
                entry.write(np.ascontiguousarray(content(array)).reshape(-1).view(np.uint8).data)
                written = row["offset"] + array.nbytes


def _table(arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[dict[str, Any]]:
    rows, end = [], 0
    for name, array in arrays.items():
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        end = offset + array.nbytes
        shape = list(array.shape)
        rows.append({"name": name, "dtype": array.dtype.name, "shape": shape, "offset": offset})
    return rows


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, _EARLIEST)


# -- reading ------------------------------------------------------------------------------------


def read(source: Any) -> Content:
    """Return the content of an archive; weights in a file given by path are mapped, not read."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(os.fsdecode(source))
        try:
            with open(path, "rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                return _content(file, np.frombuffer(mapped, np.uint8), f"'{path}'")
        except OSError as error:
            raise InvalidModel(
                f"The program '{path}' cannot be read: {error.strerror or error}."
            ) from None
    content = source.read() if hasattr(source, "read") else bytes(source)
    whole = np.frombuffer(content, np.uint8)
    return _content(io.BytesIO(content), whole, f"the {len(content):,} bytes passed")


def _content(file: IO[bytes], whole: np.ndarray[Any, np.dtype[np.uint8]], origin: str) -> Content:
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {name: _stored(archive, name, origin) for name in _NAMES}
            description = _description(archive, entries[DESCRIPTION], origin)
            program = archive.read(PROGRAM)
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise InvalidModel(
            f"There is no readable exported program in {origin}: {str(error).rstrip('.')}. It may "
            "be cut off or damaged: export it again."
        ) from None
    return Content(description, program, _slice(whole, entries[WEIGHTS], origin), origin)


_NAMES = (DESCRIPTION, PROGRAM, WEIGHTS)


def _stored(archive: zipfile.ZipFile, name: str, origin: str) -> zipfile.ZipInfo:
    if name not in archive.namelist():
        raise InvalidModel(
            f"There is no exported program in {origin}: the archive has no '{name}'. Pass a file "
            "that sardonyx.export wrote."
        )
    entry = archive.getinfo(name)
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        raise InvalidModel(
            f"The exported program in {origin} was repacked with compression: export it again."
        )
    return entry


def _description(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, origin: str
) -> Mapping[str, Any]:
    if entry.file_size > LARGEST_DESCRIPTION:
        raise InvalidModel(f"The description in {origin} is too long: export the program again.")
    try:
        description = json.loads(archive.read(entry))
    except (ValueError, RecursionError):
        description = None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise InvalidModel(
            f"There is no exported program in {origin}: its description is invalid. Pass a file "
            "that sardonyx.export wrote."
        )
    version = description.get("version")
    if version != VERSION:
        raise UnsupportedModel(
            f"The exported program in {origin} has the format version {version!r}, but this "
            f"sardonyx reads version {VERSION}: upgrade sardonyx, or export it again."
        )
    return description


def _slice(
    whole: np.ndarray[Any, np.dtype[np.uint8]], entry: zipfile.ZipInfo, origin: str
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of an entry, which follow its local header."""
    start = entry.header_offset
    header = whole[start : start + _LOCAL_HEADER.size].tobytes()
    if len(header) == _LOCAL_HEADER.size:
        _, _, _, *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        start += _LOCAL_HEADER.size + name_length + extra_length
        if header[:4] == MAGIC and start + entry.file_size <= len(whole):
            return whole[start : start + entry.file_size]
    raise InvalidModel(f"The weights in {origin} are cut off: export the program again.")
