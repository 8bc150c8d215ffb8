"""The plan of the house, as a test: who may import whom, and who may import the array libraries."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sardonyx

PACKAGE = Path(sardonyx.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# Imports go from left to right only: each room, and the rooms it may not know.
FORBIDDEN = {
    "backends": ("sardonyx.ops", "sardonyx.graph", "sardonyx.face", "sardonyx.inside"),
    "ops": ("sardonyx.graph", "sardonyx.face", "sardonyx.inside", "onnx"),
    "graph": ("sardonyx.face", "sardonyx.inside", "sardonyx.cli"),
    "inside": ("sardonyx.face", "sardonyx.cli"),
}
LIBRARIES = ("jax", "jaxlib", "cupy", "cupyx", "torch", "tensorflow")
OWN_FILES = {
    "jax": {
        "backends/jax.py",
        "backends/jax_cache.py",
        "backends/jax_casts.py",
        "backends/jax_checks.py",
        "backends/jax_memory.py",
        "backends/jax_nans.py",
        "backends/jax_padding.py",
        "backends/jax_processes.py",
        "backends/jax_places.py",
        "backends/jax_portable.py",
        "backends/jax_precision.py",
        "backends/jax_inside.py",
        "backends/jax_manual.py",
        "backends/onednn/build.py",
        "backends/onednn/loaded.py",
        "backends/onednn/products.py",
        "backends/padding/control.py",
        "backends/padding/indexing.py",
        "backends/padding/masks.py",
        "backends/padding/prover.py",
        "backends/padding/reducing.py",
        "backends/padding/shaping.py",
        "backends/padding/slicing.py",
        "backends/xla_cpu/convolution.py",
        "backends/xla_cpu/packed.py",
        "backends/xla_cpu/platforms.py",
        "backends/xla_cpu/windows.py",
        "exporting/artefact.py",
        "exporting/evaluation.py",
        "exporting/general.py",
        "exporting/lowering.py",
        "exporting/model.py",
        "exporting/symbols.py",
        "sharding/model.py",
        "sharding/parts.py",
    },
    "cupy": {"backends/cupy.py"},
    "cupyx": {"backends/cupy.py"},
}


def imported_names(path: Path) -> Iterator[str]:
    """Every module a file imports, wherever in the file, and by whatever means."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = ast.unparse(node.func)
            if called.endswith(("import_module", "__import__")):
                argument = node.args[0]
                if isinstance(argument, ast.Constant):
                    yield str(argument.value)


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_from_left_to_right(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    for name in imported_names(path):
        for forbidden in FORBIDDEN.get(room, ()):
            assert not is_within(name, forbidden), f"{path} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_a_backends_own_file_imports_its_library(path: Path) -> None:
    own = path.relative_to(PACKAGE).as_posix()
    for name in imported_names(path):
        for library in LIBRARIES:
            if is_within(name, library):
                assert own in OWN_FILES.get(library, set()), f"{path} imports {name}"


def test_the_check_sees_imports_of_every_form(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(
        "import jax.numpy\nfrom sardonyx import ops\n"
        "def f():\n    from cupy import array\n    import_module('jax')\n"
    )
    assert set(imported_names(path)) == {
        "jax.numpy", "sardonyx", "sardonyx.ops", "cupy", "cupy.array", "jax"
    }  # fmt: skip


def test_importing_sardonyx_imports_no_array_library_but_numpy() -> None:
    code = (
        "import sys, sardonyx; "
        "print([m for m in ('jax', 'jaxlib', 'cupy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_file_grows_far_past_five_hundred_lines() -> None:
    """Beyond 500 lines look for the seam; this is where one has to be found."""
    root = PACKAGE.parent
    files = [*FILES, *(root / "tests").rglob("*.py"), *(root / "benchmarks").rglob("*.py")]
    long = {str(path): n for path in files if (n := len(path.read_text().splitlines())) > 550}
    assert not long
