"""MobileNetV2 and ResNet-50, by hand in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

RESNET_DEPTHS = (3, 4, 6, 3)
MOBILENET_STRIDES = (2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1)

Weights = Mapping[str, Any]


def weights(state: Weights) -> dict[str, Any]:
    """A filter and a bias for each convolution, its normalisation folded in; HWIO, or IO for 1x1.

    A depthwise filter stays HWC.
    """
    made = {}
    for key, filters in state.items():
        if not key.endswith(".convolution.weight"):
            continue
        name = key.removesuffix(".convolution.weight")
        scale, bias, mean, variance = (
            state[f"{name}.normalization.{part}"]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        scale = scale / np.sqrt(variance + _epsilon(name))
        hwio = (filters * scale[:, None, None, None]).transpose(2, 3, 1, 0)
        if hwio.shape[:2] == (1, 1):
            hwio = hwio[0, 0]
        elif hwio.shape[2] == 1:
            hwio = hwio[:, :, 0]
        made[_short(name)] = (hwio, bias - mean * scale)
    classifier = "network.classifier.1" if "network.classifier.1.bias" in state else ""
    classifier = classifier or "network.classifier"
    made["classifier"] = (state[f"{classifier}.weight"].T, state[f"{classifier}.bias"])
    return made


def mobilenet_v2(w: Weights, pixels: Any) -> Any:
    x = jnp.transpose(pixels, (0, 2, 3, 1))
    x = _relu6(_conv(x, w["conv_stem.first_conv"], 2))
    x = _relu6(_depthwise(x, w["conv_stem.conv_3x3"], 1))
    x = _pointwise(x, w["conv_stem.reduce_1x1"])
    for i, stride in enumerate(MOBILENET_STRIDES):
        before = x
        x = _relu6(_pointwise(x, w[f"layer.{i}.expand_1x1"]))
        x = _relu6(_depthwise(x, w[f"layer.{i}.conv_3x3"], stride))
        x = _pointwise(x, w[f"layer.{i}.reduce_1x1"])
        if before.shape == x.shape:
            x = before + x
    x = _relu6(_pointwise(x, w["conv_1x1"]))
    return _pointwise(jnp.mean(x, (1, 2)), w["classifier"])


def resnet50(w: Weights, pixels: Any) -> Any:
    x = jnp.transpose(pixels, (0, 2, 3, 1))
    x = jax.nn.relu(_conv(x, w["embedder.embedder"], 2))
    x = _windows(x, 2, jnp.maximum, -jnp.inf)
    for stage, depth in enumerate(RESNET_DEPTHS):
        for layer in range(depth):
            stride = 2 if stage and not layer else 1
            x = _bottleneck(x, w, f"encoder.stages.{stage}.layers.{layer}", stride)
    return _pointwise(jnp.mean(x, (1, 2)), w["classifier"])


def _bottleneck(x: Any, w: Weights, name: str, stride: int) -> Any:
    y = jax.nn.relu(_pointwise(x, w[f"{name}.layer.0"]))
    y = jax.nn.relu(_conv(y, w[f"{name}.layer.1"], stride))
    y = _pointwise(y, w[f"{name}.layer.2"])
    if f"{name}.shortcut" in w:
        x = _pointwise(x[:, ::stride, ::stride], w[f"{name}.shortcut"])
    return jax.nn.relu(x + y)


def _conv(x: Any, weight: Any, stride: int) -> Any:
    filters, bias = weight
    pads = [(size // 2, size // 2) for size in filters.shape[:2]]
    dimensions = ("NHWC", "HWIO", "NHWC")
    made = lax.conv_general_dilated(
        x, filters, (stride, stride), pads, dimension_numbers=dimensions
    )
    return made + bias


def _pointwise(x: Any, weight: Any) -> Any:
    return x @ weight[0] + weight[1]


def _depthwise(x: Any, weight: Any, stride: int) -> Any:
    """A sum of shifted products, where XLA's own depthwise convolution is far slower on a CPU."""
    filters, bias = weight
    taps = iter(filters.reshape(9, -1))
    return _windows(x, stride, lambda total, each: total + each * next(taps), 0) + bias


def _windows(x: Any, stride: int, combine: Callable[[Any, Any], Any], start: float) -> Any:
    """Windows of 3x3, padded by one, shift by shift."""
    _, height, width, _ = x.shape
    edge = ((0, 0), (1, 1), (1, 1), (0, 0))
    padded = jnp.pad(x, edge, constant_values=start)
    made: Any = start
    for i in range(3):
        for j in range(3):
            made = combine(made, padded[:, i : i + height : stride, j : j + width : stride])
    return made


def _relu6(x: Any) -> Any:
    return jnp.clip(x, 0, 6)


def _epsilon(name: str) -> float:
    return 1e-3 if ".mobilenet_v2." in name else 1e-5


def _short(name: str) -> str:
    return name.split(".", 2)[2]
