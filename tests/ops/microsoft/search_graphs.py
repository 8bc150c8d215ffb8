"""Small subgraphs in the layouts of GPT-2, T5 and Whisper, and models that search with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HEADS, WIDTH, EOS, PAD, START = 11, 2, 3, 9, 10, 1
SIZE = HEADS * WIDTH
INTS, FLOATS = TensorProto.INT32, TensorProto.FLOAT
ATTRIBUTES = {
    "Transpose": "perm",
    "Concat": "axis",
    "Cast": "to",
    "Softmax": "axis",
    "Trilu": "upper",
}
# The inputs of all searches, by operator.
COMMON = ("repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask")
BEAMS = ("input_ids", "max_length", "min_length", "num_beams", "num_return_sequences")
BEAMS += ("length_penalty", *COMMON, "decoder_input_ids", "logits_processor")
INPUTS = {
    "GreedySearch": ("input_ids", "max_length", "min_length", *COMMON),
    "Sampling": ("input_ids", "max_length", "min_length", *COMMON, "presence_mask", "seed"),
    "BeamSearch": BEAMS,
    "WhisperBeamSearch": (*BEAMS, "cross_qk_layer_head", "extra_decoding_ids", "temperature"),
}


def one(number: float, dtype: Any = np.int32) -> Any:
    return np.asarray([number], dtype)


def search(
    op: str, inputs: Mapping[str, Any], outputs: tuple[str, ...], **attributes: Any
) -> bytes:
    """A model of one search, whose inputs have the shapes and types of these arrays."""
    names = [name if name in inputs else "" for name in INPUTS[op]]
    while not names[-1]:
        names.pop()
    tokens = {"eos_token_id": EOS, "pad_token_id": PAD}
    node = helper.make_node(op, names, outputs, domain="com.microsoft", **{**tokens, **attributes})
    typed = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in inputs.items()
    ]
    kinds = [INTS] + [FLOATS] * (len(outputs) - 1)
    results = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in zip(outputs, kinds, strict=True)
        if name
    ]
    graph = helper.make_graph([node], "search", typed, results)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=8).SerializeToString()


# -- GPT-2 -----------------------------------------------------------------------------------------


def gpt(scale: float = 1.0, places: int = 32, reads_mask: bool = True) -> onnx.GraphProto:
    """Logits from the token, its position, and the sum of all tokens that the mask leaves."""
    rng = np.random.default_rng(0)
    constants = {
        "words": rng.normal(0, scale, (VOCABULARY, SIZE)).astype(np.float32),
        "places": rng.normal(0, scale, (32, SIZE)).astype(np.float32).repeat(-(-places // 32), 0),
        "to_scores": rng.normal(size=(SIZE, VOCABULARY)).astype(np.float32),
        "split": np.asarray([0, 0, HEADS, WIDTH], np.int64),
        "join": np.asarray([0, 0, SIZE], np.int64),
        "one": np.asarray([1], np.int64),
        "first": np.asarray([0], np.int64),
        "last": np.asarray([-1], np.int64),
        "two": np.asarray([2], np.int64),
    }
    hidden = """
        Cast attention_mask mask 1
        Unsqueeze mask,one wide
        Unsqueeze wide,last column
        Mul seen,column masked
    """
    lines = f"""
        Gather words,input_ids word
        Gather places,position_ids place
        Add word,place x
        Reshape x,split heads
        Transpose heads state [0,2,1,3]
        Unsqueeze state,first key
        Concat key,key both 0
        Concat past_0,both present_0 3
        Gather present_0,one value
        Squeeze value,first seen
        {hidden if reads_mask else "Identity seen masked"}
        ReduceSum masked,two context
        Transpose context back [0,2,1,3]
        Reshape back,join flat
        Add x,flat sum
        MatMul sum,to_scores logits
    """
    state = [2, "batch", HEADS, "past", WIDTH]
    return _graph(
        lines,
        [
            _info("input_ids", INTS, "batch", "length"),
            _info("position_ids", INTS, "batch", "length"),
            _info("attention_mask", INTS, "batch", "total"),
            _info("past_0", FLOATS, *state),
        ],
        [
            _info("logits", FLOATS, "batch", "length", VOCABULARY),
            _info("present_0", FLOATS, 2, "batch", HEADS, "total", WIDTH),
        ],
        constants,
    )


def fused_gpt() -> onnx.GraphProto:
    """GPT-2 as onnxruntime's optimizer leaves it: attention is one node."""
    rng = np.random.default_rng(0)
    shapes = {"words": (VOCABULARY, SIZE), "places": (32, SIZE), "to_scores": (SIZE, VOCABULARY)}
    graph = _graph(
        """
        Gather words,input_ids word
        Gather places,position_ids place
        Add word,place x
        Identity x attended
        Add x,attended sum
        MatMul sum,to_scores logits
        """,
        gpt().input,
        gpt().output,
        {name: rng.normal(0, 0.6, shape).astype(np.float32) for name, shape in shapes.items()},
    )
    attention = helper.make_node(
        "Attention",
        ["x", "weight", "bias", "attention_mask", "past_0"],
        ["attended", "present_0"],
        domain="com.microsoft",
        num_heads=HEADS,
        unidirectional=1,
    )
    place = next(i for i, node in enumerate(graph.node) if node.op_type == "Identity")
    graph.node[place].CopyFrom(attention)
    for name, shape in {"weight": (SIZE, 3 * SIZE), "bias": (3 * SIZE,)}.items():
        weight = rng.normal(0, 0.6, shape).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(weight, name))
    return graph


