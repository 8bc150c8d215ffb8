"""`sardonyx info`: versions, backends, devices, kernels, caches and threads."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from sardonyx.backends import find, processors
from sardonyx.backends.memory_limit import memory_limit
from sardonyx.cli.command import command as as_command
from sardonyx.cli.json_output import put_json
from sardonyx.cli.options import BACKENDS, json_option
from sardonyx.cli.tables import grid, put, screen
from sardonyx.display.units import bytes_text, counted
from sardonyx.errors import BackendUnavailable
from sardonyx.printable import printable
from sardonyx.progress import working
from sardonyx.version import __version__

PACKAGES = (
    "numpy", "onnx", "ml_dtypes", "jax", "jaxlib", "jax-cuda13-plugin", "libtpu", "cupy-cuda13x",
    "onednn-cpu-gomp", "nvidia-cudnn-frontend", "onnxruntime", "safetensors", "pillow",
    "google-re2", "flatbuffers", "click", "rich",
)  # fmt: skip
# Environment variables that change how programs run.
VARIABLES = (
    "JAX_PLATFORMS", "XLA_FLAGS", "NPROC", "CUDA_VISIBLE_DEVICES", "SARDONYX_ONEDNN",
    "SARDONYX_CUDNN_ATTENTION", "XDG_CACHE_HOME", "CUPY_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR",
    "GLIBC_TUNABLES",
)  # fmt: skip
MOST_DEVICES = 64


@as_command("info")
@json_option
def command(as_json: bool) -> None:
    """Print versions, backends, devices and caches.

    It starts each backend that is installed, as the first load does. On CPUs with oneDNN that
    compiles its kernels, if no process did so before.
    """
    with working("looking"):
        report = {
            "versions": dict(_versions()),
            "backends": {name: _backend(name) for name in BACKENDS},
            "kernels": _kernels(),
            "caches": dict(_caches()),
            "processors": _processors(),
            "memory": memory_limit(),
            "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        }
    if as_json:
        put_json(report)
        return
    _put(report)


def _versions() -> Iterator[tuple[str, str]]:
    yield "sardonyx", __version__
    yield "python", platform.python_version()
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}"
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def _backend(name: str) -> dict[str, Any]:
    """Return the devices of a backend, or why it cannot be used."""
    try:
        best = find(name)
    except BackendUnavailable as error:
        return {"present": False, "reason": str(error)}
    is_best = find().name == best.name
    return {"present": True, "is_default": is_best, "devices": list(_devices(name))}


def _devices(name: str) -> Iterator[str]:
    for kind in ("cpu", "cuda", "tpu"):
        for index in range(MOST_DEVICES):
            try:
                backend = find(name, f"{kind}:{index}")
            except BackendUnavailable:
                break
            title = getattr(getattr(backend, "device", None), "device_kind", "")
            yield f"{kind}:{index}" + (f" ({title})" if title and title != kind else "")
            if name == "numpy":
                break


def _kernels() -> str:
    """Return whether oneDNN's kernels are in use, or why not."""
    try:
        find("jax")
    except BackendUnavailable:
        return "oneDNN's kernels are used with JAX alone, which is not installed"
    return str(import_module("sardonyx.backends.jax.onednn.loaded").status())


def _caches() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the folders of caches that exist, with the number and the bytes of their files."""
    home = os.environ.get("XDG_CACHE_HOME")
    own = (Path(home) if home else Path.home() / ".cache") / "sardonyx"
    cupy = os.environ.get("CUPY_CACHE_DIR")
    folders = {
        "oneDNN's kernels": own / "onednn",
        "CuPy's kernels": Path(cupy) if cupy else Path.home() / ".cupy" / "kernel_cache",
    }
    for title, folder in folders.items():
        if folder.is_dir():
            sizes = list(_sizes(folder))
            yield title, {"folder": str(folder), "files": len(sizes), "bytes": sum(sizes)}


def _sizes(folder: Path) -> Iterator[int]:
    for where, _, files in os.walk(folder):
        for name in files:
            try:
                yield os.lstat(os.path.join(where, name)).st_size
            except OSError:
                continue


def _processors() -> dict[str, Any]:
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "usable": processors.available(),
        "affinity": len(affinity(0)) if affinity else None,
        "machine": os.cpu_count(),
    }


def _put(report: dict[str, Any]) -> None:
    console = screen()
    put(console, grid(list(report["versions"].items()), "cyan", "none"))
    console.print("\nBackends", style="bold")
    rows = [(name, _backend_text(facts)) for name, facts in report["backends"].items()]
    put(console, grid(rows, "cyan", "none"))
    console.print(f"\n{printable(report['kernels'])}.")
    for title, facts in report["caches"].items():
        size = f"{counted(facts['files'], 'file')}, {bytes_text(facts['bytes'])}"
        console.print(f"{title}: {printable(facts['folder'])}, {size}")
    cores = report["processors"]
    bound = "" if cores["affinity"] is None else f", of which {cores['affinity']} by affinity"
    console.print(
        f"\n{counted(cores['usable'], 'processor')} usable, {cores['machine']} in the machine"
        f"{bound}; {bytes_text(report['memory'])} of memory"
    )
    for name, value in report["variables"].items():
        console.print(f"{name}={printable(value)}")


def _backend_text(facts: dict[str, Any]) -> str:
    if not facts["present"]:
        return printable(facts["reason"])
    default = ", the default" if facts["is_default"] else ""
    return f"{', '.join(facts['devices'])}{default}"
