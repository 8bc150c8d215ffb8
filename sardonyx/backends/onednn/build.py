"""From the kernels' sources to a shared library in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import jax

SOURCES = Path(__file__).parent / "kernels"
PACKAGE = "onednn-cpu-gomp"
ONEDNN = "libdnnl.so.3"
SWITCH = "SARDONYX_ONEDNN"
COMPILERS = ("c++", "g++", "clang++")


class BuildError(Exception):
    """Why there are no kernels here."""


def built() -> Path:
    """The library of kernels, compiled unless that was done before."""
    if os.environ.get(SWITCH) == "0":
        raise BuildError(f"it is switched off by {SWITCH}=0")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise BuildError("it is used on Linux on x86-64 alone")
    onednn = _onednn()
    folder = _cache_folder() / _digest(onednn)
    library = folder / "libsardonyx_onednn.so"
    if not library.exists():
        _compile(_compiler(), onednn, library)
    return library


def _onednn() -> Path:
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise BuildError(f"{PACKAGE} is not installed: pip install 'sardonyx[onednn]'") from None
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
    """What the result depends on."""
    found = onednn.stat()
    parts = [metadata.version("jaxlib"), str(onednn), str(found.st_size), str(found.st_mtime_ns)]
    parts += [source.read_text(encoding="utf-8") for source in sorted(SOURCES.iterdir())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: str, onednn: Path, library: Path) -> None:
    """Beside its place first, so that another process sees all of it or nothing."""
    try:
        library.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            unfinished = Path(folder) / library.name
            _run(
                compiler, "-std=c++20", "-O2", "-shared", "-fPIC", "-w",
                "-isystem", jax.ffi.include_dir(),
                str(SOURCES / "library.cc"), str(onednn), f"-Wl,-rpath,{onednn.parent}",
                "-o", str(unfinished),
            )  # fmt: skip
            unfinished.replace(library)
    except OSError as error:
        raise BuildError(f"the cache folder cannot be written ({error})") from error


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr)
        raise BuildError(f"{command[0]} cannot compile its kernels ({said.strip()[:200]})")
