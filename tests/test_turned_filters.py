"""Filters whose channels are put last ahead of all calls, as XLA wants them for NVIDIA's GPUs.

A backend that reads them so on the CPU shows the way through the library.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.executable import Spec
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.cache import ExecutableFolder
from sardonyx.backends.jax.settings import Settings
from sardonyx.backends.jax.xla_cuda.layouts import capability_of, has_channels_last
from tests.support.onnx_builders import model, node, value, weight

pytestmark = pytest.mark.sampled(3)

RNG = np.random.default_rng(11)
LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1-D": ((2, 5, 9), (4, 5, 3), {"pads": [1, 1]}),
    "2-D": ((2, 5, 8, 9), (4, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    "no padding": ((2, 5, 8, 9), (4, 5, 2, 3), {}),
    "one by one": ((2, 5, 8, 9), (4, 5, 1, 1), {}),
    "strides": ((1, 5, 8, 9), (4, 5, 3, 3), {"pads": [1] * 4, "strides": [2, 3]}),
    "groups": ((1, 10, 8, 9), (4, 5, 3, 3), {"pads": [1] * 4, "group": 2}),
    "depthwise": ((1, 4, 8, 9), (4, 1, 3, 3), {"pads": [1] * 4, "group": 4}),
    "no rows": ((0, 5, 8, 9), (4, 5, 3, 3), {"pads": [1] * 4}),
}
HOPPER, AMPERE = (9, 0), (8, 0)


class Turning(JaxBackend):
    """JAX on the CPU with the layouts of an H100, which notes the arguments of its programs."""

    _capability = HOPPER
    fuses = False
    packs_matrices = False
    shapes: list[tuple[int, ...]]

    def compile(self, replay: Any, arguments: Any, **options: Any) -> Any:
        self.shapes = [tuple(argument.shape) for argument in arguments]
        return super().compile(replay, arguments, **options)


def convolving(layout: str, dtype: str = "float32", *, has_bias: bool = True) -> tuple[Any, Any]:
    x, shape, attributes = LAYOUTS[layout]
    weights = [weight("w", RNG.normal(size=shape).astype(dtype))]
    if has_bias:
        weights.append(weight("b", RNG.normal(size=shape[0]).astype(dtype)))
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = ["x", "w", *(["b"] if has_bias else [])]
    nodes = [node("Conv", inputs, ["c"], **attributes), node("Relu", ["c"], ["y"])]
    proto = model(nodes, [value("x", x, kind)], [value("y", None, kind)], weights, opset=22)
    return proto, {"x": RNG.normal(size=x).astype(dtype)}


def turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    count, channels, *kernel = shape
    return (count, *kernel, channels)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_filters_are_turned_and_results_stay(layout: str, has_bias: bool) -> None:
    proto, feeds = convolving(layout, has_bias=has_bias)
    backend = Turning()
    loaded = sardonyx.load(proto, backend=backend, compile="now")
    wanted = sardonyx.load(proto, backend="numpy").run(None, feeds)[0]
    for _ in range(2):
        np.testing.assert_allclose(loaded.run(None, feeds)[0], wanted, rtol=1e-5, atol=1e-5)
    assert turned(LAYOUTS[layout][1]) in backend.shapes


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types(dtype: str) -> None:
    proto, feeds = convolving("2-D", dtype)
    backend = Turning()
    loaded = sardonyx.load(proto, backend=backend, compile="now")
    wanted = sardonyx.load(proto, backend="numpy").run(None, feeds)[0]
    tolerance = {"float16": 2e-2, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(loaded.run(None, feeds)[0], wanted, rtol=tolerance, atol=tolerance)
    assert (turned(LAYOUTS["2-D"][1]) in backend.shapes) == (dtype == "float16")


def test_a_replaced_weight_is_turned_anew() -> None:
    proto, feeds = convolving("2-D")
    loaded = sardonyx.load(proto, backend=Turning(), compile="now")
    before = loaded.run(None, feeds)[0]
    others = RNG.normal(size=LAYOUTS["2-D"][1]).astype(np.float32)
    loaded.params["w"] = others
    after = loaded.run(None, feeds)[0]
    assert not np.allclose(before, after)
    reference = sardonyx.load(proto, backend="numpy")
    reference.params["w"] = others
    np.testing.assert_allclose(after, reference.run(None, feeds)[0], rtol=1e-5, atol=1e-5)


def test_infinite_filters_under_padding_stay() -> None:
    proto, feeds = convolving("2-D")
    loaded = sardonyx.load(proto, backend=Turning(), compile="now")
    loaded.params["w"] = np.full(LAYOUTS["2-D"][1], np.inf, np.float32)
    assert np.isnan(loaded.run(None, feeds)[0]).any()


def test_filters_of_a_call_stay() -> None:
    x, shape, attributes = LAYOUTS["2-D"]
    inputs = [value("x", x), value("w", shape)]
    proto = model([node("Conv", ["x", "w"], ["y"], **attributes)], inputs, [value("y", None)])
    feeds = {name: RNG.normal(size=s).astype(np.float32) for name, s in (("x", x), ("w", shape))}
    backend = Turning()
    found = sardonyx.load(proto, backend=backend, compile="now").run(None, feeds)[0]
    wanted = sardonyx.load(proto, backend="numpy").run(None, feeds)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert backend.shapes == [x, shape]


def test_without_a_compiler_nothing_is_turned() -> None:
    proto, feeds = convolving("2-D")
    backend = Turning(jit=False)
    loaded = sardonyx.load(proto, backend=backend)
    wanted = sardonyx.load(proto, backend="numpy").run(None, feeds)[0]
    np.testing.assert_allclose(loaded.run(None, feeds)[0], wanted, rtol=1e-5, atol=1e-5)


def test_another_load_finds_the_recording(tmp_path: Path) -> None:
    proto, feeds = convolving("2-D")
    found = []
    for _ in range(2):
        backend = Turning(settings=Settings(cache=ExecutableFolder(tmp_path)))
        loaded = sardonyx.load(proto, backend=backend, compile="now")
        found.append(loaded.run(None, feeds)[0])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("dtype", "spatial", "capability", "is_last"),
    [
        ("float32", 2, HOPPER, True),
        ("float32", 1, (10, 3), True),
        ("float32", 3, HOPPER, False),
        ("float64", 2, HOPPER, False),
        ("int8", 2, HOPPER, False),
        ("float32", 2, AMPERE, False),
        ("float16", 2, AMPERE, True),
        ("bfloat16", 2, (8, 9), True),
        ("float16", 1, AMPERE, False),
        ("float16", 2, (7, 5), False),
        ("float16", 2, None, False),
    ],
)
def test_layouts(
    dtype: str, spatial: int, capability: tuple[int, int] | None, is_last: bool
) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x, w = Spec((1, 4) + (9,) * spatial, kind), Spec((4, 4) + (3,) * spatial, kind)
    assert has_channels_last(x, w, capability) == is_last


def test_a_cpu_has_no_capability() -> None:
    assert capability_of(JaxBackend()._actual_device) is None