# -- T5 and Whisper --------------------------------------------------------------------------------


def encoder(*, is_whisper: bool = False, decodes: bool = True) -> onnx.GraphProto:
    """The encoder's keys and values, and the logits of the decoder's first tokens."""
    lines = "Gather words,encoder_input_ids encoder_hidden_states\n"
    inputs = [_info("encoder_input_ids", INTS, "batch", "tokens"), _mask()]
    if is_whisper:
        lines = "Transpose encoder_input_ids encoder_hidden_states [0,2,1]\n"
        inputs = [_info("encoder_input_ids", FLOATS, "batch", SIZE, "tokens")]
    lines += _heads("encoder_hidden_states", "cross_k", "present_key_cross_0")
    lines += _heads("encoder_hidden_states", "cross_v", "present_value_cross_0")
    outputs = [_state("present_key_cross_0", "tokens"), _state("present_value_cross_0", "tokens")]
    if decodes:
        for kind in ("key", "value"):
            lines += f"Identity {kind}_of_tokens present_{kind}_self_0\n"
        causal = """
            Concat count,count square 0
            Expand unit,square ones
            Trilu ones lower 0
            Sub lower,unit later
            Mul later,large hidden
            Add weights,hidden seen_weights
        """
        lines += _decoding("decoder_input_ids", "present", "first", causal, is_whisper=is_whisper)
        inputs.append(_info("decoder_input_ids", INTS, "batch", "first"))
        outputs = [
            _info("logits", FLOATS, "batch", "first", VOCABULARY),
            _info("encoder_hidden_states", FLOATS, "batch", "tokens", SIZE),
            *(_state("present_key_self_0", "first"), _state("present_value_self_0", "first")),
            *outputs,
        ]
    return _graph(_sorted(lines), inputs, outputs, _weights())


def decoder(
    *, is_whisper: bool = False, takes_hidden: bool = False, length: Any = 1
) -> onnx.GraphProto:
    """The logits of the next tokens, from the keys and values of all tokens so far."""
    lines = """
        Concat past_key_self_0,key_of_tokens present_key_self_0 2
        Concat past_value_self_0,value_of_tokens present_value_self_0 2
        Shape past_key_self_0 shape
        Gather shape,two past
    """
    lines += _decoding("input_ids", "past", "past", "Identity weights seen_weights", is_whisper)
    hidden = [_info("encoder_hidden_states", FLOATS, "batch", "tokens", SIZE)]
    inputs = [
        _info("input_ids", INTS, "batch", length),
        *([] if is_whisper else [_mask()]),
        *(hidden if takes_hidden else []),
        *(_state("past_key_self_0", "past"), _state("past_value_self_0", "past")),
        *(_state("past_key_cross_0", "tokens"), _state("past_value_cross_0", "tokens")),
    ]
    outputs = [
        _info("logits", FLOATS, "batch", length, VOCABULARY),
        *(_state("present_key_self_0", "total"), _state("present_value_self_0", "total")),
    ]
    return _graph(_sorted(lines), inputs, outputs, _weights())


