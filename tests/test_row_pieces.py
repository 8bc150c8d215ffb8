"""Calls of many rows run in pieces where no row depends on another one, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from jax import lax
from numpy.testing import assert_allclose, assert_array_equal

import sardonyx
from sardonyx.backends.jax.padding.proof import Proof
from sardonyx.backends.jax.padding.rows import keeps_rows
from sardonyx.backends.jax.padding.rules import RULES
from sardonyx.backends.padding.axes import Axis, Unpaddable
from sardonyx.graph.buckets import learned_calls, programs
from sardonyx.stopping import Stopped, stoppable
from tests.test_buckets import model
from tests.test_derived_recordings import loaded_in_background, wait_for_background

Function = Callable[..., Any]
TRUE, PADDED = 3, 8
WEIGHT = np.arange(20, dtype=np.float32).reshape(4, 5) - 9


def is_kept_apart(function: Function, shape: tuple[str | int, ...] = ("n", 4)) -> bool:
    """Whether a proof finds that no row of the function's argument reaches another one."""

    def trace(size: int) -> Any:
        own = [size if each == "n" else each for each in shape]
        return jax.make_jaxpr(function)(jax.ShapeDtypeStruct(own, np.float32))

    layout = tuple(
        Axis.of(PADDED, TRUE, is_padded=True)
        if each == "n"
        else Axis.of(int(each), int(each), is_padded=False)
        for each in shape
    )
    proof = Proof(RULES, watch=keeps_rows)
    try:
        proof.walk(trace(TRUE), trace(PADDED), [layout])
    except Unpaddable:
        return False
    return proof.keeps_rows


def own_rows(x: Any, places: Any) -> Any:
    """Read places of each row by the row's number, as exporters write masks."""
    return x[jnp.arange(len(x))[:, None], places]


def through_time(x: Any) -> Any:
    """A loop over the last axis that carries something for each row."""
    return lax.scan(lambda c, row: (c * 0.5 + row, c), jnp.zeros(len(x)), x.T)[0]


APART: dict[str, Function] = {
    "elements": lambda x: jnp.tanh(x) * 2 + jnp.where(x > 0, x, 1),
    "weights": lambda x: x @ WEIGHT,
    "softmax of a row": lambda x: jax.nn.softmax(x, axis=-1),
    "joined and divided again": lambda x: (x.reshape(-1) * 2).reshape(x.shape).sum(axis=1),
    "halves": lambda x: jnp.concatenate([x[:, 2:], x[:, :2]], axis=1),
    "running totals of a row": lambda x: jnp.cumsum(x, axis=1),
    "sorted row": lambda x: jnp.sort(x, axis=1)[:, ::-1],
    "largest of a row": lambda x: lax.top_k(x, 2),
    "attention": lambda x: jnp.einsum("nij,nkj->nik", x[:, :, None], x[:, :, None]),
    "table": lambda x: jnp.asarray(WEIGHT)[jnp.clip(x.astype(int), 0, 3)],
    "rows by their numbers": lambda x: own_rows(x, jnp.array([[2, 0, 1]])),
    "last axis": lambda x: x.T * jnp.arange(4)[:, None],
    "loop over time": through_time,
    "broadcast": lambda x: jnp.broadcast_to(jnp.arange(4.0), x.shape) + x,
    "padded row": lambda x: jnp.pad(x, ((0, 0), (1, 2))),
    "windows of a row": lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2), (1, 1), "SAME"),
}

