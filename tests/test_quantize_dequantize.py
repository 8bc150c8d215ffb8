"""Numbers that are quantized and dequantized at once, by a kernel and in networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import sardonyx
from sardonyx.backends.jax.onednn import loaded, points
from sardonyx.backends.jax.onednn.loaded import Kind
from sardonyx.backends.numpy import HOST
from sardonyx.backends.operations.numbers import Levels
from sardonyx.graph.programs.stable_keys import name_of
from sardonyx.ops.quantization import DequantizeLinear, QuantizeLinear
from tests.support.background import wait_for_background
from tests.support.kernels import NEEDS_ONEDNN
from tests.support.onnx_builders import model, node, value, weight
from tests.support.rewrite_cases import working
from tests.test_one_call import library, ran
from tests.test_onednn import drawn

__all__ = ["library", "ran"]
pytestmark = NEEDS_ONEDNN

INF, NAN = np.inf, np.nan
# Halves of steps, zeros of both signs, and what is beyond all limits.
SPECIAL = [0.0, -0.0, 0.25, -0.25, 0.75, -0.75, 1e-40, -1e-40, 3e38, -3e38, INF, -INF, NAN, 1e9]
TYPES = [(np.int8, 8), (np.int8, -128), (np.uint8, 0), (np.uint8, 255), (np.int16, -7),
         (np.uint16, 65535)]  # fmt: skip


def in_two_steps(x: Any, scale: float, zero_point: Any) -> Any:
    with HOST.scope():
        integers = QuantizeLinear(HOST, x, np.float32(scale), zero_point)
        return DequantizeLinear(HOST, integers, np.float32(scale), zero_point)


def levels_of(scale: float, zero_point: Any) -> Levels:
    bounds, zero = np.iinfo(zero_point.dtype), int(zero_point)
    return Levels(float(np.float32(scale)), bounds.min - zero, bounds.max - zero, -zero)


@pytest.fixture(params=[True, False], ids=["kernel", "NumPy"])
def computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded.shared_library() is not None
    if not request.param:
        monkeypatch.setattr(loaded, "has_lanes", lambda: False)


@pytest.mark.usefixtures("computed")
@pytest.mark.parametrize("scale", [0.5, 0.0294, 1e-38, 3e38])
@pytest.mark.parametrize(("dtype", "zero"), TYPES)
def test_each_bit_is_that_of_two_steps(dtype: Any, zero: int, scale: float) -> None:
    zero_point = np.array(zero, dtype)
    with np.errstate(all="ignore"):
        many = drawn(3, 41) * np.float32(scale) * np.float32(300)
        many_steps = np.concatenate([np.arange(-300, 300), np.arange(65000, 65600)])
        halves = (many_steps + 0.5).astype(np.float32) * np.float32(scale)
        halves = np.stack([np.nextafter(halves, -INF), halves, np.nextafter(halves, INF)])
        number = np.array(0.3, np.float32)
        for x in (np.float32(SPECIAL), many, many.T, many[:, ::2], halves, number):
            expected = in_two_steps(x, scale, zero_point)
            for threads in (1, 2):
                found = points.nearest_levels(x, levels_of(scale, zero_point), threads=threads)
                assert found.dtype == np.float32
                assert found.tobytes() == np.asarray(expected).tobytes()


def test_threads_share_many_numbers() -> None:
    x, zero = drawn(7, 13, 1001), np.array(3, np.int8)
    found = points.nearest_levels(x.transpose(2, 0, 1), levels_of(0.01, zero), threads=5)
    assert found.strides == x.transpose(2, 0, 1).strides
    assert np.array_equal(found, in_two_steps(x, 0.01, zero).transpose(2, 0, 1))


def quantized(name: str, x: str, **others: str) -> list[Any]:
    """A QuantizeLinear and a DequantizeLinear, of whose inputs some are `others`."""
    before = [x, others.get("scale", "scale"), others.get("zero", "zero")]
    after = [f"{name}_integers", others.get("scale2", "scale"), others.get("zero2", "zero")]
    return [
        node("QuantizeLinear", before, [f"{name}_integers"]),
        node("DequantizeLinear", after, [name]),
    ]


def network(*names: str, **others: str) -> onnx.ModelProto:
    """Two convolutions with a sum, as exporters write them for integers; `names` are outputs."""
    nodes = [
        *quantized("a", "x", **others),
        node("Conv", ["a", "w"], ["b"], pads=[1, 1, 1, 1]),
        node("Relu", ["b"], ["c"]),
        *quantized("d", "c"),
        node("Conv", ["d", "w2"], ["e"], pads=[1, 1, 1, 1]),
        *quantized("f", "e"),
        node("Add", ["f", "a"], ["g"]),
        *quantized("y", "g"),
    ]
    weights = [
        weight("w", drawn(8, 8, 3, 3) / 9),
        weight("w2", drawn(8, 8, 3, 3, seed=1) / 9),
        weight("scale", np.float32(0.05)),
        weight("scales", np.full(8, 0.05, np.float32)),
        weight("double", np.float32(0.1)),
        weight("zero", np.array(3, np.int8)),
        weight("zeros", np.full(8, 3, np.int8)),
        weight("one", np.array(1, np.int8)),
    ]
    outputs = [value(name, None, onnx.TensorProto.INT8) for name in names]
    last = value("y", ["n", 8, 12, 12], onnx.TensorProto.FLOAT)
    image = value("x", ["n", 8, 12, 12], onnx.TensorProto.FLOAT)
    return model(nodes, [image], [last, *outputs], weights, opset=18)


def test_a_network_of_them_is_one_call(ran: list[Kind]) -> None:
    proto = network()
    found = sardonyx.load(proto, backend="jax", compile="never")
    other = sardonyx.load(proto, backend="numpy")
    for seed in range(6):
        x = drawn(1, 8, 12, 12, seed=seed)
        ran.clear()
        y = found(x)
        wait_for_background()
        # A sum that is rounded in another way may lie on the other side of a half.
        assert_allclose(y, other(x), atol=0.0501)
        assert np.mean(np.abs(y - other(x)) > 1e-6) < 0.02
    assert ran == [Kind.SEQUENCE]


def test_another_process_traces_nothing(tmp_path: Path) -> None:
    file, x = tmp_path / "model.onnx", drawn(1, 8, 12, 12)
    onnx.save(network(), file)
    results = []
    for traces in (1, 0):
        found = sardonyx.load(file, backend="jax", cache=tmp_path / "cache", compile="now")
        results.append(found(x))
        assert found.stats().traces == traces
    assert np.array_equal(*results)
    assert name_of(levels_of(0.5, np.array(3, np.int8))) is not None


OTHERS: list[tuple[tuple[str, ...], dict[str, str], int]] = [
    ((), {}, 0),
    ((), {"scale2": "double"}, 1),
    ((), {"zero2": "one"}, 1),
    ((), {"scale": "scales", "scale2": "scales", "zero": "zeros", "zero2": "zeros"}, 1),
    (("a_integers", "f_integers"), {}, 2),
]


@pytest.mark.parametrize(("names", "others", "left"), OTHERS)
def test_only_what_undoes_the_other_joins_it(
    names: tuple[str, ...], others: dict[str, str], left: int
) -> None:
    proto = network(*names, **others)
    x = drawn(1, 8, 12, 12)
    found = sardonyx.load(proto, backend="jax", compile="never")
    assert working(found.trace(x)).count("QuantizeLinear") == left
    results = found(x)
    expected = sardonyx.load(proto, backend="numpy")(x)
    if names:
        for one, right in zip(results, expected, strict=True):
            step = 0.0501 if one.dtype == np.float32 else 1
            assert_allclose(one.astype(np.float32), right.astype(np.float32), atol=step)
    else:
        assert_allclose(results, expected, atol=0.1001 if others else 0.0501)
