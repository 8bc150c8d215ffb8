"""Operators of one's own: for domains that nobody has, and in the place of the standard's."""

from __future__ import annotations

from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.ops import OPS
from sardonyx.types import Alias, Array, Backend, Host, Ints, Shaped
from tests.support.jax_models import drawn
from tests.support.onnx_builders import FLOAT, INT64, function, model, node, value, weight

BACKENDS = ["numpy", "jax"]


@sardonyx.op(domain="mine")
def Swirl(xp: Backend, x: Array, by: Array | None = None, *, power: float = 2.0) -> Array:
    """Bends numbers about zero."""
    bent = xp.sign(x) * xp.abs(x) ** power
    return bent if by is None else bent * by


@sardonyx.op(domain="mine")
def Tiles(xp: Backend, x: Array, times: Ints) -> tuple[Array, Array]:
    """Repeats, by numbers that are known before, and says the total too."""
    tiled = xp.tile(x, times)
    return tiled, xp.sum(tiled)


@sardonyx.op(domain="mine")
def Sizes(xp: Backend, x: Shaped) -> Host:
    return np.asarray(x.shape, np.int64)


@sardonyx.op(domain="mine")
def Same(xp: Backend, x: Array) -> Alias:
    return x


@sardonyx.op
def Relu(xp: Backend, X: Array) -> Array:
    """Leaks."""
    return xp.where(X > 0, X, X * 0.125)