MIXED: dict[str, Function] = {
    "mean of all": lambda x: x - x.mean(axis=0),
    "sum of all": lambda x: x + x.sum(),
    "size": lambda x: x * len(x),
    "its inverse": lambda x: x / len(x),
    "counted ones": lambda x: x * jnp.ones(len(x)).sum(),
    "last number": lambda x: x + jnp.arange(len(x)).max(),
    "softmax of a column": lambda x: jax.nn.softmax(x, axis=0),
    "running totals": lambda x: jnp.cumsum(x, axis=0),
    "numbered rows": lambda x: x + jnp.arange(len(x))[:, None],
    "numbered positions": lambda x: x.reshape(-1) * jnp.arange(x.size),
    "numbers alone": lambda x: jnp.arange(len(x)) * 2,
    "first row": lambda x: x + x[:1],
    "last row": lambda x: x - x[-1:],
    "rows of a half": lambda x: x[1:],
    "reverse": lambda x: x[::-1],
    "neighbours": lambda x: jnp.roll(x, 1, axis=0),
    "sorted": lambda x: jnp.sort(x, axis=0),
    "all with all": lambda x: x @ x.T,
    "products of rows": lambda x: x.T @ x,
    "twice": lambda x: jnp.concatenate([x, x]),
    "repeated": lambda x: jnp.tile(x, (2, 1)),
    "other rows by number": lambda x: x[(jnp.arange(len(x)) // 2)[:, None], jnp.array([[0]])],
    "other places in each row": lambda x: own_rows(x, (jnp.arange(len(x)) % 2)[:, None]),
    "windows of rows": lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 1), (1, 1), "SAME"),
    "shifted": lambda x: lax.pad(x, 0.0, ((1, -1, 0), (0, 0, 0))),
    "places of the largest": lambda x: jnp.argmax(x, axis=0),
    "loop over rows": lambda x: lax.scan(lambda c, row: (c + row, c), jnp.zeros(4), x)[0],
    "loop until all are small": lambda x: lax.while_loop(
        lambda v: (v > 1).any(), lambda v: v / 2, x
    ),
    "as far as the largest": lambda x: lax.cond(x.max() > 1, lambda v: v / 2, lambda v: v, x),
    "draws": lambda x: x + jax.random.normal(jax.random.key(0), x.shape),
}


@pytest.mark.parametrize("name", sorted(APART))
def test_rows_that_are_apart(name: str) -> None:
    assert is_kept_apart(APART[name])


@pytest.mark.parametrize("name", sorted(MIXED))
def test_rows_that_are_not(name: str) -> None:
    assert not is_kept_apart(MIXED[name])


def test_images_are_apart_and_their_places_are_not() -> None:
    def convolved(x: Any) -> Any:
        return lax.conv(x, np.ones((5, 4, 3, 3), np.float32), (1, 1), "SAME")

    assert is_kept_apart(convolved, ("n", 4, 9, 9))
    assert not is_kept_apart(convolved, (2, 4, "n", 9))


def test_two_axes_of_rows_are_too_many() -> None:
    assert not is_kept_apart(lambda x: x * 2, ("n", "n"))


