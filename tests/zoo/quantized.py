"""Convolutional networks of which onnxruntime's static quantizer writes QDQ and QOperator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16
from torch import Tensor, nn

from tests.zoo.convolutional import UNet
from tests.zoo.entry import Call, Entry
from tests.zoo.torch_exports import TORCHSCRIPT, Network, exports_of
from tests.zoo.torch_modules import Chain, images, scattered
from tests.zoo.torchvision_networks import CLASSIFIERS


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.LeakyReLU(0.1),
            nn.Conv2d(width, width, 3, padding=1, groups=2),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.inner(x))


def residuals() -> nn.Module:
    return Chain(
        nn.Conv2d(3, 8, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        Residual(8),
        Residual(8),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 7),
        nn.Softmax(1),
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "residuals": residuals,
    "mobilenet v2": CLASSIFIERS["mobilenet v2"][0],
    "mobilenet v3": CLASSIFIERS["mobilenet v3"][0],
    "unet": partial(UNet, True),
    "shufflenet v2": CLASSIFIERS["shufflenet v2"][0],
}
FORMS: dict[str, dict[str, Any]] = {
    "QDQ": {"quant_format": QuantFormat.QDQ},
    "QDQ signed per channel": {
        "quant_format": QuantFormat.QDQ,
        "activation_type": QuantType.QInt8,
        "per_channel": True,
        "extra_options": {"ActivationSymmetric": True},
    },
    "QDQ int16": {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt16},
    "QOperator": {"quant_format": QuantFormat.QOperator},
    "QOperator per channel, percentile": {
        "quant_format": QuantFormat.QOperator,
        "per_channel": True,
        "calibrate_method": CalibrationMethod.Percentile,
    },
}


class Pictures(CalibrationDataReader):
    def __init__(self, calls: Sequence[Call]) -> None:
        self._feeds = iter([call.feeds for call in calls])

    def get_next(self) -> Any:
        return next(self._feeds, None)


def _plain(name: str, path: Path) -> list[Call]:
    calls = [{"x": images(2, 3, 32, 32)}, {"x": images(3, 3, 32, 32)}]
    build, axes = NETWORKS[name], {"x": {0: "batch"}}
    network = Network(name, lambda: scattered(build()), calls, axes=axes, exporters=(TORCHSCRIPT,))
    (entry,) = exports_of([network])
    return list(entry.write(path))


def _quantized(name: str, form: str, path: Path) -> Sequence[Call]:
    between, prepared = path.with_suffix(".float"), path.with_suffix(".prepared")
    calls = _plain(name, between)
    quant_pre_process(str(between), str(prepared), skip_symbolic_shape=True)
    quantize_static(str(prepared), str(path), Pictures(calls[:1]), **FORMS[form])
    return [Call(call.feeds) for call in calls]


def _halves(name: str, path: Path) -> Sequence[Call]:
    between = path.with_suffix(".float")
    calls = _plain(name, between)
    onnx.save(convert_float_to_float16(onnx.load(between), keep_io_types=True), path)
    return [Call(call.feeds) for call in calls]


def entries() -> Iterator[Entry]:
    for name in NETWORKS:
        for form in FORMS:
            exporter = f"onnxruntime {form}"
            yield Entry(name, exporter, partial(_quantized, name, form), coarse=True)
        yield Entry(name, "onnxruntime float16", partial(_halves, name), coarse=True)
