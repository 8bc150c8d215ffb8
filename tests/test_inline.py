"""Small programs run in the thread that calls them, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.backends.jax import inline
from sardonyx.backends.jax.backend import EXACT

WIDTH, PRODUCTS = 256, 3


def chain(dtype: int = TensorProto.FLOAT) -> Any:
    """Products of too many operations for XLA to run them where they are called."""
    nodes = [
        node
        for i in range(PRODUCTS)
        for node in (
            helper.make_node("MatMul", [f"x{i}", "w"], [f"p{i}"]),
            helper.make_node("Tanh", [f"p{i}"], [f"x{i + 1}"]),
        )
    ]
    infos = [
        helper.make_tensor_value_info(name, dtype, shape)
        for name, shape in (("x0", [1, WIDTH]), ("w", [WIDTH, WIDTH]), (f"x{PRODUCTS}", None))
    ]
    graph = helper.make_graph(nodes, "chain", infos[:2], infos[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def arrays(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(1, WIDTH)), rng.normal(size=(WIDTH, WIDTH)) / 16
    return x.astype(np.float32), w.astype(np.float32)


def jit(function: Callable[..., Any]) -> Any:
    return jax.jit(function, compiler_options=EXACT)


def lowered(function: Callable[..., Any], *arguments: Any) -> Any:
    return inline.lowered(jit, function, arguments)


def test_a_small_program_has_run_when_the_call_returns() -> None:
    model = sardonyx.load(chain(), backend="jax", compile="now")
    x, w = map(jnp.asarray, arrays())
    results = [model(x, w) for _ in range(3)]
    # In another thread it would run for longer than the call takes.
    assert all(model(x, w).is_ready() for _ in range(50))
    np.testing.assert_array_equal(results[0], results[-1])


def test_results_have_the_same_bits(tmp_path: Any) -> None:
    # A program from a cache has no callback.
    plain = sardonyx.load(chain(), backend="jax", compile="now", cache=tmp_path)
    model = sardonyx.load(chain(), backend="jax", compile="now")
    np.testing.assert_array_equal(model(*arrays()), plain(*arrays()))


def test_xla_removes_the_branch() -> None:
    def function(x: Any, w: Any) -> list[Any]:
        return [jnp.tanh(x @ w), x + 1]

    program = lowered(function, *arrays())
    assert isinstance(program, inline._Inline)
    assert "callback" in program.with_branch.as_text()
    built = program.compile()
    assert "call-target" not in built.as_text()
    assert "conditional" not in built.as_text()
    for ours, theirs in zip(built(*arrays()), jit(function)(*arrays()), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_copies_of_a_dtype_are_as_good_as_it() -> None:
    """As those of arrays from another process are; JAX may return them for other arrays, too."""
    copied = np.dtype(np.float32, copy=True)
    x = np.ones((1, WIDTH), copied)
    assert not x.dtype.isbuiltin
    program = lowered(lambda x: [jnp.outer(x, x) * 3], x)
    assert isinstance(program, inline._Inline)


@pytest.mark.parametrize(
    ("function", "size"),
    [
        pytest.param(lambda x: [x + 1], 10, id="XLA runs it where it is called"),
        pytest.param(lambda x: [x + 1], inline.MOST_BYTES // 4 + 1, id="too many bytes"),
        pytest.param(lambda x: [jnp.outer(x, x) @ x], 5000, id="too many operations"),
        pytest.param(lambda x: [x.astype(jnp.bfloat16)] * 2, 1000, id="no plain result"),
        pytest.param(lambda x: [], 1000, id="no result"),
    ],
)
def test_other_programs_have_no_branch(function: Callable[..., Any], size: int) -> None:
    program = lowered(function, jax.ShapeDtypeStruct((size,), np.float32))
    assert not isinstance(program, inline._Inline)


def test_donated_inputs_lend_their_memory() -> None:
    model = sardonyx.load(chain(), backend="jax", compile="now").bind(donate="x0")
    x, w = map(jnp.asarray, arrays())
    expected = sardonyx.load(chain(), backend="numpy")(*arrays())
    np.testing.assert_allclose(model(x, w), expected, rtol=1e-4, atol=1e-5)
    assert x.is_deleted()


def test_threads_share_a_program() -> None:
    model = sardonyx.load(chain(), backend="jax", compile="now")
    inputs = [arrays(seed) for seed in range(8)]
    expected = [model(*each) for each in inputs]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda each: model(*each), inputs * 20))
    for result, value in zip(results, expected * 20, strict=True):
        np.testing.assert_array_equal(result, value)
