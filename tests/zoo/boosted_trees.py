"""Boosted trees of LightGBM, XGBoost and CatBoost by onnxmltools, skl2onnx and CatBoost itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import onnx
import onnxmltools
import xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from onnxmltools.convert.lightgbm.operator_converters import LightGbm
from onnxmltools.convert.xgboost.operator_converters import XGBoost
from skl2onnx import update_registered_converter
from skl2onnx.common.shape_calculator import (
    calculate_linear_classifier_output_shapes as shapes_of_classifier,
)
from skl2onnx.common.shape_calculator import (
    calculate_linear_regressor_output_shapes as shapes_of_regressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.zoo.entry import Call, Entry
from tests.zoo.tabular import Fitted, classes, grid, in_types_of, results_of, target

ONNXMLTOOLS, CATBOOST = "onnxmltools", "catboost"
ROWS = grid(120)
CATEGORIES = 8


def with_missing(x: np.ndarray) -> np.ndarray:
    """Return rows with every fifth feature missing."""
    holes = x.copy()
    holes.ravel()[::5] = np.nan
    return holes


def with_categories(x: np.ndarray) -> np.ndarray:
    """Return rows whose first feature is one of some categories."""
    changed = x.copy()
    changed[:, 0] = np.floor(np.abs(x[:, 0] * 8)) % CATEGORIES
    return changed


@dataclass(frozen=True)
class Boosted:
    """A model to fit on rows and targets, and what becomes of the rows before."""

    name: str
    model: Any
    y: np.ndarray
    rows: np.ndarray = field(default_factory=lambda: ROWS)
    fit_options: Mapping[str, Any] | None = None
    opset: int | None = None
    unseen: tuple[float, ...] = ()
    onnxruntime_differs: str = ""
    standard_differs: str = ""

    @property
    def calls(self) -> list[np.ndarray]:
        calls = [self.rows[:30], self.rows[40:41]]
        if self.unseen:
            extreme = np.resize(np.asarray(self.unseen, np.float32), (12, self.rows.shape[1]))
            calls.append(np.where(np.arange(4) % 2, extreme, self.rows[:12]).astype(np.float32))
        return calls

    def fitted(self) -> Any:
        return self.model.fit(self.rows, self.y, **(self.fit_options or {}))

    def entry(self, exporter: str, export: Callable[[Any, Path, int | None], None]) -> Entry:
        return Entry(
            self.name,
            exporter,
            partial(self._write, export),
            onnxruntime_differs=self.onnxruntime_differs,
            standard_differs=self.standard_differs,
        )

    def _write(self, export: Callable[[Any, Path, int | None], None], path: Path) -> Sequence[Call]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = self.fitted()
            results = [results_of(model, rows) for rows in self.calls]
        export(model, path, self.opset)
        proto = onnx.load(path)
        name = proto.graph.input[0].name
        expected = [in_types_of(proto, model, each) for each in results]
        return [Call({name: x}, each) for x, each in zip(self.calls, expected, strict=True)]


# -- models ---------------------------------------------------------------------------------------

Y, SIGNED = target(ROWS), target(ROWS) - 2
TWO, THREE = classes(ROWS, 2), classes(ROWS, 3)
LIGHT: Mapping[str, Any] = {
    "n_estimators": 5, "num_leaves": 6, "min_child_samples": 5, "verbose": -1, "n_jobs": 1,
}  # fmt: skip
DEEP = {"n_estimators": 1, "num_leaves": 60, "min_child_samples": 1}
XGB: Mapping[str, Any] = {"n_estimators": 5, "max_depth": 3, "n_jobs": 1}
CAT: Mapping[str, Any] = {
    "iterations": 5, "depth": 3, "verbose": False, "thread_count": 1, "allow_writing_files": False,
}  # fmt: skip
NAMES = np.asarray(["low", "middle", "high"], object)
GROUPS = [40, 40, 40]
UNSEEN = (np.inf, -np.inf, np.nan, 1e30, -1e30, 0.0, -0.0)


def lightgbm_models() -> Iterator[Boosted]:
    def classifier(**options: Any) -> Any:
        return lightgbm.LGBMClassifier(**(LIGHT | options))

    def regressor(**options: Any) -> Any:
        return lightgbm.LGBMRegressor(**(LIGHT | options))

    holes, kinds = with_missing(ROWS), with_categories(ROWS)
    yield Boosted("LightGBM binary", classifier(), TWO, unseen=UNSEEN)
    yield Boosted("LightGBM three classes", classifier(), THREE, unseen=UNSEEN)
    yield Boosted("LightGBM one against all", classifier(objective="multiclassova"), THREE)
    yield Boosted("LightGBM names", classifier(), NAMES[THREE])
    yield Boosted("LightGBM negative labels", classifier(), TWO * 2 - 1)
    yield Boosted("LightGBM unbalanced", classifier(is_unbalance=True), (THREE == 2).astype(int))
    mostly = (np.arange(len(ROWS)) % 20 > 0).astype(int)
    early = "it compares a score with 0.5 that is yet to become a probability"
    yield Boosted("LightGBM mostly one", classifier(), mostly, onnxruntime_differs=early)
    yield Boosted("LightGBM regression", regressor(), SIGNED, unseen=UNSEEN)
    for objective in ("poisson", "tweedie", "gamma", "quantile", "huber", "mae", "mape", "fair"):
        yield Boosted(f"LightGBM {objective}", regressor(objective=objective), Y)
    yield Boosted("LightGBM cross entropy", regressor(objective="cross_entropy"), TWO)
    yield Boosted("LightGBM dart", regressor(boosting_type="dart", drop_rate=0.9), Y)
    forest = {"boosting_type": "rf", "subsample": 0.7, "subsample_freq": 1}
    yield Boosted("LightGBM random forest", regressor(**forest), Y)
    yield Boosted("LightGBM random forest of two classes", classifier(**forest), TWO)
    yield Boosted("LightGBM linear trees", regressor(linear_tree=True), Y)
    yield Boosted("LightGBM missing", classifier(), TWO, holes, unseen=UNSEEN)
    yield Boosted("LightGBM missing regression", regressor(), Y, holes)
    yield Boosted("LightGBM zero as missing", regressor(zero_as_missing=True), Y, holes)
    yield Boosted("LightGBM missing ignored", regressor(use_missing=False), Y, holes)
    categorical = {"categorical_feature": [0]}
    yield Boosted("LightGBM categories", regressor(min_data_per_group=1), Y, kinds, categorical)
    yield Boosted("LightGBM categories of two classes", classifier(), TWO, kinds, categorical)
    yield Boosted("LightGBM deep tree", regressor(**DEEP), Y)
    yield Boosted("LightGBM single leaf", regressor(min_child_samples=500), Y)
    yield Boosted("LightGBM single leaf of two classes", classifier(min_child_samples=500), TWO)
    stopping = {"eval_set": [(ROWS[:40], Y[40:80])], "callbacks": [lightgbm.early_stopping(1)]}
    early = regressor(n_estimators=20)
    yield Boosted("LightGBM early stopping", early, Y, fit_options=stopping)
    ranker = lightgbm.LGBMRanker(**LIGHT)
    yield Boosted("LightGBM ranking", ranker, THREE, fit_options={"group": GROUPS})
    for opset in (9, 11, 13, 15):
        yield Boosted(f"LightGBM binary opset {opset}", classifier(), TWO, opset=opset)


def xgboost_models() -> Iterator[Boosted]:
    def classifier(**options: Any) -> Any:
        return xgboost.XGBClassifier(**(XGB | options))

    def regressor(**options: Any) -> Any:
        return xgboost.XGBRegressor(**(XGB | options))

    holes = with_missing(ROWS)
    yield Boosted("XGBoost binary", classifier(), TWO, unseen=UNSEEN[2:])
    yield Boosted("XGBoost three classes", classifier(), THREE)
    yield Boosted("XGBoost softmax", classifier(objective="multi:softmax"), THREE)
    yield Boosted("XGBoost binary base score", classifier(base_score=0.2), TWO)
    yield Boosted("XGBoost regression", regressor(), SIGNED, unseen=UNSEEN[2:])
    yield Boosted("XGBoost base score", regressor(base_score=-3.0), SIGNED)
    for name in ("count:poisson", "reg:tweedie", "reg:gamma", "reg:absoluteerror"):
        yield Boosted(f"XGBoost {name.replace(':', ' ')}", regressor(objective=name), Y)
    yield Boosted("XGBoost reg logistic", regressor(objective="reg:logistic"), TWO)
    for name in ("binary:hinge", "binary:logitraw"):
        yield Boosted(f"XGBoost {name.replace(':', ' ')}", classifier(objective=name), TWO)
    yield Boosted("XGBoost dart", regressor(booster="dart", rate_drop=0.5), Y)
    yield Boosted("XGBoost linear", regressor(booster="gblinear"), Y)
    forest = xgboost.XGBRFRegressor(**XGB)
    yield Boosted("XGBoost random forest", forest, Y)
    yield Boosted("XGBoost random forest of classes", xgboost.XGBRFClassifier(**XGB), THREE)
    yield Boosted("XGBoost missing", classifier(), TWO, holes)
    yield Boosted("XGBoost missing regression", regressor(), Y, holes)
    yield Boosted("XGBoost missing as zero", regressor(missing=0.0), Y)
    yield Boosted("XGBoost deep tree", regressor(n_estimators=1, max_depth=12), Y)
    yield Boosted("XGBoost stump", classifier(n_estimators=1, max_depth=1), TWO)
    yield Boosted("XGBoost single leaf", regressor(gamma=1e9), Y)
    unsplit = {"gamma": 1e9, "n_estimators": 5}
    yield Boosted("XGBoost single leaf of three classes", classifier(**unsplit), THREE)
    rare = (THREE == 2).astype(int)
    yield Boosted("XGBoost single leaf of a rare class", classifier(**unsplit), rare)
    base = (
        "for classes of equal size onnxmltools writes the probability 0.5 in place of the score 0, "
        "so that all probabilities of the file are wrong; onnxruntime's label contradicts them"
    )
    single = Boosted("XGBoost single leaf of two classes", classifier(**unsplit), TWO)
    yield replace(single, standard_differs=base)
    yield Boosted("XGBoost lossguide", regressor(grow_policy="lossguide", max_leaves=5), Y)
    stopping = {"eval_set": [(ROWS[:40], Y[40:80])], "verbose": False}
    early = regressor(n_estimators=20, early_stopping_rounds=1)
    yield Boosted("XGBoost early stopping", early, Y, fit_options=stopping)
    ranker = xgboost.XGBRanker(**XGB)
    yield Boosted("XGBoost ranking", ranker, THREE, fit_options={"group": GROUPS})
    for opset in (9, 11, 13, 15):
        yield Boosted(f"XGBoost binary opset {opset}", classifier(), TWO, opset=opset)


def catboost_models() -> Iterator[Boosted]:
    def classifier(**options: Any) -> Any:
        return catboost.CatBoostClassifier(**(CAT | options))

    def regressor(**options: Any) -> Any:
        return catboost.CatBoostRegressor(**(CAT | options))

    holes = with_missing(ROWS)
    yield Boosted("CatBoost binary", classifier(), TWO, unseen=UNSEEN)
    yield Boosted("CatBoost three classes", classifier(), THREE)
    yield Boosted("CatBoost names", classifier(), NAMES[THREE])
    yield Boosted("CatBoost two names", classifier(), NAMES[TWO])
    fixed = "it returns 0 and 1 for other labels"
    labels = TWO * 2 - 1
    yield Boosted("CatBoost negative labels", classifier(), labels, onnxruntime_differs=fixed)
    yield Boosted("CatBoost missing", classifier(), TWO, holes)
    multiple = classifier(loss_function="MultiClassOneVsAll")
    yield Boosted("CatBoost one against all", multiple, THREE)
    yield Boosted("CatBoost regression", regressor(), SIGNED, unseen=UNSEEN)
    yield Boosted("CatBoost missing regression", regressor(nan_mode="Max"), Y, holes)
    for loss in ("Poisson", "Quantile", "MAE", "Tweedie:variance_power=1.5", "Expectile:alpha=0.3"):
        name = loss.partition(":")[0]
        yield Boosted(f"CatBoost {name}", regressor(loss_function=loss), Y)
    yield Boosted("CatBoost deep tree", regressor(iterations=1, depth=8), Y)
    ranker = catboost.CatBoostRanker(**CAT)
    options = {"group_id": np.repeat([0, 1, 2], GROUPS)}
    yield Boosted("CatBoost ranking", ranker, THREE.astype(float), fit_options=options)


# -- exporters ------------------------------------------------------------------------------------


def _by_onnxmltools(
    convert: Callable[..., onnx.ModelProto],
    model: Any,
    path: Path,
    opset: int | None,
    kind: Any = FloatTensorType,
    **options: Any,
) -> None:
    types = [("X", kind([None, ROWS.shape[1]]))]
    onnx.save(convert(model, initial_types=types, target_opset=opset, **options), path)


def _by_catboost(model: Any, path: Path, opset: int | None) -> None:
    model.save_model(str(path), format="onnx")


CLASSIFIER_OPTIONS = {"zipmap": [True, False, "columns"], "nocl": [True, False]}


def _in_pipelines() -> Iterator[Entry]:
    """Yield models behind a scaler, by skl2onnx, which gets the converters of onnxmltools."""
    kinds = (
        (lightgbm.LGBMClassifier(**LIGHT), THREE, LightGbm.convert_lightgbm),
        (lightgbm.LGBMRegressor(**LIGHT), Y, LightGbm.convert_lightgbm),
        (xgboost.XGBClassifier(**XGB), THREE, XGBoost.convert_xgboost),
        (xgboost.XGBRegressor(**XGB), Y, XGBoost.convert_xgboost),
    )
    for model, y, convert in kinds:
        name, is_classifier = type(model).__name__, y is THREE
        update_registered_converter(
            type(model), name,
            shapes_of_classifier if is_classifier else shapes_of_regressor, convert,
            options=CLASSIFIER_OPTIONS if is_classifier else None,
            overwrite=True,
        )  # fmt: skip
        fit = partial(make_pipeline(StandardScaler(), model).fit, ROWS, y)
        options = {"zipmap": False} if is_classifier else {}
        calls = [ROWS[:30], ROWS[:1]]
        yield Fitted(f"{name} in a pipeline", fit, calls, options, opset=(15, 3)).entry()


def entries() -> Iterator[Entry]:
    light = partial(_by_onnxmltools, onnxmltools.convert_lightgbm)
    for each in lightgbm_models():
        options = {"zipmap": False} if hasattr(each.model, "predict_proba") else {}
        yield each.entry(ONNXMLTOOLS, partial(light, **options))
    for each in xgboost_models():
        yield each.entry(ONNXMLTOOLS, partial(_by_onnxmltools, onnxmltools.convert_xgboost))
    for each in catboost_models():
        yield each.entry(CATBOOST, _by_catboost)
    yield from _in_pipelines()
