"""Variants of scikit-learn's models: labels, outputs, kernels and metrics, and models in models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn import (
    calibration,
    ensemble,
    gaussian_process,
    linear_model,
    multiclass,
    multioutput,
    neighbors,
    svm,
    tree,
)
from sklearn.gaussian_process import kernels

from tests.zoo.entry import Entry
from tests.zoo.tabular import Fitted, classes, grid, target

ROWS = grid(60)
Y, TWO, THREE = target(ROWS), classes(ROWS, 2), classes(ROWS, 3)
CALLS = [ROWS[:20], ROWS[20:21]]
NAMES = np.asarray(["über", "", "low"])
PLAIN = {"zipmap": False}
LOGISTIC = linear_model.LogisticRegression()
TREE = tree.DecisionTreeClassifier(max_depth=3, random_state=0)


def of(
    name: str, model: Any, y: np.ndarray = THREE, options: Any = PLAIN, *, sourced: bool = True
) -> Fitted:
    return Fitted(name, lambda: model.fit(ROWS, y), CALLS, options, sourced=sourced)


def labels_and_outputs() -> Iterator[Fitted]:
    labels = {"names": NAMES[THREE], "two names": NAMES[TWO], "negative labels": TWO * 2 - 1}
    labels |= {"labels far apart": THREE * 10 - 7, "booleans": TWO.astype(bool)}
    models = {
        "LogisticRegression": LOGISTIC,
        "DecisionTree": TREE,
        "SVC": svm.SVC(probability=True, random_state=0),
        "KNN": neighbors.KNeighborsClassifier(3),
        "GradientBoosting": ensemble.GradientBoostingClassifier(n_estimators=2),
    }
    for kind, model in models.items():
        for label, y in labels.items():
            yield of(f"{kind} {label}", model, y)
        for zipmap in (True, "columns"):
            y, options = NAMES[THREE], {"zipmap": zipmap}
            yield of(f"{kind} ZipMap {zipmap}", model, y, options, sourced=zipmap is True)
        yield of(f"{kind} without classes", model, TWO, PLAIN | {"nocl": True})
        if kind not in ("DecisionTree", "KNN"):
            raw = PLAIN | {"raw_scores": True}
            yield of(f"{kind} raw scores", model, TWO, raw, sourced=False)


def losses_and_kernels() -> Iterator[Fitted]:
    for loss in ("log_loss", "hinge", "modified_huber", "perceptron"):
        for y in (TWO, THREE):
            name = f"SGD {loss} {len(set(y))} classes"
            yield of(name, linear_model.SGDClassifier(loss=loss, random_state=0), y)
    for kernel in ("linear", "poly", "rbf", "sigmoid"):
        for y in (TWO, THREE):
            name = f"SVC {kernel} {len(set(y))} classes"
            yield of(name, svm.SVC(kernel=kernel, probability=True, random_state=0), y)
            yield of(f"{name} scores", svm.SVC(kernel=kernel), y)
        nu = of(f"NuSVC {kernel}", svm.NuSVC(kernel=kernel, nu=0.3), TWO)
        rounding = "it rounds kernels to float32 before large coefficients cancel"
        yield replace(nu, onnxruntime_differs=rounding) if kernel == "linear" else nu
        yield of(f"SVR {kernel}", svm.SVR(kernel=kernel), Y, {})
        # A line through the middle of the data leaves scores that are all noise.
        if kernel != "linear":
            yield of(f"OneClassSVM {kernel}", svm.OneClassSVM(kernel=kernel), Y, {}, sourced=False)


def models_in_models() -> Iterator[Fitted]:
    two = [("l", LOGISTIC), ("t", TREE)]
    for voting in ("soft", "hard"):
        model = ensemble.VotingClassifier(
            two, voting=voting, weights=np.asarray([2, 1]), flatten_transform=False
        )
        yield of(f"voting {voting}", model)
    for passthrough in (False, True):
        model = ensemble.StackingClassifier(two, passthrough=passthrough, cv=2)
        yield of(f"stacking{' passthrough' * passthrough}", model)
    for method in ("sigmoid", "isotonic"):
        for base in (svm.LinearSVC(), TREE):
            model = calibration.CalibratedClassifierCV(base, method=method, cv=2)
            yield of(f"calibrated {method} {type(base).__name__}", model)
            yield of(f"calibrated {method} {type(base).__name__} two classes", model, TWO)
    for base in (LOGISTIC, svm.LinearSVC(), TREE):
        name = type(base).__name__
        yield of(f"one against the rest {name}", multiclass.OneVsRestClassifier(base))
        yield of(f"one against one {name}", multiclass.OneVsOneClassifier(base))
        several = np.stack([TWO, THREE % 2, (THREE == 2) * 1], axis=1)
        yield of(f"several labels {name}", multiclass.OneVsRestClassifier(base), several)
        model = multioutput.MultiOutputClassifier(base)
        yield of(f"several outputs {name}", model, several, sourced=False)
    many = tree.DecisionTreeRegressor(max_depth=3)
    yield of("several targets", many, np.stack([Y, Y[::-1]], axis=1), {})


def distances_and_processes() -> Iterator[Fitted]:
    for metric in ("euclidean", "sqeuclidean", "manhattan", "minkowski", "cosine"):
        extra = {"p": 3} if metric == "minkowski" else {}
        model = neighbors.KNeighborsClassifier(4, metric=metric, **extra)
        yield of(f"KNN {metric}", model)
        if "euclidean" in metric:
            yield of(f"KNN {metric} by CDist", model, THREE, PLAIN | {"optim": "cdist"})
    weighted = neighbors.KNeighborsRegressor(4, weights="distance")
    yield of("KNN regression by distance", weighted, Y, {})
    kernel = kernels.RationalQuadratic() + kernels.ConstantKernel() * kernels.RBF(2.0)
    periodic = kernels.ExpSineSquared(periodicity=7.0)
    processes = (kernels.RBF(), kernel, periodic, kernels.Matern(nu=1.5), kernels.DotProduct())
    for each in processes:
        model = gaussian_process.GaussianProcessRegressor(each, alpha=3.0, optimizer=None)
        name = type(each).__name__
        yield of(f"Gaussian process {name}", model, Y, {})
        yield of(
            f"Gaussian process {name} deviation", model, Y, {"return_std": True}, sourced=False
        )
    forest = ensemble.IsolationForest(n_estimators=5, random_state=0)
    yield Fitted(
        "isolation forest scores",
        lambda: forest.fit(ROWS),
        CALLS,
        {"score_samples": True},
        opset=(18, 3),
        sourced=False,
    )


def entries() -> Iterator[Entry]:
    families: tuple[Callable[[], Iterator[Fitted]], ...]
    families = (labels_and_outputs, losses_and_kernels, models_in_models, distances_and_processes)
    for family in families:
        yield from (each.entry() for each in family())
