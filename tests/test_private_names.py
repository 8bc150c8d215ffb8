"""What the package uses of other libraries without a promise that it stays: listed, and there.

JAX renames its private names, its primitives and their params without notice. A new use is listed
here with its reason. When a new JAX passes these and all other tests, raise its bound in
pyproject.toml.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.extend.core import Primitive

import sardonyx
from sardonyx.backends.jax.padding.rules import RULES

PRIVATE = {
    "jaxlib._jax.hlo_module_cost_analysis": (
        "XLA's counts of a program, which its GPU compiler has only with a device."
    ),
    "cupy._core.core.assemble_cupy_compiler_options": (
        "The folders of headers and the language of CuPy's own kernels, for those in a cache."
    ),
    "cupy._core.get_compute_type": "Whether CuPy was told to multiply in TF32: see CUPY_TF32.",
    "jax._src.cudnn.fused_attention_stablehlo.check_cudnn_version": (
        "The version of cuDNN, which JAX itself asks before it calls cuDNN's attention."
    ),
    "jax._src.xla_bridge.backends_are_initialized": (
        "Whether JAX has started: then memory cannot be configured, and a fork would hang."
    ),
}

# Private attributes of JAX's objects that its backend uses; `Compiled` is what jit compiles to.
ATTRIBUTES = {
    "executable._executable": (
        "The part of a `Compiled` that knows whether the program has callbacks into Python."
    ),
}

# Primitives with a rule that some allowed versions of JAX lack.
NOT_IN_ALL_VERSIONS = {
    "closed_call": "Gone by 0.12.",
    "pjit": "The name of jit before 0.7; harmless, and not needed any more.",
}

# Each param that the package reads, and a primitive that has it.
PARAMS = {
    "axes": "reduce_sum",
    "axis": "cumsum",
    "batch_group_count": "conv_general_dilated",
    "body_jaxpr": "while",
    "body_nconsts": "while",
    "branches": "cond",
    "broadcast_dimensions": "broadcast_in_dim",
    "call_jaxpr": "custom_jvp_call",
    "cond_jaxpr": "while",
    "cond_nconsts": "while",
    "dimension": "iota",
    "dimension_numbers": "dot_general",
    "dimensions": "reshape",
    "fft_lengths": "fft",
    "is_stable": "sort",
    "jaxpr": "scan",
    "k": "top_k",
    "length": "scan",
    "precision": "dot_general",
    "limit_indices": "slice",
    "mode": "gather",
    "num_keys": "sort",
    "padding": "reduce_window_max",
    "padding_config": "pad",
    "permutation": "transpose",
    "reps": "tile",
    "reverse": "scan",
    "sizes": "split",
    "slice_sizes": "gather",
    "start_indices": "slice",
    "strides": "slice",
    "unroll": "scan",
}
# Of `cond`, and only where `lax.platform_dependent` wrote it.
OPTIONAL_PARAMS = {"branches_platforms"}

TREES = [
    ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(Path(sardonyx.__file__).parent.rglob("*.py"))
]


def is_private(name: str) -> bool:
    """Whether a dotted name has a private part; what follows a call or an index is no name."""
    parts = name.split(".")
    return all(map(str.isidentifier, parts)) and any(
        part.startswith("_") and not part.endswith("__") for part in parts
    )


def outside_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that a file imports from elsewhere, and what they stand for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def private_uses(tree: ast.AST) -> Iterator[str]:
    """Names of other packages, with the attributes that follow, in which a part is private."""
    names = {k: v for k, v in outside_names(tree) if not v.startswith("sardonyx")}
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in inner:
            root, *attributes = ast.unparse(node).split(".")
            if root in names and is_private(name := ".".join([names[root], *attributes])):
                yield name


def private_attributes(tree: ast.AST) -> Iterator[str]:
    """Private attributes of objects other than `self`, without methods of named tuples."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr not in ("_asdict", "_replace"):
            of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if is_private(node.attr) and not of_self:
                yield ast.unparse(node)


