"""A model as a function of JAX under its transformations: each equal to the plain loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from jax import export
from jax.sharding import PartitionSpec as P

import sardonyx
from tests.support.jax_models import drawn, mixed, recurrent
from tests.support.onnx_builders import INT64, graph, model, node, value, weight

CASES = {"mixed": (mixed, drawn(4, 5)), "recurrent": (recurrent, drawn(6, 4, 3))}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Any, dict[str, Any], Any]:
    build, x = CASES[request.param]
    return *sardonyx.to_jax(build()), x


@pytest.fixture(params=[False, True], ids=["x32", "x64"])
def mode(request: pytest.FixtureRequest) -> Any:
    with jax.enable_x64(request.param):
        yield request.param


def assert_alike(one: Any, other: Any, rtol: float = 1e-5) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5)


def total(fn: Callable[..., Any], params: Any, x: Any) -> Any:
    return sum(jnp.sum(out**2) for out in fn(params, x) if out.dtype.kind == "f")


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("mode")
class TestTransformations:
    def test_jit_and_eval_shape(self, case: Any) -> None:
        fn, params, x = case
        plain = fn(params, x)
        assert_alike(jax.jit(fn)(params, x), plain)
        told = jax.eval_shape(fn, params, x)
        assert jax.tree.map(lambda a: (a.shape, a.dtype), told) == jax.tree.map(
            lambda a: (a.shape, a.dtype), plain
        )

    @pytest.mark.sampled(8)
    def test_vmap_over_inputs_is_the_loop(self, case: Any) -> None:
        fn, params, x = case
        several = jnp.stack([x, x + 1, 2 * x])
        looped = jax.tree.map(lambda *a: jnp.stack(a), *(fn(params, one) for one in several))
        assert_alike(jax.vmap(fn, (None, 0))(params, several), looped)

    @pytest.mark.slow
    @pytest.mark.sampled(4)
    def test_vmap_over_params_is_the_loop(self, case: Any) -> None:
        fn, params, x = case
        several = [jax.tree.map(lambda a, by=by: a * by, params) for by in (1, 2, -1)]
        stacked = jax.tree.map(lambda *a: jnp.stack(a), *several)
        looped = jax.tree.map(lambda *a: jnp.stack(a), *(fn(one, x) for one in several))
        assert_alike(jax.vmap(fn, (0, None))(stacked, x), looped)

    @pytest.mark.slow
    def test_jit_of_grad_of_vmap_is_the_loop(self, case: Any) -> None:
        fn, params, x = case
        several = jnp.stack([x, x + 1])

        def of_all(params: Any) -> Any:
            return jax.vmap(lambda x: total(fn, params, x))(several).sum()

        slopes = [jax.grad(lambda p, x=x: total(fn, p, x))(params) for x in several]
        looped = jax.tree.map(lambda *a: sum(a), *slopes)
        assert_alike(jax.jit(jax.grad(of_all))(params), looped, rtol=1e-4)

    def test_scan_is_the_loop(self, case: Any) -> None:
        fn, params, x = case

        def step(carried: Any, by: Any) -> tuple[Any, Any]:
            made = fn(params, x * carried)
            return carried * by, made

        factors = jnp.asarray([0.5, 2.0, 1.5], jnp.float32)
        _, scanned = jax.lax.scan(step, jnp.float32(1), factors)
        carried, made = jnp.float32(1), []
        for factor in factors:
            carried, out = step(carried, factor)
            made.append(out)
        assert_alike(scanned, jax.tree.map(lambda *a: jnp.stack(a), *made))

    @pytest.mark.slow
    @pytest.mark.sampled(4)
    def test_derivatives_forward_backward_and_remade_agree(self, case: Any) -> None:
        fn, params, x = case
        loss = lambda params: total(fn, params, x)  # noqa: E731
        value, slopes = jax.value_and_grad(loss)(params)
        assert_alike(jax.jit(jax.grad(jax.checkpoint(loss)))(params), slopes, rtol=1e-4)
        out, pulled = jax.vjp(loss, params)
        assert_alike(pulled(jnp.ones_like(out))[0], slopes, rtol=1e-4)
        along = jax.tree.map(jnp.ones_like, params)
        again, slope = jax.jvp(loss, (params,), (along,))
        np.testing.assert_allclose(again, value, rtol=1e-5)
        expected = sum(jnp.sum(one) for one in jax.tree.leaves(slopes))
        np.testing.assert_allclose(slope, expected, rtol=1e-3)

    def test_second_derivatives(self, case: Any) -> None:
        fn, params, x = case
        slope = jax.grad(lambda params: total(fn, params, x))
        bent = jax.jit(lambda p: jax.jvp(slope, (p,), (p,))[1])(params)
        step = 2.0**-10
        ends = [slope(jax.tree.map(lambda a, s=s: a * (1 + s * step), params)) for s in (1, -1)]
        for name, one in bent.items():
            numeric = (ends[0][name] - ends[1][name]) / (2 * step)
            size = float(jnp.abs(one).max())
            np.testing.assert_allclose(one, numeric, atol=2e-2 * max(size, 1))

    @pytest.mark.sampled(12)
    def test_shard_map(self, case: Any) -> None:
        fn, params, x = case
        axis = 0 if x.ndim == 2 else 1
        spec = P(*[None] * axis, "data")
        mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

        def parts(params: Any, x: Any) -> Any:
            return fn(params, x)[0]

        out = P(*[None] * (axis * 2), "data")
        mapped = jax.shard_map(parts, mesh=mesh, in_specs=(P(), spec), out_specs=out)
        assert_alike(jax.jit(mapped)(params, x), fn(params, x)[0])
        slopes = jax.grad(lambda p: jnp.sum(mapped(p, x) ** 2))(params)
        expected = jax.grad(lambda p: jnp.sum(parts(p, x) ** 2))(params)
        assert_alike(slopes, expected, rtol=1e-4)

    def test_export_runs_elsewhere(self, case: Any) -> None:
        fn, params, x = case
        whole = export.export(
            jax.jit(lambda p, x: tuple(fn(p, x))), platforms=("cpu", "tpu", "cuda")
        )
        again = export.deserialize(whole(params, x).serialize())
        assert_alike(again.call(params, x), tuple(fn(params, x)))

    @pytest.mark.sampled(4)
    def test_nothing_of_a_trace_is_kept(self, case: Any) -> None:
        fn, params, x = case
        with jax.checking_leaks():
            jax.jit(jax.grad(lambda p: total(fn, p, x)))(params)


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_and_loops_inside_of_shard_map(sign: int) -> None:
    """A branch whose one side is the same everywhere, and a loop that starts from such a value."""
    branches = {
        f"{name}_branch": graph([step], [], ["out"])
        for name, step in (
            ("then", node("ReduceSum", ["x"], ["out"], keepdims=0)),
            ("else", node("Identity", ["zero"], ["out"])),
        )
    }
    body = graph(
        [
            node("Add", ["carried", "chosen"], ["next"]),
            node("Identity", ["on"], ["still"]),
        ],
        [value("i", [], INT64), value("on", [], onnx.TensorProto.BOOL), value("carried", [])],
        [value("still", [], onnx.TensorProto.BOOL), value("next", [])],
    )
    nodes = [
        node("ReduceMax", ["x"], ["top"], keepdims=0),
        node("Less", ["zero", "top"], ["is_above"]),
        node("If", ["is_above"], ["chosen"], **branches),
        node("Loop", ["times", "", "zero"], ["y"], body=body),
    ]
    weights = [weight("zero", np.float32(0)), weight("times", np.int64(300))]
    fn, params = sardonyx.to_jax(model(nodes, ["x"], ["y"], weights))
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    mapped = jax.shard_map(
        lambda x: fn(params, x)[None], mesh=mesh, in_specs=P("data"), out_specs=P("data")
    )
    x = sign * np.abs(drawn(4))
    np.testing.assert_allclose(mapped(x)[0], 300 * max(x.sum(), 0), rtol=1e-4)


TRANSFORMS: dict[str, tuple[Any, ...]] = {
    "real": ("DFT", (2, 6, 1), {}),
    "one side": ("DFT", (2, 7, 1), {"onesided": 1}),
    "inverse": ("DFT", (2, 6, 2), {"inverse": 1}),
    "a signal of one side": ("DFT", (2, 5, 2), {"onesided": 1, "inverse": 1}),
    "windows": ("STFT", (1, 16, 1), {}),
}


@pytest.mark.slow
@pytest.mark.sampled(20)
@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_derivatives_of_fourier_transforms(name: str) -> None:
    """They are linear: the slope of half the square is what the transposed matrix gives."""
    op, shape, attributes = TRANSFORMS[name]
    names = ["x", "step", "window"] if op == "STFT" else ["x"]
    weights = [weight("step", np.int64(4)), weight("window", drawn(8))][: 2 * (op == "STFT")]
    proto = model([node(op, names, ["y"], **attributes)], ["x"], ["y"], weights, 20)
    fn, params = sardonyx.to_jax(proto)
    x = drawn(*shape)
    unit = np.eye(x.size, dtype=np.float32).reshape(-1, *shape)
    columns = [np.asarray(fn(params, each)).ravel() for each in unit]
    matrix = np.stack(columns, 1).astype(np.float64)
    expected = (matrix.T @ (matrix @ x.ravel().astype(np.float64))).reshape(shape)

    def half_square(x: Any) -> Any:
        return jnp.sum(fn(params, x) ** 2) / 2

    for slope in (jax.grad(half_square)(x), jax.jit(jax.grad(half_square))(x)):
        assert slope.dtype == np.float32
        np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-4)
    twice = jax.grad(lambda x: jnp.sum(jax.grad(half_square)(x) * x))(x)
    np.testing.assert_allclose(twice, 2 * expected, rtol=1e-4, atol=1e-4)
    batch = jax.jit(jax.vmap(jax.grad(half_square)))(np.stack([x, 2 * x]))
    np.testing.assert_allclose(batch[1], 2 * expected, rtol=1e-4, atol=1e-4)
