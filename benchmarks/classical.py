"""Models of scikit-learn, as skl2onnx writes them: single rows, and large forests.

Run it: `python -m benchmarks.classical rows` or `forests`. It needs scikit-learn and skl2onnx, and
LightGBM with onnxmltools for one of the forests. All times are CPU times of the process, so that
other work on the machine counts less; results are compared with onnxruntime's first.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from lightgbm import LGBMClassifier
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from rich.table import Table
from skl2onnx import to_onnx
from sklearn import ensemble, linear_model, naive_bayes, neighbors, neural_network, svm, tree
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sardonyx
from benchmarks.results import console

OPSETS = {"": 17, "ai.onnx.ml": 3}
BACKENDS = ("jax", "numpy")
SIZES = (1, 100, 10_000)
# The names of classes, for the models with strings.
NAMES = np.asarray(["low", "middle", "high"])

RUNTIMES = ("onnxruntime", *BACKENDS)
# How single rows are run: by default, by XLA whatever they cost, and on NumPy.
WAYS = {"jax": ("jax", "background"), "XLA": ("jax", "now"), "numpy": ("numpy", "now")}

Fitted = tuple[Any, np.ndarray]
Run = Callable[[np.ndarray], list[Any]]


# -- models ----------------------------------------------------------------------------------------


def small_models() -> dict[str, Callable[[], Fitted]]:
    """Twelve models for single rows."""
    x, classes = _data(600, 10, 3)
    target = (2 * x[:, 0] + np.sin(x[:, 1])).astype(np.float32)
    logistic = linear_model.LogisticRegression
    estimators = {
        "LinearRegression": (linear_model.LinearRegression(), target),
        "LogisticRegression": (logistic(), classes),
        "LogisticRegression, strings": (logistic(), NAMES[classes]),
        "StandardScaler, LogisticRegression": (
            make_pipeline(StandardScaler(), logistic()),
            classes,
        ),
        "SVC": (svm.SVC(probability=True), classes),
        "SVC, strings": (svm.SVC(probability=True), NAMES[classes]),
        "DecisionTree, strings": (tree.DecisionTreeClassifier(random_state=0), NAMES[classes]),
        "RandomForest": (ensemble.RandomForestClassifier(100, random_state=0), classes),
        "GradientBoosting": (ensemble.GradientBoostingRegressor(random_state=0), target),
        "KNeighbors": (neighbors.KNeighborsClassifier(), classes),
        "GaussianNB": (naive_bayes.GaussianNB(), classes),
        "MLP": (neural_network.MLPClassifier((50,), random_state=0, max_iter=300), classes),
    }
    return {name: partial(_fitted, estimator, x, y) for name, (estimator, y) in estimators.items()}


def _fitted(estimator: Any, x: np.ndarray, y: np.ndarray) -> Fitted:
    return estimator.fit(x, y), x


def forests() -> dict[str, Callable[[], Fitted]]:
    """Three large ensembles."""

    def random_forest() -> Fitted:
        x, classes = _data(2000, 20, 2, noise=0.3)
        return ensemble.RandomForestClassifier(500, max_depth=20, random_state=0).fit(x, classes), x

    def isolation_forest() -> Fitted:
        x, _ = _data(600, 10, 3)
        return ensemble.IsolationForest(n_estimators=100, random_state=0).fit(x), x

    def boosted() -> Fitted:
        x, classes = _data(20_000, 20, 2)
        # More threads would wait for work by spinning, also while others are measured.
        return LGBMClassifier(n_estimators=500, num_leaves=31, n_jobs=1, verbose=-1).fit(
            x, classes
        ), x

    return {
        "RandomForest, 500 trees of depth 20": random_forest,
        "LightGBM, 500 trees of 31 leaves": boosted,
        "IsolationForest, 100 trees": isolation_forest,
    }


def _data(rows: int, features: int, classes: int, noise: float = 0.01) -> tuple[Any, Any]:
    informative = {"n_informative": 6, "n_classes": classes, "flip_y": noise, "random_state": 0}
    x, y = make_classification(rows, features, **informative)
    return x.astype(np.float32), y


def _converted(name: str, fit: Callable[[], Fitted], folder: Path) -> tuple[str, Any, np.ndarray]:
    """Return the path of the model, the estimator, and rows for it."""
    estimator, x = fit()
    path = folder / f"{name}.onnx"
    if "LightGBM" in name:
        types = [("x", FloatTensorType([None, x.shape[1]]))]
        model = convert_lightgbm(estimator, initial_types=types, zipmap=False, target_opset=15)
    else:
        options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "predict_proba") else {}
        model = to_onnx(estimator, x[:1], options=options, target_opset=OPSETS)
    path.write_bytes(model.SerializeToString())
    return str(path), estimator, x


# -- measuring -------------------------------------------------------------------------------------


def _session(path: str) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options)
    name = session.get_inputs()[0].name
    return lambda x: list(session.run(None, {name: x}))


def _model(
    path: str, backend: str, when: str = "background", ahead: np.ndarray | None = None
) -> Run:
    model = sardonyx.load(path, backend=backend, compile=when)
    if ahead is not None:
        # Other calls would be measured while XLA compiles.
        model.compile({model.inputs[0].name: ahead})

    def run(x: np.ndarray) -> list[Any]:
        results = model(x)
        return list(results) if isinstance(results, tuple) else [results]

    return run


def _seconds(function: Callable[[], Any], times: int = 1) -> float:
    start = time.process_time()
    for _ in range(times):
        function()
    return (time.process_time() - start) / times


def _shortest(functions: Mapping[str, Callable[[], Any]], budget: float) -> dict[str, float]:
    """Return the shortest CPU time of each function, which take turns."""
    once = {name: _seconds(function) for name, function in functions.items()}
    shortest = dict(once)
    end = time.perf_counter() + budget
    while time.perf_counter() < end:
        for name, function in functions.items():
            times = max(1, int(1e-3 / max(shortest[name], 1e-6)))
            shortest[name] = min(shortest[name], _seconds(function, times))
    return shortest


def _require_equal(actual: Sequence[Any], expected: Sequence[Any]) -> None:
    for one, other in zip(actual, expected, strict=True):
        if np.asarray(other).dtype.kind in "fc":
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
        else:
            differing = np.mean(np.asarray(one) != np.asarray(other))
            assert differing < 1e-3, f"{differing:.1%} of the labels differ"


# -- tables ----------------------------------------------------------------------------------------


def rows_table(folder: Path, budget: float) -> Table:
    """Calls with one row."""
    table = Table(title="one row, CPU time")
    table.add_column("model")
    for column in ("onnxruntime, us", *(f"{way}, us" for way in WAYS), *WAYS):
        table.add_column(column, justify="right")
    all_ratios = []
    for name, fit in small_models().items():
        path, _, x = _converted(name, fit, folder)
        models = {way: _model(path, *how, ahead=x[:1]) for way, how in WAYS.items()}
        opened = {"onnxruntime": _session(path)} | models
        times = _compared(opened, x[:1], budget)
        all_ratios.append([times[way] / times["onnxruntime"] for way in WAYS])
        cells = [f"{seconds * 1e6:.1f}" for seconds in times.values()]
        table.add_row(name, *cells, *(f"{ratio:.2f}" for ratio in all_ratios[-1]))
    means = np.exp(np.mean(np.log(all_ratios), axis=0))
    table.add_row("geometric mean", *[""] * (1 + len(WAYS)), *(f"{mean:.2f}" for mean in means))
    return table


def forests_table(folder: Path, budget: float) -> Table:
    """First and repeated calls of large ensembles; each size is new to a loaded model."""
    table = Table(title="first call of a size, with the first also load, s; repeated call, ms; CPU")
    for column in ("model", "rows"):
        table.add_column(column)
    for column in (*(f"first {r}" for r in RUNTIMES), *RUNTIMES, "scikit-learn", *BACKENDS):
        table.add_column(column, justify="right")
    for name, fit in forests().items():
        path, estimator, x = _converted(name, fit, folder)
        opened: dict[str, Run] = {}
        first = {runtime: _seconds(partial(_open, opened, runtime, path)) for runtime in RUNTIMES}
        for size in SIZES:
            rows = np.resize(x, (size, x.shape[1]))
            for runtime in RUNTIMES:
                first[runtime] += _seconds(partial(opened[runtime], rows))
            times = _compared(opened, rows, budget, **{"scikit-learn": _predictor(estimator)})
            cells = [f"{first[runtime]:.3f}" for runtime in RUNTIMES]
            cells += [f"{seconds * 1e3:.3f}" for seconds in times.values()]
            ratios = [f"{times[b] / times['onnxruntime']:.2f}" for b in BACKENDS]
            table.add_row(name if size == SIZES[0] else "", f"{size:,}", *cells, *ratios)
            first = dict.fromkeys(RUNTIMES, 0.0)
        table.add_section()
    return table


def _open(opened: dict[str, Run], runtime: str, path: str) -> None:
    opened[runtime] = _session(path) if runtime == "onnxruntime" else _model(path, runtime)


def _compared(opened: dict[str, Run], rows: np.ndarray, budget: float, **peers: Any) -> Any:
    """Return the shortest times of the runtimes, which must agree, and of `peers`."""
    expected = opened["onnxruntime"](rows)
    for backend in BACKENDS:
        _require_equal(opened[backend](rows), expected)
    functions = {name: partial(run, rows) for name, run in (opened | peers).items()}
    return _shortest(functions, budget)


def _predictor(estimator: Any) -> Any:
    return getattr(estimator, "predict_proba", estimator.predict)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.classical", description=__doc__)
    parser.add_argument("what", choices=("rows", "forests"))
    parser.add_argument("--seconds", type=float, default=2.0, help="for the calls of one model")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    with tempfile.TemporaryDirectory() as folder:
        table = rows_table if chosen.what == "rows" else forests_table
        console().print(table(Path(folder), chosen.seconds))


if __name__ == "__main__":
    main()
