"""Keras models and tf.functions by tf2onnx, which needs an environment of its own: see docs/zoo.md.

Images are NHWC in TensorFlow, so that these graphs are full of transposes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tf2onnx
from tensorflow.keras import layers

from tests.zoo.entry import Call, Entry

EXPORTER = "tf2onnx"

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Source:
    """A function of tensors by name; the axes whose sizes differ between calls may change."""

    name: str
    build: Callable[[], Callable[..., Any]]
    calls: Sequence[Arrays]
    opset: int = 18


def entries() -> Iterator[Entry]:
    rng = np.random.default_rng(0)
    for source in [*_networks(rng), *_recurrent(rng), *_loops(rng), *_images(rng), *_others(rng)]:
        yield Entry(source.name, EXPORTER, _writer(source))


def _writer(source: Source) -> Callable[[Path], Sequence[Call]]:
    def write(path: Path) -> Sequence[Call]:
        tf.keras.utils.set_random_seed(0)
        build = source.build()
        names = list(source.calls[0])

        def compute(*tensors: tf.Tensor) -> Any:
            return build(*tensors)

        function = tf.function(compute, input_signature=_signature(source.calls))
        tf2onnx.convert.from_function(
            function, _signature(source.calls), opset=source.opset, output_path=str(path)
        )
        results = [
            [_array(each) for each in tf.nest.flatten(function(*map(tf.constant, call.values())))]
            for call in source.calls
        ]
        named = [dict(zip(names, call.values(), strict=True)) for call in source.calls]
        return [Call(feeds, result) for feeds, result in zip(named, results, strict=True)]

    return write


def _signature(calls: Sequence[Arrays]) -> tuple[tf.TensorSpec, ...]:
    return tuple(
        tf.TensorSpec(
            [
                sizes[0] if len(set(sizes)) == 1 else None
                for sizes in zip(*(call[name].shape for call in calls), strict=True)
            ],
            tf.string if first.dtype.kind in "OU" else tf.as_dtype(first.dtype),
            name,
        )
        for name, first in calls[0].items()
    )


def _array(tensor: tf.Tensor) -> np.ndarray:
    array = tensor.numpy()
    if tensor.dtype != tf.string:
        return np.asarray(array)
    return np.vectorize(bytes.decode, otypes=[object])(array)


def _normal(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[Arrays]:
    return [{"x": rng.normal(size=shape).astype(np.float32)} for shape in shapes]


def _keras(*parts: layers.Layer) -> Callable[[], tf.keras.Model]:
    return lambda: tf.keras.Sequential(list(parts))


def _networks(rng: np.random.Generator) -> Iterator[Source]:
    rows = _normal(rng, (3, 8), (5, 8))
    images = _normal(rng, (2, 16, 16, 3), (1, 16, 16, 3))
    yield Source(
        "dense",
        _keras(layers.Dense(16, "relu"), layers.BatchNormalization(), layers.Dense(4, "softmax")),
        rows,
    )
    activations = "elu selu gelu softplus softsign swish tanh hard_sigmoid exponential mish"
    yield Source(
        "activations",
        lambda: lambda x: [tf.keras.activations.get(name)(x) for name in activations.split()],
        rows,
    )
    yield Source(
        "convolutional",
        _keras(
            layers.Conv2D(8, 3, 2, "same", activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(3, 2, "same"),
            layers.Conv2D(8, 3, dilation_rate=2, padding="same"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(5),
        ),
        images,
    )
    yield Source(
        "separable",
        _keras(
            layers.DepthwiseConv2D(3, 2, "same", depth_multiplier=2),
            layers.ReLU(6.0),
            layers.SeparableConv2D(6, 3),
            layers.AveragePooling2D(2, padding="same"),
        ),
        images,
    )
    yield Source(
        "transposed",
        _keras(
            layers.Conv2DTranspose(4, 3, 2, "same"),
            layers.LeakyReLU(),
            layers.UpSampling2D(2, interpolation="bilinear"),
            layers.ZeroPadding2D(1),
            layers.Cropping2D(2),
        ),
        images,
    )
    yield Source(
        "causal",
        _keras(layers.Conv1D(6, 3, padding="causal", dilation_rate=2)),
        _normal(rng, (2, 9, 4)),
    )
    yield Source(
        "volumes",
        _keras(layers.Conv3D(4, 2), layers.MaxPooling3D(2)),
        _normal(rng, (1, 6, 6, 6, 2)),
    )
    yield Source(
        "normalized", _keras(layers.LayerNormalization(), layers.UnitNormalization()), rows
    )
    yield Source(
        "group normalized", _keras(layers.GroupNormalization(4)), _normal(rng, (2, 4, 4, 8))
    )
    yield Source("attention", _attention, _normal(rng, (2, 5, 16), (2, 7, 16)))
    for old in (11, 13, 15):
        yield Source(
            f"convolutional of opset {old}",
            _keras(layers.Conv2D(4, 3, 2, "same"), layers.Softmax()),
            images,
            old,
        )


def _attention() -> Callable[[tf.Tensor], tf.Tensor]:
    layer = layers.MultiHeadAttention(2, 8)
    return lambda x: layer(x, x, use_causal_mask=True)


def _recurrent(rng: np.random.Generator) -> Iterator[Source]:
    sequences = _normal(rng, (2, 6, 5), (3, 9, 5))
    words = [{"ids": rng.integers(0, 20, shape, dtype=np.int32)} for shape in ((2, 6), (3, 9))]
    yield Source("lstm", _keras(layers.LSTM(8, return_sequences=True), layers.LSTM(6)), sequences)
    yield Source("gru", _keras(layers.GRU(8)), sequences)
    yield Source("gru reset before", _keras(layers.GRU(8, reset_after=False)), sequences)
    yield Source("simple rnn", _keras(layers.SimpleRNN(8, return_sequences=True)), sequences)
    yield Source("bidirectional lstm", _keras(layers.Bidirectional(layers.LSTM(4))), sequences)
    yield Source(
        "embedding and gru", _keras(layers.Embedding(20, 6), layers.GRU(8), layers.Dense(2)), words
    )
    yield Source(
        "masked lstm", _keras(layers.Embedding(20, 6, mask_zero=True), layers.LSTM(8)), words
    )


def _loops(rng: np.random.Generator) -> Iterator[Source]:
    rows = _normal(rng, (3, 4), (6, 4))

    def halved(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda x: tf.reduce_max(tf.abs(x)) > 0.1, lambda x: [x / 2], [x])[0]

    def summed(x: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return i + 1, total * 0.5 + x[i]

        return tf.while_loop(lambda i, _: i < tf.shape(x)[0], body, [0, tf.zeros(4)])[1]

    def collected(x: tf.Tensor) -> tf.Tensor:
        rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[4])
        _, rows = tf.while_loop(
            lambda i, _: i < tf.shape(x)[0],
            lambda i, rows: (i + 1, rows.write(i, tf.cumsum(x[i]))),
            [0, rows],
        )
        return rows.stack()

    def branched(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(x), lambda: x * 2)

    yield Source("while loop", lambda: halved, rows)
    yield Source("counted loop", lambda: summed, rows)
    yield Source("tensor array", lambda: collected, rows)
    yield Source("cond", lambda: branched, rows)
    yield Source("map_fn", lambda: lambda x: tf.map_fn(lambda row: tf.sort(row) * 2, x), rows)
    yield Source("scan", lambda: lambda x: tf.scan(lambda a, b: a * 0.5 + b, x), rows)


def _images(rng: np.random.Generator) -> Iterator[Source]:
    images = _normal(rng, (2, 6, 8, 3), (2, 9, 7, 3))
    for method in ("bilinear", "nearest", "bicubic"):
        yield Source(
            f"resize {method}",
            lambda method=method: lambda x: tf.image.resize(x, (5, 11), method),
            images,
        )
    boxes = rng.random((20, 4)).astype(np.float32)
    boxes[:, 2:] = boxes[:, :2] + 0.2
    feeds = [{"boxes": boxes, "scores": rng.random(20).astype(np.float32)}]
    yield Source(
        "non max suppression",
        lambda: lambda boxes, scores: tf.image.non_max_suppression(boxes, scores, 8, 0.3, 0.2),
        feeds,
    )
    yield Source(
        "crop and resize",
        lambda: (
            lambda x: tf.image.crop_and_resize(
                x, [[0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1]], [0, 1], (4, 4)
            )
        ),
        images,
    )
    yield Source("space to depth", lambda: lambda x: tf.nn.space_to_depth(x, 2), images[:1])
    yield Source("flipped", lambda: lambda x: tf.image.flip_left_right(tf.image.rot90(x)), images)
    yield Source("standardized", lambda: tf.image.per_image_standardization, images)


def _others(rng: np.random.Generator) -> Iterator[Source]:
    rows = _normal(rng, (3, 8), (5, 8))
    yield Source("einsum", lambda: lambda x: tf.einsum("ij,kj->ik", x, x), rows)
    yield Source("top_k", lambda: lambda x: tf.math.top_k(x, 3), rows)
    yield Source("argsort", lambda: lambda x: tf.argsort(x, direction="DESCENDING"), rows)
    yield Source("cumsum", lambda: lambda x: tf.cumsum(x, 1, exclusive=True, reverse=True), rows)
    yield Source("where", lambda: lambda x: tf.where(x > 0), rows)
    yield Source("boolean mask", lambda: lambda x: tf.boolean_mask(x, x[:, 0] > 0), rows)
    yield Source("gather_nd", lambda: lambda x: tf.gather_nd(x, [[0, 1], [2, 3]]), rows)
    yield Source("gather", lambda: lambda x: tf.gather(x, [[0, 2], [1, 1]], axis=1), rows)
    yield Source(
        "scatter", lambda: lambda x: tf.tensor_scatter_nd_update(x, [[0], [2]], x[:2] * 2), rows
    )
    yield Source("strided", lambda: lambda x: x[::-1, 1:-1:2, tf.newaxis], rows)
    yield Source("split and stack", lambda: lambda x: tf.stack(tf.split(x, [2, 2, 4], 1)[:2]), rows)
    yield Source("one_hot", lambda: lambda x: tf.one_hot(tf.argmax(x, 1), 8, 5.0, -1.0), rows)
    yield Source(
        "reductions", lambda: lambda x: (tf.math.reduce_std(x, 1), tf.reduce_logsumexp(x)), rows
    )
    yield Source(
        "segment sum", lambda: lambda x: tf.math.unsorted_segment_sum(x, [0, 1, 0], 2), rows[:1]
    )
    yield Source("fft", lambda: lambda x: tf.abs(tf.signal.rfft(x)), rows)
    yield Source(
        "broadcast",
        lambda: lambda x: tf.broadcast_to(x[:1], tf.shape(x)) + tf.tile(x, [1, 1]),
        rows,
    )
    yield Source(
        "reverse sequence", lambda: lambda x: tf.reverse_sequence(x, [2, 8, 5], 1), rows[:1]
    )
    yield Source(
        "range and reshape", lambda: lambda x: tf.reshape(tf.range(tf.size(x)), (-1, 4)), rows
    )
    whole = [{"x": rng.integers(-9, 9, (n, 4), dtype=np.int32)} for n in (2, 3)]
    yield Source("integers", lambda: lambda x: (x // 3, x % 4, tf.bitwise.bitwise_and(x, 6)), whole)
    yield Source("unique", lambda: lambda x: tf.unique(tf.reshape(x, [-1])), whole)
    texts = [{"text": np.array(["one", "Two", "THREE"], object)}, {"text": np.array(["x"], object)}]
    yield Source("lower case", lambda: tf.strings.lower, texts)
    yield Source("equal texts", lambda: lambda text: text == "one", texts)
    yield Source("split texts", lambda: lambda text: tf.strings.join([text, text]), texts)
