"""Compile the kernels' sources to a shared library in the user's cache folder.

Whoever can write the library can run code as this user. So it is loaded from a `PrivateFolder`
only, by the handle through which it was checked.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from sardonyx.backends.private_folder import PrivateFolder
from sardonyx.errors import InvalidInput
from sardonyx.logs import Log

_LOG = Log("kernels")
SOURCES = Path(__file__).parent / "kernels"
PACKAGE = "onednn-cpu-gomp"
ONEDNN = "libdnnl.so.3"
LIBRARY = "libsardonyx_onednn.so"
SWITCH = "SARDONYX_ONEDNN"
COMPILERS = ("c++", "g++", "clang++")


class BuildError(Exception):
    """The reason why there are no kernels here, and whether somebody chose that."""

    def __init__(self, reason: str, *, is_chosen: bool = False) -> None:
        super().__init__(reason)
        self.is_chosen = is_chosen


def built() -> tuple[ctypes.CDLL, str]:
    """The library of kernels, compiled unless an earlier process did, and the digest of its build.

    Raises `BuildError` if there can be none.
    """
    onednn = _onednn()
    digest = _digest(onednn)
    try:
        folder = PrivateFolder(_cache_folder() / digest)
    except InvalidInput as error:
        raise BuildError(f"the cache folder cannot be written ({error})") from error
    library = _loaded(folder)
    if library is None:
        compiler, start = _compiler(), time.perf_counter()
        folder.write(LIBRARY, _compiled(compiler, onednn))
        library = _loaded(folder)
        seconds = time.perf_counter() - start
        _LOG.info("Built oneDNN's kernels with %s in %.1f s.", compiler, seconds, seconds=seconds)
    if library is None:
        raise BuildError("the cache folder cannot be written")
    return library, digest


def _loaded(folder: PrivateFolder) -> ctypes.CDLL | None:
    """The library in the folder; a seal behind its end does not disturb the system's loader."""
    with folder.entry(LIBRARY) as entry:
        return None if entry is None else ctypes.CDLL(f"/proc/self/fd/{entry.handle}")


def is_installed() -> bool:
    """Whether oneDNN is here, for kernels that nobody may have built yet."""
    try:
        _onednn()
    except BuildError:
        return False
    return True


def _onednn() -> Path:
    if os.environ.get(SWITCH) == "0":
        raise BuildError(f"it is switched off by {SWITCH}=0", is_chosen=True)
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise BuildError("it is used only on Linux on x86-64", is_chosen=True)
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        reason = f"{PACKAGE} is not installed: pip install 'sardonyx[onednn]'"
        raise BuildError(reason, is_chosen=True) from None
    for file in files:
        path = Path(str(file.locate()))
        if file.name == ONEDNN and path.exists():
            return path.resolve()
    raise BuildError(f"{PACKAGE} is installed without its {ONEDNN}")


def _compiler() -> str:
    chosen = os.environ.get("CXX", "")
    for name in filter(None, (chosen, *COMPILERS)):
        if path := shutil.which(name):
            return path
    raise BuildError("there is no C++ compiler; install g++ or name one in CXX")


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "sardonyx" / "onednn"


def _digest(onednn: Path) -> str:
    """A digest of everything that the library depends on."""
    status = onednn.stat()
    parts = [metadata.version("jaxlib"), str(onednn), str(status.st_size), str(status.st_mtime_ns)]
    parts += [source.read_text(encoding="utf-8") for source in sorted(SOURCES.iterdir())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _compiled(compiler: str, onednn: Path) -> bytes:
    from jax import ffi  # noqa: PLC0415  (only a build needs its headers)

    try:
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / LIBRARY
            command = [
                compiler, "-std=c++20", "-O2", "-shared", "-fPIC", "-w",
                "-isystem", ffi.include_dir(),
                str(SOURCES / "library.cc"), str(onednn), f"-Wl,-rpath,{onednn.parent}",
                "-o", str(library),
            ]  # fmt: skip
            process = subprocess.run(command, capture_output=True, text=True, check=False)
            if not process.returncode:
                return library.read_bytes()
    except OSError as error:
        raise BuildError(f"the folder for temporary files cannot be written ({error})") from error
    lines = process.stderr.splitlines()
    message = next((line for line in lines if "error" in line), process.stderr).strip()
    raise BuildError(f"{compiler} cannot compile its kernels ({message[:200]})")
