"""`jax.export` of functions of `to_jax` with symbolic sizes: right for all of them, or refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from onnx import numpy_helper, parser

import sardonyx
from sardonyx.errors import InvalidInput, UnsupportedModel

SHAPES = {
    "examples/encoder.onnx": ("b, s, 48", [(1, 1, 48), (2, 7, 48), (3, 300, 48)]),
    "tests/models/encoder_torchscript.onnx": ("b, s, 16", [(1, 5, 16), (4, 2, 16)]),
    "tests/models/mlp_dynamo.onnx": ("n, 6", [(1, 6), (9, 6)]),
    "tests/models/cnn_dynamo.onnx": ("b, 3, 18, 22", [(1, 3, 18, 22), (5, 3, 18, 22)]),
    "tests/models/cnn_torchscript.onnx": ("2*b, 3, 18, 22", [(2, 3, 18, 22), (4, 3, 18, 22)]),
    "tests/models/sklearn_mlp.onnx": ("b, 4", [(1, 4), (6, 4)]),
}


def parsed(body: str, head: str) -> Any:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> {head} {body}')


def exported(fn: Any, params: Any, text: str, dtype: Any = jnp.float32, **options: Any) -> Any:
    spec = jax.ShapeDtypeStruct(export.symbolic_shape(text, **options), dtype)
    return export.export(jax.jit(fn))(params, spec)


@pytest.mark.slow
@pytest.mark.parametrize("path", SHAPES)
def test_one_export_serves_all_sizes(path: str) -> None:
    text, shapes = SHAPES[path]
    fn, params = sardonyx.to_jax(path)
    program = exported(fn, params, text)
    for shape in shapes:
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(program.call(params, x), fn(params, x), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["examples/encoder.onnx", "tests/models/cnn_dynamo.onnx"])
def test_another_float_type_has_symbolic_sizes_too(path: str) -> None:
    text, shapes = SHAPES[path]
    fn, params = sardonyx.to_jax(path, dtype="bfloat16")
    program = exported(fn, params, text, jnp.bfloat16)
    x = np.random.default_rng(0).normal(size=shapes[1]).astype(jnp.bfloat16)
    y = program.call(params, x)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(y), np.float32(fn(params, x)), rtol=0.05, atol=0.05)


@pytest.mark.slow
def test_gradients_can_be_exported_for_all_sizes() -> None:
    fn, params = sardonyx.to_jax("tests/models/mlp_dynamo.onnx")
    slopes = jax.grad(lambda params, x: jnp.sum(fn(params, x) ** 2))
    program = exported(slopes, params, "n, 6")
    x = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
    for name, slope in slopes(params, x).items():
        np.testing.assert_allclose(program.call(params, x)[name], slope, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_sizes_may_be_symbols_while_shapes_are_evaluated() -> None:
    fn, params = sardonyx.to_jax("examples/encoder.onnx")
    sizes = export.symbolic_shape("b, s, 48")
    found = []

    def look(params: Any, x: Any) -> Any:
        found.append(jax.eval_shape(fn, params, x).shape)
        return fn(params, x)

    program = export.export(jax.jit(look))(params, jax.ShapeDtypeStruct(sizes, jnp.float32))
    assert str(program.out_avals[0].shape) == "(b, s, 48)"
    assert [str(size) for size in found[0]] == ["b", "s", "48"]


def test_several_outputs_and_narrow_integers() -> None:
    model = parsed(
        "{ y = Add(x, x) s = Shape(x) z = Identity(i) }",
        "g (float[n] x, int64[n] i) => (float[n] y, int64[1] s, int64[n] z)",
    )
    fn, params = sardonyx.to_jax(model)
    (n,) = export.symbolic_shape("n")
    specs = [jax.ShapeDtypeStruct((n,), dtype) for dtype in (jnp.float32, jnp.int32)]
    program = export.export(jax.jit(fn))(params, *specs)
    y, shape, z = program.call(params, np.ones(5, np.float32), np.arange(5, dtype=np.int32))
    assert (y.tolist(), shape.tolist(), z.tolist()) == ([2] * 5, [5], [0, 1, 2, 3, 4])


@pytest.mark.slow
def test_random_numbers_of_a_symbolic_size_are_refused_at_their_node() -> None:
    model = parsed("{ y = RandomNormalLike(x) }", "g (float[n] x) => (float[n] y)")
    fn, params = sardonyx.to_jax(model)
    with pytest.raises(InvalidInput, match="pass a key"):
        exported(fn, params, "n")
    with pytest.raises(UnsupportedModel, match="RandomNormalLike"):
        exported(fn.bind(key=3), params, "n")


def test_a_bound_that_the_symbols_do_not_say_is_refused_and_can_be_passed() -> None:
    body = "<int64[1] z = {0}>{ s = Shape(x) p = Slice(t, z, s) y = Add(x, p) }"
    model = parsed(body, "g (float[n] x) => (float[n] y)")
    table = numpy_helper.from_array(np.arange(300, dtype=np.float32), "t")
    model.graph.initializer.append(table)
    fn, params = sardonyx.to_jax(model)
    with pytest.raises(
        UnsupportedModel, match=r"right only where .*n <= 300.*constraints"
    ) as error:
        exported(fn, params, "n")
    assert "sardonyx.export" in str(error.value)
    program = exported(fn, params, "n", constraints=["n <= 300"])
    assert np.asarray(program.call(params, np.zeros(3, np.float32))).tolist() == [0, 1, 2]


def test_a_graph_without_formulas_is_refused_at_its_node() -> None:
    model = parsed("{ i = NonZero(x) y = Cast<to=1>(i) }", "g (float[n] x) => (float[1,m] y)")
    fn, params = sardonyx.to_jax(model)
    with pytest.raises((UnsupportedModel, InvalidInput), match="NonZero"):
        exported(fn, params, "n")


def test_a_fixed_size_of_the_model_is_not_a_symbol() -> None:
    fn, params = sardonyx.to_jax("examples/encoder.onnx")
    with pytest.raises((UnsupportedModel, InvalidInput)) as caught:
        exported(fn, params, "b, 8, c")
    assert "48" in str(caught.value)
