"""Writes the models of this folder, and the example: `python tests/models/make.py`.

Needs the `exporters` extra. Each model lies beside an .npz of a few calls, computed by onnxruntime:
the array `0/in/x` is what the first call passes as `x`, and `0/out/y` is what it gets as `y`.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import networks
import numpy as np
import onnx
import onnxruntime
import torch
from skl2onnx import to_onnx
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"

Call = Mapping[str, np.ndarray[Any, Any]]


class Network(NamedTuple):
    """What an exporter needs to know; the first call is the one that it traces."""

    build: Callable[[], torch.nn.Module]
    axes: Mapping[str, Mapping[int, str]]
    outputs: Sequence[str]
    calls: Sequence[Call]


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def decoder_call(batch: int, past: int, length: int) -> Call:
    ids = np.random.default_rng(length).integers(0, 29, size=(batch, length))
    names = ("past_key_0", "past_value_0", "past_key_1", "past_value_1")
    rng = np.random.default_rng(past)
    pasts = {name: rng.normal(size=(batch, 2, past, 8)).astype(np.float32) for name in names}
    return {"ids": ids, **pasts}


IMAGE = {0: "batch", 2: "height", 3: "width"}
PAST = {0: "batch", 2: "past"}

MLP = Network(networks.Mlp, {"x": {0: "batch"}}, ["y"], [{"x": normal(n, 6)} for n in (2, 5)])
CNN = Network(
    networks.Cnn,
    {"image": {0: "batch"}},
    ["logits"],
    [{"image": normal(n, 3, 18, 22)} for n in (2, 1)],
)
SEPARABLE = Network(
    networks.Separable,
    {"image": IMAGE},
    ["y"],
    [{"image": normal(*shape)} for shape in ((2, 6, 8, 6), (1, 6, 5, 7))],
)
ENCODER = Network(
    networks.Encoder,
    {"x": {0: "batch", 1: "sequence"}},
    ["y"],
    [{"x": normal(*shape)} for shape in ((2, 5, 16), (1, 9, 16), (3, 1, 16))],
)
DECODER = Network(
    networks.Decoder,
    {
        "ids": {0: "batch", 1: "sequence"},
        **dict.fromkeys(("past_key_0", "past_value_0", "past_key_1", "past_value_1"), PAST),
    },
    ["logits", "key_0", "value_0", "key_1", "value_1"],
    [decoder_call(2, 3, 4), decoder_call(1, 0, 5), decoder_call(2, 6, 1)],
)
MASKS = Network(
    networks.Masks,
    {"x": {0: "batch", 1: "sequence"}, "lengths": {0: "batch"}},
    ["bias", "mean"],
    [
        {"x": normal(2, 6, 3), "lengths": np.asarray([6, 3])},
        {"x": normal(3, 4, 3), "lengths": np.asarray([1, 4, 0])},
    ],
)


def spelled_call(batch: int, length: int) -> Call:
    visible = np.tri(length, dtype=np.float32)[None, None].repeat(batch, axis=0)
    return {"x": normal(batch, length, 16), "mask": (visible - 1) * 1e4}


SPELLED = Network(
    networks.Spelled,
    {"x": {0: "batch", 1: "sequence"}, "mask": {0: "batch", 2: "sequence", 3: "sequence"}},
    ["y"],
    [spelled_call(2, 5), spelled_call(1, 3)],
)
SIGNS = [{"x": np.abs(normal(3, 4))}, {"x": -np.abs(normal(2, 4))}, {"x": np.abs(normal(2, 4))}]
SCRIPTED = Network(lambda: torch.jit.script(networks.Scripted()), {"x": {0: "batch"}}, ["y"], SIGNS)
CONDITIONAL = Network(networks.Conditional, {"x": {0: "batch"}}, ["y"], SIGNS)
EXAMPLE = Network(
    lambda: networks.Encoder(width=48, heads=6, layers=2),
    {"x": {0: "batch", 1: "sequence"}},
    ["y"],
    [{"x": normal(*shape)} for shape in ((2, 16, 48), (1, 40, 48))],
)


def torchscript(network: Network, opset: int) -> onnx.ModelProto:
    """The exporter of old: it runs the module once and writes down what TorchScript saw."""
    file = io.BytesIO()
    torch.onnx.export(
        built(network),
        traced_arguments(network),
        file,
        dynamo=False,
        opset_version=opset,
        input_names=list(network.axes),
        output_names=list(network.outputs),
        dynamic_axes={name: dict(axes) for name, axes in network.axes.items()},
    )
    return onnx.load_from_string(file.getvalue())


def dynamo(network: Network, opset: int | None = None) -> onnx.ModelProto:
    """The exporter of today, over `torch.export`."""
    program = torch.onnx.export(
        built(network),
        traced_arguments(network),
        dynamo=True,
        opset_version=opset,
        input_names=list(network.axes),
        output_names=list(network.outputs),
        dynamic_shapes=tuple(dict(axes) for axes in network.axes.values()),
        verbose=False,
    )
    assert program is not None
    return program.model_proto


def built(network: Network) -> torch.nn.Module:
    torch.manual_seed(0)
    module = network.build().eval()
    # Fresh statistics are 0 and 1, and would let a wrong batch normalisation pass.
    for name, buffer in module.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.uniform_(0.5, 1.5)
    return module


def traced_arguments(network: Network) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(network.calls[0][name]) for name in network.axes)


def fitted(model: Any, dtype: Any, avoid: set[str]) -> tuple[onnx.ModelProto, list[Call]]:
    """A fitted estimator, written without the operators of ai.onnx.ml named in `avoid`."""
    rng = np.random.default_rng(0)
    x = rng.normal(2, 3, size=(60, 4)).astype(dtype)
    model.fit(x, x[:, 0] * x[:, 1] + np.sin(x[:, 2]))
    exported = to_onnx(model, x[:1], black_op=avoid, target_opset=17, name="sklearn")
    return exported, [{"X": x[:n]} for n in (1, 7)]


def from_torch() -> dict[str, tuple[onnx.ModelProto, Sequence[Call]]]:
    exported = {
        "mlp_torchscript": (torchscript(MLP, 9), MLP),
        "mlp_dynamo": (dynamo(MLP, 18), MLP),
        "cnn_torchscript": (torchscript(CNN, 11), CNN),
        "cnn_dynamo": (dynamo(CNN), CNN),
        "separable_torchscript": (torchscript(SEPARABLE, 13), SEPARABLE),
        "separable_dynamo": (dynamo(SEPARABLE), SEPARABLE),
        "encoder_torchscript": (torchscript(ENCODER, 14), ENCODER),
        "encoder_dynamo": (dynamo(ENCODER), ENCODER),
        "decoder_torchscript": (torchscript(DECODER, 17), DECODER),
        "decoder_dynamo": (dynamo(DECODER, 18), DECODER),
        "spelled_torchscript_9": (torchscript(SPELLED, 9), SPELLED),
        "spelled_torchscript_13": (torchscript(SPELLED, 13), SPELLED),
        "spelled_dynamo": (dynamo(SPELLED, 18), SPELLED),
        "masks_torchscript": (torchscript(MASKS, 15), MASKS),
        "masks_dynamo": (dynamo(MASKS, 23), MASKS),
        "scripted_torchscript": (torchscript(SCRIPTED, 16), SCRIPTED),
        "cond_dynamo": (dynamo(CONDITIONAL), CONDITIONAL),
    }
    return {name: (model, network.calls) for name, (model, network) in exported.items()}


def from_sklearn() -> dict[str, tuple[onnx.ModelProto, Sequence[Call]]]:
    regressor = MLPRegressor(hidden_layer_sizes=(8, 5), max_iter=30, tol=1e9, random_state=0)
    return {
        "sklearn_mlp": fitted(make_pipeline(StandardScaler(), regressor), np.float32, {"Scaler"}),
        "sklearn_kmeans": fitted(
            make_pipeline(MinMaxScaler(clip=True), PCA(3), KMeans(4, n_init=2, random_state=0)),
            np.float32,
            {"Scaler"},
        ),
        "sklearn_linear_float64": fitted(
            make_pipeline(PCA(3), LinearRegression()), np.float64, {"LinearRegressor"}
        ),
    }


def write(path: Path, model: onnx.ModelProto, calls: Sequence[Call]) -> None:
    """The model, stripped of what names the machine that made it, and its calls."""
    for node in nodes(model):
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString(deterministic=True))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    arrays = {}
    for i, call in enumerate(calls):
        arrays |= {f"{i}/in/{name}": value for name, value in call.items()}
        results = session.run(names, dict(call))
        arrays |= {f"{i}/out/{n}": result for n, result in zip(names, results, strict=True)}
    np.savez_compressed(path.with_suffix(".npz"), **arrays)


def nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Every node of the model, those of functions and of bodies included."""
    waiting = [*model.graph.node, *(node for f in model.functions for node in f.node)]
    found = []
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += [inner for attribute in node.attribute for inner in attribute.g.node]
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    for name, (model, calls) in (from_torch() | from_sklearn()).items():
        write(HERE / f"{name}.onnx", model, calls)
    EXAMPLES.mkdir(exist_ok=True)
    write(EXAMPLES / "encoder.onnx", dynamo(EXAMPLE), EXAMPLE.calls)


if __name__ == "__main__":
    main()
