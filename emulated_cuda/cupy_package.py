"""CuPy: its wheel, and the modules of it that are compiled again from its source.

These hold NVIDIA's runtime, statically linked, or kernels compiled for GPUs alone. All else is the
wheel as it comes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from concurrent.futures import Executor
from pathlib import Path

from emulated_cuda.compiling import compiler
from emulated_cuda.layout import HERE, Layout

VERSION = "14.2.0"
CUDA = 13
# Besides the wheel: what translates CuPy's Cython.
PACKAGES = (f"cupy-cuda{CUDA}x=={VERSION}", "cython>=3.1,<3.3", "setuptools>=77", "wheel")

# The modules, and what they call in place of NVIDIA's code.
MODULES = {
    "cupy_backends.cuda.api.runtime": (),
    "cupy.cuda.thrust": ("libraries/thrust.cpp",),
    "cupy.cuda.cub": ("libraries/cub.cpp",),
}
FLAGS = ("-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-fvisibility=hidden")


def install(layout: Layout) -> None:
    subprocess.run([layout.python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    listing = subprocess.run(
        [layout.python, "-m", "pip", "list", "--format=freeze"],
        capture_output=True,
        text=True,
        check=True,
    )
    vendors = [line for line in listing.stdout.split() if line.startswith("nvidia-")]
    if vendors:
        raise SystemExit(
            f"{layout.environment} has NVIDIA's libraries, which CuPy would load instead of the "
            f"emulated ones ({', '.join(vendors)}); choose an environment without them."
        )


def download_source(layout: Layout) -> None:
    """Unpack CuPy's source distribution, unless it lies there already."""
    if (layout.cupys_source / f"cupy-{VERSION}").exists():
        return
    shutil.rmtree(layout.cupys_source, ignore_errors=True)
    layout.cupys_source.mkdir()
    command = [layout.python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    subprocess.run(
        [*command, "--no-build-isolation", "-d", layout.cupys_source, f"cupy=={VERSION}"],
        # Else pip, which only asks for the version, would look for a CUDA toolkit.
        env={**os.environ, "CUPY_INSTALL_USE_STUB": "1"},
        check=True,
    )
    with tarfile.open(layout.cupys_source / f"cupy-{VERSION}.tar.gz") as archive:
        archive.extractall(layout.cupys_source, filter="data")


def modules(layout: Layout, pool: Executor) -> None:
    tasks = [pool.submit(_module, layout, name) for name in MODULES]
    for task in tasks:
        task.result()


def _module(layout: Layout, name: str) -> None:
    source = layout.cupys_source / f"cupy-{VERSION}"
    pyx = source / f"{name.replace('.', '/')}.pyx"
    translated = layout.folder / "objects" / f"{name}.cpp"
    # In a process of its own, since Cython's compiler is not safe to run in two threads.
    translate = [layout.python, HERE / "translate.py", name, pyx, translated]
    # Cython warns of much in CuPy's files; what it says is of interest only where it fails.
    finished = subprocess.run(translate, cwd=source, check=False, capture_output=True, text=True)
    if finished.returncode:
        raise SystemExit(f"Cython cannot translate {pyx}:\n{finished.stdout}{finished.stderr}")
    suffix, python_headers = _python_facts(layout)
    headers = (HERE / "include", pyx.parent, source, source / "cupy/_core/include", python_headers)
    subprocess.run(
        [
            *(compiler(), *FLAGS, translated, *(HERE / path for path in MODULES[name])),
            *(f"-I{folder}" for folder in headers),
            *("-o", layout.modules / f"{name}{suffix}", layout.driver),
        ],
        check=True,
    )


def _python_facts(layout: Layout) -> tuple[str, Path]:
    """The suffix of extension modules, and the folder of Python's headers."""
    program = (
        "import sysconfig as s; print(s.get_config_var('EXT_SUFFIX')); print(s.get_path('include'))"
    )
    command = [layout.python, "-c", program]
    suffix, include = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    if not (Path(include) / "Python.h").exists():
        raise SystemExit(
            f"Python's headers are not in {include}; on Debian, run: apt-get install python3-dev"
        )
    return suffix, Path(include)
