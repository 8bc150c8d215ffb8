"""Builds the emulated device: an environment with CuPy, the libraries, and three of its modules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from emulated_cuda.compiling import compiler, libraries
from emulated_cuda.cupy_package import download_source, install, modules
from emulated_cuda.layout import HERE, Layout

CUDNN_FRONTEND = "nvidia-cudnn-frontend==1.27.0"

HOW_TO_USE = """
The emulated device is in {folder}. Run commands with it, from the root of the repository:

    python -m emulated_cuda{option} run pytest -m gpu
    python -m emulated_cuda{option} run python -c 'import cupy; print(cupy.arange(3) + 1)'
"""


def build(layout: Layout, environment: Path | None) -> None:
    require_tools()
    layout.finished.unlink(missing_ok=True)
    layout.folder.mkdir(parents=True, exist_ok=True)
    # Kernels that an earlier build compiled have its headers in them.
    for stale in ("lib", "kernels", "toolkit", "import_hook", "prefixes", "kernel_cache"):
        shutil.rmtree(layout.folder / stale, ignore_errors=True)
    for copied in ("kernels", "toolkit", "import_hook"):
        shutil.copytree(HERE / copied, layout.folder / copied)
    layout.modules.mkdir()

    make_environment(layout, environment)
    install(layout)
    download_source(layout)
    install_frontend(layout)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        libraries(layout, pool)
        modules(layout, pool)
    try_out(layout)
    layout.finished.touch()
    option = "" if layout.folder == HERE / "build" else f" --folder {layout.folder}"
    print(HOW_TO_USE.format(folder=layout.folder, option=option))


def require_tools() -> None:
    for tool in (compiler(), "nm"):
        if not shutil.which(tool):
            raise SystemExit(
                f"The emulated device needs {tool}, which is not installed; "
                "on Debian, run: apt-get install g++"
            )


def make_environment(layout: Layout, existing: Path | None) -> None:
    if layout.environment.is_symlink():
        layout.environment.unlink()
    if existing is not None:
        if not (existing / "bin" / "python").exists():
            raise SystemExit(f"{existing} is not a virtual environment.")
        shutil.rmtree(layout.environment, ignore_errors=True)
        layout.environment.symlink_to(existing.resolve(), target_is_directory=True)
        return
    if not layout.python.exists():
        subprocess.run([sys.executable, "-m", "venv", layout.environment], check=True)
    sardonyx = f"{HERE.parent}[test]"
    subprocess.run([layout.python, "-m", "pip", "install", "-q", "-e", sardonyx], check=True)


def install_frontend(layout: Layout) -> None:
    """Install cuDNN's Python frontend, without NVIDIA's libraries that it calls on a GPU."""
    shutil.rmtree(layout.cudnn_frontend, ignore_errors=True)
    command = [layout.python, "-m", "pip", "install", "-q", "--no-deps"]
    subprocess.run([*command, "--target", layout.cudnn_frontend, CUDNN_FRONTEND], check=True)


def try_out(layout: Layout) -> None:
    """Run one kernel: whatever is wrong with the build is found here."""
    program = "import cupy; assert (cupy.arange(3) + 1).tolist() == [1, 2, 3]"
    variables = layout.variables(os.environ)
    subprocess.run([layout.python, "-c", program], env=variables, check=True)
