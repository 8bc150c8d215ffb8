from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from tests.ops.ml_oracle import assert_like, onnxruntime_ml, run_ml, strings

DTYPES = (np.float32, np.float64, np.int32, np.int64)
EACH_DTYPE = pytest.mark.parametrize("dtype", DTYPES)
TABLE = np.asarray([[1, 0, -3], [0, 0, 0], [4, -5, 6], [-1, -2, -4]])


@EACH_DTYPE
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_Normalizer_is_that_of_onnxruntime(xp: Backend, norm: str, dtype: Any) -> None:
    x = TABLE.astype(dtype)
    for given in (x, x[0]):
        expected = onnxruntime_ml("Normalizer", given, norm=norm)
        assert_like(run_ml(xp, "Normalizer", given, norm=norm), expected)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_Normalizer_takes_the_maximum_of_the_numbers_beside_NaN(xp: Backend, norm: str) -> None:
    n = np.nan
    rows = [[n, 1, 2], [1, n, 2], [2, 1, n], [n, n, n], [n, 0, 0], [-1, n, -2], [np.inf, n, 1]]
    x = np.asarray(rows, np.float32)
    with np.errstate(invalid="ignore"):
        found = run_ml(xp, "Normalizer", x, norm=norm)
    assert_like(found, onnxruntime_ml("Normalizer", x, norm=norm))


@EACH_DTYPE
@pytest.mark.parametrize("scale", [[0.1], [2.0, 0.5, -1.0]])
def test_Scaler_is_that_of_onnxruntime(xp: Backend, scale: list[float], dtype: Any) -> None:
    x = TABLE.astype(dtype)
    offset = [value + 1 for value in scale]
    for given in (x, x[0]):
        expected = onnxruntime_ml("Scaler", given, offset=offset, scale=scale)
        assert_like(run_ml(xp, "Scaler", given, offset=offset, scale=scale), expected)


def test_Scaler_needs_neither_an_offset_nor_a_scale(xp: Backend) -> None:
    x = TABLE.astype(np.float64)
    assert_like(run_ml(xp, "Scaler", x), x.astype(np.float32))
    assert_like(run_ml(xp, "Scaler", x, scale=[2.0]), (2 * x).astype(np.float32))


@EACH_DTYPE
def test_Binarizer_compares_with_a_fraction(xp: Backend, dtype: Any) -> None:
    x = TABLE.astype(dtype)
    y = run_ml(xp, "Binarizer", x, threshold=-0.5)
    assert_like(y, (x > -0.5).astype(dtype))
    if dtype == np.float32:
        assert_like(y, onnxruntime_ml("Binarizer", x, threshold=-0.5))


