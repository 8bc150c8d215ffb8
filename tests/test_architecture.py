"""The plan of the house, as a test: who may import whom, and who may import the array libraries."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import sardonyx
from sardonyx.backends.jax import onednn
from sardonyx.backends.operations import Operations
from sardonyx.backends.operations.array_library import Library
from sardonyx.backends.standard import Standard

PACKAGE = Path(sardonyx.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# Each takes 5 ms, and a new file is to stand where it belongs from the first day.
pytestmark = pytest.mark.sampled(1)

# Rooms from the ground up: a module imports from its own room and from those above it in this list.
ROOMS = (
    "version",
    "printable",
    "logs",
    "display",
    "errors",
    "arguments",
    "limits",
    "deviations",
    "progress",
    "stopping",
    "garbage",
    "backends",
    "ops",
    "graph.ir",
    "graph.standard",
    "graph.values",
    "graph.errors",
    "graph.loading",
    "graph.tracing",
    "graph.viewing",
    "graph.checking",
    "graph.rewriting",
    "graph.calls",
    "graph.programs",
    "graph.buckets",
    "graph.profiling",
    "graph.model",
    "profiling",
    "exporting",
    "to_jax",
    "sharding",
    "checkpoints",
    "lora",
    "api",
    "recording",
    "functions",
    "saving",
    "comparing",
    "targets",
    "types",
    "directml",
    "onnx_backend",
    "compat",
    "",
    "cli",
    "__main__",
)
# Which files may import an array library, besides those in its own folder.
LIBRARIES = ("jax", "jaxlib", "cupy", "cupyx", "torch", "tensorflow")
OWN_FILES = {
    "jax": (
        "backends/jax/",
        "exporting/artefact.py",
        "exporting/inline.py",
        "exporting/jaxpr_merge.py",
        "exporting/lowering.py",
        "exporting/model.py",
        "exporting/symbolic_program.py",
        "exporting/symbols.py",
        "sharding/model.py",
        "sharding/weight_placement.py",
        "targets/child/",
    ),
    "jaxlib": ("backends/jax/limited_clients.py", "targets/child/"),
    "cupy": ("backends/cupy/",),
    "cupyx": ("backends/cupy/",),
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


def module_of(path: Path) -> str:
    """A file's module, without the package's own name: `graph.ir`; the package itself is ""."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in FILES}


def imported_modules(path: Path) -> set[str]:
    """The modules of the package that a file imports, lazily and for types too."""
    inner = [n.removeprefix("sardonyx").removeprefix(".") for n in imported_names(path)
             if is_within(n, "sardonyx")]  # fmt: skip
    # `from sardonyx.graph import ir` names a module and its folder; the folder is not meant.
    folders = {name.rpartition(".")[0] for name in inner if name in MODULES and name}
    return {name for name in inner if name in MODULES} - folders


def room_of(module: str) -> str:
    (room,) = (r for r in ROOMS if module == r or (r and module.startswith(f"{r}.")))
    return room


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down_the_rooms_only(module: str) -> None:
    if module == "graph":
        return
    for other in imported_modules(MODULES[module]):
        message = f"{module} imports {other}"
        assert ROOMS.index(room_of(other)) <= ROOMS.index(room_of(module)), message


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Not lazily, and not for types either: each file can be read after those that it imports."""
    graph = {module: imported_modules(path) - {module} for module, path in MODULES.items()}
    order = TopologicalSorter(graph)
    order.prepare()


@pytest.mark.parametrize("module", [m for m in MODULES if is_within(m, "ops")])
def test_ops_ask_a_backend_for_operations_only(module: str) -> None:
    """What `Backend` adds to them is for the graph."""
    offered = {*dir(Operations), *Library.__annotations__, *Standard.__annotations__}
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "xp":
            assert node.attr in offered, f"{module} asks for xp.{node.attr}"


def test_what_backends_have_in_common_imports_none_of_them() -> None:
    for module, path in MODULES.items():
        if is_within(module, "backends") and not is_within(module, "backends.jax"):
            for other in imported_modules(path):
                assert not is_within(other, "backends.jax"), f"{module} imports {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_a_backends_own_file_imports_its_library(path: Path) -> None:
    own = path.relative_to(PACKAGE).as_posix()
    for name in imported_names(path):
        for library in LIBRARIES:
            if is_within(name, library):
                assert own.startswith(OWN_FILES.get(library, ())), f"{path} imports {name}"


def test_the_check_sees_imports_of_every_form(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(
        "import jax.numpy\nfrom sardonyx import ops\n"
        "def f():\n    from cupy import array\n    import_module('jax')\n"
    )
    assert set(imported_names(path)) == {
        "jax.numpy", "sardonyx", "sardonyx.ops", "cupy", "cupy.array", "jax"
    }  # fmt: skip


FIRST_CALLS = """
import sys
import numpy as np, onnx

slow = "jax jaxlib cupy torch scipy rich PIL re2 safetensors numpy.ma onnx.reference".split()
slow += ["sardonyx.cli", "sardonyx.backends.jax"]

def new(before={*sys.modules}):
    return sorted(name for name in {*sys.modules} - before if name in slow)

import sardonyx
print("import:", *new())
path, backends = "examples/encoder.onnx", sys.argv[1:]
for backend in backends:
    sardonyx.load(path, backend=backend)(np.zeros((1, 8, 48), np.float32))
    print(f"{backend}:", *new())
print("late:", "sardonyx.backends.jax.padding.proof" in sys.modules)
read = [name for (_, name), op in sardonyx.ops.OPS.items() if op._today.cache_info().currsize]
print("operators:", "LayerNormalization" in read, "TfIdfVectorizer" in read)
"""


def test_a_process_imports_slow_modules_only_where_it_needs_them() -> None:
    # A process that compiles the kernels imports JAX, which has the headers.
    onednn.status()
    run = [sys.executable, "-c", FIRST_CALLS, "numpy", "jax"]
    on_cpu = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=on_cpu)
    assert done.stdout.splitlines() == [
        "import:",
        "numpy:",
        "jax: sardonyx.backends.jax",
        "late: False",
        "operators: True False",
    ]


def test_long_files_are_pointed_out() -> None:
    """Beyond 500 lines look for the seam: a hint, since a limit makes files of eleven lines."""
    root = PACKAGE.parent
    files = [*FILES, *(root / "tests").rglob("*.py"), *(root / "benchmarks").rglob("*.py")]
    for path in files:
        lines = len(path.read_text().splitlines())
        if lines > 500:
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                warnings.warn(f"{path.relative_to(root)} has {lines} lines", stacklevel=1)
