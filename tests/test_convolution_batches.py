"""Convolutions in batches of any size: right, and all with the same packed weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper

import sardonyx
from sardonyx.backends.fused_epilogue import NOTHING, Activation, Epilogue
from sardonyx.backends.jax import onednn
from tests.support import onnx_builders as builders
from tests.support.kernels import NEEDS_ONEDNN
from tests.test_onednn import Window, convolved, drawn, others_of

pytestmark = NEEDS_ONEDNN

# Of one image: with many pixels and few, weights that outweigh the arrays, and groups. For two
# images of the second, oneDNN wants the weights in another form.
WINDOWS = {
    "plain": Window((1, 16, 20, 20), (32, 16, 3, 3), 2, (1, 1)),
    "pointwise, few pixels": Window((1, 192, 7, 7), (64, 192, 1, 1)),
    "pointwise, many pixels": Window((1, 24, 30, 30), (48, 24, 1, 1)),
    "many weights": Window((1, 320, 7, 7), (1280, 320, 1, 1)),
    "many weights in odd numbers": Window((1, 300, 5, 5), (1000, 300, 1, 1)),
    "few outputs": Window((1, 512, 3, 3), (16, 512, 3, 3), 1, (1, 1)),
    "each channel alone": Window((1, 96, 14, 14), (96, 1, 3, 3), 1, (1, 1), 1, 96),
    "far ends": Window((1, 16, 500), (24, 16, 3), 1, (8, 8), 8),
    "one axis": Window((1, 64, 33), (64, 64, 1)),
    "three axes": Window((1, 8, 4, 5, 6), (16, 8, 3, 3, 3), 1, (1, 1)),
    "one pixel": Window((1, 48, 1, 1), (96, 48, 1, 1)),
}
BATCHES = (1, 2, 3, 4, 7, 8, 9, 16, 33, 70)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=list(WINDOWS))
@pytest.mark.parametrize(
    "epilogue", [NOTHING, Epilogue(True, Activation("relu"), "before")], ids=["plain", "epilogue"]
)
def test_any_batch_with_any_number_of_threads(
    window: Window, epilogue: Epilogue, threads: int
) -> None:
    weight = drawn(*window.weight)
    packed, forms = None, set()
    for batch in BATCHES:
        own = replace(window, x=(batch, *window.x[1:]))
        product: Any = onednn.convolution(
            *own.specs(np.float32), own.layout, epilogue=epilogue, threads=threads
        )
        forms.add(product.form)
        packed = product.form.pack(weight) if packed is None else packed
        x, others = drawn(*own.x), others_of(product, epilogue, window.weight[0])
        expected = convolved(own, epilogue, x, weight, *others, dtype=np.float32)
        found = product.run(x, packed, *others)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    assert len(forms) == 1


@pytest.mark.slow
def test_a_batch_is_as_right_as_its_images_alone() -> None:
    weights = [drawn(24, 8, 3, 3), drawn(24, 1, 3, 3, seed=1), drawn(16, 24, 1, 1, seed=2)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], pads=[1] * 4, group=24),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "w2"], ["y"]),
    ]
    proto = builders.model(
        nodes,
        [builders.value("x", ["n", 8, 40, 40])],
        ["y"],
        weights=[builders.weight(f"w{i}", weight) for i, weight in enumerate(weights)],
    )
    model = sardonyx.load(proto, backend="jax")
    x = drawn(23, 8, 40, 40)
    alone = np.concatenate([model(x[i : i + 1]) for i in range(len(x))])
    for batch in (23, 2, 11, 16, 5):
        np.testing.assert_allclose(model(x[:batch]), alone[:batch], rtol=1e-4, atol=1e-4)