@pytest.mark.parametrize("imputed", [[9.0], [9.0, 8.0, 7.0]])
@pytest.mark.parametrize("replaced", [np.nan, 0.0, np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_Imputer_replaces_a_float_or_what_is_missing(
    xp: Backend, dtype: Any, replaced: float, imputed: list[float]
) -> None:
    x = np.asarray([[1, np.nan, 0], [-0.0, np.inf, np.nan]], dtype)
    known = {"imputed_value_floats": imputed, "replaced_value_float": replaced}
    same = np.isnan(x) if np.isnan(replaced) else x == replaced
    expected = np.where(same, np.asarray(imputed, dtype), x)
    for given, other in ((x, expected), (x[0], expected[0])):
        assert_like(run_ml(xp, "Imputer", given, **known), other)
    if dtype == np.float32:
        assert_like(expected, onnxruntime_ml("Imputer", x, **known))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_Imputer_replaces_an_integer(xp: Backend, dtype: Any) -> None:
    known = {"imputed_value_int64s": [9, 8, 7], "replaced_value_int64": 0}
    y = run_ml(xp, "Imputer", TABLE.astype(dtype), **known)
    assert_like(y, np.where(TABLE == 0, [9, 8, 7], TABLE).astype(dtype))
    assert_like(y.astype(np.int64), onnxruntime_ml("Imputer", TABLE, **known))


@EACH_DTYPE
def test_OneHotEncoder_cuts_fractions_off(xp: Backend, dtype: Any) -> None:
    x = (TABLE * 1.25).astype(dtype)
    categories = [5, 0, -3, 7, 0]
    y = run_ml(xp, "OneHotEncoder", x, cats_int64s=categories)
    expected = onnxruntime_ml("OneHotEncoder", x.astype(np.int64), cats_int64s=categories)
    assert_like(y, expected)
    assert run_ml(xp, "OneHotEncoder", x[None], cats_int64s=categories).shape == (1, 4, 3, 5)


def test_OneHotEncoder_knows_strings(xp: Backend) -> None:
    x = strings("a", "b", "?").reshape(1, 3)
    expected = onnxruntime_ml("OneHotEncoder", x, cats_strings=["b", "z", "a"])
    assert_like(run_ml(xp, "OneHotEncoder", x, cats_strings=["b", "z", "a"]), expected)


def test_OneHotEncoder_tells_of_a_category_that_may_not_be_missing(xp: Backend) -> None:
    known = {"cats_int64s": [1, 2], "zeros": 0}
    x = np.asarray([2, 1])
    assert_like(run_ml(xp, "OneHotEncoder", x, **known), np.asarray([[0, 1], [1, 0]], np.float32))
    unknown = np.asarray([2, 5])
    if xp.compiled or xp.name == "cupy":
        y = run_ml(xp, "OneHotEncoder", unknown, **known)
        np.testing.assert_array_equal(y, [[0, 1], [np.nan, np.nan]])
    else:
        with pytest.raises(sardonyx.InvalidInput, match="zeros is 0"):
            run_ml(xp, "OneHotEncoder", unknown, **known)


@EACH_DTYPE
@pytest.mark.parametrize("widths", [[3, 2], [1, 4], [0, 2]])
def test_FeatureVectorizer_is_that_of_onnxruntime(
    xp: Backend, widths: list[int], dtype: Any
) -> None:
    x, other = TABLE.astype(dtype), TABLE[:, :2].astype(dtype)
    for given in ((x, other), (x[0], other[0])):
        expected = onnxruntime_ml("FeatureVectorizer", *given, inputdimensions=widths)
        assert_like(run_ml(xp, "FeatureVectorizer", *given, inputdimensions=widths), expected)


def test_FeatureVectorizer_takes_inputs_as_wide_as_they_are(xp: Backend) -> None:
    y = run_ml(xp, "FeatureVectorizer", TABLE, TABLE[:, :1])
    assert_like(y, np.concatenate([TABLE, TABLE[:, :1]], axis=1).astype(np.float32))


@pytest.mark.parametrize("shape", [(6,), (4, 3), (2, 3, 4)])
def test_ArrayFeatureExtractor_is_that_of_onnxruntime(xp: Backend, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape)).reshape(shape)
    for given in (x, x.astype(np.float64), x.astype(str).astype(object)):
        places = np.asarray([[2, 0, 0]])
        expected = onnxruntime_ml("ArrayFeatureExtractor", given, places)
        assert_like(run_ml(xp, "ArrayFeatureExtractor", given, places), expected)


@pytest.mark.parametrize(
    ("op", "known", "told"),
    [
        ("Normalizer", {"norm": "L3"}, "L3"),
        ("Scaler", {"scale": [1.0, 2.0]}, "has 2 numbers, but must have 1 or 3"),
        ("Imputer", {"imputed_value_floats": [1.0]}, "imputed_value_int64s has 0 numbers"),
        ("Imputer", {"imputed_value_int64s": [1, 2]}, "has 2 numbers, but must have 1 or 3"),
        ("OneHotEncoder", {}, "0 of the lists"),
        ("OneHotEncoder", {"cats_int64s": [1], "cats_strings": ["a"]}, "2 of the lists"),
        ("OneHotEncoder", {"cats_strings": ["a"]}, "the type of the keys, string"),
        ("FeatureVectorizer", {"inputdimensions": [1, 2]}, "1 non-negative numbers"),
        ("FeatureVectorizer", {"inputdimensions": [-1]}, "1 non-negative numbers"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(op: str, known: dict[str, Any], told: str) -> None:
    with pytest.raises(sardonyx.InvalidInput, match=told):
        run_ml(HOST, op, TABLE, **known)


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(sardonyx.LimitExceeded):
        run_ml(HOST, "FeatureVectorizer", TABLE, inputdimensions=[2**60])
    with pytest.raises(sardonyx.InvalidInput, match="exceeds int32"):
        run_ml(HOST, "Imputer", TABLE.astype(np.int32), imputed_value_int64s=[2**40])
