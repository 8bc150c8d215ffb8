"""Linear models and support vector machines."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from tests.ops.ml_oracle import assert_like, drawn, onnxruntime_ml, run_ml

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
DTYPES = (np.float32, np.float64, np.int32, np.int64)
LABELS: dict[str, list[Any]] = {
    "classlabels_ints": [5, 9, 7],
    "classlabels_strings": ["b", "c", "a"],
}


def rows(dtype: Any, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(9, 4)) * 2).astype(dtype)


# -- linear models --------------------------------------------------------------------------------


@pytest.mark.parametrize("post_transform", TRANSFORMS)
@pytest.mark.parametrize("kind", LABELS)
def test_linear_classes_are_those_of_onnxruntime(
    xp: Backend, kind: str, post_transform: str
) -> None:
    known: dict[str, Any] = {kind: LABELS[kind], "post_transform": post_transform}
    # Of the scores for PROBIT only those between 0 and 1 have a meaning.
    scale, centre = (0.02, 0.5) if post_transform == "PROBIT" else (1.0, 0.0)
    known["coefficients"] = drawn(3, 4, scale=scale)
    known["intercepts"] = [centre + value for value in drawn(3, scale=scale)]
    x = rows(DTYPES[TRANSFORMS.index(post_transform) % 4])
    for given in (x, x[0]):
        expected = onnxruntime_ml("LinearClassifier", given, outputs=2, **known)
        found = run_ml(xp, "LinearClassifier", given, outputs=2, **known)
        for actual, other in zip(found, expected, strict=True):
            assert_like(actual, other, 1e-4 if post_transform == "PROBIT" else 1e-5)


@pytest.mark.parametrize(
    ("post_transform", "first", "second"),
    [
        ("NONE", -2.0, 2.0),
        ("LOGISTIC", 1 / (1 + np.exp(2.0)), 1 / (1 + np.exp(-2.0))),
        ("SOFTMAX", 1 / (1 + np.exp(4.0)), 1 / (1 + np.exp(-4.0))),
    ],
)
def test_a_single_score_is_that_of_the_second_label(
    xp: Backend, post_transform: str, first: float, second: float
) -> None:
    known = {"coefficients": [1.0], "post_transform": post_transform}
    x = np.asarray([[2.0], [-2.0]], np.float32)
    labels, scores = run_ml(
        xp, "LinearClassifier", x, outputs=2, classlabels_strings=["no", "yes"], **known
    )
    assert labels.tolist() == ["yes", "no"]
    np.testing.assert_allclose(scores, [[first, second], [second, first]], rtol=1e-6)


def test_a_single_label_is_told_as_0_or_1(xp: Backend) -> None:
    x = np.asarray([[2.0], [-2.0]], np.float32)
    known = {"coefficients": [1.0], "classlabels_ints": [7], "intercepts": [0.0]}
    labels, scores = run_ml(xp, "LinearClassifier", x, outputs=2, **known)
    assert_like(labels, np.asarray([1, 0]))
    assert_like(scores, x)


@pytest.mark.parametrize("post_transform", TRANSFORMS[:4])
def test_linear_regression_is_that_of_onnxruntime(xp: Backend, post_transform: str) -> None:
    known = {"targets": 3, "coefficients": drawn(3, 4), "post_transform": post_transform}
    known["intercepts"] = drawn(3)
    x = rows(np.float32)
    expected = onnxruntime_ml("LinearRegressor", x, **known)
    assert_like(run_ml(xp, "LinearRegressor", x, **known), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_regression_is_rounded_once(xp: Backend, dtype: Any) -> None:
    x = (rows(np.float64) * 100).astype(dtype)
    weights = drawn(4)
    y = run_ml(xp, "LinearRegressor", x, coefficients=weights)
    exact = (x.astype(np.float64) @ weights)[:, None]
    assert_like(y, exact.astype(np.float32), 1e-5 if dtype == np.float32 else 1e-7)


def test_probit_is_the_normal_distribution_turned_round(xp: Backend) -> None:
    """To the few digits of the formula, also near 0.5, where they would cancel."""
    x = np.asarray([0.0, 0.001, 0.25, 0.49999, 0.5, 0.50001, 0.75, 0.999, 1.0], np.float32)
    known: dict[str, Any] = {"coefficients": [1.0], "post_transform": "PROBIT"}
    y = run_ml(xp, "LinearRegressor", x[:, None], **known)[:, 0]
    inner = [NormalDist().inv_cdf(float(value)) for value in x[1:-1]]
    np.testing.assert_allclose(y[1:-1], inner, rtol=5e-3, atol=1e-7)
    np.testing.assert_array_equal(y[[0, -1]], [-np.inf, np.inf])


# -- support vectors ------------------------------------------------------------------------------


def machine(classes: int, kernel: str, degree: float = 3.0) -> dict[str, Any]:
    counts = [2, 3, 1, 4, 2][:classes]
    return {
        "classlabels_ints": list(range(10, 10 + classes)),
        "vectors_per_class": counts,
        "support_vectors": drawn(sum(counts), 4),
        "coefficients": drawn(classes - 1, sum(counts)),
        "rho": drawn(classes * (classes - 1) // 2),
        "kernel_type": kernel,
        "kernel_params": [0.25, 0.5, degree],
    }


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("classes", [2, 5])
def test_votes_and_scores_of_pairs_are_those_of_onnxruntime(
    xp: Backend, classes: int, kernel: str
) -> None:
    known = machine(classes, kernel)
    x = rows(DTYPES[len(kernel) % 4], seed=classes)
    expected = onnxruntime_ml("SVMClassifier", x, outputs=2, **known)
    found = run_ml(xp, "SVMClassifier", x, outputs=2, **known)
    for actual, other in zip(found, expected, strict=True):
        assert_like(actual, other, 1e-4)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_probabilities_of_classes_are_those_of_onnxruntime(xp: Backend, classes: int) -> None:
    known = machine(classes, "RBF")
    pairs = len(known["rho"])
    known["prob_a"], known["prob_b"] = [-2.0] * pairs, drawn(pairs, scale=0.3)
    x = rows(np.float32)
    labels, likely = run_ml(xp, "SVMClassifier", x, outputs=2, **known)
    expected = onnxruntime_ml("SVMClassifier", x, outputs=2, **known)
    assert_like(labels, expected[0])
    assert_like(likely, expected[1], 1e-3)
    np.testing.assert_allclose(likely.sum(axis=1), 1, rtol=1e-5)


def test_scores_of_pairs_are_transformed_where_there_are_two_classes(xp: Backend) -> None:
    known = machine(2, "LINEAR")
    x = rows(np.float32)
    _, raw = run_ml(xp, "SVMClassifier", x, outputs=2, **known)
    _, likely = run_ml(xp, "SVMClassifier", x, outputs=2, post_transform="LOGISTIC", **known)
    np.testing.assert_allclose(likely, 1 / (1 + np.exp(-raw)), rtol=1e-5)


def test_without_support_vectors_each_class_has_a_score(xp: Backend) -> None:
    known = {"classlabels_strings": ["b", "c", "a"], "coefficients": drawn(3, 4)}
    known |= {"rho": [0.5], "kernel_params": [0.0, 0.0, 0.0], "post_transform": "SOFTMAX"}
    x = rows(np.int64)
    expected = onnxruntime_ml("SVMClassifier", x, outputs=2, **known)
    found = run_ml(xp, "SVMClassifier", x, outputs=2, **known)
    for actual, other in zip(found, expected, strict=True):
        assert_like(actual, other)


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vector_regression_is_that_of_onnxruntime(
    xp: Backend, kernel: str, one_class: int
) -> None:
    known = {"n_supports": 5, "support_vectors": drawn(5, 4), "coefficients": drawn(5)}
    known |= {"rho": [0.25], "kernel_type": kernel, "kernel_params": [0.25, 0.5, 2.0]}
    x = rows(np.float32)
    expected = onnxruntime_ml("SVMRegressor", x, one_class=one_class, **known)
    assert_like(run_ml(xp, "SVMRegressor", x, one_class=one_class, **known), expected, 1e-4)


def test_support_vectors_far_from_zero_keep_their_distances(xp: Backend) -> None:
    """Squares of thousands, of which float32 would leave nothing of a distance of one."""
    x = np.asarray([[3001.0, -4000.0]], np.float32)
    known = {"n_supports": 1, "support_vectors": [3000.0, -4000.0], "coefficients": [1.0]}
    known |= {"rho": [0.0], "kernel_type": "RBF", "kernel_params": [1.0, 0.0, 0.0]}
    y = run_ml(xp, "SVMRegressor", x, **known)
    np.testing.assert_allclose(y, [[np.exp(-1.0)]], rtol=1e-6)


def test_an_infinite_feature_is_far_from_all_support_vectors(xp: Backend) -> None:
    known = {"n_supports": 2, "support_vectors": [0.0, 1.0, 2.0, 3.0], "coefficients": [1.0, 2.0]}
    known |= {"rho": [0.25], "kernel_type": "RBF", "kernel_params": [0.5, 0.0, 0.0]}
    x = np.asarray([[np.inf, 1.0], [np.inf, -np.inf], [np.nan, np.inf], [0.0, 1.0]], np.float32)
    expected = onnxruntime_ml("SVMRegressor", x, **known)
    assert_like(run_ml(xp, "SVMRegressor", x, **known), expected)


def test_large_coefficients_of_both_signs_cancel_without_loss(xp: Backend) -> None:
    """NuSVC has such coefficients; float32 would leave three digits of their sums."""
    one = np.reshape(drawn(2, 4), (2, 4))
    vectors = np.concatenate([one, one + 2.0**-12]).astype(np.float32)
    weights, x = [1e7, 1e7, -1e7, -1e7], rows(np.float32)
    known = machine(2, "LINEAR") | {"vectors_per_class": [2, 2], "rho": [0.0]}
    known |= {"support_vectors": vectors.ravel().tolist(), "coefficients": weights}
    _, scores = run_ml(xp, "SVMClassifier", x, outputs=2, **known)
    exact = x.astype(np.float64) @ vectors.T.astype(np.float64) @ weights
    np.testing.assert_allclose(scores, np.stack([-exact, exact], axis=1), rtol=1e-6)


# -- models that are none -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "changed", "told"),
    [
        ("LinearRegressor", {"targets": 0}, "targets is 0"),
        ("LinearRegressor", {"targets": 2**62}, "but must have"),
        ("LinearRegressor", {"coefficients": [1.0]}, "must have 1 x 4"),
        (
            "LinearRegressor",
            {"intercepts": [1.0, 2.0]},
            "intercepts has 2 numbers, but must have 1",
        ),
        ("LinearRegressor", {"post_transform": "logistic"}, "'logistic'"),
        ("LinearClassifier", {}, "either integers or strings"),
        (
            "LinearClassifier",
            {"classlabels_ints": [1, 2, 3], "coefficients": [1.0] * 8},
            "3 labels",
        ),
        ("SVMRegressor", {}, "rho is missing"),
        ("SVMRegressor", {"rho": [0.0], "n_supports": 3}, "must have 3 x 4"),
        ("SVMRegressor", {"rho": [0.0], "n_supports": 1, "kernel_type": "COSINE"}, "COSINE"),
        ("SVMRegressor", {"rho": [0.0], "n_supports": 1, "kernel_params": [1.0]}, "must have 3"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(op: str, changed: dict[str, Any], told: str) -> None:
    known = {"coefficients": drawn(4)} | changed
    outputs = 2 if op.endswith("Classifier") else 1
    with pytest.raises(sardonyx.SardonyxError, match=told):
        run_ml(HOST, op, rows(np.float32), outputs=outputs, **known)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"vectors_per_class": [2, 3]}, "one for each of 3 classes"),
        ({"vectors_per_class": [2, 7, -3]}, "one for each of 3 classes"),
        ({"rho": [0.0]}, "rho has 1 numbers, but must have 3"),
        ({"prob_a": [0.0] * 3}, "prob_b has 0 numbers"),
        ({"coefficients": [1.0]}, "coefficients has 1 numbers"),
        ({"support_vectors": [1.0] * 5}, "support_vectors has 5 numbers"),
    ],
)
def test_support_vectors_that_do_not_fit_are_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(sardonyx.SardonyxError, match=told):
        run_ml(HOST, "SVMClassifier", rows(np.float32), outputs=2, **machine(3, "RBF") | changed)