GRAPHS = {
    "mlp": "h = MatMul(x, w) y = Relu(h) z = Transpose<perm = [1, 0]>(h)",
    "flat": """
        flat = Reshape(x, all) h = Mul(flat, half) same = Shape(x) y = Reshape(h, same)
        z = Identity(h)
    """,
    "around": "y = Softmax<axis = 1>(x) z = Identity(x)",
}


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let all calls of changing sizes run in pieces, if they can; returns their numbers of runs."""
    monkeypatch.setattr(learned_calls, "LEAST_ROWS", 2)
    monkeypatch.setattr(learned_calls, "SHORTEST_PIECE", 1e-9)
    monkeypatch.setattr(learned_calls.Pace, "is_refused", lambda self, count: True)
    runs: list[int] = []
    run_in_pieces = programs.run_in_pieces

    def noted(run: Any, backend: Any, plan: Any, *arguments: Any) -> Any:
        runs.append(plan.runs)
        return run_in_pieces(run, backend, plan, *arguments)

    monkeypatch.setattr(programs, "run_in_pieces", noted)
    return runs


@pytest.mark.usefixtures("compiles_all")
@pytest.mark.parametrize("name", sorted(GRAPHS))
@pytest.mark.parametrize("library", ["jax", "numpy"])
def test_pieces_give_the_results_of_the_whole(
    name: str, library: str, in_pieces: list[int]
) -> None:
    proto = with_constants(GRAPHS[name])
    changing, numpy = loaded_in_background(proto), sardonyx.load(proto, backend="numpy")
    for n in (40, 33, 17, 64, 18, 15, 16, 33, 500, 2, 1, 41):
        x = np.random.default_rng(n).standard_normal((n, 4), np.float32)
        results = changing(jnp.asarray(x) if library == "jax" else x)
        for result, expected in zip(results, numpy(x), strict=True):
            assert isinstance(result, jax.Array) == (library == "jax")
            assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
            assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
        wait_for_background()
    assert max(in_pieces) > 8


@pytest.mark.usefixtures("compiles_all")
def test_calls_whose_rows_depend_on_one_another_stay_whole(in_pieces: list[int]) -> None:
    proto = with_constants("m = ReduceMean(x, zero) y = Sub(x, m) z = Relu(y)")
    changing = loaded_in_background(proto)
    for n in (40, 33, 17, 64, 18):
        x = np.random.default_rng(n).standard_normal((n, 4), np.float32)
        assert_allclose(changing(x)[0], x - x.mean(axis=0), rtol=1e-4, atol=1e-6)
        wait_for_background()
    assert not in_pieces


@pytest.mark.usefixtures("compiles_all")
def test_another_weight_is_used_in_pieces_too(in_pieces: list[int]) -> None:
    changing = loaded_in_background(with_constants(GRAPHS["mlp"]))
    for n in (40, 33, 17):
        changing(np.ones((n, 4), np.float32))
    changing.params["w"] = np.full((4, 5), 2, np.float32)
    assert_array_equal(changing(np.ones((30, 4), np.float32))[0], np.full((30, 5), 8, np.float32))
    assert in_pieces


@pytest.mark.usefixtures("compiles_all")
def test_one_program_of_pieces_serves_all_sizes(in_pieces: list[int]) -> None:
    """Beside it are those of the first two sizes, and a few for the last rows at most."""
    changing = loaded_in_background(with_constants(GRAPHS["mlp"]))
    for n in range(90, 30, -1):
        changing(np.ones((n, 4), np.float32))
        wait_for_background()
    assert len(in_pieces) > 50
    assert changing.stats().compiles <= 5


@pytest.mark.usefixtures("compiles_all")
def test_another_thread_can_stop_a_call_between_its_pieces(in_pieces: list[int]) -> None:
    changing, asked = loaded_in_background(with_constants(GRAPHS["mlp"])), 0

    def is_stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    for n in (40, 33, 17):
        changing(np.ones((n, 4), np.float32))
    with pytest.raises(Stopped), stoppable(is_stopped):
        changing(np.ones((39, 4), np.float32))
    assert in_pieces[-1] > 4


@pytest.mark.usefixtures("compiles_all")
def test_a_profile_has_the_time_and_the_work_of_all_pieces(in_pieces: list[int]) -> None:
    changing = loaded_in_background(with_constants(GRAPHS["mlp"]))
    for n in (40, 33, 17):
        changing(np.ones((n, 4), np.float32))
    in_pieces.clear()
    profile = sardonyx.profile(changing, [np.ones((39, 4), np.float32)], calls=3)
    assert in_pieces
    assert len(profile.segments) == 1
    whole = sardonyx.load(with_constants(GRAPHS["mlp"]), backend="jax", compile="now", buckets=None)
    own = sardonyx.profile(whole, [np.ones((39, 4), np.float32)], calls=3)
    assert profile.segments[0].seconds > 0
    # The last piece is filled up.
    assert 1 <= profile.segments[0].operations / own.segments[0].operations < 1.5
    assert profile.segments[0].operations == sum(each.operations for each in profile.nodes)


def with_constants(body: str) -> onnx.ModelProto:
    """The model of a graph from x to y and z, with the constants that it reads."""
    proto = model(body, "float[batch,4] x", "y, z")
    constants = {
        "w": WEIGHT,
        "half": np.float32(0.5),
        "all": np.array([-1]),
        "zero": np.array([0]),
    }
    read = {name for node in proto.graph.node for name in node.input}
    for name, value in constants.items():
        if name in read:
            proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    return proto
