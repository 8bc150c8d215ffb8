"""Products that only other products read: one step, one call of oneDNN, the same results."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import Activation, Epilogue
from sardonyx.backends.jax import onednn
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.operations.products import Link
from sardonyx.graph.rewriting import chaining
from tests.support.kernels import NEEDS_ONEDNN
from tests.support.onnx_builders import model, node, value, weight
from tests.support.rewrite_cases import working

pytestmark = NEEDS_ONEDNN

CHANNELS, SIDE = 32, 14


def filters(outputs: int, inputs: int, side: int = 1) -> Any:
    rng = np.random.default_rng([outputs, inputs, side])
    shape = (outputs, inputs, side, side)
    return rng.normal(size=shape, scale=(inputs * side * side) ** -0.5).astype(np.float32)


def conv(x: str, name: str, y: str, pads: int = 0, **attributes: Any) -> onnx.NodeProto:
    return node("Conv", [x, name, f"{name}b"], [y], pads=[pads] * 4, **attributes)


def network(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], **weights: Any) -> Any:
    """A model of `x`, whose convolutions have a bias each."""
    biases = {
        f"{name}b": np.linspace(-1, 1, len(w)).astype(np.float32) for name, w in weights.items()
    }
    tensors = [weight(name, content) for name, content in {**weights, **biases}.items()]
    inputs = [value("x", ["n", CHANNELS, "h", "w"])]
    return model(nodes, inputs, [onnx.ValueInfoProto(name=name) for name in outputs], tensors)


WIDE = {"a": filters(96, 32), "b": filters(96, 1, 3), "c": filters(32, 96), "d": filters(32, 32)}
# As in MobileNetV2: expanded, filtered by channel, projected, and added to where it began.
INVERTED = [
    conv("x", "d", "t"),
    conv("t", "a", "u"), node("Relu", ["u"], ["v"]),
    conv("v", "b", "w", 1, group=96), node("Relu", ["w"], ["z"]),
    conv("z", "c", "p"), node("Add", ["p", "t"], ["y"]),
]  # fmt: skip
# As in ResNet: both inputs of the sum come from convolutions.
DOWNSAMPLED = [
    conv("x", "d", "t", strides=[2, 2]),
    conv("x", "e", "u", 1, strides=[2, 2]), node("Relu", ["u"], ["v"]),
    conv("v", "f", "p"), node("Add", ["p", "t"], ["s"]), node("Relu", ["s"], ["y"]),
]  # fmt: skip
DOWN = {"d": filters(32, 32), "e": filters(64, 32, 3), "f": filters(32, 64)}
BETWEEN = [conv("x", "d", "t"), node("Softmax", ["t"], ["u"], axis=1), conv("u", "a", "y")]
IN_TURN = [conv("x", "d", "t"), conv("t", "a", "y")]

CASES = {
    "inverted": (INVERTED, ["y"], WIDE, ["4 chained products"]),
    "downsampled": (DOWNSAMPLED, ["y"], DOWN, ["3 chained products"]),
    "an output between": (IN_TURN, ["t", "y"], WIDE, ["Conv", "Conv"]),
    "a step between": (BETWEEN, ["y"], WIDE, ["Conv", "Softmax", "Conv"]),
    "a second reader": (
        [*IN_TURN[:1], conv("t", "a", "u"), node("Softmax", ["t"], ["v"])], ["u", "v"],
        WIDE, ["Conv", "Conv", "Softmax"],
    ),
}  # fmt: skip


def image(batch: int, seed: int = 0) -> Any:
    shape = (batch, CHANNELS, SIDE, SIDE)
    return np.random.default_rng([seed, batch]).normal(size=shape).astype(np.float32)


def compared(chained: Any, proto: Any, x: Any) -> None:
    numpy = sardonyx.load(proto, backend="numpy")
    for found, expected in zip(as_list(chained(x)), as_list(numpy(x)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def as_list(results: Any) -> list[Any]:
    return [np.asarray(r) for r in (results if isinstance(results, tuple | list) else [results])]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("mode", ["now", "never"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_products_that_only_products_read_are_one_step(case: Any, mode: Any) -> None:
    nodes, outputs, weights, titles = case
    used = {name: w for name, w in weights.items() if any(name in n.input for n in nodes)}
    proto = network(nodes, outputs, **used)
    chained = sardonyx.load(proto, backend="jax", compile=mode, buckets=None)
    for batch in (1, 5):
        compared(chained, proto, image(batch))
        assert working(chained.trace(image(batch))) == titles


# Blocks whose arrays in between outgrow the processor's cache: they are computed in bands of rows.
BANDED = {
    "stride 2": {"strides": [2, 2], "pads": [1, 1, 1, 1]},
    "more below": {"strides": [2, 2], "pads": [0, 0, 1, 1]},
    "rows skipped": {"strides": [3, 2], "pads": [0, 0, 0, 0]},
    "dilated": {"dilations": [2, 1], "pads": [2, 1, 2, 1]},
}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("attributes", BANDED.values(), ids=BANDED)
def test_bands_of_rows_are_as_the_whole(attributes: Any) -> None:
    filtered = node("Conv", ["v", "b", "bb"], ["w"], group=96, **attributes)
    nodes = [*INVERTED[:3], filtered, *INVERTED[4:6], node("Relu", ["p"], ["y"])]
    proto = network(nodes, ["y"], **WIDE)
    x = np.random.default_rng(5).normal(size=(2, CHANNELS, 96, 41)).astype(np.float32)
    x[1, 0, 40, 3] = np.nan
    chained = sardonyx.load(proto, backend="jax", compile="never", buckets=None)
    compared(chained, proto, x[:1])
    compared(chained, proto, x)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("image", [(1, 36), (36, 1), (1, 70), (2, 40), (1, 1)], ids=str)
def test_images_of_one_row_or_column(image: tuple[int, int], batch: int) -> None:
    """Pointwise convolutions give up an axis of one pixel, and others do not."""
    proto = network(INVERTED, ["y"], **WIDE)
    x = np.random.default_rng(4).normal(size=(batch, CHANNELS, *image)).astype(np.float32)
    found = sardonyx.load(proto, backend="jax", compile="never")(x)
    np.testing.assert_allclose(
        found, sardonyx.load(proto, backend="numpy")(x), rtol=1e-4, atol=1e-4
    )


def test_what_is_not_finite_passes_through_a_chain() -> None:
    proto = network(INVERTED, ["y"], **WIDE)
    x = image(2)
    x[0, 3, 5, 5], x[1, 0, 0, 0] = np.nan, np.inf
    chained = sardonyx.load(proto, backend="jax", compile="now")
    found, expected = (np.asarray(m(x)) for m in (chained, sardonyx.load(proto, backend="numpy")))
    assert np.isnan(expected).any()
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("threads")
def test_calls_of_chains_from_many_threads_at_once() -> None:
    proto = network(INVERTED, ["y"], **WIDE)
    for mode in ("now", "never"):
        chained = sardonyx.load(proto, backend="jax", compile=mode)
        xs = [image(1 + seed % 3, seed) for seed in range(24)]
        alone = [np.asarray(chained(x)) for x in xs]
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda x, m=chained: np.asarray(m(x)), xs))
        for first, second in zip(alone, together, strict=True):
            np.testing.assert_array_equal(first, second)


def test_a_long_chain_is_cut() -> None:
    count = chaining.MOST_LINKS + 3
    nodes = [conv("x" if i == 0 else f"x{i}", "d", f"x{i + 1}") for i in range(count)]
    proto = network(nodes, [f"x{count}"], d=0.5 * np.eye(32, dtype=np.float32)[:, :, None, None])
    chained = sardonyx.load(proto, backend="jax", compile="never")
    compared(chained, proto, image(1))
    titles = [f"{chaining.MOST_LINKS} chained products", "3 chained products"]
    assert working(chained.trace(image(1))) == titles


def test_a_second_process_replays_a_chain(tmp_path: Path) -> None:
    onnx.save(network(INVERTED, ["y"], **WIDE), tmp_path / "model.onnx")
    first, second = (
        sardonyx.load(
            tmp_path / "model.onnx", backend="jax", compile="now", cache=tmp_path / "cache"
        )
        for _ in range(2)
    )
    np.testing.assert_array_equal(first(image(3)), second(image(3)))
    assert (first.stats().traces, second.stats().traces) == (1, 0)


def test_products_that_read_an_array_in_two_orders_are_no_chain() -> None:
    dtype = np.dtype(np.float32)
    x, w = Spec((2, 32, 4, 4), dtype), Spec((32, 32, 1, 1), dtype)
    layout = ConvolutionLayout((1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    one = onednn.convolution(x, w, layout, epilogue=Epilogue(False, Activation("relu")))
    other = onednn.matrix_product(Spec((2, 32, 4, 32), dtype), Spec((32, 32), dtype))
    assert one is not None
    assert other is not None
    assert onednn.chain([Link(one, 0), Link(one, 1)], 1) is not None
    assert onednn.chain([Link(one, 0), Link(other, 1)], 1) is None
    assert onednn.chain([Link(other, 0), Link(one, 1)], 1) is None


FAULTS = """
import resource, sys, numpy as np, sardonyx
chained = sardonyx.load(sys.argv[1], backend="jax", compile="now")
x = np.ones((256, 32, 14, 14), np.float32)
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
counted = []
for _ in range(5):
    before = faults()
    y = chained(x)
    counted.append(faults() - before)