def params_read(tree: ast.AST) -> Iterator[str]:
    """The constants in `params["..."]` and `params.get("...")`, whoever's params they are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            owner, key = node.value, node.slice
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("params.get"):
            owner, key = node.func.value, node.args[0]  # type: ignore[attr-defined]
        else:
            continue
        is_params = ast.unparse(owner).rpartition(".")[2] == "params"
        if is_params and isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def test_private_names_are_listed() -> None:
    assert {name for tree in TREES for name in private_uses(tree)} == PRIVATE.keys()


def test_private_attributes_are_listed() -> None:
    folder = Path(sardonyx.__file__).parent / "backends" / "jax"
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")]
    assert {name for tree in trees for name in private_attributes(tree)} == ATTRIBUTES.keys()


def test_private_attributes_exist() -> None:
    executable = jax.jit(jnp.sin).lower(1.0).compile()
    assert executable._executable.unsafe_call.has_host_callbacks is False


def test_params_that_are_read_are_listed() -> None:
    read = {name for tree in TREES for name in params_read(tree)}
    assert read <= PARAMS.keys() | OPTIONAL_PARAMS


def test_params_that_are_listed_are_used() -> None:
    nodes = (node for tree in TREES for node in ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    assert PARAMS.keys() | OPTIONAL_PARAMS <= texts


def test_the_check_sees_uses_of_every_form() -> None:
    tree = ast.parse(
        "import jax, numpy as np\nfrom jax._src import core\nfrom onnx import _mapping as m\n"
        "jax._a.b, np.c._d, core.e, m.f, np.g, np.__h__, site.params['i'], params.get('j')"
    )
    assert set(private_uses(tree)) == {
        "jax._a.b", "numpy.c._d", "jax._src.core.e", "onnx._mapping.f"
    }  # fmt: skip
    assert set(params_read(tree)) == {"i", "j"}


@pytest.mark.parametrize("name", PRIVATE)
def test_private_names_exist(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    if name.startswith("cupy."):
        pytest.importorskip("cupy", reason="its names are looked up where it is installed")
    assert callable(getattr(import_module(module), attribute))


def test_primitives_with_a_rule_exist() -> None:
    # JAX exports most of its primitives, but not all; hence the search.
    there = {o.name for o in gc.get_objects() if issubclass(type(o), Primitive)}
    assert RULES.keys() - there <= NOT_IN_ALL_VERSIONS.keys()


@pytest.mark.parametrize(("param", "primitive"), PARAMS.items())
def test_params_exist(param: str, primitive: str) -> None:
    assert param in params_of_primitives()[primitive]


@cache
def params_of_primitives() -> dict[str, set[str]]:
    """The params of each primitive that a small function calls."""
    x, index = jnp.ones((4, 4)), jnp.array([[0, 1]])
    equations = jax.make_jaxpr(_each_primitive)(x, index).jaxpr.eqns
    return {e.primitive.name: set(e.params) for e in _with_inner(equations)}


def _with_inner(equations: Iterable[Any]) -> Iterator[Any]:
    for equation in equations:
        yield equation
        if equation.primitive.name == "jit":
            yield from _with_inner(equation.params["jaxpr"].jaxpr.eqns)


def _each_primitive(x: jax.Array, index: jax.Array) -> list[Any]:
    kernel = jnp.ones((1, 1, 2, 2))
    return [
        x.sum(0),
        lax.cumsum(x),
        lax.conv(x[None, None], kernel, (1, 1), "SAME"),
        lax.while_loop(lambda v: v.sum() < 0, lambda v: v + 1, x),
        lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
        lax.scan(lambda carry, row: (carry + row, row), x[0], x),
        lax.broadcast_in_dim(x, (2, 4, 4), (1, 2)),
        jax.nn.relu(x),
        lax.iota(jnp.int32, x.shape[0]),
        x @ x,
        lax.reshape(x, (16,)),
        jnp.fft.fft(x),
        lax.sort(x),
        lax.top_k(x, 2),
        x[1:3],
        x[tuple(index)],
        lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "SAME"),
        lax.pad(x, 0.0, [(1, 1, 0), (1, 1, 0)]),
        lax.transpose(x, (1, 0)),
        lax.tile(x, (2, 2)),
        lax.split(x, (1, 3)),
    ]
