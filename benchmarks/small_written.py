"""Small graphs that are written by hand: results of unknown size, strings, classifiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

Feeds = dict[str, np.ndarray[Any, Any]]
Written = tuple[onnx.ModelProto, Feeds]
HEADER = '<ir_version: 10, opset_import: ["": 20, "ai.onnx.ml": 3]>\n'


def _parsed(text: str, **feeds: Any) -> Written:
    """Return the model with random weights of the sizes that its text lists, and its inputs."""
    model = parser.parse_model(HEADER + text)
    rng = np.random.default_rng(0)
    for info in model.graph.value_info:
        shape = [each.dim_value for each in info.type.tensor_type.shape.dim]
        weight = rng.normal(size=shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
        model.graph.initializer.append(
            numpy_helper.from_array(weight.astype(np.float32), info.name)
        )
    del model.graph.value_info[:]
    onnx.checker.check_model(model)
    return model, feeds


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def tiny() -> Written:
    """One node, for a first call that nobody measures."""
    return _parsed("g (float[n] x) => (float[n] y) { y = Abs (x) }", x=_normal(4))


def nonzero() -> Written:
    return _parsed(
        """g (float[n, m] x) => (float[k] y) {
            positive = Relu (x)
            where = NonZero (positive)
            index = Transpose (where)
            values = GatherND (positive, index)
            y = Sqrt (values)
        }""",
        x=_normal(32, 32),
    )


def unique() -> Written:
    return _parsed(
        """g (int64[n] x) => (float[n, 16] y) <float[64, 16] table> {
            unique, first, inverse, counts = Unique <sorted = 1> (x)
            rows = Gather (table, unique)
            weighted = Cast <to = 1> (counts)
            axis = Constant <value_ints = [1]> ()
            column = Unsqueeze (weighted, axis)
            scaled = Div (rows, column)
            y = Gather (scaled, inverse)
        }""",
        x=np.random.default_rng(1).integers(0, 64, 200),
    )


def masked_selection() -> Written:
    return _parsed(
        """g (float[n, 32] x) => (float[k, 32] y) <float[32, 32] w> {
            h = MatMul (x, w)
            axis = Constant <value_ints = [1]> ()
            score = ReduceMean <keepdims = 0> (h, axis)
            zero = Constant <value_float = 0.0> ()
            mask = Greater (score, zero)
            rows = Compress <axis = 0> (h, mask)
            y = Tanh (rows)
        }""",
        x=_normal(64, 32),
    )


def detector() -> Written:
    return _parsed(
        """g (float[1, 3, 64, 64] x) => (float[k, 4] y, float[k] z)
        <float[16, 3, 3, 3] w0, float[32, 16, 3, 3] w1, float[4, 32, 1, 1] w2,
         float[3, 32, 1, 1] w3> {
            a0 = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w0)
            a1 = Relu (a0)
            a2 = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (a1, w1)
            a3 = Relu (a2)
            b0 = Conv (a3, w2)
            s0 = Conv (a3, w3)
            s1 = Sigmoid (s0)
            shape_b = Constant <value_ints = [1, 4, -1]> ()
            shape_s = Constant <value_ints = [1, 3, -1]> ()
            b1 = Reshape (b0, shape_b)
            boxes = Transpose <perm = [0, 2, 1]> (b1)
            scores = Reshape (s1, shape_s)
            most = Constant <value = int64 {20}> ()
            overlap = Constant <value_float = 0.5> ()
            least = Constant <value_float = 0.6> ()
            chosen = NonMaxSuppression <center_point_box = 1> (boxes, scores, most, overlap, least)
            axis = Constant <value_ints = [1]> ()
            two = Constant <value_ints = [2]> ()
            three = Constant <value_ints = [3]> ()
            column = Slice (chosen, two, three, axis)
            index = Squeeze (column, axis)
            zero = Constant <value_ints = [0]> ()
            flat = Squeeze (boxes, zero)
            y = Gather (flat, index)
            z0 = GatherND (scores, chosen)
            z = Identity (z0)
        }""",
        x=_normal(1, 3, 64, 64),
    )


def words() -> Written:
    """Words, normalised and looked up in an embedding table."""
    vocabulary = [f"w{i}" for i in range(200)]
    quoted = ", ".join(f'"{word}"' for word in vocabulary)
    values = ", ".join(str(i) for i in range(200))
    text = f"""g (string[n] x) => (float[1, 16] y) <float[201, 16] table> {{
            lower = StringNormalizer <case_change_action = "LOWER", is_case_sensitive = 1,
                locale = "C"> (x)
            ids = ai.onnx.ml.LabelEncoder <keys_strings = [{quoted}], values_int64s = [{values}],
                default_int64 = 200> (lower)
            rows = Gather (table, ids)
            axis = Constant <value_ints = [0]> ()
            y = ReduceMean (rows, axis)
        }}"""
    picked = np.random.default_rng(1).integers(0, 250, 64)
    return _parsed(text, x=np.array([f"W{i}" for i in picked], dtype=object))


def labels() -> Written:
    """A linear classifier of names, with a map of their scores."""
    names = [f"class {i}" for i in range(10)]
    quoted = ", ".join(f'"{name}"' for name in names)
    coefficients = ", ".join(f"{c:.4f}" for c in _normal(200))
    intercepts = ", ".join(f"{c:.4f}" for c in _normal(10))
    return _parsed(
        f"""g (float[n, 20] x) => (string[n] label, float[n, 10] scores) {{
            label, raw = ai.onnx.ml.LinearClassifier <coefficients = [{coefficients}],
                intercepts = [{intercepts}], classlabels_strings = [{quoted}],
                post_transform = "SOFTMAX", multi_class = 1> (x)
            scores = Identity (raw)
        }}""",
        x=_normal(32, 20),
    )


def strings() -> Written:
    return _parsed(
        """g (string[n] x, string[n] y) => (string[n] z, bool[n] match) {
            z = StringConcat (x, y)
            match = RegexFullMatch <pattern = "[a-z]+[0-9]+x"> (z)
        }""",
        x=np.array([f"word{i}" for i in range(200)], dtype=object),
        y=np.array(["x", "y"] * 100, dtype=object),
    )


def bag_of_words() -> Written:
    grams = ", ".join(str(i) for i in range(100))
    return _parsed(
        f"""g (int64[n, 50] x) => (float[n, 8] y) <float[100, 8] w> {{
            counts = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 1,
                max_skip_count = 0, ngram_counts = [0], ngram_indexes = [{grams}],
                pool_int64s = [{grams}]> (x)
            y = MatMul (counts, w)
        }}""",
        x=np.random.default_rng(1).integers(0, 150, (4, 50)),
    )


def spectrogram() -> Written:
    return _parsed(
        """g (float[1, n, 1] x) => (float[1, f, 20] y) <float[129, 20] mel> {
            size = Constant <value = int64 {256}> ()
            step = Constant <value = int64 {128}> ()
            window = HannWindow (size)
            frames = STFT (x, step, window)
            squares = Mul (frames, frames)
            last = Constant <value_ints = [3]> ()
            power = ReduceSum <keepdims = 0> (squares, last)
            bands = MatMul (power, mel)
            positive = Abs (bands)
            y = Log (positive)
        }""",
        x=_normal(1, 4000, 1),
    )


def scatter() -> Written:
    return _parsed(
        """g (float[256, 32] x, int64[64, 1] at, float[64, 32] rows, int64[256, 32] columns)
        => (float[256, 32] y) {
            a = ScatterND (x, at, rows)
            b = ScatterElements <axis = 1, reduction = "add"> (a, columns, x)
            c = CumSum (b, axis)
            y = GatherElements <axis = 0> (c, columns)
        }""".replace("{\n", "{\n axis = Constant <value = int64 {0}> ()\n", 1),
        x=_normal(256, 32),
        at=np.random.default_rng(1).permutation(256)[:64, None],
        rows=_normal(64, 32),
        columns=np.random.default_rng(2).integers(0, 32, (256, 32)),
    )


WRITTEN: dict[str, Callable[[], Written]] = {
    make.__name__: make
    for make in (
        nonzero, unique, masked_selection, detector, words, labels, strings, bag_of_words,
        spectrogram, scatter,
    )
}  # fmt: skip
