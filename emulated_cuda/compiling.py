"""Compiles the emulated libraries, each under the name by which CuPy looks for NVIDIA's."""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import NamedTuple

from emulated_cuda.layout import HERE, Layout

FLAGS = (
    *("-std=c++17", "-O2", "-march=x86-64-v3", "-fcx-limited-range"),
    *("-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-psabi"),
)


class Library(NamedTuple):
    name: str
    sources: tuple[str, ...]
    # For calls that CuPy's modules need to exist and that are not emulated: the library's status
    # "not supported".
    unsupported: int
    # Another library, through which a program finds its functions too.
    needs: str | None = None


MATHEMATICS = (
    # Before cuBLAS, which is linked to it.
    Library("libcublasLt.so.13", ("libraries/blas_lt.cpp", "libraries/blas_lt_products.cpp"), 15),
    Library(
        "libcublas.so.13",
        ("libraries/blas_products.cpp", "libraries/blas_vectors.cpp", "libraries/blas_systems.cpp"),
        15,
        needs="libcublasLt.so.13",
    ),
    Library("libcusolver.so.12", ("libraries/solver.cpp",), 9),
    Library("libcufft.so.12", ("libraries/fft.cpp",), 16),
    Library("libcusparse.so.12", ("libraries/unsupported.cpp",), 10),
    Library("libcurand.so.10", ("libraries/unsupported.cpp",), 999),  # its internal error
)


def compiler() -> str:
    return os.environ.get("EMULATED_CUDA_CXX") or "g++"


def libraries(layout: Layout, pool: Executor) -> None:
    layout.libraries.mkdir()
    driver = layout.driver
    objects = _objects(layout, sorted(HERE.glob("driver/*.cpp")), pool)
    nvrtc = _objects(layout, sorted(HERE.glob("compiler/*.cpp")), pool)
    parts = {
        library.name: _objects(layout, [HERE / source for source in library.sources], pool)
        for library in MATHEMATICS
    }
    link(driver, _results(objects), "-Wl,-z,defs", "-ldl", "-lpthread")
    link(layout.libraries / "libnvrtc.so.13", _results(nvrtc), "-ldl")
    for library in MATHEMATICS:
        _link_mathematics(layout, library, _results(parts[library.name]))
    # CuPy's runtime module and its loader look for these under names of their own.
    (layout.libraries / "libcudart.so.13").symlink_to(driver.name)
    (layout.libraries / "libnvJitLink.so.13").symlink_to("libcurand.so.10")


def _objects(layout: Layout, sources: list[Path], pool: Executor) -> list[Future[Path]]:
    return [pool.submit(_object, layout, source) for source in sources]


def _results(objects: list[Future[Path]]) -> list[Path]:
    return [each.result() for each in objects]


def _object(layout: Layout, source: Path) -> Path:
    target = layout.folder / "objects" / f"{source.parent.name}_{source.stem}.o"
    target.parent.mkdir(exist_ok=True)
    subprocess.run([compiler(), *FLAGS, "-c", source, "-o", target], check=True)
    return target


def link(target: Path, parts: list[Path], *options: object) -> None:
    command = [compiler(), "-shared", "-fPIC", *parts, "-o", target, f"-Wl,-soname,{target.name}"]
    subprocess.run([*map(str, command), *map(str, options)], check=True)


def _link_mathematics(layout: Layout, library: Library, objects: list[Path]) -> None:
    """Symbols get the library's name as their version, as CuPy's modules ask for them."""
    target = layout.libraries / library.name
    versions = layout.folder / "objects" / f"{library.name}.map"
    versions.write_text(f"{library.name} {{ global: *; }};\n")
    stubs = layout.folder / "objects" / f"{library.name}.cpp"
    stubs.write_text(_stubs(layout, library, objects))
    needed = ["-Wl,--no-as-needed", layout.libraries / library.needs] if library.needs else []
    parts = [*objects, stubs]
    link(target, parts, f"-Wl,--version-script,{versions}", layout.driver, *needed)


def _stubs(layout: Layout, library: Library, objects: list[Path]) -> str:
    defined = set(re.findall(r" T (\w+)", _symbols("--defined-only", *objects)))
    missing = sorted(_wanted(layout, library.name) - defined)
    return "".join(
        f'extern "C" int {name}() {{ return {library.unsupported}; }}\n' for name in missing
    )


def _wanted(layout: Layout, name: str) -> set[str]:
    """The functions of a library that the modules of CuPy's wheel call."""
    packages = next(layout.environment.glob("lib/python*/site-packages"))
    modules = [
        path for part in ("cupy", "cupy_backends") for path in (packages / part).rglob("*.so")
    ]
    listing = _symbols("-D", "--undefined-only", *modules)
    return set(re.findall(rf" U (\w+)@{re.escape(name)}", listing))


def _symbols(*arguments: object) -> str:
    command = ["nm", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
