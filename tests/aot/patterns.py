"""Small graphs that networks consist of, and the same work as one would write it in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

from sardonyx.backends.executable import Spec
from sardonyx.targets.jobs import FunctionJob, ModelJob
from sardonyx.targets.names import named
from tests.aot import encoder_layer

HIGHEST = jax.lax.Precision.HIGHEST
WEIGHTS = frozenset({"weight", "bias", "scale", "codes", "zero", *encoder_layer.WEIGHTS})
DTYPES = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
SHORT_DTYPES = {"int8": np.int8, "float8e4m3fn": ml_dtypes.float8_e4m3fn}


@dataclass(frozen=True)
class Pattern:
    """A graph in ONNX's text form, and a function of the same inputs, most of one type."""

    name: str
    dtype: str
    shapes: dict[str, tuple[int, ...]]
    nodes: str
    by_hand: Callable[..., Any]
    # The types of inputs that have another one.
    types: Mapping[str, str] = field(default_factory=dict)

    def key(self, target: str) -> str:
        """The pattern's name in a table."""
        return f"{self.name}, {self.dtype}, {target}"

    def model(self, target: str, *, keeps_text: bool = False) -> ModelJob:
        inputs = ", ".join(
            f"{self.types.get(name, self.dtype)}[{','.join(map(str, shape))}] {name}"
            for name, shape in self.shapes.items()
        )
        text = '<ir_version: 11, opset_import: ["": 24]> g '
        proto = parser.parse_model(f"{text}({inputs}) => (y) {{ {self.nodes} }}")
        _hold_weights(proto.graph)
        return ModelJob(proto.SerializeToString(), named(target), keeps_text=keeps_text)

    def function(self, target: str) -> FunctionJob:
        dtypes = DTYPES | SHORT_DTYPES
        specs = tuple(
            Spec(shape, np.dtype(dtypes[self.types.get(name, self.dtype)]))
            for name, shape in self.shapes.items()
        )
        return FunctionJob(self.by_hand, specs, named(target), wide=False)


def _hold_weights(graph: onnx.GraphProto) -> None:
    """Make weights of the inputs with such names, as in the files of exporters."""
    for value in [each for each in graph.input if each.name in WEIGHTS]:
        tensor = value.type.tensor_type
        shape = [dimension.dim_value for dimension in tensor.shape.dim]
        ones = np.ones(shape, helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        # Other numbers than one: XLA would see that they are all the same.
        ones.reshape(-1)[::2] = 2
        ones = np.zeros_like(ones) if value.name == "zero" else ones
        graph.initializer.append(numpy_helper.from_array(ones, value.name))
        graph.input.remove(value)


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x)


def layer_normalization(x: Any, scale: Any, bias: Any) -> Any:
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    centered = wide - mean
    variance = jnp.square(centered).mean(-1, keepdims=True)
    normal = (centered * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype)
    return normal * scale + bias


def rms_normalization(x: Any, scale: Any) -> Any:
    wide = x.astype(jnp.float32)
    squares = jnp.square(wide).mean(-1, keepdims=True)
    return (wide * jax.lax.rsqrt(squares + 1e-5)).astype(x.dtype) * scale


