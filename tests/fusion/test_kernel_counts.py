"""How many kernels segments are divided into. No GPU is needed: nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.fusion.kernel_source import KernelSource
from sardonyx.backends.fusion.program import Program, fused
from sardonyx.ops.activation import Gelu, Relu, Softmax
from sardonyx.ops.convolution import Conv
from sardonyx.ops.normalization import GroupNormalization, LayerNormalization, RMSNormalization
from sardonyx.ops.pooling import MaxPool
from sardonyx.ops.quantization import DequantizeLinear
from tests.support.cuda_sources import Sources

FLOAT = np.dtype(np.float32)
Function = Callable[..., Sequence[Any]]


def sources_of(function: Function, *shapes: Any, dtype: Any = FLOAT) -> list[KernelSource]:
    library = Sources()
    arguments = [
        shape if isinstance(shape, np.ndarray) else np.zeros(shape, dtype) for shape in shapes
    ]
    program = fused(function, arguments, library)
    assert isinstance(program, Program)
    return library.sources


def rotary(xp: Any, x: Any, cos: Any, sin: Any) -> Any:
    half = x.shape[-1] // 2
    left, right = x[..., :half], x[..., half:]
    return [xp.concat([left * cos - right * sin, right * cos + left * sin], axis=-1)]


def masked_softmax(xp: Any, x: Any, mask: Any) -> Any:
    scores = xp.where(mask > 0, x * 0.125, xp.full((), -np.inf, dtype=x.dtype))
    return [Softmax(xp, scores)]


ONE_KERNEL: dict[str, tuple[Function, list[Any]]] = {
    "softmax": (lambda xp, x: [Softmax(xp, x)], [(8, 64)]),
    "masked softmax": (masked_softmax, [(2, 4, 8, 64), (8, 64)]),
    "layer normalization": (
        lambda xp, x, s, b: LayerNormalization(xp, x, s, b)[:1],
        [(2, 8, 768), (768,), (768,)],
    ),
    "skip and layer normalization": (
        lambda xp, x, y, s, b: [x + y, LayerNormalization(xp, x + y, s, b)[0]][1:],
        [(2, 8, 768), (2, 8, 768), (768,), (768,)],
    ),
    "rms normalization": (lambda xp, x, s: [RMSNormalization(xp, x, s)], [(8, 768), (768,)]),
    "group normalization": (
        lambda xp, x, s, b: [GroupNormalization(xp, x, s, b, num_groups=2)],
        [(2, 4, 8, 8), (4,), (4,)],
    ),
    "gelu": (lambda xp, x, b: [Gelu(xp, x + b)], [(8, 768), (768,)]),
    "tanh gelu": (lambda xp, x: [Gelu(xp, x, approximate="tanh")], [(8, 768)]),
    "rotary": (rotary, [(2, 4, 8, 64), (8, 32), (8, 32)]),
    "softmax in float16": (
        lambda xp, x: [xp.astype(Softmax(xp, xp.astype(x, np.dtype(np.float32))), x.dtype)],
        [np.zeros((4, 300), np.float16)],
    ),
    "dequantization": (
        lambda xp, x, s, z: [xp.matmul(DequantizeLinear(xp, x, s, z, axis=1), np.zeros((4, 4)))],
        [np.zeros((8, 4), np.uint8), (4,), np.zeros(4, np.uint8)],
    ),
    "padded max pooling": (
        lambda xp, x: [MaxPool(xp, Relu(xp, x), kernel_shape=(3, 3), pads=(1, 1, 1, 1), outputs=1)],
        [(1, 4, 8, 8)],
    ),
    "depthwise convolution": (
        lambda xp, x, w, b: [Relu(xp, Conv(xp, x, w, b, group=4, pads=(1, 1, 1, 1)))],
        [(1, 4, 8, 8), (4, 1, 3, 3), (4,)],
    ),
    "columns of a convolution": (
        lambda xp, x, w: [Conv(xp, Relu(xp, x), w, pads=(1, 1, 1, 1))],
        [(1, 4, 8, 8), (8, 4, 3, 3)],
    ),
    "flip and transpose": (
        lambda xp, x: [Relu(xp, xp.permute_dims(xp.flip(x, axis=1), (1, 0)))],
        [(5, 7)],
    ),
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_chains_are_one_kernel(name: str) -> None:
    function, shapes = ONE_KERNEL[name]
    assert len(sources_of(function, *shapes)) == 1


NO_KERNEL: dict[str, Function] = {
    "identity": lambda xp, x: [x],
    "reshape": lambda xp, x: [xp.reshape(x, (-1,))],
    "slices": lambda xp, x: [x[1:, ::2], x[None, 0]],
    "transpose": lambda xp, x: [xp.permute_dims(x, (1, 0))],
    "matmul of views": lambda xp, x: [xp.matmul(x[:4], xp.matrix_transpose(x)[:, 4:])],
    "constant": lambda xp, x: [xp.put(np.arange(3))],
}


@pytest.mark.parametrize("name", NO_KERNEL)
def test_views_and_calls_launch_nothing(name: str) -> None:
    assert sources_of(NO_KERNEL[name], (8, 8)) == []


def test_a_sum_with_two_readers_is_written_by_the_kernel_that_normalizes_it() -> None:
    def block(xp: Any, x: Any, y: Any, weight: Any, scale: Any) -> Any:
        total = x + y
        product = xp.matmul(RMSNormalization(xp, total, scale), weight)
        return [Relu(xp, product) + total]

    first, second = sources_of(block, (8, 64), (8, 64), (64, 64), (64,))
    assert (len(first.reads), len(first.writes)) == (3, 2)
    assert (len(second.reads), len(second.writes)) == (2, 1)


def test_equal_layers_have_equal_sources() -> None:
    def layers(xp: Any, x: Any, weight: Any, scale: Any) -> Any:
        for _ in range(4):
            x = xp.matmul(RMSNormalization(xp, x, scale), weight)
        return [x]

    sources = sources_of(layers, (8, 64), (64, 64), (64,))
    assert len(sources) == 4
    assert len({source.source for source in sources}) == 1


def test_a_pooled_array_is_not_computed_once_per_window() -> None:
    def pooled(xp: Any, x: Any) -> Any:
        return [xp.window_max(xp.exp(x), (3, 3), (1, 1), (1, 1))]

    sources = sources_of(pooled, (1, 2, 8, 8))
    assert len(sources) == 2
    assert sum(source.source.count("= exp(") for source in sources) == 1


def test_a_long_chain_is_divided() -> None:
    def chain(xp: Any, x: Any) -> Any:
        for _ in range(500):
            x = x * 1.5 + 1
        return [x]

    assert 5 < len(sources_of(chain, (10,))) < 20


def test_no_kernel_waits_for_itself() -> None:
    """`b` is written by the kernel of its sine: that of the sum reads a product of it."""

    def function(xp: Any, a: Any) -> Any:
        b = xp.exp(a)
        return [xp.matmul(b, a) + b, xp.sin(b)]

    first, second = sources_of(function, (4, 4))
    assert (len(first.writes), len(second.writes)) == (2, 1)
