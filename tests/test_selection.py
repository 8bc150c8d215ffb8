"""What NumPy selects on bits, as `np.where` does, and its error function."""

from __future__ import annotations

from math import erf
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends import selection
from sardonyx.backends.error_function import error_function
from sardonyx.backends.numpy import HOST

SHAPE = (3, 40, 200)
DTYPES = [
    *("float32", "float64", "int32", "int64", "uint32", "uint64", "int8", "float16", "bool"),
    *("complex64", ">f4", ml_dtypes.bfloat16),
]


def drawn(dtype: Any, shape: tuple[int, ...] = SHAPE) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(len(shape)).normal(scale=50, size=shape)
    return np.abs(values).astype(dtype) if np.dtype(dtype).kind == "u" else values.astype(dtype)


def assert_selected(condition: Any, a: Any, b: Any) -> None:
    expected = np.where(condition, a, b)
    found = HOST.where(condition, a, b)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_of_two_arrays(dtype: Any) -> None:
    condition = drawn("f4") > 0
    for a, b in (
        (drawn(dtype), drawn(dtype)[::-1]),
        (drawn(dtype), drawn(dtype, (1, 40, 1))),
        (drawn(dtype, (200,)), drawn(dtype, ())),
        (drawn(dtype).transpose(0, 2, 1).copy().transpose(0, 2, 1), drawn(dtype)),
    ):
        assert_selected(condition, a, b)
        assert_selected(~condition, b, a)


def test_numbers_of_python_and_other_types() -> None:
    condition, x = drawn("f4") > 0, drawn("f4")
    for a, b in ((x, 1), (0.0, x), (x, -np.inf), (x, drawn("f8")), (drawn("i4"), x), (1, 2)):
        assert_selected(condition, a, b)
    assert_selected(drawn("i4"), x, 0)
    assert_selected(condition[:1], x, drawn("f4", (5, *SHAPE)))


def test_bits_stay_as_they_are() -> None:
    special = np.array([np.nan, -np.nan, -0.0, np.inf, 1e-45], np.float32)
    payload = (special.view(np.int32) | 5).view(np.float32)
    x = np.tile(np.concatenate([special, payload]), selection.FEWEST)
    assert_selected(np.arange(x.size) % 3 == 0, x, x[::-1])


def test_few_elements_are_left_to_numpy() -> None:
    few, many = np.zeros(selection.FEWEST - 1, bool), np.zeros(selection.FEWEST, bool)
    assert selection.selected(few, np.float32(1), np.float32(2)) is None
    assert selection.selected(many, np.float32(1), np.float32(2)) is not None


def test_the_error_function_has_the_precision_of_float32() -> None:
    rng = np.random.default_rng(0)
    spread = np.exp(rng.uniform(-60, 1.5, 20_000)) * rng.choice([-1, 1], 20_000)
    x = np.concatenate([np.linspace(-5, 5, 80_001), spread]).astype(np.float32)
    expected = np.array([erf(value) for value in x.tolist()])
    units = np.abs(error_function(x) - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert units.max() < 4
    assert units.mean() < 1


def test_its_limits_are_exact() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0], np.float32)
    with np.errstate(over="ignore"):
        found = error_function(x)
    np.testing.assert_array_equal(found, np.array([np.nan, 1, -1, 1, -1, 0, 0], np.float32))
    assert np.signbit(found[-1])
    assert found.dtype == np.float32
    assert (np.diff(error_function(np.linspace(-5, 5, 100_001, dtype=np.float32))) >= 0).all()


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16], ids=str)
def test_every_shape_and_type_of_floats(dtype: Any, shape: tuple[int, ...]) -> None:
    x = drawn(dtype, shape) / np.array(40, dtype)
    expected = np.vectorize(erf, otypes=[float])(x.astype(float)) if x.size else np.zeros(shape)
    found = np.asarray(HOST.erf(x))
    assert (found.dtype, found.shape) == (x.dtype, shape)
    np.testing.assert_allclose(found.astype(float), expected, rtol=0.02, atol=1e-6)
