"""`to_jax(..., dtype=)`: models in another float type, without a promotion back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest
from jax.extend.core import jaxprs_in_params
from onnx import numpy_helper, parser

import sardonyx
from sardonyx.errors import InvalidInput

NARROW = ("bfloat16", "float16")
# Of results, as a fraction of the largest element: a few roundings of the type.
TOLERANCE = {"bfloat16": 1.5e-2, "float16": 2e-3}
MODELS = ("encoder_dynamo", "encoder_torchscript", "cnn_dynamo", "cnn_torchscript",
          "decoder_dynamo", "decoder_torchscript", "separable_dynamo", "spelled_dynamo",
          "cond_dynamo", "sklearn_linear_float64")  # fmt: skip
X = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)


def stored_inputs(name: str) -> dict[str, np.ndarray]:
    with np.load(f"tests/models/{name}.npz") as data:
        return {key.split("/")[-1]: data[key] for key in data.files if key.startswith("0/in/")}


def parsed(
    body: str, head: str = "g (float[2,3] x) => (float[2,3] y)", opset: int = 22
) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {head} {body}')


def equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def products(function: Any, *arguments: Any) -> list[tuple[set[str], str]]:
    """The types of the factors of each product, and the type it is summed in."""
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    return [
        ({str(factor.aval.dtype) for factor in e.invars}, str(e.params["preferred_element_type"]))
        for e in equations(jaxpr)
        if e.primitive.name in ("dot_general", "conv_general_dilated")
    ]


def assert_near(expected: Any, actual: Any, dtype: str, tolerance: float = 1.0) -> None:
    for wide, narrow in zip(jax.tree.leaves(expected), jax.tree.leaves(actual), strict=True):
        assert narrow.dtype == dtype
        difference = np.asarray(wide, np.float64) - np.asarray(narrow, np.float64)
        largest = max(np.abs(np.asarray(wide)).max(initial=0), 1e-6)
        assert np.abs(difference).max(initial=0) <= tolerance * TOLERANCE[dtype] * largest


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_as_near_to_itself_as_the_type_allows(name: str, dtype: str) -> None:
    path, inputs = f"tests/models/{name}.onnx", stored_inputs(name)
    wide, params = sardonyx.to_jax(path)
    fn, narrow_params = sardonyx.to_jax(path, dtype=dtype)
    assert {str(array.dtype) for array in narrow_params.values()} <= {dtype}
    assert_near(wide(params, **inputs), fn(narrow_params, **inputs), dtype)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", [m for m in MODELS if not m.startswith("cond")])
def test_every_product_has_factors_of_the_type_and_sums_in_float32(name: str, dtype: str) -> None:
    fn, params = sardonyx.to_jax(f"tests/models/{name}.onnx", dtype=dtype)
    inputs = stored_inputs(name)
    found = products(lambda params: fn(params, **inputs), params)
    assert found
    assert all(pair == ({dtype}, "float32") for pair in found)


W = "float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}"
OPERATORS = {
    "MatMul": f"<{W}>{{ t = Transpose(w) y = MatMul(x, t) }}",
    "Gemm": f"<{W}, float[4] b = {{1,2,3,4}}>{{ y = Gemm<transB=1>(x, w, b) }}",
    "Einsum": f'<{W}>{{ y = Einsum<equation="ij,kj->ik">(x, w) }}',
    "RNN": """<float[1,4,3] w={1,2,3,4,5,6,7,8,9,1,2,3},
        float[1,4,4] r={1,2,3,4,5,6,7,8,9,1,2,3,1,2,3,4}, int64[1] a={0}>
        { s = Unsqueeze(x, a) h = RNN<hidden_size=4>(s, w, r) y = Squeeze(h) }""",
    "ConvTranspose": """<float[2,3,1] w={1,2,3,4,5,6}, int64[1] a={2}, int64[2] s={2,3}>
        { u = Unsqueeze(x, a) t = Transpose<perm=[2,0,1]>(u) c = ConvTranspose(t, w)
           y = Squeeze(c) }""",
    "Attention": """<int64[2] a={0,1}>{ u = Unsqueeze(x, a) y4 = Attention(u, u, u)
        y = Squeeze(y4) }""",
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_kind_of_product_follows_the_type(operator: str) -> None:
    model = parsed(OPERATORS[operator], "g (float[2,3] x) => (float[n,m] y)", opset=23)
    fn, params = sardonyx.to_jax(model, dtype="bfloat16")
    found = products(fn, params, X)
    assert found
    assert all(factors == {"bfloat16"} for factors, _ in found)
    wide, wide_params = sardonyx.to_jax(model)
    assert_near(wide(wide_params, X), fn(params, X), "bfloat16")


@pytest.mark.slow
def test_gradients_have_the_types_of_what_they_belong_to() -> None:
    path, images = "tests/models/cnn_dynamo.onnx", stored_inputs("cnn_dynamo")
    fn, params = sardonyx.to_jax(path, dtype=jnp.bfloat16)
    wide, masters = sardonyx.to_jax(path)

    def total(function: Any, params: Any) -> Any:
        return jnp.sum(function(params, **images).astype(jnp.float32) ** 2)

    narrow = jax.jit(jax.grad(lambda params: total(fn, params)))(params)
    mixed = jax.jit(jax.grad(lambda params: total(fn, params)))(masters)
    exact = jax.jit(jax.grad(lambda params: total(wide, params)))(masters)
    assert {str(array.dtype) for array in narrow.values()} == {"bfloat16"}
    assert {str(array.dtype) for array in mixed.values()} == {"float32"}
    for name, slope in exact.items():
        largest = float(jnp.abs(slope).max()) + 1e-2
        for other in (narrow, mixed):
            assert float(jnp.abs(slope - other[name].astype(jnp.float32)).max()) < 0.1 * largest
    factors = products(jax.grad(lambda params: total(fn, params)), params)
    assert all(types == {"bfloat16"} for types, _ in factors)


@pytest.mark.slow
def test_the_function_works_under_transformations() -> None:
    fn, params = sardonyx.to_jax("tests/models/mlp_dynamo.onnx", dtype="bfloat16")
    x = jnp.ones((2, 6), jnp.bfloat16)
    y = jax.jit(fn)(params, x)
    assert jax.vmap(fn, (None, 0))(params, jnp.stack([x, x])).dtype == y.dtype == jnp.bfloat16
    gradient = jax.grad(lambda x: fn(params, x).astype(jnp.float32).sum())
    assert jax.jvp(gradient, (x,), (x,))[1].dtype == jnp.bfloat16
    assert jax.eval_shape(fn, params, x).dtype == jnp.bfloat16


@pytest.mark.parametrize("x", [
    X, jnp.asarray(X), X.astype(np.float64), X.astype(np.float16), X.astype(ml_dtypes.bfloat16),
    X.tolist(), X.T.copy().T,
])  # fmt: skip
def test_inputs_of_any_float_type_are_cast(x: Any) -> None:
    fn, params = sardonyx.to_jax(parsed("{ y = Add(x, x) }"), dtype="bfloat16")
    assert_near(2 * X, fn(params, x), "bfloat16")


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("mask", [
    "<float[3] m = {-3.4028235e38, -3.4028235e38, -3.4028235e38}>{ t = Add(x, m) y = Softmax(t) }",
    "{ m = Constant<value = float {-3.4028235e38}>() t = Add(x, m) y = Softmax(t) }",
    """<float one = {1}, float low = {-3.4028235e38}>{ b = Greater(x, x) f = Cast<to=1>(b)
        n = Sub(one, f) m = Mul(n, low) t = Add(x, m) y = Softmax(t) }""",
    """<float zero = {0}, float low = {-3.4028235e38}>{ b = Greater(x, x)
        m = Where(b, zero, low) t = Add(x, m) y = Softmax(t) }""",
])  # fmt: skip
def test_a_row_that_a_mask_closes_is_not_nan(mask: str, dtype: str) -> None:
    wide, params = sardonyx.to_jax(parsed(mask))
    fn, narrow_params = sardonyx.to_jax(parsed(mask), dtype=dtype)
    assert_near(wide(params, X), jax.jit(fn)(narrow_params, X), dtype)


def test_masks_that_are_inputs_are_clamped_and_infinities_stay() -> None:
    model = parsed("{ y = Add(x, m) }", "g (float[2,3] x, float[3] m) => (float[2,3] y)")
    fn, params = sardonyx.to_jax(model, dtype="float16")
    m = np.asarray([-3e38, -np.inf, 3e38], np.float32)
    for each in (m, jnp.asarray(m)):
        y = np.asarray(jax.jit(fn)(params, np.zeros((2, 3), np.float32), each))
        assert y[0].tolist() == [-65504, -np.inf, 65504]


LOOP = """<bool c = {1}, float[2,3] s = {0,0,0,0,0,0}>{ f, y = Loop (n, c, s) <body = b
    (int64 i, bool open, float[2,3] past) => (bool on, float[2,3] next, float[2,3] out)
    { on = Identity(open) t = Add(past, x) k = Constant<value = float {0.5}>()
      next = Mul(t, k) out = Identity(k3) }> }"""
CONTROL = {
    "Loop": (LOOP.replace("out = Identity(k3)", "out = Identity(next)"),
             "g (float[2,3] x, int64 n) => (float[2,3] f, float[n,2,3] y)", np.int64(3)),
    "If": ("""{ y = If (c) <then_branch = a () => (float[2,3] o) { o = Relu(x) },
        else_branch = b () => (float[2,3] p)
        { p = Constant<value = float[2,3] {1,2,3,4,5,6}>() }> }""",
        "g (float[2,3] x, bool c) => (float[2,3] y)", np.False_),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTROL)
def test_branches_and_states_of_loops_have_the_type(case: str) -> None:
    body, head, other = CONTROL[case]
    wide, params = sardonyx.to_jax(parsed(body, head))
    fn, narrow_params = sardonyx.to_jax(parsed(body, head), dtype="bfloat16")
    expected = wide(params, X, other)
    assert_near(expected, fn(narrow_params, X, other), "bfloat16")
    if case == "If":
        assert_near(expected, jax.jit(fn)(narrow_params, X, other), "bfloat16")


def test_a_loop_of_constants_is_as_exact_as_the_model() -> None:
    body = """<int64 n = {600}, bool c = {1}>{ z = Constant<value = float {0}>()
        k = Loop (n, c, z) <body = b (int64 i, bool open, float a) => (bool on, float more)
        { on = Identity(open) o = Constant<value = float {1}>() more = Add(a, o) }>
        y = Mul(x, k) }"""
    fn, params = sardonyx.to_jax(parsed(body), dtype="bfloat16")
    assert_near(600 * X, fn(params, X), "bfloat16")


MEETINGS = {
    "a constant": "{ c = Constant<value = float {0.3}>() y = Mul(x, c) }",
    "a cast to float64 and back": "{ d = Cast<to=11>(x) e = Mul(d, d) y = Cast<to=1>(e) }",
    "a large divisor": "<float n = {100352}>{ y = Div(x, n) }",
    "a size": "{ s = Size(x) f = Cast<to=1>(s) y = Div(x, f) }",
    "ConstantOfShape": """{ s = Shape(x) o = ConstantOfShape<value = float[1] {0.3}>(s)
        y = Mul(x, o) }""",
    "LayerNormalization": "<float[3] s = {1,2,3}>{ y = LayerNormalization<stash_type=1>(x, s) }",
    "quantization": """<float s = {0.1}, int8 z = {0}>{ q = QuantizeLinear(x, s, z)
        y = DequantizeLinear(q, s, z) }""",
    "dynamic quantization": "{ q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z) }",
    "random numbers": "{ n = RandomNormalLike(x) y = Add(n, x) }",
    "a sequence": """<float[2,3] k = {1,2,3,4,5,6}>{ s = SequenceConstruct(x, k)
        i = Constant<value = int64 {1}>() e = SequenceAt(s, i) y = Add(e, x) }""",
    "a constant output": "{ y = Constant<value = float[2,3] {1,2,3,4,5,6}>() }",
    "bits": "{ b = BitCast<to=6>(x) f = BitCast<to=1>(b) y = Mul(f, x) }",
}  # fmt: skip


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("case", MEETINGS)
def test_what_meets_an_array_does_not_promote_it(case: str, dtype: str) -> None:
    if (case, dtype) == ("a large divisor", "float16"):
        pytest.skip("float16 has no number above 65504")
    model = parsed(MEETINGS[case], opset=26 if case == "bits" else 22)
    options = {"key": 3} if case == "random numbers" else {}
    wide, params = sardonyx.to_jax(model)
    fn, narrow_params = sardonyx.to_jax(model, dtype=dtype)
    assert_near(wide(params, X, **options), fn(narrow_params, X, **options), dtype, 2)


def test_scales_of_shapes_and_of_quantization_keep_their_type() -> None:
    text = """<float[2] s = {2, 2}, float q = {0.1}, int8 z = {0}>
        { r = Resize<mode="linear">(x,,s) i = QuantizeLinear(r, q, z)
          y = DequantizeLinear(i, q, z) }"""
    fn, params = sardonyx.to_jax(
        parsed(text, "g (float[2,3] x) => (float[4,6] y)"), dtype="bfloat16"
    )
    assert params["q"].dtype == np.float32
    assert "s" not in params
    assert fn(params, X).shape == (4, 6)


def test_the_angles_of_rotary_embeddings_stay_exact() -> None:
    text = """<float[1,4] f = {1, 0.1, 0.01, 0.001}>{ r = Cast<to=1>(at) a = MatMul(r, f)
        c = Cos(a) y = Mul(c, x) }"""
    model = parsed(text, "g (float[3,4] x, int64[3,1] at) => (float[3,4] y)")
    fn, params = sardonyx.to_jax(model, dtype="bfloat16")
    wide, wide_params = sardonyx.to_jax(model)
    x, at = np.ones((3, 4), np.float32), np.asarray([[1001], [513], [2047]])
    assert params["f"].dtype == np.float32
    assert_near(wide(wide_params, x, at), fn(params, x, at), "bfloat16")


ISLAND = """<float e = {1e-5}, float[3] g = {1,1,1}>
    { h = Cast<to=1>(x) s = Mul(h, h) m = ReduceMean<axes=[1]>(s) a = Add(m, e) r = Sqrt(a)
      n = Div(h, r) q = Mul(n, g) c = Cast<to=10>(q) y = MatMul(c, w) }"""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_float32_beside_weights_of_16_bits_stays(dtype: str) -> None:
    """The squares of such an RMSNorm do not fit float16, which is why it was exported so."""
    model = parsed(ISLAND, "g (float16[2,3] x) => (float16[2,3] y)", opset=13)
    weight = numpy_helper.from_array(np.arange(9, dtype=np.float16).reshape(3, 3), "w")
    model.graph.initializer.append(weight)
    fn, params = sardonyx.to_jax(model, dtype=dtype)
    wide, wide_params = sardonyx.to_jax(model)
    x = (500 * X).astype(np.float16)
    y = fn(params, x)
    assert params["g"].dtype == np.float32
    assert params["w"].dtype == y.dtype == np.dtype(dtype)
    np.testing.assert_allclose(np.float32(y), np.float32(wide(wide_params, x)), rtol=2e-2)


def test_float64_needs_the_mode_of_64_bits() -> None:
    with pytest.raises(InvalidInput, match="jax_enable_x64"):
        sardonyx.to_jax("examples/encoder.onnx", dtype="float64")
    with jax.enable_x64(True):
        fn, params = sardonyx.to_jax("examples/encoder.onnx", dtype="float64")
        y = fn(params, np.ones((1, 8, 48), np.float32))
        assert {a.dtype for a in (*params.values(), y)} == {np.dtype(np.float64)}
    wide, wide_params = sardonyx.to_jax("examples/encoder.onnx")
    np.testing.assert_allclose(y, wide(wide_params, np.ones((1, 8, 48), np.float32)), atol=1e-5)


def test_float32_makes_a_model_of_float64_one_of_float32() -> None:
    fn, params = sardonyx.to_jax("tests/models/sklearn_linear_float64.onnx", dtype=np.float32)
    with jax.enable_x64(True):
        y = fn(params, **stored_inputs("sklearn_linear_float64"))
    assert {leaf.dtype for leaf in jax.tree.leaves((params, y))} == {np.dtype(np.float32)}


@pytest.mark.parametrize("name", [jnp.bfloat16, ml_dtypes.bfloat16, np.dtype("bfloat16")])
def test_a_type_has_several_names(name: Any) -> None:
    fn, params = sardonyx.to_jax("examples/encoder.onnx", dtype=name)
    assert fn(params, np.ones((1, 8, 48), np.float32)).dtype == jnp.bfloat16
    assert "tensor(bfloat16)" in repr(fn)


@pytest.mark.parametrize("dtype", ["int8", np.int32, "float8_e4m3fn", 3, object(), "", np.ones(3),
                                   "complex64", b"float16\0", ["bfloat16"], "highest"])  # fmt: skip
def test_other_types_are_refused(dtype: Any) -> None:
    with pytest.raises(InvalidInput, match=r'pass one of "bfloat16", "float16", "float32"'):
        sardonyx.to_jax("examples/encoder.onnx", dtype=dtype)


def test_a_param_of_a_third_type_is_refused() -> None:
    fn, params = sardonyx.to_jax("examples/encoder.onnx", dtype="bfloat16")
    others = {name: array.astype(jnp.float16) for name, array in params.items()}
    with pytest.raises(InvalidInput, match="must be bfloat16"):
        fn(others, np.ones((1, 8, 48), np.float32))


def test_training_overlays_and_inner_values_have_the_type() -> None:
    path = "tests/models/cnn_dynamo.onnx"
    fn, params = sardonyx.to_jax(path, training=True, dtype="bfloat16")
    images = np.ones((2, 3, 18, 22), np.float32)
    y, renewed = jax.jit(fn)(params, images, key=jax.random.key(0))
    assert {str(leaf.dtype) for leaf in jax.tree.leaves((y, renewed))} == {"bfloat16"}
    fn, params = sardonyx.to_jax("examples/encoder.onnx", outputs="layer_norm", dtype="bfloat16")
    adapters = sardonyx.lora_init(params, rank=2, key=0)
    x = np.ones((1, 8, 48), np.float32)
    assert fn(sardonyx.apply_overlays(params, adapters), x).dtype == jnp.bfloat16


def test_a_loaded_model_lends_its_present_params_and_keeps_its_own() -> None:
    model = sardonyx.load("examples/encoder.onnx")
    name = "blocks.0.before.weight"
    model.params[name] = np.full(48, 3, np.float32)
    _, params = sardonyx.to_jax(model, dtype="float16")
    assert np.asarray(params[name]).tolist() == [3] * 48
    assert np.asarray(model.params[name]).dtype == np.float32
