"""Functions of JAX and networks of Flax and Equinox by jax2onnx."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import onnx
from flax import nnx
from jax import lax
from jax2onnx import to_onnx

from tests.zoo.entry import Call, Entry

EXPORTER = "jax2onnx"
ROWS = ("n", 6)


@dataclass(frozen=True)
class Source:
    """A function, the shapes of its inputs with names for sizes that change, and those sizes."""

    name: str
    build: Callable[[], Callable[..., Any]]
    shapes: Sequence[Sequence[int | str]] = (ROWS,)
    sizes: Sequence[int] = (4, 3)
    dtype: str = "float32"
    opset: int = 23


def entries() -> Iterator[Entry]:
    for source in [*_networks(), *_arrays(), *_loops(), *_lookups()]:
        is_coarse = source.dtype == "float16"
        yield Entry(source.name, EXPORTER, _writer(source), is_coarse)


def _writer(source: Source) -> Callable[[Path], Sequence[Call]]:
    def write(path: Path) -> Sequence[Call]:
        function = source.build()
        dtype = np.dtype(source.dtype)
        inputs = [jax.ShapeDtypeStruct(_symbolic(shape), dtype) for shape in source.shapes]
        double = dtype == np.float64
        onnx.save(
            to_onnx(function, inputs, opset=source.opset, enable_double_precision=double), path
        )
        names = [each.name for each in onnx.load(path).graph.input]
        rng = np.random.default_rng(0)
        calls = []
        for size in source.sizes:
            shapes = [[size if axis == "n" else axis for axis in shape] for shape in source.shapes]
            arrays = [(rng.normal(size=shape) * 3).astype(dtype) for shape in shapes]
            with jax.enable_x64(double):
                results = jax.tree.map(
                    np.asarray, jax.tree.leaves(function(*map(jnp.asarray, arrays)))
                )
            calls.append(Call(dict(zip(names, arrays, strict=True)), results))
        return calls

    return write


def _symbolic(shape: Sequence[int | str]) -> tuple[Any, ...]:
    return jax.export.symbolic_shape(",".join(map(str, shape)))


def _networks() -> Iterator[Source]:
    key = jax.random.key(0)
    images = (("n", 8, 8, 3),)
    yield Source("nnx perceptron", lambda: _perceptron(nnx.Rngs(0)))
    yield Source("nnx convolution", lambda: _convolution(nnx.Rngs(0)), images)
    yield Source(
        "nnx attention",
        lambda: nnx.MultiHeadAttention(2, 8, decode=False, rngs=nnx.Rngs(0)),
        (("n", 5, 8),),
    )
    yield Source("nnx norms", lambda: _norms(nnx.Rngs(0)), (("n", 8),))
    yield Source("nnx lstm", lambda: nnx.RNN(nnx.LSTMCell(4, 6, rngs=nnx.Rngs(0))), ((2, 5, 4),))
    yield Source("nnx embedding", lambda: _embedded(nnx.Rngs(0)), (("n", 5),), dtype="int32")
    yield Source("linen perceptron", _linen)
    yield Source(
        "equinox perceptron",
        lambda: jax.vmap(eqx.nn.MLP(6, 3, 16, 2, jax.nn.gelu, key=key)),
    )
    yield Source(
        "equinox convolution",
        lambda: jax.vmap(eqx.nn.Conv2d(3, 4, 3, 2, "SAME", key=key)),
        (("n", 3, 8, 8),),
    )
    yield Source("equinox attention", lambda: _equinox_attention(key), ((5, 8),))


def _perceptron(rngs: nnx.Rngs) -> Callable[..., jax.Array]:
    return nnx.Sequential(nnx.Linear(6, 16, rngs=rngs), nnx.gelu, nnx.Linear(16, 3, rngs=rngs))


def _convolution(rngs: nnx.Rngs) -> Callable[..., jax.Array]:
    first = nnx.Conv(3, 8, (3, 3), strides=2, rngs=rngs)
    second = nnx.Conv(8, 8, (3, 3), feature_group_count=4, kernel_dilation=2, rngs=rngs)

    def network(x: jax.Array) -> jax.Array:
        x = nnx.max_pool(nnx.relu(first(x)), (2, 2), strides=(1, 1), padding="SAME")
        return nnx.avg_pool(second(x), (2, 2)).mean((1, 2))

    return network


def _norms(rngs: nnx.Rngs) -> Callable[..., jax.Array]:
    parts = nnx.LayerNorm(8, rngs=rngs), nnx.RMSNorm(8, rngs=rngs), nnx.GroupNorm(8, 2, rngs=rngs)
    return lambda x: sum(part(x) for part in parts)


def _embedded(rngs: nnx.Rngs) -> Callable[..., jax.Array]:
    embed = nnx.Embed(20, 6, rngs=rngs)
    return lambda ids: nnx.softmax(embed.attend(embed(jnp.abs(ids)).mean(1)))


def _linen() -> Callable[..., jax.Array]:
    class Network(flax.linen.Module):
        @flax.linen.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            x = flax.linen.silu(flax.linen.Dense(16)(x))
            return flax.linen.Dense(3)(flax.linen.LayerNorm()(x))

    network = Network()
    params = network.init(jax.random.key(0), jnp.ones((1, 6)))
    return lambda x: network.apply(params, x)


def _equinox_attention(key: jax.Array) -> Callable[..., jax.Array]:
    attend = eqx.nn.MultiheadAttention(2, 8, key=key)
    return lambda x: attend(x, x, x, jnp.tril(jnp.ones((5, 5), bool)))


def _arrays() -> Iterator[Source]:
    square = ((6, 6),)
    functions: dict[str, Callable[..., Any]] = {
        "softmax": lambda x: (jax.nn.softmax(x), jax.nn.log_softmax(x, 0)),
        "activations": lambda x: (
            jax.nn.silu(x),
            jax.nn.elu(x),
            jax.nn.softplus(x),
            jax.nn.mish(x),
        ),
        "reductions": lambda x: (x.sum(0), x.std(1), jnp.prod(x, 1), jax.nn.logsumexp(x, 1)),
        "argmax": lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)),
        "top_k": lambda x: lax.top_k(x, 3),
        "cummax": lambda x: (lax.cummax(x, 1), lax.cumlogsumexp(x, 1, reverse=True)),
        "einsum": lambda x: jnp.einsum("ij,kj->ik", x, x),
        "rounding": lambda x: (jnp.round(x), jnp.floor(x), jnp.trunc(x), jnp.mod(x, 2)),
        "special": lambda x: (lax.erf(x), jnp.expm1(x / 9), jnp.arctan2(x, x + 1), jnp.sinc(x)),
        "where": lambda x: jnp.where(x > 0, x, -jnp.inf).max(1),
        "layouts": lambda x: (jnp.flip(x, 1), jnp.roll(x, 2, 1), x.T, jnp.tile(x, (1, 2))),
        "triangles": lambda x: (jnp.tril(x), jnp.triu(x, 1)),
        "clip and sign": lambda x: (jnp.clip(x, -1, 1), jnp.sign(x), jnp.abs(x), jnp.square(x)),
        "integers": lambda x: (x.astype(int) * 2, x.astype(int) & 3, x.astype(int) << 1),
        "comparisons": lambda x: ((x > 0) & (x < 2), jnp.isfinite(1 / x), jnp.any(x > 2, 1)),
        "pad and concatenate": lambda x: jnp.concatenate([jnp.pad(x, ((0, 0), (1, 2))), x], 1),
        "split and stack": lambda x: jnp.stack(jnp.split(x, 3, 1), 1),
        "nan handling": lambda x: jnp.nan_to_num(jnp.log(x), nan=-1.0, neginf=-2.0),
        "variance of rows": lambda x: (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1)[:, None]),
        "pooling": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "SAME"),
        "vmap and grad": jax.vmap(jax.grad(lambda row: jnp.tanh(row).sum() ** 2)),
        "jacobian": lambda x: jax.jacfwd(lambda y: jnp.sin(y).sum(0))(x[:2]),
        "random bits": lambda x: x + jax.random.uniform(jax.random.key(0), (6,)),
    }
    for name, function in functions.items():
        yield Source(name, lambda function=function: function)
    # CumProd is of this opset; at others, jax2onnx writes it all the same.
    yield Source(
        "cumsum", lambda: lambda x: (jnp.cumsum(x, axis=1), jnp.cumprod(x, axis=1)), opset=26
    )
    yield Source("fft", lambda: lambda x: jnp.abs(jnp.fft.fft(x)), square)
    yield Source("rfft", lambda: lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 2), square)
    yield Source("linear algebra", lambda: lambda x: (jnp.linalg.det(x), x @ x.T), square)
    yield Source("cholesky", lambda: lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(6)), square)
    yield Source(
        "float64", lambda: lambda x: jnp.exp(x).sum(1) + jnp.arange(4.0)[0], dtype="float64"
    )
    yield Source("float16", lambda: lambda x: jax.nn.softmax(x).sum(0), dtype="float16")
    yield Source("empty batch", lambda: lambda x: (x * 2, x.sum(0)), sizes=(3, 0, 1))
    yield Source("rows of opset 18", lambda: lambda x: jax.nn.gelu(x @ x.T), opset=18)


def scanned(x: jax.Array) -> Any:
    return lax.scan(lambda state, row: (state * 0.5 + row, state + 1), jnp.zeros(6), x)


def reversed_scan(x: jax.Array) -> Any:
    return lax.scan(lambda c, row: (c + row.sum(), row * c), 0.0, x, reverse=True)


def looped(x: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 5, lambda i, y: jnp.tanh(y + i), x)


def halved(x: jax.Array) -> jax.Array:
    return lax.while_loop(lambda y: jnp.abs(y).max() > 0.1, lambda y: y / 2, x)


def branched(x: jax.Array) -> jax.Array:
    return lax.cond(x.sum() > 0, jnp.exp, lambda y: y * 2, x)


def switched(x: jax.Array) -> jax.Array:
    which = jnp.argmax(x.sum(0)) % 3
    return lax.switch(which, [jnp.sin, lambda y: y + 1, jnp.square], x)


def collatz(x: jax.Array) -> Any:
    def body(state: Any) -> Any:
        n, steps = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

    return lax.while_loop(lambda s: s[0] > 1, body, (7 + x.astype(jnp.int32)[0, 0] % 5, 0))


def nested(x: jax.Array) -> jax.Array:
    def row(total: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        total = lax.fori_loop(0, 3, lambda _, t: t * 0.5 + value, total)
        return total, lax.cond(total.sum() > 0, jnp.abs, jnp.negative, total)

    return lax.scan(row, jnp.zeros(6), x)[1]


def _loops() -> Iterator[Source]:
    functions = [scanned, reversed_scan, looped, halved, branched, switched, collatz, nested]
    for function in functions:
        name = function.__name__.replace("_", " ")
        yield Source(name, lambda function=function: function)
        yield Source(f"{name}, fixed", lambda function=function: function, ((4, 6),), (4,))
    yield Source("map", lambda: lambda x: lax.map(jnp.cumsum, x), ((4, 6),), (4,))
    yield Source(
        "associative scan", lambda: lambda x: lax.associative_scan(jnp.add, x), ((4, 6),), (4,)
    )


def _lookups() -> Iterator[Source]:
    index = np.array([2, 0, 1])
    functions: dict[str, Callable[..., Any]] = {
        "sort": lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1)),
        "take": lambda x: x[index],
        "advanced index": lambda x: x[index[:, None], np.array([1, 3])],
        "take_along_axis": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
        "set": lambda x: x.at[index].set(7.0),
        "add": lambda x: x.at[jnp.array([0, 0, 2])].add(1.5),
        "max": lambda x: x.at[:, 2].max(0.5),
        "dynamic slice": lambda x: lax.dynamic_slice(x, (1, jnp.argmax(x[0])), (2, 2)),
        "dynamic update": lambda x: lax.dynamic_update_slice(x, x[:1, :2] * 2, (1, 3)),
        "strides": lambda x: x[::-1, 1::2],
        "segment sum": lambda x: jax.ops.segment_sum(x, jnp.array([0, 1, 0, 2]), 3),
        "one hot": lambda x: jax.nn.one_hot(jnp.argmax(x, 1), 6),
        "searchsorted": lambda x: jnp.searchsorted(jnp.linspace(-2, 2, 9), x[0]),
        "bincount": lambda x: jnp.bincount(jnp.abs(x[0]).astype(int), length=9),
    }
    for name, function in functions.items():
        yield Source(name, lambda function=function: function, ((4, 6),), (4,))