def _decoding(tokens: str, cross: str, past: str, seen: str, is_whisper: bool) -> str:
    """Lines of attention to the tokens so far, and then to the encoder's."""
    hidden = """
        Cast encoder_attention_mask mask 1
        Sub mask,unit padded
        Mul padded,large scaled
        Unsqueeze scaled,heads_and_rows wide
        Add cross_weights,wide seen_cross_weights
    """
    return f"""
        Gather words,{tokens} word
        Shape {tokens} shape_of_tokens
        Gather shape_of_tokens,one count
        Add {past},count total
        Squeeze {past},first begin
        Squeeze total,first end
        Range begin,end,step range
        Gather places,range place
        Add word,place x
        {_heads("x", "q", "query")}
        {_heads("x", "k", "key_of_tokens")}
        {_heads("x", "v", "value_of_tokens")}
        Transpose present_key_self_0 keys [0,1,3,2]
        MatMul query,keys weights
        {seen}
        Softmax seen_weights shares -1
        MatMul shares,present_value_self_0 mixed
        Transpose mixed by_token [0,2,1,3]
        Reshape by_token,join attended
        Add x,attended y
        {_heads("y", "cross_q", "cross_query")}
        Transpose {cross}_key_cross_0 cross_keys [0,1,3,2]
        MatMul cross_query,cross_keys cross_weights
        {"Identity cross_weights seen_cross_weights" if is_whisper else hidden}
        Softmax seen_cross_weights cross_shares -1
        MatMul cross_shares,{cross}_value_cross_0 cross_mixed
        Transpose cross_mixed cross_by_token [0,2,1,3]
        Reshape cross_by_token,join cross_attended
        Add y,cross_attended z
        MatMul z,to_scores logits
    """


def _heads(x: str, weight: str, result: str) -> str:
    return f"""
        MatMul {x},{weight} {result}_flat
        Reshape {result}_flat,split {result}_split
        Transpose {result}_split {result} [0,2,1,3]
    """


def _weights() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"words": (VOCABULARY, SIZE), "places": (32, SIZE), "to_scores": (SIZE, VOCABULARY)}
    shapes |= dict.fromkeys(("q", "k", "v", "cross_q", "cross_k", "cross_v"), (SIZE, SIZE))
    return {
        **{name: rng.normal(0, 0.6, s).astype(np.float32) for name, s in shapes.items()},
        "split": np.asarray([0, -1, HEADS, WIDTH], np.int64),
        "join": np.asarray([0, -1, SIZE], np.int64),
        "first": np.asarray([0], np.int64),
        "one": np.asarray([1], np.int64),
        "two": np.asarray([2], np.int64),
        "heads_and_rows": np.asarray([1, 2], np.int64),
        "step": np.asarray(1, np.int64),
        "unit": np.asarray(1, np.float32),
        "large": np.asarray(10000, np.float32),
    }


def _mask() -> onnx.ValueInfoProto:
    return _info("encoder_attention_mask", INTS, "batch", "tokens")


def _state(name: str, length: str) -> onnx.ValueInfoProto:
    return _info(name, FLOATS, "batch", HEADS, length, WIDTH)


def _info(name: str, dtype: int, *shape: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def _sorted(lines: str) -> str:
    """Lines in an order in which each follows those that it reads."""
    rest = [line.split() for line in lines.splitlines() if line.strip()]
    computed = {result for _, _, result, *_ in rest}
    done: list[str] = []
    while rest:
        ready = next(line for line in rest if not computed & set(line[1].split(",")))
        rest.remove(ready)
        computed.discard(ready[2])
        done.append(" ".join(ready))
    return "\n".join(done)


def _graph(lines: str, inputs: Any, outputs: Any, constants: Mapping[str, Any]) -> onnx.GraphProto:
    nodes = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        op, operands, output, *attribute = line.split()
        options = {ATTRIBUTES[op]: json.loads(attribute[0])} if attribute else {}
        nodes.append(helper.make_node(op, operands.split(","), [output], **options))
    read = {name for node in nodes for name in node.input}
    weights = [numpy_helper.from_array(x, name) for name, x in constants.items() if name in read]
    return helper.make_graph(nodes, "subgraph", inputs, outputs, weights)
