"""Zeros of padding are multiplied too: by an infinite weight, or by NaN, that is NaN."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.settings import Settings
from tests.support.onnx_builders import model, node, value, weight

RNG = np.random.default_rng(3)
LAYOUTS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1-D": ((2, 3, 9), (4, 3, 3), {"pads": [1, 1]}),
    "2-D": ((2, 3, 8, 9), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    "3-D": ((1, 2, 5, 6, 7), (3, 2, 3, 3, 3), {"pads": [1] * 6}),
    "one side": ((1, 3, 8, 9), (4, 3, 3, 3), {"pads": [0, 2, 1, 0]}),
    "strides": ((1, 3, 8, 9), (4, 3, 3, 3), {"pads": [1] * 4, "strides": [2, 3]}),
    "dilations": ((1, 3, 8, 9), (4, 3, 3, 3), {"pads": [2] * 4, "dilations": [2, 2]}),
    "groups": ((1, 6, 8, 9), (4, 3, 3, 3), {"pads": [1] * 4, "group": 2}),
    "depthwise": ((1, 4, 8, 9), (4, 1, 3, 3), {"pads": [1] * 4, "group": 4}),
    "many channels": ((1, 32, 8, 9), (32, 32, 3, 3), {"pads": [1] * 4}),
    "same": ((1, 3, 8, 9), (4, 3, 3, 2), {"auto_pad": "SAME_LOWER"}),
    "wide padding": ((1, 3, 4, 5), (4, 3, 2, 2), {"pads": [3] * 4}),
    "a large kernel": ((1, 3, 4, 5), (4, 3, 7, 7), {"pads": [3] * 4}),
}
LAYOUTS_OF_TYPES = ("2-D", "many channels", "depthwise", "3-D")
FORMS = ("initializer", "constant", "computed", "input")


def convolving(layout: str, dtype: str, form: str, *after: str) -> Any:
    """A convolution of `x` by filters with an infinity in one corner and a NaN in another."""
    x, shape, attributes = LAYOUTS[layout]
    w = RNG.normal(size=shape).astype(dtype)
    w[(0, *(0,) * (w.ndim - 1))] = np.inf
    w[(1, *(-1,) * (w.ndim - 1))] = np.nan
    kind = onnx.helper.np_dtype_to_tensor_dtype(w.dtype)
    nodes = [node("Conv", ["x", "w", "b"], ["c"], **attributes)]
    if form == "constant":
        nodes.insert(0, node("Constant", [], ["w"], value=onnx.numpy_helper.from_array(w)))
    if form == "computed":
        nodes.insert(0, node("Neg", ["v"], ["w"]))
    names = ["c", *(f"{op}" for op in after)]
    nodes += [node(op, [names[i]], [op]) for i, op in enumerate(after)]
    weights = [weight("b", RNG.normal(size=shape[0]).astype(dtype))]
    if form in ("initializer", "computed"):
        weights.append(weight("w" if form == "initializer" else "v", w))
    inputs = [value("x", x, kind)] + ([value("w", shape, kind)] if form == "input" else [])
    feeds = {"x": RNG.normal(size=x).astype(dtype)} | ({"w": w} if form == "input" else {})
    return model(nodes, inputs, [value(names[-1], None, kind)], weights, opset=21), feeds


def agree(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype
    assert np.isnan(wanted).any()
    tolerance = {2: 4e-2, 4: 2e-4, 8: 1e-10}[wanted.dtype.itemsize]
    wide = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("form", ["initializer", "input"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.sampled(3)
def test_padding_meets_an_infinite_weight(layout: str, form: str) -> None:
    proto, feeds = convolving(layout, "float32", form)
    wanted = sardonyx.load(proto, backend="numpy").run(None, feeds)[0]
    agree(sardonyx.load(proto, backend="jax").run(None, feeds)[0], wanted)


@pytest.mark.parametrize("form", FORMS)
def test_the_first_call_without_a_compiler_and_the_second_are_alike(form: str) -> None:
    proto, feeds = convolving("2-D", "float32", form)
    wanted = sardonyx.load(proto, backend="numpy").run(None, feeds)[0]
    loaded = sardonyx.load(proto, backend="jax", jit=False)
    for _ in range(2):
        agree(loaded.run(None, feeds)[0], wanted)


@pytest.mark.parametrize("layout", LAYOUTS_OF_TYPES)
@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.sampled(3)
def test_padding_meets_an_infinite_weight_of_each_type(dtype: str, layout: str) -> None:
    form = FORMS[LAYOUTS_OF_TYPES.index(layout)]
    proto, feeds = convolving(layout, dtype, form)
    wanted = sardonyx.load(proto, backend="numpy").run(None, feeds)[0]
    agree(sardonyx.load(proto, backend="jax").run(None, feeds)[0], wanted)


@pytest.mark.parametrize("form", FORMS)
def test_what_follows_sees_it(form: str) -> None:
    proto, feeds = convolving("many channels", "float32", form, "Relu", "Neg")
    wanted = sardonyx.load(proto, backend="numpy").run(None, feeds)[0]
    agree(sardonyx.load(proto, backend="jax").run(None, feeds)[0], wanted)


@pytest.mark.parametrize("layout", ["1-D", "2-D", "strides", "groups", "depthwise", "same"])
def test_the_reference_says_the_same(layout: str) -> None:
    proto, feeds = convolving(layout, "float32", "initializer")
    with np.errstate(all="ignore"):
        (wanted,) = ReferenceEvaluator(proto).run(None, feeds)
    agree(sardonyx.load(proto, backend="numpy").run(None, feeds)[0], wanted)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_weight_that_becomes_infinite_is_looked_at_anew(backend: str) -> None:
    proto, feeds = convolving("2-D", "float32", "initializer")
    infinite = onnx.numpy_helper.to_array(proto.graph.initializer[1])
    finite = np.nan_to_num(infinite, nan=2, posinf=3)
    loaded = sardonyx.load(proto, backend=backend)
    for found, nans in ((infinite, True), (finite, False), (2 * finite, False), (infinite, True)):
        loaded.params["w"] = found
        assert np.isnan(loaded.run(None, feeds)[0]).any() == nans
        assert np.isnan(loaded.run(None, feeds)[0]).any() == nans
    # Weights that stay finite are no reason to record anything anew.
    before = loaded._shared.weights.static_version
    loaded.params["w"] = 2 * infinite
    assert loaded._shared.weights.static_version == before


def test_what_was_kept_for_finite_weights_is_for_these_alone(tmp_path: Path) -> None:
    """A process that finds a recording may have weights of its own in the same model."""
    proto, feeds = convolving("2-D", "float32", "initializer")
    infinite = onnx.numpy_helper.to_array(proto.graph.initializer[1])
    for array in (np.nan_to_num(infinite, nan=2, posinf=3), infinite):
        proto.graph.initializer[1].CopyFrom(weight("w", array))
        loaded = sardonyx.load(proto, backend="jax", cache=tmp_path)
        found, wanted = loaded.run(None, feeds)[0], sardonyx.load(proto, backend="numpy")
        np.testing.assert_allclose(found, wanted.run(None, feeds)[0], rtol=1e-4, atol=1e-4)


def test_finite_weights_cost_nothing() -> None:
    """The program has one step, and the kernels that skip the padding."""
    proto, feeds = convolving("many channels", "float32", "initializer", "Relu")
    array = np.nan_to_num(onnx.numpy_helper.to_array(proto.graph.initializer[1]), posinf=1)
    proto.graph.initializer[1].CopyFrom(weight("w", array))
    loaded = sardonyx.load(proto, backend="jax")
    (segment,) = loaded.trace(feeds["x"]).segments
    assert [step.title for step in segment.steps] == ["FusedConv"]


def test_exported_programs_keep_it() -> None:
    proto, feeds = convolving("2-D", "float32", "initializer")
    program = sardonyx.load(sardonyx.export(proto).to_bytes())
    agree(program.run(None, feeds)[0], sardonyx.load(proto, backend="numpy").run(None, feeds)[0])


def test_only_shapes_are_inferred_without_it() -> None:
    """`export` takes the simplest forms, but their results are read."""
    options = {"strides": (1, 1), "pads": ((1, 1), (1, 1)), "dilations": (1, 1), "groups": 1}
    x, w = jnp.ones((1, 2, 4, 4), jnp.float32), jnp.full((3, 2, 3, 3), jnp.inf, jnp.float32)
    searches = {}
    for name, settings in (("simplest", Settings(simplest=True)), ("outline", None)):
        xp: Any = JaxBackend(settings=settings) if settings else JaxBackend().outline()
        traced = jax.make_jaxpr(lambda x, w, xp=xp: xp.convolution(x, w, **options))(x, w)
        assert [a.shape for a in traced.out_avals] == [(1, 3, 4, 4)]
        searches[name] = "is_finite" in str(traced)
    assert searches == {"simplest": True, "outline": False}
