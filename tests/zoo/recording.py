"""Graphs of the zoo without their weights, small enough for the repository, and how to fill them.

A large tensor of floats or bytes keeps four numbers in place of its elements: mean, standard
deviation, minimum and maximum. It is drawn again from them, with its place as the seed.
"""

from __future__ import annotations

import io
import lzma
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from tests.zoo.entry import Call, Entry

COARSE = "computes with fewer than 32 bits"
FOLDER = Path(__file__).parent / "recorded"
# With weights that are drawn again, the loops of these wait for a token that never comes.
ENDLESS = frozenset({"greedy_translator-torch_torchscript.onnx.xz"})
DRAWN = "drawn again from mean, deviation, minimum, maximum:"
# Fewer elements, or fewer distinct values, are part of the graph's meaning.
FEW_ELEMENTS, FEW_VALUES = 64, 20
FLOATS = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE
# Quantized weights, if they are many; fewer may be a table.
BYTES, FEW_BYTES = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8), 1024


def record(family: str, entry: Entry, source: Path, calls: Sequence[Call]) -> None:
    """Write a graph without its weights, and the inputs of its calls."""
    model = onnx.load(source)
    for tensor in _tensors(model):
        _strip(tensor)
    folder = FOLDER / family.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    _forget_machine(model)
    if entry.coarse:
        model.metadata_props.add(key=COARSE, value="true")
    packed = lzma.compress(model.SerializeToString(), preset=9)
    (folder / f"{entry.stem}.onnx.xz").write_bytes(packed)
    feeds = {
        f"{index}/{name}": value.astype(str) if value.dtype == object else value
        for index, call in enumerate(calls)
        for name, value in call.feeds.items()
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **feeds)
    (folder / f"{entry.stem}.npz").write_bytes(buffer.getvalue())


def _forget_machine(model: onnx.ModelProto) -> None:
    """Remove the metadata in which torch names files of the machine that exported."""
    del model.metadata_props[:]
    functions = list(model.functions)
    for each in (model.graph, *functions):
        del each.metadata_props[:]
        for item in (*each.node, *each.value_info):
            del item.metadata_props[:]


def recorded_graphs() -> list[Path]:
    """Return the files of all graphs that end."""
    return [path for path in sorted(FOLDER.glob("*/*.onnx.xz")) if path.name not in ENDLESS]


class Restored(NamedTuple):
    """A recorded graph with weights drawn again, and the inputs of its calls."""

    content: bytes
    calls: list[Call]
    coarse: bool


def restored(path: Path) -> Restored:
    """Read what `record` wrote."""
    model = onnx.load_from_string(lzma.decompress(path.read_bytes()))
    for index, tensor in enumerate(_tensors(model)):
        _fill(tensor, index)
    calls: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path.with_name(path.name.removesuffix(".onnx.xz") + ".npz")) as stored:
        for key in stored:
            call, name = key.split("/", 1)
            calls.setdefault(call, {})[name] = stored[key]
    coarse = any(each.key == COARSE for each in model.metadata_props)
    return Restored(model.SerializeToString(), [Call(each) for each in calls.values()], coarse)


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield initializers and constants, those of inner graphs and functions included."""
    yield from model.graph.initializer
    pending = [*model.graph.node, *(node for each in model.functions for node in each.node)]
    while pending:
        for attribute in pending.pop().attribute:
            if attribute.HasField("t"):
                yield attribute.t
            inner = [attribute.g] if attribute.HasField("g") else attribute.graphs
            for graph in inner:
                yield from graph.initializer
                pending += graph.node


def _strip(tensor: onnx.TensorProto) -> None:
    if tensor.data_type not in (*FLOATS, *BYTES):
        return
    values = numpy_helper.to_array(tensor)
    few = FEW_BYTES if tensor.data_type in BYTES else FEW_ELEMENTS
    if values.size < few or not np.isfinite(values).all():
        return
    wide = values.astype(np.float64)
    if len(np.unique(values)) < FEW_VALUES and wide.std():
        return
    four = [float(each) for each in (wide.mean(), wide.std(), wide.min(), wide.max())]
    kept = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    kept.doc_string = " ".join([DRAWN, *(f"{each:.6g}" for each in four)])
    tensor.CopyFrom(kept)


def _fill(tensor: onnx.TensorProto, index: int) -> None:
    if not tensor.doc_string.startswith(DRAWN):
        return
    mean, deviation, least, largest = map(float, tensor.doc_string.removeprefix(DRAWN).split())
    rng = np.random.default_rng(index)
    values = np.clip(rng.normal(mean, deviation, tuple(tensor.dims)), least, largest)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if tensor.data_type in BYTES:
        values = np.rint(values)
    tensor.CopyFrom(numpy_helper.from_array(values.astype(dtype), tensor.name))
