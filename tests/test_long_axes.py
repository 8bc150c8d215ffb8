"""Convolutions along one long axis, whose ends oneDNN's kernels reach over."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sardonyx.backends.fused_epilogue import Epilogue
from sardonyx.backends.jax import onednn
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.numpy import HOST
from sardonyx.ops.fused_products import convolution_and_more
from tests.support.kernels import NEEDS_ONEDNN
from tests.test_onednn import (
    EPILOGUES,
    Window,
    assert_close,
    assert_convolves,
    convolution,
    drawn,
    others_of,
    spec_of,
)

pytestmark = NEEDS_ONEDNN

WINDOWS = [
    Window((1, 24, 700), (40, 24, 3), 1, (12, 0), 6),
    Window((2, 16, 600), (24, 16, 7), 2, (5, 9), 2),
    Window((1, 32, 900), (64, 8, 5), 1, (8, 8), 4, 4),
    Window((1, 48, 512), (48, 1, 3), 1, (8, 8), 8, 48),
    Window((1, 8, 300), (16, 8, 3), 1, (290, 290), 290),
]


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_far_ends(window: Window, epilogue: Epilogue) -> None:
    assert_convolves(window, epilogue)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("epilogue", EPILOGUES[1:6], ids=str)
@pytest.mark.parametrize(
    ("size", "dilation", "pads"), [(700, 8, (8, 8)), (300, 1, (1, 1)), (9, 2, (4, 0))]
)
def test_a_single_row_of_pixels(
    size: int, dilation: int, pads: tuple[int, int], epilogue: Epilogue
) -> None:
    layout = ConvolutionLayout((1, 1), ((0, 0), pads), (1, dilation), 1)
    x, weight = drawn(2, 24, 1, size), drawn(40, 24, 1, 3)
    specs = spec_of(x.shape), spec_of(weight.shape)
    product = onednn.convolution(*specs, layout, epilogue=epilogue)
    assert product is not None
    others = others_of(product, epilogue, 40)
    found = product.run(x, product.form.pack(weight), *others)
    wide = [np.asarray(a, np.float64) for a in (x, weight, *others)]
    with HOST.scope():
        expected = convolution_and_more(HOST, *wide, epilogue=epilogue, **layout._asdict())
    assert_close(found, expected)


def test_a_kernel_for_a_long_axis_with_far_ends_is_soon_chosen() -> None:
    """For the whole axis, oneDNN took half a second."""
    convolution(WINDOWS[0])  # Loads the kernels, or builds them.
    start = time.perf_counter()
    convolution(Window((1, 32, 64_000), (32, 32, 3), 1, (16, 16), 16))
    assert time.perf_counter() - start < 0.15
