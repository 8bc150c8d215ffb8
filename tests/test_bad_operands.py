"""What does not go together in one operator: each error says so in one clear sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput, InvalidModel, LimitExceeded
from tests.support.raises import refused

TRAINING = "ai.onnx.preview.training"
X = np.arange(6, dtype=np.float32).reshape(2, 3)
IMAGE = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
EMPTY_IMAGE = np.zeros((1, 2, 0, 4), np.float32)
SCALAR = np.float32(1)
BYTES = np.ones((2, 3), np.uint8)
BLOCKS = np.ones((2, 3, 3), np.uint8)
HEADS = np.ones((1, 2, 3, 4), np.float32)
REGION = np.array([[0, 0, 3, 3]], np.float32)
FIRST = np.array([0])
BOXES = np.ones((1, 3, 4), np.float32)
WORDS = np.array(["a b", "c"], object)
GRID = np.zeros((1, 3, 3, 2), np.float32)
THETA = np.ones((1, 2, 3), np.float32)
SIGNAL = np.ones((1, 8, 1), np.float32)
GRAMS = {
    "max_gram_length": 1,
    "max_skip_count": 0,
    "min_gram_length": 1,
    "mode": "TF",
    "ngram_counts": [0],
    "ngram_indexes": [0, 1],
    "pool_int64s": [3, 4],
}
NET = [np.ones(s, np.float32) for s in ((3, 1, 2), (1, 4, 2), (1, 4, 4))]


GATES = [np.ones((1, 16, 2), np.float32), np.ones((1, 16, 4), np.float32)]


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


# The operator, its inputs, its attributes (or the opset), and what the message must hold.
MISFITS: list[tuple[str, list[Any], dict[str, Any], str]] = [
    # One of the inputs is missing.
    ("Concat", [None, X], {"axis": 0}, "missing"),
    ("Max", [X, None], {}, "missing"),
    ("Einsum", [None, X], {"equation": "i,ij->j"}, "missing"),
    # Counts and places that are none.
    ("OneHot", [FIRST, np.float32("inf"), X[0, :2]], {}, "'depth' is inf"),
    ("OneHot", [FIRST, np.float32("nan"), X[0, :2]], {}, "'depth' is nan"),
    ("OneHot", [FIRST, np.array(-1), X[0, :2]], {}, "depth is -1"),
    ("OneHot", [FIRST, np.array(3), X[0]], {}, "values"),
    ("TopK", [X, ints(4)], {"outputs": 2}, "K is 4"),
    ("TopK", [X, ints(-1)], {"outputs": 2}, "K is -1"),
    ("CumProd", [X, np.array(2, np.int32)], {}, "axis 2"),
    ("Compress", [X, np.ones(4, bool)], {"axis": 1}, "beyond"),
    ("Unique", [X], {"axis": 2}, "axis 2"),
    ("SplitToSequence", [X, ints(1, 2)[None]], {}, "split has shape"),
    ("SplitToSequence", [X, ints(1, 2)], {}, "whose sum is 2"),
    ("SplitToSequence", [X, np.array(0)], {}, "split is 0"),
    ("ConcatFromSequence", [[X, X]], {"axis": 2}, "axis 2"),
    ("ConcatFromSequence", [[X, X[0]]], {"axis": 0}, "differ"),
    ("ConcatFromSequence", [[X, X[:1]]], {"axis": 0, "new_axis": 1}, "differ"),
    ("SequenceConstruct", [X, None], {}, "missing"),
    ("SequenceAt", [[X, X], ints(0, 1)], {}, "one element"),
    ("SequenceAt", [[X, X], np.array(2)], {}, "position 2"),
    ("SequenceErase", [[X, X], np.array(-3)], {}, "position -3"),
    ("SequenceInsert", [[X, X], X, np.array(3)], {}, "position 3"),
    ("CenterCropPad", [X, ints(-1, 2)], {}, "negative"),
    ("ReverseSequence", [X, ints(1, 2)], {}, "sequence_lens"),
    ("ReverseSequence", [X, ints(1, 1, 1)], {"time_axis": 1}, "axes"),
    ("Multinomial", [X], {"sample_size": -1}, "sample_size"),
    ("RandomNormal", [], {"shape": [2, -1]}, "negative"),
    ("RandomUniform", [], {"shape": [2], "low": float("inf")}, "must be in order"),
    ("HannWindow", [np.array(-1)], {}, "size is -1"),
    # Writing where there is nothing, or something else.
    ("ScatterElements", [X, ints(0, 1)[None], X], {}, "updates"),
    ("ScatterND", [X, ints(0)[None], X], {}, "updates"),
    ("ScatterND", [X[:0], ints(0)[None], X[:1]], {}, "no elements"),
    ("ScatterElements", [X, ints(0)[None], X[:1, :1]], {"reduction": "mean"}, "reduction"),
    ("TensorScatter", [HEADS, HEADS, ints(0, 1)], {}, "write_indices"),
    # Matrices, and products of them.
    ("Det", [X], {}, "square"),
    ("Einsum", [X], {"equation": "i"}, "rank 2"),
    ("Einsum", [X, X], {"equation": "ij,jk"}, "sizes"),
    ("Einsum", [X], {"equation": "ij->ik"}, "no input has"),
    ("Einsum", [X], {"equation": "ij->i.j"}, "letters"),
    ("MatMulInteger", [BYTES, BYTES], {}, "multiplied"),
    ("MatMulInteger", [BLOCKS, BLOCKS[:1].repeat(3, 0)], {}, "broadcast"),
    ("MatMulInteger", [BYTES, BYTES.T, ints(1, 1, 1).astype(np.uint8)], {}, "zero point"),
    # Numbers of few bits.
    ("QuantizeLinear", [X, X[0, :2], BYTES[0, :2]], {}, "axis 1"),
    ("QuantizeLinear", [X, X], {"block_size": 2}, "blocks"),
    ("QuantizeLinear", [X, SCALAR, BYTES[0]], {}, "zero point"),
    ("QuantizeLinear", [X, SCALAR], {"block_size": -1}, "block_size"),
    ("DequantizeLinear", [BYTES, X[0]], {"axis": -3}, "axis -3"),
    # Windows over images, and points in them.
    ("Col2Im", [X[None], ints(4, 4), ints(2, 2)], {}, "block_shape"),
    ("Col2Im", [X[None], ints(4, 4), ints(2, 2)], {"strides": [0, 1]}, "strides"),
    ("MaxUnpool", [IMAGE, ints(0)], {"kernel_shape": [2, 2]}, "must be equal"),
    ("MaxUnpool", [IMAGE, IMAGE.astype(int)], {"kernel_shape": [2, 0]}, "kernel_shape"),
    ("DeformConv", [IMAGE, IMAGE, IMAGE], {}, "offset"),
    ("ConvInteger", [IMAGE.astype(np.uint8)] * 2, {"pads": [1]}, "pads"),
    ("GridSample", [IMAGE, GRID[..., :1]], {}, "grid"),
    ("GridSample", [EMPTY_IMAGE, GRID], {}, "no elements"),
    ("GridSample", [IMAGE, GRID], {"mode": "none"}, "mode"),
    ("AffineGrid", [THETA, ints(1, 2, 3)], {}, "size"),
    ("AffineGrid", [THETA, ints(2, 2, 3, 3)], {}, "theta"),
    ("Resize", [X, None, X[0]], {}, "scales"),
    ("Resize", [X, None, np.float32([0, 1])], {}, "scales"),
    ("Resize", [X, None, np.float32([1, "nan"])], {}, "scales"),
    ("Resize", [X, None, None, ints(2, -2)], {}, "sizes"),
    ("Resize", [EMPTY_IMAGE, None, None, ints(1, 2, 2, 2)], {}, "size 0"),
    ("Resize", [X, None, np.float32([2, 2])], {"mode": "cubic", "cubic_coeff_a": np.inf}, "cubic"),
    ("Upsample", [X, np.float32([0.5, 1])], {"opset": 9}, "at least 1"),
    ("RoiAlign", [IMAGE, REGION[:, :3], FIRST], {}, "rois"),
    ("RoiAlign", [IMAGE, REGION, ints(0, 0)], {}, "batch_indices"),
    ("RoiAlign", [IMAGE, REGION, FIRST], {"output_height": 0}, "bins"),
    ("RoiAlign", [IMAGE, REGION, FIRST], {"sampling_ratio": -1}, "sampling_ratio"),
    ("MaxRoiPool", [IMAGE, REGION], {"pooled_shape": [2, 2]}, "rois"),
    ("NonMaxSuppression", [BOXES, BOXES], {}, "must be (batches"),
    ("NonMaxSuppression", [BOXES, BOXES[:, :1, :3], ints(1), X[0, 2:]], {}, "iou_threshold"),
    # Signals.
    ("DFT", [X], {}, "parts"),
    ("DFT", [SIGNAL, np.array(0)], {}, "length 0"),
    ("DFT", [SIGNAL, None, np.array(2)], {}, "axis 2"),
    ("STFT", [SIGNAL, np.array(0), None, np.array(4)], {}, "frame_step 0"),
    ("STFT", [SIGNAL, np.array(1), None, np.array(9)], {}, "frame_length 9"),
    ("MelWeightMatrix", [np.array(-1), *map(np.array, (4, 8)), SCALAR, SCALAR], {}, "negative"),
    # Attention, and networks with a memory.
    ("Attention", [X[None], X[None], X[None]], {}, "q_num_heads"),
    ("Attention", [HEADS, HEADS, HEADS[:, :1]], {}, "fit"),
    ("Attention", [HEADS, HEADS, HEADS, np.ones((7, 7), bool)], {}, "attn_mask"),
    ("Attention", [HEADS, HEADS, HEADS], {"softcap": np.nan}, "softcap"),
    ("Attention", [HEADS, HEADS, HEADS, None, HEADS], {}, "past"),
    ("RotaryEmbedding", [HEADS, X[:0, :2], X[:0, :2], np.zeros((1, 3), int)], {}, "no positions"),
    ("RotaryEmbedding", [HEADS, X, X], {"rotary_embedding_dim": 3}, "pairs"),
    ("LSTM", NET, {"direction": "sideways"}, "direction"),
    ("LSTM", [NET[0], NET[1], X], {}, "3 axes"),
    ("LSTM", NET, {"hidden_size": 2}, "hidden_size"),
    ("LSTM", NET, {"hidden_size": 4}, "W has shape"),
    ("LSTM", [NET[0], *GATES], {"activations": ["Relu"]}, "1 activations"),
    ("RNN", [NET[0], NET[1], NET[2]], {"activations": ["Sin"]}, "Sin"),
    ("RNN", NET, {"clip": -1.0}, "clip"),
    # Losses.
    ("NegativeLogLikelihoodLoss", [X, ints(0)], {}, "classes"),
    ("NegativeLogLikelihoodLoss", [X, ints(0, 1), X[0, :2]], {}, "weight"),
    ("SoftmaxCrossEntropyLoss", [X, ints(0, 1)], {"reduction": "min"}, "reduction"),
    # Text.
    ("StringConcat", [WORDS, np.array(["a"] * 3, object)], {}, "broadcast"),
    ("StringNormalizer", [np.array([["a"], ["b"]], object)], {}, "[C]"),
    ("StringNormalizer", [WORDS], {"case_change_action": "TITLE"}, "TITLE"),
    ("RegexFullMatch", [WORDS], {"pattern": "(a"}, "pattern"),
    ("RegexFullMatch", [WORDS], {"pattern": "a{9999}"}, "pattern"),
    ("TfIdfVectorizer", [ints(3)], GRAMS | {"ngram_indexes": [0, -1]}, "ngram_indexes"),
    ("TfIdfVectorizer", [ints(3)], GRAMS | {"ngram_counts": [3]}, "ngram_counts"),
    ("TfIdfVectorizer", [WORDS], GRAMS, "both"),
    # Optimisers.
    ("Momentum", [SCALAR, np.array(1), X, X[:1], X], {"domain": TRAINING}, "shapes"),
    ("Adam", [SCALAR, np.array(1), X, X, X], {"domain": TRAINING}, "groups"),
    ("Adagrad", [X, np.array(1), X, X, X], {"domain": TRAINING}, "6 elements"),
]  # fmt: skip
MOMENTUM = {"alpha": 0.9, "beta": 1.0, "mode": "standard", "norm_coefficient": 0.0}


@pytest.mark.parametrize(
    ("operator", "inputs", "options", "word"),
    MISFITS,
    ids=[f"{operator}: {word}" for operator, _, _, word in MISFITS],
)
def test_what_does_not_fit(
    xp: Backend, operator: str, inputs: list[Any], options: dict[str, Any], word: str
) -> None:
    more = MOMENTUM if operator == "Momentum" else {}
    with refused(InvalidInput if inputs else InvalidModel, operator, word):
        sardonyx.run_op(operator, *inputs, backend=xp, **more, **options)


HUGE = ints(2**31 - 1)[0]
BOMBS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("HannWindow", [HUGE], {}),
    ("BlackmanWindow", [HUGE], {"periodic": 0}),
    ("MelWeightMatrix", [HUGE, HUGE, np.array(8000), SCALAR, SCALAR], {}),
    ("RandomNormal", [], {"shape": [2**31]}),
    ("RandomNormal", [], {"shape": [0, 2**63 - 1]}),
    ("ConstantOfShape", [ints(0, 2**62, 2**62)], {}),
    ("Multinomial", [X], {"sample_size": 2**31}),
    ("RoiAlign", [IMAGE, REGION, FIRST], {"output_height": 2**31, "output_width": 2**62}),
    ("MaxRoiPool", [IMAGE, np.ones((1, 5), np.float32)], {"pooled_shape": [2**31, 2**31]}),
    ("Resize", [X, None, None, ints(1, 2**31)], {}),
    ("Resize", [X, None, np.float32([1, 3e38])], {}),
    ("OneHot", [FIRST, np.array(2**40), X[0, :2]], {}),
    ("CenterCropPad", [X, ints(2, 2**62)], {}),
    ("AffineGrid", [THETA, ints(1, 1, 2**31, 2**31)], {}),
    ("DFT", [SIGNAL, np.array(2**40)], {}),
    ("Col2Im", [SIGNAL[:, :1], ints(2**31, 1), ints(1, 1)], {"strides": [2**31, 1]}),
    ("MaxUnpool", [IMAGE, IMAGE.astype(int)], {"kernel_shape": [2**40, 1]}),
    ("TfIdfVectorizer", [ints(3)], GRAMS | {"ngram_indexes": [0, 2**40]}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"), BOMBS, ids=[operator for operator, *_ in BOMBS]
)
def test_a_few_numbers_make_nothing_huge(
    xp: Backend, operator: str, inputs: list[Any], attributes: dict[str, Any]
) -> None:
    with refused(LimitExceeded, operator):
        sardonyx.run_op(operator, *inputs, backend=xp, **attributes)