def gelu_of_product(x: Any, weight: Any, bias: Any) -> Any:
    return jax.nn.gelu(jnp.matmul(x, weight, precision=HIGHEST) + bias, approximate=False)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Of queries, keys and values (batch, heads, length, size)."""
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    with jax.default_matmul_precision("highest"):
        return jnp.swapaxes(jax.nn.dot_product_attention(q, k, v), 1, 2)


def convolution(x: Any, weight: Any, bias: Any) -> Any:
    y = jax.lax.conv_general_dilated(x, weight, (1, 1), [(1, 1), (1, 1)], precision=HIGHEST)
    return jax.nn.relu(y + bias[:, None, None])


def clipped_convolution(x: Any, weight: Any, bias: Any) -> Any:
    y = jax.lax.conv_general_dilated(x, weight, (1, 1), [(1, 1), (1, 1)], precision=HIGHEST)
    return jnp.clip(y + bias[:, None, None], 0, 6)


def convolution_and_sum(x: Any, weight: Any, bias: Any, other: Any) -> Any:
    y = jax.lax.conv_general_dilated(x, weight, (1, 1), [(1, 1), (1, 1)], precision=HIGHEST)
    return jax.nn.relu(y + bias[:, None, None] + other)


def relu_of_product(x: Any, weight: Any, bias: Any) -> Any:
    return jax.nn.relu(jnp.matmul(x, weight, precision=HIGHEST) + bias)


def product_with_integers(x: Any, codes: Any, scale: Any, zero: Any) -> Any:
    """With weights of 8 bits, whose zero points are 0."""
    del zero
    return jnp.matmul(x, codes.astype(x.dtype) * scale, precision=HIGHEST)


def product_of_float8(x: Any, x_scale: Any, codes: Any, scale: Any) -> Any:
    a, b = x.astype(x_scale.dtype) * x_scale, codes.astype(scale.dtype) * scale
    return jnp.matmul(a, b, precision=HIGHEST)


def looked_up(table: Any, scale: Any) -> Any:
    """Rows of a table of words, normalized, as decoders begin."""
    return rms_normalization(table[jnp.arange(0, 512, 4)], scale)


ROWS, HEADS = (4096, 1024), (8, 12, 512, 64)
SOFTMAX = "y = Softmax (x)"
LAYERS = "y = LayerNormalization (x, scale, bias)"
RMS = "y = RMSNormalization (x, scale)"
# As exporters of before opset 20 wrote it.
GELU = """p = MatMul (x, weight) s = Add (p, bias)
    root = Constant <value_float: float = 1.4142135> () r = CastLike (root, s) d = Div (s, r)
    e = Erf (d) one = Constant <value_float: float = 1.0> () o = CastLike (one, s) f = Add (e, o)
    m = Mul (s, f) half = Constant <value_float: float = 0.5> () h = CastLike (half, s)
    y = Mul (m, h)"""
ATTENTION = "y = Attention (q, k, v)"
CONVOLUTION = "c = Conv <pads = [1, 1, 1, 1]> (x, weight, bias) y = Relu (c)"
CLIPPED = """c = Conv <pads = [1, 1, 1, 1]> (x, weight, bias)
    zero = Constant <value_float: float = 0.0> () least = CastLike (zero, c)
    six = Constant <value_float: float = 6.0> () most = CastLike (six, c)
    y = Clip (c, least, most)"""
SUM_OF_CONVOLUTION = """c = Conv <pads = [1, 1, 1, 1]> (x, weight, bias)
    s = Add (c, other) y = Relu (s)"""
RELU = "p = MatMul (x, weight) s = Add (p, bias) y = Relu (s)"
INTEGERS = "d = DequantizeLinear <axis = 1> (codes, scale, zero) y = MatMul (x, d)"
FLOAT8 = """a = DequantizeLinear (x, x_scale) b = DequantizeLinear (codes, scale)
    y = MatMul (a, b)"""
LOOKUP = """first = Constant <value_int: int = 0> () last = Constant <value_int: int = 512> ()
    step = Constant <value_int: int = 4> () rows = Range (first, last, step)
    words = Gather (table, rows) y = RMSNormalization (words, scale)"""

_NORMAL = {"x": ROWS, "scale": (1024,), "bias": (1024,)}
_PRODUCT = {"x": (512, 768), "weight": (768, 3072), "bias": (3072,)}
_IMAGE = {"x": (8, 64, 56, 56), "weight": (64, 64, 3, 3), "bias": (64,)}
_SUM = {**_IMAGE, "other": (8, 64, 56, 56)}
_INTEGERS = {"x": (512, 768), "codes": (768, 3072), "scale": (3072,), "zero": (3072,)}
_FLOAT8 = {"x": (512, 768), "x_scale": (), "codes": (768, 3072), "scale": ()}
_TABLE = {"table": (4096, 1024), "scale": (1024,)}

_TYPES = {
    INTEGERS: {"codes": "int8", "zero": "int8"},
    FLOAT8: {"x": "float8e4m3fn", "codes": "float8e4m3fn"},
}

PATTERNS = tuple(
    Pattern(name, dtype, shapes, nodes, function, _TYPES.get(nodes, {}))
    for dtype in DTYPES
    for name, shapes, nodes, function in (
        ("Softmax", {"x": ROWS}, SOFTMAX, softmax),
        ("LayerNormalization", _NORMAL, LAYERS, layer_normalization),
        ("RMSNormalization", {"x": ROWS, "scale": (1024,)}, RMS, rms_normalization),
        ("MatMul, bias and GELU", _PRODUCT, GELU, gelu_of_product),
        ("attention", dict.fromkeys("qkv", HEADS), ATTENTION, attention),
        ("Conv, bias and Relu", _IMAGE, CONVOLUTION, convolution),
        ("Conv, bias and Clip", _IMAGE, CLIPPED, clipped_convolution),
        ("Conv, bias, sum and Relu", _SUM, SUM_OF_CONVOLUTION, convolution_and_sum),
        ("MatMul, bias and Relu", _PRODUCT, RELU, relu_of_product),
        ("MatMul with int8", _INTEGERS, INTEGERS, product_with_integers),
        ("MatMul of float8", _FLOAT8, FLOAT8, product_of_float8),
        ("Gather and RMSNormalization", _TABLE, LOOKUP, looked_up),
        ("layer of BERT", encoder_layer.SHAPES, encoder_layer.NODES, encoder_layer.by_hand),
    )
)
