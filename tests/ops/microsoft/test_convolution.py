from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.ops import OPS
from tests.ops.oracle import onnxruntime_run, run

DOMAIN = "com.microsoft"


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def assert_is_onnxruntime(
    xp: Backend, name: str, *inputs: np.ndarray | None, **attributes: Any
) -> None:
    expected = onnxruntime_run(name, *inputs, opset=1, domain=DOMAIN, **attributes)
    actual = run(xp, OPS[DOMAIN, name], *inputs, **attributes)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    assert actual.dtype == expected.dtype


# -- with an activation ---------------------------------------------------------------------------

ACTIVATIONS: list[dict[str, Any]] = [
    {},
    {"activation": "Relu"},
    {"activation": "Tanh"},
    {"activation": "Sigmoid"},
    {"activation": "HardSwish"},
    {"activation": "LeakyRelu", "activation_params": [0.1]},
    {"activation": "Clip", "activation_params": [-0.5, 0.75]},
    {"activation": "HardSigmoid", "activation_params": [0.25, 0.4]},
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("has_addend", [False, True])
def test_FusedConv(
    xp: Backend, activation: dict[str, Any], has_bias: bool, has_addend: bool
) -> None:
    bias = drawn(6, seed=2) if has_bias else None
    addend = drawn(2, 6, 4, 3, seed=3) if has_addend else None
    inputs = [drawn(2, 4, 7, 5), drawn(6, 2, 3, 3, seed=1), bias, addend]
    while inputs[-1] is None:
        inputs.pop()
    layout = {"group": 2, "strides": (2, 2), "pads": (1, 1, 1, 1), "kernel_shape": (3, 3)}
    assert_is_onnxruntime(xp, "FusedConv", *inputs, **layout, **activation)


@pytest.mark.parametrize("rank", [1, 3])
def test_FusedConv_over_other_than_two_axes(xp: Backend, rank: int) -> None:
    inputs = drawn(2, 4, *(5,) * rank), drawn(6, 4, *(2,) * rank, seed=1)
    assert_is_onnxruntime(xp, "FusedConv", *inputs, activation="Relu", auto_pad="SAME_UPPER")


def test_parameters_that_do_not_fit_the_activation(xp: Backend) -> None:
    inputs = drawn(1, 2, 4, 4), drawn(3, 2, 1, 1, seed=1)
    options = {"activation": "Clip", "activation_params": (1.0,)}
    with pytest.raises(ValueError, match=r"activation_params are \(1.0,\), but Clip has 2: min, m"):
        run(xp, OPS[DOMAIN, "FusedConv"], *inputs, **options)
    with pytest.raises(ValueError, match=r"Z has shape \(3,\), but must have shape \(1, 3, 4, 4\)"):
        run(xp, OPS[DOMAIN, "FusedConv"], *inputs, None, drawn(3))


@pytest.mark.parametrize("spatial", [(6,), (6, 5), (3, 4, 5)])
@pytest.mark.parametrize("has_more", [False, True])
def test_channels_last(xp: Backend, spatial: tuple[int, ...], has_more: bool) -> None:
    X, W = drawn(2, *spatial, 4), drawn(6, 2, *(2,) * len(spatial), seed=1)
    layout: dict[str, Any] = {"group": 2, "strides": [2] * len(spatial), "auto_pad": "VALID"}
    expected = onnxruntime_run("Conv", np.moveaxis(X, -1, 1), W, opset=13, **layout)
    expected = np.moveaxis(expected, 1, -1)
    if not has_more:
        actual = run(xp, OPS[DOMAIN, "NhwcConv"], X, W, **layout)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
        return
    B, Z = drawn(6, seed=2), drawn(*expected.shape, seed=3)
    actual = run(xp, OPS[DOMAIN, "NhwcFusedConv"], X, W, B, Z, activation="Relu", **layout)
    np.testing.assert_allclose(actual, np.maximum(expected + B + Z, 0), rtol=1e-4, atol=1e-5)


# -- with pads among the inputs -------------------------------------------------------------------


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize(
    ("pads", "layout"),
    [
        ([1, 1, 1, 1], {"strides": [2, 2]}),
        ([0, 1, 0, 1], {"strides": [2, 1], "output_padding": [1, 0]}),
        ([0, 0, 1, 0], {"dilations": [1, 2], "group": 2}),
    ],
)
def test_ConvTransposeWithDynamicPads(
    xp: Backend, pads: list[int], layout: dict[str, Any], has_bias: bool
) -> None:
    X, W = drawn(2, 4, 5, 4), drawn(4, 3, 3, 3, seed=1)
    B = [drawn(3 * layout.get("group", 1), seed=2)] if has_bias else []
    name = "ConvTransposeWithDynamicPads"
    expected = onnxruntime_run(name, X, W, np.array(pads), *B, opset=1, domain=DOMAIN, **layout)
    op = OPS[DOMAIN, name].at(1).function
    actual = xp.fetch(op(xp, xp.put(X), xp.put(W), tuple(pads), *map(xp.put, B), **layout))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


# -- with a mask ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spatial", "layout"),
    [
        ((9,), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
        ((7, 6), {"kernel_shape": [3, 2]}),
        ((7, 6), {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 0, 0, 2]}),
        ((7, 6), {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
        ((4, 5, 3), {"kernel_shape": [2, 2, 2], "strides": [1, 2, 1]}),
    ],
    ids=str,
)
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 1.0])
def test_MaxpoolWithMask(
    xp: Backend, spatial: tuple[int, ...], layout: dict[str, Any], share: float
) -> None:
    mask = np.random.default_rng(7).random((1, 1, *spatial)) < share
    X = drawn(2, 3, *spatial)
    assert_is_onnxruntime(xp, "MaxpoolWithMask", X, mask.astype(np.int32), **layout)


def test_a_mask_of_another_size(xp: Backend) -> None:
    mask = np.ones((1, 1, 3, 4), np.int32)
    with pytest.raises(ValueError, match=r"its spatial axes must be \(4, 4\)"):
        run(xp, OPS[DOMAIN, "MaxpoolWithMask"], drawn(1, 2, 4, 4), mask, kernel_shape=(2, 2))
