"""Decoders as optimum publishes them: the first step and the others in one file, in an If."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import torch
import transformers as hf
from onnx import helper, numpy_helper
from torch import nn

from tests.zoo.decoder_calls import (
    HEAD_SIZE,
    PAST,
    PAST_AXES,
    PRESENT,
    FirstStep,
    WithCache,
    with_past,
)
from tests.zoo.entry import Call, Entry
from tests.zoo.language_models import builder
from tests.zoo.torch_exports import TORCHSCRIPT, Network, exports_of

BRANCH = "use_cache_branch"


def merged(
    name: str, kind: type[hf.PreTrainedModel], config: hf.PreTrainedConfig, heads: int
) -> Entry:
    """Return a decoder whose two forms share their weights; `use_cache_branch` chooses."""
    calls = [with_past(*each, heads) for each in ((2, 4, 3), (1, 6, 1))]
    first = {name: calls[0][name] for name in ("input_ids", "attention_mask")}
    first["attention_mask"] = first["attention_mask"][:, -3:]
    outputs = ("logits", *PRESENT)

    def form(wrapper: Callable[..., nn.Module], feeds: Sequence[dict[str, torch.Tensor]]) -> Entry:
        build = builder(kind, config, wrapper)
        axes = {key: PAST_AXES[key] for key in feeds[0]}
        return next(exports_of([Network(name, build, feeds, outputs, axes, (TORCHSCRIPT,))]))

    def write(path: Path) -> Sequence[Call]:
        with TemporaryDirectory() as folder:
            files = [Path(folder, each) for each in ("first.onnx", "later.onnx")]
            (start,) = form(FirstStep, [first]).write(files[0])
            later = form(WithCache, calls).write(files[1])
            onnx.save(_in_one(*map(onnx.load, files)), path)
        nothing = {key: np.zeros((2, heads, 0, HEAD_SIZE), np.float32) for key in PAST}
        started = Call({**start.feeds, **nothing, BRANCH: np.array([False])}, start.expected)
        others = [Call({**each.feeds, BRANCH: np.array([True])}, each.expected) for each in later]
        return [started, *others]

    return Entry(f"{name} merged", TORCHSCRIPT, write)


def _in_one(first: onnx.ModelProto, later: onnx.ModelProto) -> onnx.ModelProto:
    """Join two forms of a decoder in the branches of an If, with one copy of equal weights."""
    weights: dict[bytes, onnx.TensorProto] = {}
    branches = [_branch(first, "first", weights), _branch(later, "later", weights)]
    choice = helper.make_node(
        "If",
        [BRANCH],
        [each.name for each in later.graph.output],
        then_branch=branches[1],
        else_branch=branches[0],
    )
    flag = helper.make_tensor_value_info(BRANCH, onnx.TensorProto.BOOL, [1])
    graph = helper.make_graph(
        [choice],
        "merged",
        [*later.graph.input, flag],
        later.graph.output,
        list(weights.values()),
    )
    return helper.make_model(graph, opset_imports=later.opset_import, ir_version=later.ir_version)


def _branch(
    model: onnx.ModelProto, prefix: str, weights: dict[bytes, onnx.TensorProto]
) -> onnx.GraphProto:
    """Return a flat graph as a branch: weights move to `weights`, other names get a prefix."""
    names = {each.name: each.name for each in model.graph.input} | {"": ""}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        content = f"{array.dtype} {array.shape} ".encode() + array.tobytes()
        if content not in weights:
            shared = numpy_helper.from_array(array, f"weight_{len(weights)}")
            weights[content] = shared
        names[tensor.name] = weights[content].name
    for node in model.graph.node:
        names |= {result: f"{prefix}/{result}" for result in node.output if result}
    for node in model.graph.node:
        node.name = f"{prefix}/{node.name}"
        node.input[:] = [names[each] for each in node.input]
        node.output[:] = [names[each] for each in node.output]
    outputs = [helper.make_empty_tensor_value_info(names[each.name]) for each in model.graph.output]
    return helper.make_graph(model.graph.node, prefix, [], outputs)
