"""Writes the models of this folder and what torch derives: `python tests/models/gradients/make.py`.

Needs the `exporters` extra. Beside each model lies an .npz: `in` is what is passed, `factors` what
each output is multiplied by before all are added up, `out` the outputs, and `slope/NAME` the
derivatives of the sum by the weight `NAME`, or by `in` itself where that is float. All were
computed in float64 and rounded once.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import networks
import numpy as np
import onnx
import torch

HERE = Path(__file__).parent
SHAPES = {
    "Perceptron": (4, 6),
    "Convolutional": (2, 3, 17, 15),
    "Separable": (2, 6, 6, 5),
    "Residual": (2, 4, 5, 6),
    "Upscaling": (2, 2, 6, 8),
    "LongMemory": (3, 7, 3),
    "Gated": (3, 7, 3),
    "Encoder": (2, 5, 8),
    "Decoder": (2, 6),
    "Mixture": (5, 6),
}
# Recurrent layers and old forms come from the one exporter, all else from the other.
BY_TORCHSCRIPT = ("LongMemory", "Gated", "Residual")


def exported(network: torch.nn.Module, x: torch.Tensor, name: str) -> onnx.ModelProto:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in BY_TORCHSCRIPT:
            torch.onnx.export(
                network, (x,), file, dynamo=False, opset_version=17, do_constant_folding=False,
                input_names=["x"], output_names=["y"],
            )  # fmt: skip
        else:
            program = torch.onnx.export(
                network, (x,), dynamo=True, opset_version=20, input_names=["x"],
                output_names=["y"], verbose=False, optimize=False,
            )  # fmt: skip
            program.save(file)
    model = onnx.load_from_string(file.getvalue())
    for node in model.graph.node:
        del node.metadata_props[:]
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    del model.metadata_props[:], model.graph.metadata_props[:]
    return model


def write(name: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(len(name))
    network = getattr(networks, name)()
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 2.0)
    network.eval()
    x = torch.randint(0, 11, shape) if name == "Decoder" else torch.randn(shape)
    onnx.save(exported(network, x, name), HERE / f"{name.lower()}.onnx")

    network.double()
    given = x if name == "Decoder" else x.double().requires_grad_()
    torch.set_default_dtype(torch.float64)
    out = network(given)
    factors = torch.cos(torch.arange(out.numel()) + 1.0).reshape(out.shape)
    (out * factors).sum().backward()
    torch.set_default_dtype(torch.float32)
    slopes = {f"slope/{n}": p.grad for n, p in network.named_parameters()}
    if given.grad is not None:
        slopes["slope/in"] = given.grad
    arrays = {"factors": factors, "out": out.detach(), **slopes}
    rounded = {key: value.numpy().astype(np.float32) for key, value in arrays.items()}
    np.savez_compressed(HERE / f"{name.lower()}.npz", **{"in": x.numpy()}, **rounded)


if __name__ == "__main__":
    for name, shape in SHAPES.items():
        write(name, shape)