def swirled(**attributes: Any) -> onnx.ModelProto:
    return model(
        [node("Swirl", ["x", "w"], ["y"], domain="mine", **attributes)],
        ["x"],
        ["y"],
        [weight("w", np.full(4, 3, np.float32))],
        mine=1,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_operator_of_ones_own(backend: str) -> None:
    x = drawn(2, 4)
    loaded = sardonyx.load(swirled(), backend=backend, ops=[Swirl])
    np.testing.assert_allclose(loaded(x), 3 * np.sign(x) * x**2, rtol=1e-6)
    cubed = sardonyx.load(swirled(power=3.0), backend=backend, ops=[Swirl])
    np.testing.assert_allclose(cubed(x), 3 * x**3, rtol=1e-5, atol=1e-6)


def test_it_is_differentiated_as_all_others() -> None:
    fn, params = sardonyx.to_jax(swirled(), ops=[Swirl])
    x = drawn(2, 4)
    slope = jax.jit(jax.grad(lambda x: fn(params, x).sum()))(x)
    np.testing.assert_allclose(slope, 6 * np.abs(x), rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_annotations_say_where_values_live(backend: str) -> None:
    nodes = [
        node("Sizes", ["x"], ["sizes"], domain="mine"),
        node("Same", ["x"], ["same"], domain="mine"),
        node("Tiles", ["same", "sizes"], ["tiled", "total"], domain="mine"),
    ]
    outputs = [value("sizes", None, INT64), "same", "tiled", "total"]
    made = model(nodes, ["x"], outputs, mine=1)
    loaded = sardonyx.load(made, backend=backend, ops=[Sizes, Same, Tiles])
    x = drawn(2, 3)
    out = loaded(x)
    np.testing.assert_array_equal(out["sizes"], [2, 3])
    np.testing.assert_array_equal(out["tiled"], np.tile(x, (2, 3)))
    np.testing.assert_allclose(out["total"], 6 * x.sum(), rtol=1e-5)
    program = loaded.trace(x)
    assert [program.kind(name) for name in ("sizes", "same", "tiled")] == ["static", "alias", "device"]  # fmt: skip  # noqa: E501


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_standard_operator_is_replaced_for_one_model_alone(backend: str) -> None:
    made = model([node("Relu", ["x"], ["y"])], ["x"], ["y"])
    x = drawn(2, 3)
    before = dict(OPS)
    leaking = sardonyx.load(made, backend=backend, ops=[Relu])
    plain = sardonyx.load(made, backend=backend)
    np.testing.assert_array_equal(leaking(x), np.where(x > 0, x, x / 8))
    np.testing.assert_array_equal(plain(x), np.maximum(x, 0))
    assert dict(OPS) == before


def test_it_is_found_inside_of_functions_and_in_the_place_of_one() -> None:
    inner = function("Outer", [node("Relu", ["x"], ["y"])], ["x"], ["y"])
    swirl = function("Swirl", [node("Neg", ["x"], ["y"])], ["x"], ["y"])
    nodes = [node("Outer", ["x"], ["h"], domain="mine"), node("Swirl", ["h"], ["y"], domain="mine")]
    made = model(nodes, ["x"], ["y"], functions=[inner, swirl], mine=1)
    x = drawn(2, 3)
    np.testing.assert_array_equal(sardonyx.load(made)(x), -np.maximum(x, 0))
    loaded = sardonyx.load(made, ops=[Relu, Swirl])
    leaked = np.where(x > 0, x, x / 8)
    np.testing.assert_allclose(loaded(x), np.sign(leaked) * leaked**2, rtol=1e-6)


def on_each() -> tuple[Any, list[str]]:
    calls: list[str] = []

    @sardonyx.op(domain="mine")
    def Gauge(xp: Backend, x: Array, *, by: float = 1.0) -> Array:
        calls.append("any")
        return x * by

    @Gauge.on("jax")
    def gauge_in_jax(xp: Backend, x: Any, *, by: float = 1.0) -> Any:
        calls.append("jax")
        return jnp.multiply(x, by)

    return Gauge, calls


@pytest.mark.parametrize(("backend", "called"), [("numpy", "any"), ("jax", "jax")])
def test_a_backend_may_have_a_function_of_its_own(backend: str, called: str) -> None:
    gauge, calls = on_each()
    made = model([node("Gauge", ["x"], ["y"], domain="mine", by=2.5)], ["x"], ["y"], mine=1)
    x = drawn(2, 3)
    np.testing.assert_allclose(sardonyx.load(made, backend=backend, ops=[gauge])(x), 2.5 * x)
    assert set(calls) == {called}


def test_what_only_one_backend_has_is_computed_there() -> None:
    """Also where all is known, and the host would otherwise have done it while tracing."""

    @sardonyx.op(domain="mine")
    def Special(xp: Backend, x: Array) -> Array:
        raise NotImplementedError("Special is for JAX alone")

    @Special.on("jax")
    def special_in_jax(xp: Backend, x: Any) -> Any:
        return jax.scipy.special.gammaln(x)

    nodes = [
        node("Special", ["c"], ["s"], domain="mine"),
        node("Add", ["x", "s"], ["y"]),
    ]
    made = model(nodes, ["x"], ["y"], [weight("c", np.float32(5))], mine=1)
    np.testing.assert_allclose(
        sardonyx.load(made, backend="jax", ops=[Special])(np.zeros(2, np.float32)),
        np.log(24),
        rtol=1e-5,
    )
    with pytest.raises(NotImplementedError, match="Special is for JAX alone"):
        sardonyx.load(made, backend="numpy", ops=[Special])(np.zeros(2, np.float32))


def test_what_is_missing_or_wrong_is_told() -> None:
    with pytest.raises(sardonyx.UnsupportedModel, match=r"mine::Swirl.*ops="):
        sardonyx.load(swirled())
    with pytest.raises(sardonyx.InvalidInput, match="pass a list"):
        sardonyx.load(swirled(), ops=Swirl)
    with pytest.raises(
        sardonyx.InvalidInput, match=r"a function: turn a function into.*sardonyx\.op"
    ):
        sardonyx.load(swirled(), ops=[lambda xp, x: x])
    unknown = sardonyx.load(swirled(strength=2.0), ops=[Swirl])
    with pytest.raises(sardonyx.SardonyxError, match=r"Swirl.*attribute 'strength'"):
        unknown(drawn(2, 4))
    with pytest.raises(TypeError, match="'x' of the operator 'Bare' has no annotation"):

        @sardonyx.op(domain="mine")
        def Bare(xp: Backend, x) -> Array:
            return x


def test_a_faulty_declaration_leaves_an_operator_as_it_was() -> None:
    """As in a notebook, where the cell is mended and run again."""

    @sardonyx.op(domain="mine")
    def Halved(xp: Backend, x: Array) -> Array:
        return x / 2

    with pytest.raises(TypeError, match="'x' of the operator 'halved_before' has no annotation"):

        @Halved.before(3)
        def halved_before(xp: Backend, x) -> Array:
            return x

    assert [until for until, _ in Halved.definitions] == [None]


@sardonyx.op(domain="mine")
def Twirl(xp: Backend, x: Array, *, power: float = 3.0, **others: Annotated[Any, Swirl]) -> Array:
    """Bends in the other direction, and more."""
    return Swirl(xp, -x, power=power, **others)


@pytest.mark.parametrize(("attributes", "power"), [({}, 3), ({"power": 2.0}, 2)])
def test_an_operator_has_the_attributes_of_another(attributes: Any, power: int) -> None:
    x = drawn(2, 4)
    bent = node("Twirl", ["x"], ["y"], domain="mine", **attributes)
    loaded = sardonyx.load(model([bent], ["x"], ["y"], mine=1), ops=[Twirl])
    np.testing.assert_allclose(loaded(x), -np.sign(x) * np.abs(x) ** power, rtol=1e-5, atol=1e-6)


def test_other_attributes_need_a_function_that_has_them() -> None:
    with pytest.raises(TypeError, match=r"operator 'Loose' takes any keyword.*Annotated"):

        @sardonyx.op(domain="mine")
        def Loose(xp: Backend, x: Array, **others: Any) -> Array:
            return x


def test_an_error_inside_names_the_node() -> None:
    @sardonyx.op(domain="mine")
    def Fails(xp: Backend, x: Array) -> Array:
        raise ValueError("x is never right")

    fails = node("Fails", ["x"], ["y"], domain="mine", name="last")
    loaded = sardonyx.load(model([fails], ["x"], [value("y", None, FLOAT)], mine=1), ops=[Fails])
    with pytest.raises(sardonyx.SardonyxError, match=r"'last'.*x is never right"):
        loaded(drawn(2))
