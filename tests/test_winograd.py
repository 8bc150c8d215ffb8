"""Convolutions of 3 by 3 taps by sums of pixels, without AVX-512: as close as by all products."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import numpy as np
import pytest

from sardonyx.backends.fused_epilogue import NOTHING, Activation, Epilogue
from sardonyx.backends.jax import onednn
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.operations.products import Link
from tests.support.kernels import NEEDS_ONEDNN, has_avx512
from tests.test_onednn import EPILOGUES, RELU, assert_close, convolved, drawn, others_of, spec_of

pytestmark = NEEDS_ONEDNN

# Of the images and the results: whole tiles and others, panels of 16 and of 24 channels and others.
SIZES = [(1, 16, 15, 14, 16), (2, 24, 13, 17, 40), (3, 32, 20, 15, 72), (1, 64, 56, 14, 128)]
SIZES += [(1, 256, 14, 14, 200), (5, 48, 16, 15, 24)]
PADS = [(0, 0), (1, 1), (2, 2), (0, 1), (2, 0)]
HUGE = 3e38


class Case:
    """A convolution, with the weight and the image that it takes."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        pads: tuple[int, int] = (1, 1),
        epilogue: Epilogue = NOTHING,
        threads: int = 2,
    ) -> None:
        batch, inputs, height, width, outputs = sizes
        self.x = drawn(batch, inputs, height, width)
        self.weight = drawn(outputs, inputs, 3, 3) / np.float32(inputs**0.5)
        self.layout = ConvolutionLayout((1, 1), (pads, pads), (1, 1), 1)
        self.epilogue = epilogue
        specs = spec_of(self.x.shape), spec_of(self.weight.shape)
        kernel = onednn.convolution(*specs, self.layout, epilogue=epilogue, threads=threads)
        assert kernel is not None
        self.kernel = kernel
        self.others = others_of(kernel, epilogue, outputs)

    @property
    def is_by_sums(self) -> bool:
        return self.kernel.form.numbers[0] == -1

    def computed(self) -> Any:
        return self.kernel.run(self.x, self.kernel.form.pack(self.weight), *self.others)

    def check(self) -> None:
        assert_close(self.computed(), self.exact())

    def exact(self) -> Any:
        window: Any = self
        return convolved(window, self.epilogue, self.x, self.weight, *self.others)


@pytest.mark.parametrize("pads", PADS, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_results(sizes: tuple[int, ...], pads: tuple[int, int]) -> None:
    case = Case(sizes, pads)
    assert case.is_by_sums != has_avx512()
    case.check()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "epilogue", [*EPILOGUES, Epilogue(True, Activation("hard_swish", 1 / 6, 0.5), "after")], ids=str
)
def test_what_follows(epilogue: Epilogue, threads: int) -> None:
    case = Case(SIZES[1], epilogue=epilogue, threads=threads)
    for is_finite in (True, False):
        if not is_finite:
            case.x[0, 3, 4, 5], case.x[1, 2, 0, 0], case.x[1, 7, 12, 3] = np.nan, np.inf, -np.inf
        case.check()


def test_threads_and_images_beside_it_leave_an_image_as_it_is() -> None:
    batch, *sizes = SIZES[2]
    whole = Case(SIZES[2], threads=1)
    expected = whole.computed()
    for threads, images in product((1, 2, 3, 64), (1, 2, batch)):
        case = Case((images, *sizes), threads=threads)
        case.x = whole.x[:images]
        np.testing.assert_array_equal(case.computed(), expected[:images])


@pytest.mark.parametrize("epilogue", [NOTHING, Epilogue(True, RELU)], ids=str)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_its_own_results_alone(
    number: float, epilogue: Epilogue
) -> None:
    for row, column in product((0, 3, 6, 12), (0, 5, 16)):
        case = Case(SIZES[1], epilogue=epilogue)
        case.x[1, 5, row, column] = number
        found, wanted = case.computed(), case.exact()
        assert_close(found, wanted)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, HUGE])
def test_weights_that_are_not_finite(number: float) -> None:
    # What lies outside of the image is left out, where NumPy multiplies zeros by infinities.
    case = Case(SIZES[1], pads=(0, 0))
    case.weight[7, 3, 1, 2] = number
    case.x[:, 3] = 0.25
    case.check()


def test_sums_that_would_be_too_large() -> None:
    case = Case(SIZES[0])
    case.x[:] = HUGE
    case.weight[:] = drawn(*case.weight.shape) * 1e-5
    found, wanted = case.computed(), case.exact()
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_processors_flags_are_as_before() -> None:
    """NumPy warns of what the processor has noted."""
    case = Case(SIZES[0])
    case.x[0, 0, 5, 5] = np.inf
    with np.errstate(all="raise"):
        case.computed()
        assert (drawn(100) + drawn(100)).size == 100


def test_it_is_as_close_as_all_products() -> None:
    case = Case((1, 128, 28, 28, 128))
    exact = case.exact()
    error = np.abs(case.computed() - exact).max() / np.abs(exact).max()
    assert error < 2e-6


def test_in_a_program_and_in_a_chain() -> None:
    case = Case((2, 64, 14, 14, 64), epilogue=Epilogue(True, RELU))
    packed = case.kernel.form.pack(case.weight)
    once = case.computed()
    np.testing.assert_array_equal(jax.jit(case.kernel.run)(case.x, packed, *case.others), once)
    chain = onednn.chain([Link(case.kernel, 0), Link(case.kernel, 1)], 1)
    assert chain is not None
    twice = case.kernel.run(once, packed, *case.others)
    arguments = (case.x, packed, *case.others, packed, *case.others)
    np.testing.assert_array_equal(chain.run(*arguments), twice)
    np.testing.assert_array_equal(jax.jit(chain.run)(*arguments), twice)


@pytest.mark.parametrize(
    "sizes",
    [(1, 16, 7, 7, 16), (1, 12, 20, 20, 16), (1, 16, 20, 20, 12), (1, 8, 20, 20, 64)],
    ids=str,
)
def test_others_take_all_products(sizes: tuple[int, ...]) -> None:
    case = Case(sizes)
    assert not case.is_by_sums
    case.check()
