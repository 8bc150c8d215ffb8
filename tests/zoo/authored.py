"""Models that people write with onnxscript and spox: control flow, containers, functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import spox.opset.ai.onnx.v20 as spox_op
from onnxscript import BOOL, FLOAT, INT64, STRING, script
from onnxscript import opset20 as op
from onnxscript.values import Opset
from spox import Optional, Tensor, Var, argument, build
from spox import Sequence as Several

from tests.zoo.entry import Call, Entry

SCRIPT, SPOX = "onnxscript", "spox"
MINE = Opset("mine", 1)
Rows, Row = FLOAT["n", 4], FLOAT[4]
Words, Truths, Counts = STRING["n"], BOOL["n"], INT64["n"]
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Source:
    """What writes the model, and calls of it."""

    name: str
    exporter: str
    model: Callable[[], onnx.ModelProto]
    calls: Sequence[Arrays]


def entries() -> Iterator[Entry]:
    for source in [*_scripts(), *_graphs()]:
        yield Entry(source.name, source.exporter, _writer(source))


def _writer(source: Source) -> Callable[[Path], Sequence[Call]]:
    def write(path: Path) -> Sequence[Call]:
        model = source.model()
        model.ir_version = 10
        onnx.save(model, path)
        names = [each.name for each in model.graph.input]
        return [Call(dict(zip(names, call.values(), strict=True))) for call in source.calls]

    return write


def _rows(*counts: int) -> list[Arrays]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(size=(count, 4)).astype(np.float32)} for count in counts]


# -- onnxscript -----------------------------------------------------------------------------------


@script(MINE, default_opset=op)
def scaled(x, factor: float = 2.0, power: int = 2):
    return op.Mul(op.Pow(x, op.Cast(op.Constant(value_int=power), to=1)), factor)


@script(MINE, default_opset=op)
def normed(x, epsilon: float = 1e-3):
    squares = scaled(x, factor=1.0)
    mean = op.ReduceMean(squares, op.Constant(value_ints=[-1]), keepdims=1)
    return op.Div(x, op.Sqrt(mean + epsilon))


@script(default_opset=op)
def functions_with_attributes(x: Rows) -> Rows:
    return normed(scaled(x), epsilon=0.5) + scaled(x, factor=0.1, power=3)


@script(default_opset=op)
def branch(x: Rows) -> Rows:
    if op.ReduceSum(x, keepdims=0) > 0.0:
        if op.ReduceMax(x, keepdims=0) > 1.0:
            z = x * 0.5
            y = op.Exp(z)
        else:
            y = op.Neg(x)
    else:
        y = normed(x)
    return y


@script(default_opset=op)
def loop_with_break(x: Rows) -> Rows:
    total = x
    for i in range(10):
        total = total * 0.5 + op.Cast(i, to=1)
        stop = op.ReduceMax(total, keepdims=0) > 7.0
        if stop:
            break
    return total


@script(default_opset=op)
def loop_over_rows(x: Rows) -> Row:
    total = op.ConstantOfShape(op.Constant(value_ints=[4]))
    count = op.Gather(op.Shape(x), 0)
    for i in range(count):
        total = total + op.Gather(x, i) * op.Cast(i + 1, to=1)
    return total


@script(default_opset=op)
def while_loop(x: Rows) -> Rows:
    large = op.ReduceMax(op.Abs(x), keepdims=0) > 0.1
    while large:
        x = x / 2.0
        large = op.ReduceMax(op.Abs(x), keepdims=0) > 0.1
    return x


@script(default_opset=op)
def sequences(x: Rows) -> Rows:
    parts = op.SplitToSequence(x, op.Constant(value_int=1), axis=0, keepdims=1)
    more = op.SequenceInsert(parts, x * 2.0, op.Constant(value_int=0))
    fewer = op.SequenceErase(more, op.Constant(value_int=-1))
    return op.ConcatFromSequence(fewer, axis=0) + op.Cast(op.SequenceLength(fewer), to=1)


@script(default_opset=op)
def sequence_in_a_loop(x: Rows) -> Rows:
    rows = op.SequenceEmpty()
    count = op.Gather(op.Shape(x), 0)
    for i in range(count):
        rows = op.SequenceInsert(rows, op.CumSum(op.Gather(x, i), 0))
    return op.ConcatFromSequence(rows, axis=0, new_axis=1)


@script(default_opset=op)
def strings(words: Words, other: Words) -> tuple[Words, Truths, Counts]:
    upper = op.StringNormalizer(words, case_change_action="UPPER")
    joined = op.StringConcat(upper, other)
    _pieces, counts = op.StringSplit(joined, delimiter="-", maxsplit=2)
    return joined, op.Equal(words, other), counts


@script(default_opset=op)
def patterns(words: Words) -> Truths:
    return op.RegexFullMatch(words, pattern="[a-z]+-?[0-9]*")


def _scripts() -> Iterator[Source]:
    rows = _rows(3, 5, 1)
    negative = [{"x": -np.abs(call["x"])} for call in rows]
    for function in (
        functions_with_attributes,
        branch,
        loop_with_break,
        loop_over_rows,
        while_loop,
        sequences,
        sequence_in_a_loop,
    ):
        name = function.name.replace("_", " ")
        yield Source(name, SCRIPT, function.to_model_proto, [*rows, *negative])
    words = {
        "words": np.array(["one", "a-b-c-d", "X-12"], object),
        "other": np.array(["one", "-1-2", "é"], object),
    }
    yield Source("strings", SCRIPT, strings.to_model_proto, [words])
    yield Source("patterns", SCRIPT, patterns.to_model_proto, [{"words": words["words"]}])


# -- spox -----------------------------------------------------------------------------------------

Inputs = Mapping[str, Any]


def _spoxed(inputs: Inputs, write: Callable[..., Mapping[str, Var]]) -> onnx.ModelProto:
    arguments = {name: argument(kind) for name, kind in inputs.items()}
    return build(arguments, write(**arguments))


def _one(value: float, dtype: type = np.float32) -> Var:
    return spox_op.const(np.array(value, dtype))


def _whole(*values: int) -> Var:
    return spox_op.const(np.array(values, np.int64))


def loop_with_scan_outputs(x: Var) -> dict[str, Var]:
    """A running sum that stops early, and all of its states."""
    (count,) = spox_op.split(spox_op.shape(x, end=1), num_outputs=1)

    def body(i: Var, going: Var, total: Var) -> list[Var]:
        row = spox_op.reshape(spox_op.gather(x, i), _whole(4))
        total = spox_op.add(spox_op.mul(total, _one(0.5)), row)
        small = spox_op.less(spox_op.reduce_max(total, keepdims=0), _one(1.5))
        return [spox_op.and_(going, small), total, total, spox_op.reduce_sum(row)]

    start = spox_op.const(np.zeros(4, np.float32))
    last, states, sums = spox_op.loop(
        spox_op.squeeze(count), spox_op.const(np.array(True)), v_initial=[start], body=body
    )
    return {"last": last, "states": states, "sums": sums}


def sequence_map(x: Var) -> dict[str, Var]:
    rows = spox_op.split_to_sequence(x, _one(1, np.int64))
    (mapped,) = spox_op.sequence_map(
        rows, [], body=lambda row: [spox_op.cum_sum(spox_op.relu(row), _one(1, np.int64))]
    )
    return {"rows": mapped, "joined": spox_op.concat_from_sequence(mapped, axis=0)}


def sequence_through_if(x: Var) -> dict[str, Var]:
    positive = spox_op.greater(spox_op.reduce_sum(x, keepdims=0), _one(0))
    (chosen,) = spox_op.if_(
        positive,
        then_branch=lambda: [spox_op.sequence_construct([x, spox_op.neg(x)])],
        else_branch=lambda: [spox_op.sequence_construct([spox_op.abs(x)])],
    )
    first = spox_op.sequence_at(chosen, _one(-1, np.int64))
    return {"first": first, "count": spox_op.sequence_length(chosen)}


def optional_through_if(x: Var) -> dict[str, Var]:
    positive = spox_op.greater(spox_op.reduce_sum(x, keepdims=0), _one(0))
    kind = Tensor(np.float32, ("n", 4))
    (chosen,) = spox_op.if_(
        positive,
        then_branch=lambda: [spox_op.optional(x)],
        else_branch=lambda: [spox_op.optional(type=kind)],
    )
    has = spox_op.optional_has_element(chosen)
    (y,) = spox_op.if_(
        has,
        then_branch=lambda: [spox_op.mul(spox_op.optional_get_element(chosen), _one(2))],
        else_branch=lambda: [spox_op.sub(x, _one(1))],
    )
    return {"y": y, "has": has}


def nested_loops(x: Var) -> dict[str, Var]:
    def inner(i: Var, going: Var, y: Var) -> list[Var]:
        return [going, spox_op.sin(spox_op.add(y, x))]

    def outer(i: Var, going: Var, y: Var) -> list[Var]:
        (y,) = spox_op.loop(spox_op.add(i, _one(1, np.int64)), v_initial=[y], body=inner)
        return [going, y, spox_op.reduce_sum(y, keepdims=0)]

    last, sums = spox_op.loop(_one(3, np.int64), v_initial=[x], body=outer)
    return {"last": last, "sums": sums}


def dynamic_shapes(x: Var) -> dict[str, Var]:
    places = spox_op.transpose(spox_op.non_zero(spox_op.greater(x, _one(0.2))))
    values = spox_op.gather_nd(x, places)
    best, where = spox_op.top_k(values, spox_op.min([spox_op.shape(values), _whole(3)]))
    unique, _, _, counts = spox_op.unique(spox_op.round(values))
    return {"best": best, "where": where, "unique": unique, "counts": counts}


def labels(words: Var) -> dict[str, Var]:
    known = spox_op.const(np.array(["cat", "dog", "eel"]))
    same = spox_op.equal(spox_op.unsqueeze(words, _whole(1)), known)
    index = spox_op.arg_max(spox_op.cast(same, to=np.int32), axis=1, keepdims=0)
    return {"index": index, "names": spox_op.gather(known, index)}


def masked_attention(x: Var) -> dict[str, Var]:
    scores = spox_op.matmul(x, spox_op.transpose(x))
    mask = spox_op.trilu(spox_op.add(spox_op.mul(scores, _one(0)), _one(1)), upper=0)
    masked = spox_op.where(spox_op.cast(mask, to=np.bool_), scores, _one(-np.inf))
    return {"y": spox_op.matmul(spox_op.softmax(masked), x)}


def _graphs() -> Iterator[Source]:
    rows = _rows(3, 6, 1)
    calls = [*rows, *({"x": -call["x"]} for call in rows)]
    floats = {"x": Tensor(np.float32, ("n", 4))}
    for function in (
        loop_with_scan_outputs,
        sequence_map,
        sequence_through_if,
        optional_through_if,
        nested_loops,
        dynamic_shapes,
        masked_attention,
    ):
        name = function.__name__.replace("_", " ")
        yield Source(name, SPOX, lambda f=function: _spoxed(floats, f), calls)
    words = {"words": Tensor(np.str_, ("n",))}
    feeds = [{"words": np.array(each, object)} for each in (["dog", "eel"], ["cat", "?", "dog"])]
    yield Source("labels", SPOX, lambda: _spoxed(words, labels), feeds)
    yield Source("joined sequence", SPOX, _joined, [{"xs": [call["x"] for call in rows]}])
    yield Source("default of an optional", SPOX, _defaulted, [{"x": rows[0]["x"]}, {"x": None}])


def _joined() -> onnx.ModelProto:
    kind = Several(Tensor(np.float32, (None, 4)))

    def joined(xs: Var) -> dict[str, Var]:
        return {"y": spox_op.concat_from_sequence(xs, axis=0), "n": spox_op.sequence_length(xs)}

    return _spoxed({"xs": kind}, joined)


def _defaulted() -> onnx.ModelProto:
    kind = Optional(Tensor(np.float32, (None, 4)))

    def defaulted(x: Var) -> dict[str, Var]:
        (y,) = spox_op.if_(
            spox_op.optional_has_element(x),
            then_branch=lambda: [spox_op.optional_get_element(x)],
            else_branch=lambda: [spox_op.const(np.ones((1, 4), np.float32))],
        )
        return {"y": spox_op.exp(y)}

    return _spoxed({"x": kind}, defaulted)
