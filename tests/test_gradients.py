"""Gradients: what JAX derives, in its 32-bit mode, against numeric differences in float64."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.ops import OPS
from tests.support.gradient_cases import CASES, WITHOUT, Case, Fixed, x
from tests.support.onnx_builders import graph, model, node, weight


def test_every_operator_is_here_or_has_no_gradient() -> None:
    tested = {parameter.values[0].op for parameter in CASES}
    without = {name for names in WITHOUT.values() for name in names.split()}
    assert not tested & without
    standard = {name for domain, name in OPS if not domain.startswith("com.")}
    assert tested | without == standard - {"SimplifiedLayerNormalization"}


def model_of(one: Case, dtype: type[np.floating[Any]]) -> onnx.ModelProto:
    """The node as a model; what is no float32 becomes an initializer."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    names, inputs, weights = [], [], []
    for i, given in enumerate(one.inputs):
        names.append("" if given is None else f"x{i}")
        if isinstance(given, Fixed):
            kept = given.content if given.keeps_type else given.content.astype(dtype)
            weights.append(numpy_helper.from_array(kept, names[-1]))
        elif given is not None and given.dtype != np.float32:
            weights.append(numpy_helper.from_array(given, names[-1]))
        elif given is not None:
            inputs.append(helper.make_tensor_value_info(names[-1], number, given.shape))
    made = [f"y{i}" for i in range(one.outputs)]
    step = node(one.op, names, made, domain=one.domain, **one.attributes)
    imports = {"": onnx.defs.onnx_opset_version()} | {one.domain: one.opset}
    return helper.make_model(
        graph([step], inputs, [onnx.ValueInfoProto(name=name) for name in made], weights),
        opset_imports=[helper.make_opsetid(*entry) for entry in imports.items()],
    )


def total(results: Any, one: Case) -> Any:
    """A number that depends on each element of each float that the node makes."""
    several = results if one.outputs > 1 else [results]
    summed = 0.0
    for result in several:
        if result.dtype.kind == "f":
            factors = np.cos(np.arange(result.size) + 1.0).reshape(result.shape)
            summed = summed + (result * factors.astype(result.dtype)).sum()
    return summed


@pytest.mark.sampled(12)
@pytest.mark.parametrize("one", CASES)
def test_gradient(one: Case) -> None:
    wide: Any = np.float64 if one.wide else np.float32
    arrays = [given for given in one.inputs if isinstance(given, np.ndarray)]
    points = [given for given in arrays if given.dtype == np.float32]
    model = sardonyx.load(model_of(one, np.float32), backend="jax")
    oracle = sardonyx.load(model_of(one, wide), backend="numpy")
    assert not jax.config.jax_enable_x64

    slopes = jax.jit(jax.grad(lambda *at: total(model(*at), one), range(len(points))))(*points)
    step, tolerance = (1e-6, 1e-3) if one.wide else (2.0**-7, 2e-2)
    for i, (point, slope) in enumerate(zip(points, slopes, strict=True)):
        assert slope.dtype == np.float32
        assert np.isfinite(slope).all()
        direction = np.sin(np.arange(point.size) * 2.0 + 1.0).reshape(point.shape)
        ends = []
        for sign in (1, -1):
            moved = [p.astype(wide) for p in points]
            moved[i] = (point + sign * step * direction).astype(wide)
            ends.append(float(total(oracle(*moved), one)))
        along = float((np.asarray(slope, np.float64) * direction).sum())
        numeric = (ends[0] - ends[1]) / (2 * step)
        size = float(np.abs(slope * direction).sum())
        assert abs(along - numeric) <= tolerance * max(size, 0.1), f"input {i}"


@pytest.mark.parametrize("sign", [1, -1])
def test_gradient_of_the_branch_that_is_chosen(sign: int) -> None:
    branches = {
        f"{name}_branch": graph([node(op, ["x"], ["out"])], [], ["out"])
        for name, op in (("then", "Sin"), ("else", "Exp"))
    }
    nodes = [
        node("ReduceMax", ["x"], ["top"], keepdims=0),
        node("Less", ["nothing", "top"], ["is_above"]),
        node("If", ["is_above"], ["y"], **branches),
    ]
    chosen = sardonyx.load(
        model(nodes, ["x"], ["y"], [weight("nothing", np.float32(0))]),
        backend="jax",
    )
    point = sign * x(3, low=0.1)
    slope = jax.jit(jax.grad(lambda x: chosen(x).sum()))(point)
    np.testing.assert_allclose(slope, np.cos(point) if sign > 0 else np.exp(point), rtol=1e-5)
