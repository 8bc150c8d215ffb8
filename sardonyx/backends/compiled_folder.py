"""Recordings and compiled code in a folder or a file, for the next process.

Code and recordings depend on the sources of this package, on the libraries that made them and on
the machine. The names of the entries contain all of that, so a process finds only what it could
have written itself. The entries lie in a `PrivateFolder` or a `CacheFile`, which verify their
checksums before anything reads them.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from sardonyx.backends.cache_file import CacheFile, write_cache_file
from sardonyx.backends.private_folder import PrivateFolder
from sardonyx.version import PACKAGE

# A path, or what another folder object has opened.
Place: TypeAlias = str | os.PathLike[str] | CacheFile | PrivateFolder

# The reason why a file does not fit if the identity of its backend differs.
_OPTIONS = "for another device or number of processors, or with other options"


class CompiledFolder:
    """Entries for a backend, whose subclass says what they depend on."""

    # The classes of the backend that a recording may contain.
    dataclasses: tuple[type[Any], ...] = ()

    def __init__(self, place: Place) -> None:
        self.entries = place if isinstance(place, (CacheFile, PrivateFolder)) else _opened(place)

    def __reduce__(self) -> Any:
        return type(self), (self.entries.path,)

    @property
    def path(self) -> Path:
        return self.entries.path

    @property
    def written_for(self) -> str | None:
        """The identity for which a file was written; None for a folder."""
        return (
            None if isinstance(self.entries, PrivateFolder) else self.entries.origin.get(_OPTIONS)
        )

    def libraries(self) -> Mapping[str, str]:
        """The versions of the libraries that record and compile programs for the backend."""
        raise NotImplementedError

    def machine(self) -> Mapping[str, str]:
        """What else recordings depend on, by what completes "it was compiled ..."."""
        raise NotImplementedError

    def read(self, name: str) -> bytes | None:
        return self.entries.read(self._entry(name))

    def write(self, name: str, content: bytes) -> None:
        self.entries.write(self._entry(name), content)

    def save(self, path: str | os.PathLike[str], identity: str) -> None:
        folder = self.entries
        names = folder.names() if isinstance(folder, PrivateFolder) else []
        contents = {name: folder.read(name) for name in names}
        whole = {name: content for name, content in contents.items() if content is not None}
        write_cache_file(path, {**self._origin(), _OPTIONS: identity}, whole)

    def misfit(self, identity: str) -> str | None:
        if isinstance(self.entries, PrivateFolder):
            return None
        here, there = {**self._origin(), _OPTIONS: identity}, self.entries.origin
        differences = (reason for reason, value in here.items() if there.get(reason) != value)
        return next(differences, "from another model or with other options")

    def _entry(self, name: str) -> str:
        return f"{digest((name, *self._origin().values()))}.kept"

    def _origin(self) -> dict[str, str]:
        """What entries depend on besides the backend's identity.

        The keys are the reasons why a file does not fit if such a value differs.
        """
        return {
            **self.machine(),
            **{f"with another version of {name}": v for name, v in self.libraries().items()},
            "with another version of sardonyx": own_sources(),
        }


def _opened(path: str | os.PathLike[str]) -> CacheFile | PrivateFolder:
    return CacheFile(path) if os.path.isfile(path) else PrivateFolder(path)


def digest(parts: Iterable[str]) -> str:
    """Return one name for some texts, which no other texts share."""
    hashed = hashlib.sha256()
    for part in parts:
        encoded = part.encode(errors="surrogatepass")
        hashed.update(f"{len(encoded)} ".encode())
        hashed.update(encoded)
    return hashed.hexdigest()


@cache
def own_sources() -> str:
    """A digest of this package's code, which decides what the names of programs stand for."""
    files = sorted(PACKAGE.rglob("*.py"))
    sources = ((str(f.relative_to(PACKAGE)), f.read_text(encoding="utf-8")) for f in files)
    return digest(chain.from_iterable(sources))


def common_libraries() -> dict[str, str]:
    """The versions of Python and of the libraries that every backend computes with."""
    return {
        "Python": str(sys.implementation.cache_tag),
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
    }
