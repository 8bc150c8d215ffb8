"""The forms for TPUs, called as they are on the CPU, where only their numbers can be tested."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.xla_cpu.convolution import general_convolution
from sardonyx.backends.jax.xla_tpu import (
    appending,
    convolution,
    division,
    elimination,
    fourier,
    products,
)

pytestmark = pytest.mark.sampled(3)


@pytest.fixture(autouse=True)
def _wide() -> Any:
    with jax.enable_x64(True):
        yield


# -- one more row ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("axis", [0, 1, -2, -1])
def test_an_appended_row_has_the_bits_of_a_concatenation(axis: int, count: int, dtype: Any) -> None:
    shape = [2, 3, 4, 5]
    draw = np.random.default_rng(0).standard_normal
    parts = []
    for size in (count, 1):
        shape[axis] = size
        parts.append(draw(shape).astype(jnp.dtype(dtype)))
    for part in parts:
        part.reshape(-1)[:3] = np.array([np.nan, np.inf, -0.0])[: part.size]
    assert appending.is_appending(parts, axis)
    result = np.asarray(appending.appended(*parts, axis=axis))
    assert result.tobytes() == np.concatenate(parts, axis=axis).tobytes()


def test_derivatives_of_an_appended_row() -> None:
    rows, row = (np.random.default_rng(0).standard_normal((2, n, 3)) for n in (4, 1))
    slope = np.random.default_rng(1).standard_normal((2, 5, 3))
    append = functools.partial(appending.appended, axis=1)
    _, backward = jax.vjp(append, rows, row)
    for found, expected in zip(backward(slope), np.split(slope, [4], axis=1), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(jax.vmap(append)(rows[None], row[None])[0], append(rows, row))


@pytest.mark.parametrize(
    ("shapes", "dtypes", "axis"),
    [
        ([(2, 4, 3), (2, 2, 3)], ["float32"] * 2, 1),
        ([(2, 4, 3), (2, 1, 3), (2, 1, 3)], ["float32"] * 3, 1),
        ([(4, 3), (1, 3)], ["float32"] * 2, 0),
        ([(2, 4, 3), (2, 1, 3)], ["float32", "float16"], 1),
        ([(2, 4, 3), (2, 1, 3)], ["int64"] * 2, 1),
    ],
)
def test_what_is_concatenated_as_before(shapes: Any, dtypes: Any, axis: int) -> None:
    parts = [jnp.ones(s, d) for s, d in zip(shapes, dtypes, strict=True)]
    assert not appending.is_appending(parts, axis)


# -- division -------------------------------------------------------------------------------------

SMALL = [0, 1, 2, 3, 7, 10, 255, 2**31 - 1]
LARGE = [2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**62 + 5, 2**63 - 2, 2**63 - 1]
SIGNED = [-1, -2, -3, -7, -(2**31) + 1]
SIGNED_LARGE = [-(2**31), -(2**31) - 1, -(2**40), -(2**63), -(2**63) + 1]
UNSIGNED_LARGE = [2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]

OPERANDS = {
    "int64": SMALL + LARGE + SIGNED + SIGNED_LARGE,
    "uint64": SMALL + LARGE + UNSIGNED_LARGE,
    "int64 of 32 bits": SMALL + SIGNED,
    "uint64 of 32 bits": [*SMALL, 2**31, 2**32 - 1],
}


def pairs(name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    numbers = np.array(OPERANDS[name], dtype=name.split(maxsplit=1)[0])
    a, b = np.meshgrid(numbers, numbers)
    return a.ravel(), b.ravel()


@pytest.mark.parametrize("name", OPERANDS)
@pytest.mark.parametrize("function", ["floor_divide", "remainder", "fmod"])
def test_division_is_that_of_jax_for_zeros_and_overflow_too(name: str, function: str) -> None:
    a, b = pairs(name)
    result = getattr(division, function)(a, b)
    assert result.dtype == a.dtype
    np.testing.assert_array_equal(result, getattr(jnp, function)(a, b))


@pytest.mark.parametrize("name", OPERANDS)
def test_division_is_exact(name: str) -> None:
    a, b = pairs(name)
    quotient, rest = division.divided(a, b)
    for x, y, q, r in zip(*(v.tolist() for v in (a, b, quotient, rest)), strict=True):
        if y and (x, y) != (-(2**63), -1):
            assert (q, r) == (int(abs(x) // abs(y)) * (1 if x * y >= 0 else -1), x - q * y)


def test_division_of_nothing_and_of_single_numbers() -> None:
    assert division.floor_divide(jnp.zeros((0, 3), int), jnp.zeros((0, 3), int)).shape == (0, 3)
    assert int(division.remainder(jnp.asarray(-(2**40)), jnp.asarray(7))) == -(2**40) % 7


def test_division_over_a_batch() -> None:
    a, b = (x.reshape(5, -1) for x in pairs("int64"))
    result = jax.vmap(division.remainder)(a, b)
    np.testing.assert_array_equal(result, jnp.remainder(a, b))


# -- products -------------------------------------------------------------------------------------


def random_integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 1, 64, 64), (3, 64, 100)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
        ((2, products.LONGEST_SUM + 70), (products.LONGEST_SUM + 70, 3)),
    ],
)
def test_integers_are_multiplied_modulo_their_range(left: Any, right: Any, dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = random_integers(rng, left, dtype), random_integers(rng, right, dtype)
    result = products.matmul(a, b)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, a @ b)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_products_of_the_greatest_digits_do_not_overflow(dtype: str) -> None:
    # All digits of this number are -128, but for carries.
    worst = np.full((1, products.LONGEST_SUM), int("80" * 8, 16), np.uint64).astype(dtype)
    result = products.by_digits(worst, worst.T)
    np.testing.assert_array_equal(result, worst @ worst.T)


@pytest.mark.parametrize("axes", [0, 1, (-1, 0), ((1, 2), (1, 0)), ((2,), (0,))])
def test_sums_over_axes_are_those_of_numpy(axes: Any) -> None:
    rng = np.random.default_rng(1)
    a, b = random_integers(rng, (3, 4, 5), "int64"), random_integers(rng, (5, 4, 6), "int64")
    np.testing.assert_array_equal(products.tensordot(a, b, axes), np.tensordot(a, b, axes))


# -- transforms -----------------------------------------------------------------------------------


@pytest.mark.sampled(12)
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("size", [1, 2, 7, 10, 100, 127, 131, 400, 1000, 1021, 2062, 4096, 10007])
def test_transforms_are_those_of_numpy(size: int, inverse: bool) -> None:
    rng = np.random.default_rng(size)
    real, imaginary = rng.standard_normal((2, 2, size, 3))
    whole = (np.fft.ifft if inverse else np.fft.fft)(real + 1j * imaginary, axis=1)
    of_real = (np.fft.ifft if inverse else np.fft.fft)(real, axis=1)
    for expected, parts in ((whole, (real, imaginary)), (of_real, (real,))):
        for dtype, error in ((np.float64, 1e-14), (np.float32, 2e-6)):
            arrays = map(jnp.asarray, parts)
            found = fourier.transformed(*arrays, axis=1, dtype=dtype, inverse=inverse)
            assert [part.dtype for part in found] == [dtype, dtype]
            assert abs(found[0] + 1j * found[1] - expected).max() < error * abs(expected).max()


def test_transforms_have_derivatives() -> None:
    def total(x: Any) -> Any:
        real, imaginary = fourier.transformed(x, axis=0, dtype=np.float64)
        return jnp.sum(real**2 + imaginary**2)

    x = np.arange(1.0, 13.0)
    np.testing.assert_allclose(jax.grad(total)(x), 2 * 12 * x, rtol=1e-12)


# -- determinants ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 4, 5, 30, 100])
def test_determinants_are_those_of_numpy(size: int) -> None:
    x = np.random.default_rng(size).standard_normal((3, size, size))
    np.testing.assert_allclose(elimination.det(jnp.asarray(x)), np.linalg.det(x), rtol=1e-12)


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        (np.ones((4, 4)), 0.0),
        (np.zeros((5, 5)), 0.0),
        (np.eye(5)[::-1], 1.0),
        (np.eye(4)[[1, 0, 2, 3]], -1.0),
        (np.diag([2.0, 0, 3, 4]), 0.0),
        (np.diag([1e-30, 1e30, 2, 3]), 6.0),
    ],
)
def test_determinants_of_singular_and_swapped_rows(matrix: Any, expected: float) -> None:
    assert float(elimination.det(jnp.asarray(matrix))) == expected


def test_determinants_of_an_empty_batch() -> None:
    assert elimination.det(jnp.zeros((0, 4, 4))).shape == (0,)


def test_determinants_have_derivatives() -> None:
    x = np.random.default_rng(5).standard_normal((5, 5))
    slope = jax.grad(elimination.det)(x)
    np.testing.assert_allclose(slope, np.linalg.det(x) * np.linalg.inv(x).T, rtol=1e-9)


# -- convolution ----------------------------------------------------------------------------------


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize("right", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("shape", "filters", "layout"),
    [
        ((2, 4, 9), (6, 4, 3), ConvolutionLayout((2,), ((0, 0),), (1,))),
        ((2, 6, 8, 7), (4, 3, 3, 2), ConvolutionLayout((1, 2), ((0, 0),) * 2, (2, 1), 2)),
        ((1, 2, 5, 5, 5), (3, 2, 1, 2, 3), ConvolutionLayout((1,) * 3, ((0, 0),) * 3, (1,) * 3)),
        ((0, 2, 5), (3, 2, 3), ConvolutionLayout((1,), ((0, 0),), (1,))),
    ],
)
def test_convolutions_of_bytes_are_exact(
    left: str, right: str, shape: Any, filters: Any, layout: ConvolutionLayout
) -> None:
    rng = np.random.default_rng(0)
    x, weight = random_integers(rng, shape, left), random_integers(rng, filters, right)
    result = convolution.by_instructions(jnp.asarray(x), jnp.asarray(weight), layout)
    wide = general_convolution(x.astype(np.float64), weight.astype(np.float64), layout)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(np.asarray(result).ravel(), np.asarray(wide).ravel())
