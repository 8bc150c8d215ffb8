"""GreedySearch with a small decoder of one layer, against onnxruntime."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput

VOCABULARY, HEADS, WIDTH, EOS, PAD = 11, 2, 3, 9, 10
ATTRIBUTES = {"Transpose": "perm", "Concat": "axis", "Cast": "to"}


def decoder(scale: float = 1.0) -> onnx.GraphProto:
    """Logits from the token, its position, and the mean of all tokens that the mask leaves."""
    rng = np.random.default_rng(0)
    size = HEADS * WIDTH
    constants = {
        "words": rng.normal(0, scale, (VOCABULARY, size)).astype(np.float32),
        "places": rng.normal(0, scale, (32, size)).astype(np.float32),
        "to_scores": rng.normal(size=(size, VOCABULARY)).astype(np.float32),
        "split": np.asarray([0, 0, HEADS, WIDTH], np.int64),
        "join": np.asarray([0, 0, size], np.int64),
        "one": np.asarray([1], np.int64),
        "ends": np.asarray([1], np.int64),
        "first": np.asarray([0], np.int64),
        "last": np.asarray([-1], np.int64),
        "two": np.asarray([2], np.int64),
    }
    lines = """
        Gather words,input_ids word
        Gather places,position_ids place
        Add word,place x
        Reshape x,split heads
        Transpose heads state [0,2,1,3]
        Unsqueeze state,first key
        Concat key,key both 0
        Concat past_0,both present_0 3
        Gather present_0,one value
        Cast attention_mask mask 1
        Unsqueeze mask,ends wide
        Unsqueeze wide,last column
        Squeeze value,first seen
        Mul seen,column masked
        ReduceSum masked,two context
        Transpose context back [0,2,1,3]
        Reshape back,join flat
        Add x,flat sum
        MatMul sum,to_scores logits
    """
    nodes = []
    for line in lines.strip().splitlines():
        op, inputs, output, *attribute = line.split()
        options = {ATTRIBUTES[op]: json.loads(attribute[0])} if attribute else {}
        nodes.append(helper.make_node(op, inputs.split(","), [output], **options))
    ints, floats = TensorProto.INT32, TensorProto.FLOAT
    state = [2, "batch", HEADS, "past", WIDTH]
    return helper.make_graph(
        nodes,
        "decoder",
        [
            helper.make_tensor_value_info("input_ids", ints, ["batch", "length"]),
            helper.make_tensor_value_info("position_ids", ints, ["batch", "length"]),
            helper.make_tensor_value_info("attention_mask", ints, ["batch", "total"]),
            helper.make_tensor_value_info("past_0", floats, state),
        ],
        [
            helper.make_tensor_value_info("logits", floats, ["batch", "length", VOCABULARY]),
            helper.make_tensor_value_info("present_0", floats, [2, "batch", HEADS, "t", WIDTH]),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )


def model(inputs: dict[str, Any], **attributes: Any) -> bytes:
    names = [
        *("input_ids", "max_length", "min_length", "repetition_penalty"),
        *("vocab_mask", "prefix_vocab_mask", "attention_mask"),
    ]
    node = helper.make_node(
        "GreedySearch",
        [name if name in inputs else "" for name in names],
        ["sequences"],
        domain="com.microsoft",
        **{"eos_token_id": EOS, "pad_token_id": PAD, "decoder": decoder(), **attributes},
    )
    typed = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in inputs.items()
    ]
    result = helper.make_tensor_value_info("sequences", TensorProto.INT32, ["batch", "length"])
    graph = helper.make_graph([node], "greedy", typed, [result])
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8).SerializeToString()


def prompt(length: int = 4, **others: Any) -> dict[str, Any]:
    tokens = np.random.default_rng(1).integers(0, EOS, (3, length)).astype(np.int32)
    arrays = {name: np.asarray(value, dtype) for name, (value, dtype) in others.items()}
    return {"input_ids": tokens, "max_length": np.asarray([12], np.int32), **arrays}


def assert_agrees(xp: Backend, inputs: dict[str, Any], **attributes: Any) -> None:
    content = model(inputs, **attributes)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, inputs)
    found = np.asarray(sardonyx.load(content, backend=xp)(**inputs))
    assert found.dtype == expected.dtype
    # Once all texts have ended, onnxruntime leaves the rest of its memory as it was.
    paddings = np.flatnonzero(np.all(found == PAD, axis=0))
    end = paddings[0] + 1 if paddings.size else found.shape[1]
    assert np.all(found[:, end:] == PAD)
    np.testing.assert_array_equal(found[:, :end], expected[:, :end])


MASK = [1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("others", "attributes"),
    [
        ({}, {}),
        ({}, {"no_repeat_ngram_size": 2}),
        ({"min_length": ([9], np.int32)}, {"eos_token_id": 1}),
        ({"repetition_penalty": ([1.7], np.float32)}, {}),
        ({"vocab_mask": (MASK, np.int32)}, {}),
        ({"prefix_vocab_mask": ([MASK] * 3, np.int32)}, {}),
        ({"attention_mask": ([[0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]], np.int32)}, {}),
    ],
    ids=str,
)
def test_texts(xp: Backend, others: Any, attributes: Any) -> None:
    assert_agrees(xp, prompt(**others), **attributes)


@pytest.mark.parametrize("eos", range(EOS))
def test_texts_that_end(eos: int) -> None:
    assert_agrees(HOST, prompt(), eos_token_id=eos)


def test_padded_prompts() -> None:
    inputs = prompt()
    inputs["input_ids"][0, :2] = PAD
    assert_agrees(HOST, inputs)


def test_the_first_decoder_may_be_another() -> None:
    assert_agrees(HOST, prompt(), init_decoder=decoder(2.0))


def test_no_token_is_asked_for() -> None:
    inputs = {**prompt(), "max_length": np.asarray([4], np.int32)}
    found = sardonyx.load(model(inputs))(**inputs)
    np.testing.assert_array_equal(found, inputs["input_ids"])


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"vocab_mask": (MASK[1:], np.int32)}, "vocab_mask has shape"),
        ({"prefix_vocab_mask": ([MASK], np.int32)}, "prefix_vocab_mask has shape"),
        ({"attention_mask": ([[1, 1, 1, 1]], np.int32)}, "attention_mask has shape"),
        ({"min_length": ([1, 2], np.int32)}, "min_length has shape"),
    ],
)
def test_the_inputs_are_checked(others: Any, message: str) -> None:
    inputs = prompt(**others)
    with pytest.raises(InvalidInput, match=message):
        sardonyx.load(model(inputs))(**inputs)


def test_encoders_are_refused() -> None:
    with pytest.raises(InvalidInput, match="only decoders"):
        sardonyx.load(model(prompt(), model_type=1))(**prompt())