assert np.asarray(y).any()
print(min(counted))
"""


@pytest.mark.slow
def test_memory_between_products_is_not_asked_for_again(tmp_path: Path) -> None:
    # The array between them has 154 MB; the C library gives back what is larger than 32.
    nodes = [conv("x", "a", "u"), node("Relu", ["u"], ["v"]), conv("v", "c", "y", strides=[7, 7])]
    weights = {"a": filters(768, 32), "c": filters(8, 768)}
    onnx.save(network(nodes, ["y"], **weights), tmp_path / "model.onnx")
    run = [sys.executable, "-c", FAULTS, str(tmp_path / "model.onnx")]
    done = subprocess.run(run, stdout=subprocess.PIPE, check=True)
    assert int(done.stdout) < 5_000


@pytest.mark.slow
def test_release_frees_the_space_between_products() -> None:
    loaded = sardonyx.load(network(*CASES["inverted"][:2], **WIDE), backend="jax", compile="now")
    x = {"x": np.ones((16, CHANNELS, 96, 96), np.float32)}
    expected = loaded.run(None, x)[0].sum()
    before = resident()
    onednn.release()
    assert resident() < before - 2**23
    loaded.release()
    assert loaded.run(None, x)[0].sum() == expected


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_onednn_keeps_no_code_itself() -> None:
    """Once its own cache was full, some convolutions got the code of others."""
    proto = network(IN_TURN, ["y"], **{name: WIDE[name] for name in "da"})
    sardonyx.load(proto, backend="jax", compile="never")(image(1))
    library, capacity = loaded.shared_library(), ctypes.c_int(-1)
    assert library is not None
    assert library.dnnl_get_primitive_cache_capacity(ctypes.byref(capacity)) == 0
    assert capacity.value == 0
