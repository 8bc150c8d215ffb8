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
    "backends": ("sardonyx.ops", "sardonyx.graph", "sardonyx.api", "sardonyx.to_jax"),
    "ops": ("sardonyx.graph", "sardonyx.api", "sardonyx.to_jax", "onnx"),
    "graph": ("sardonyx.api", "sardonyx.to_jax", "sardonyx.cli.main"),
    "to_jax": ("sardonyx.api", "sardonyx.cli.main"),
}
LIBRARIES = ("jax", "jaxlib", "cupy", "cupyx", "torch", "tensorflow")
OWN_FILES = {
    "jax": {
        "backends/jax.py",
        "backends/jax/cache.py",
        "backends/jax/casts.py",
        "backends/jax/checks.py",
        "backends/jax/memory.py",
        "backends/jax/nans.py",
        "backends/jax/padded_calls.py",
        "backends/jax/processes.py",
        "backends/jax/indexing.py",
        "backends/jax/portable.py",
        "backends/jax/precision.py",
        "backends/jax/inside.py",
        "backends/jax/shard_map.py",
        "backends/jax/onednn/build.py",
        "backends/jax/onednn/loaded.py",
        "backends/jax/onednn/products.py",
        "backends/jax/padding/control.py",
        "backends/jax/padding/indexing.py",
        "backends/jax/padding/masks.py",
        "backends/jax/padding/prover.py",
        "backends/jax/padding/reducing.py",
        "backends/jax/padding/shaping.py",
        "backends/jax/padding/slicing.py",
        "backends/jax/xla_cpu/convolution.py",
        "backends/jax/xla_cpu/packed.py",
        "backends/jax/xla_cpu/platforms.py",
        "backends/jax/xla_cpu/windows.py",
        "exporting/artefact.py",
        "exporting/jaxpr_merge.py",
        "exporting/symbolic_program.py",
        "exporting/lowering.py",
        "exporting/model.py",
        "exporting/symbols.py",
        "sharding/model.py",
        "sharding/weight_placement.py",
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
