"""Every classifier, regressor and transformer of scikit-learn that skl2onnx converts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from skl2onnx._supported_operators import sklearn_operator_name_map
from sklearn import base, ensemble, linear_model, svm, tree
from sklearn.gaussian_process.kernels import RBF, DotProduct, WhiteKernel

from tests.zoo.entry import Entry
from tests.zoo.tabular import Fitted, classes, grid, target

# What other modules fit, what is no model, and one that is written with an operator Solve, which no
# runtime has.
ELSEWHERE = [
    "_ConstantPredictor",
    "CastRegressor",
    "CastTransformer",
    "ColumnTransformer",
    "CountVectorizer",
    "DictVectorizer",
    "FeatureHasher",
    "FeatureUnion",
    "FunctionTransformer",
    "KernelCenterer",
    "LabelBinarizer",
    "LabelEncoder",
    "GaussianProcessClassifier",
    "OneHotEncoder",
    "OrdinalEncoder",
    "Pipeline",
    "ReplaceTransformer",
    "TargetEncoder",
    "TfidfVectorizer",
]

SMALL_FOREST = {"n_estimators": 4, "max_depth": 3, "random_state": 0}
TREES = {"n_estimators": 4, "random_state": 0}
DECIDER = tree.DecisionTreeClassifier(max_depth=3, random_state=0)
LINE = linear_model.Ridge()
# The arguments that a class needs, or that keep its file small.
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "AdaBoostClassifier": TREES | {"estimator": DECIDER},
    "AdaBoostRegressor": TREES,
    "BaggingClassifier": TREES | {"estimator": DECIDER},
    "BaggingRegressor": TREES | {"estimator": LINE},
    "BayesianGaussianMixture": {"n_components": 3, "random_state": 0},
    "CalibratedClassifierCV": {"estimator": linear_model.LogisticRegression(), "cv": 2},
    "DecisionTreeClassifier": {"max_depth": 4, "random_state": 0},
    "DecisionTreeRegressor": {"max_depth": 4, "random_state": 0},
    "ExtraTreeClassifier": {"max_depth": 4, "random_state": 0},
    "ExtraTreeRegressor": {"max_depth": 4, "random_state": 0},
    "ExtraTreesClassifier": SMALL_FOREST,
    "ExtraTreesRegressor": SMALL_FOREST,
    "GaussianMixture": {"n_components": 3, "random_state": 0},
    "GaussianProcessRegressor": {
        "kernel": RBF() + DotProduct() + WhiteKernel(),
        "normalize_y": True,
    },
    "GradientBoostingClassifier": SMALL_FOREST,
    "GradientBoostingRegressor": SMALL_FOREST,
    "GridSearchCV": {"estimator": linear_model.LogisticRegression(), "param_grid": {"C": [1, 9]}},
    "HistGradientBoostingClassifier": {"max_iter": 4, "max_depth": 3},
    "HistGradientBoostingRegressor": {"max_iter": 4, "max_depth": 3},
    "IsolationForest": TREES,
    "KBinsDiscretizer": {"n_bins": 3, "encode": "onehot-dense", "subsample": None},
    "KMeans": {"n_clusters": 3, "n_init": 1, "random_state": 0},
    "KNeighborsTransformer": {"n_neighbors": 3},
    "KernelPCA": {"n_components": 2, "kernel": "rbf"},
    "LocalOutlierFactor": {"novelty": True},
    "MLPClassifier": {"hidden_layer_sizes": (8,), "random_state": 0},
    "MLPRegressor": {"hidden_layer_sizes": (8,), "random_state": 0},
    "MiniBatchKMeans": {"n_clusters": 3, "n_init": 1, "random_state": 0},
    "MultiOutputClassifier": {"estimator": DECIDER},
    "MultiOutputRegressor": {"estimator": LINE},
    "NearestNeighbors": {"n_neighbors": 3, "radius": None},
    "NuSVC": {"probability": True, "random_state": 0},
    "OneClassSVM": {"nu": 0.2},
    "OneVsOneClassifier": {"estimator": linear_model.LogisticRegression()},
    "OneVsRestClassifier": {"estimator": linear_model.LogisticRegression()},
    "PCA": {"n_components": 2},
    "IncrementalPCA": {"n_components": 2},
    "GaussianRandomProjection": {"n_components": 2, "random_state": 0},
    "QuantileTransformer": {"n_quantiles": 8},
    "RANSACRegressor": {"random_state": 0},
    "RFE": {"estimator": LINE, "n_features_to_select": 2},
    "RFECV": {"estimator": LINE},
    "RadiusNeighborsClassifier": {"radius": 6.0},
    "RadiusNeighborsRegressor": {"radius": 6.0},
    "RandomForestClassifier": SMALL_FOREST,
    "RandomForestRegressor": SMALL_FOREST,
    "RandomTreesEmbedding": SMALL_FOREST | {"sparse_output": False},
    "SGDClassifier": {"loss": "modified_huber", "random_state": 0},
    "SVC": {"probability": True, "random_state": 0},
    "SelectFromModel": {"estimator": LINE},
    "GenericUnivariateSelect": {"param": 50},
    "SelectFwe": {"alpha": 0.9},
    "SelectKBest": {"k": 2},
    "SelectPercentile": {"percentile": 50},
    "StackingClassifier": {"estimators": [("t", DECIDER), ("s", svm.SVC())]},
    "StackingRegressor": {"estimators": [("t", ensemble.RandomForestRegressor(3)), ("l", LINE)]},
    "TunedThresholdClassifierCV": {"estimator": linear_model.LogisticRegression(), "cv": 2},
    "VotingClassifier": {
        "estimators": [("t", DECIDER), ("l", linear_model.LogisticRegression())],
        "voting": "soft",
        "flatten_transform": False,
    },
    "VotingRegressor": {"estimators": [("l", LINE), ("k", linear_model.BayesianRidge())]},
}
COUNTS = ("CategoricalNB", "ComplementNB", "MultinomialNB", "TfidfTransformer")
OF_TWO_CLASSES = ("TunedThresholdClassifierCV",)
# The converter has no option to leave ZipMap out.
WITHOUT_OPTIONS = ("LinearSVC",)
# No schema of its trees has more recent opsets.
OPSET_OF = {"IsolationForest": (18, 3)}

# Models whose files differ most from opset to opset, each by these.
OPSETS = ((9, 1), (13, 2), (18, 3), (21, 5))
BY_OPSET = [
    "DecisionTreeClassifier",
    "GaussianProcessRegressor",
    "GradientBoostingClassifier",
    "IsolationForest",
    "KBinsDiscretizer",
    "KNeighborsClassifier",
    "LogisticRegression",
    "MLPClassifier",
    "RandomForestClassifier",
    "RandomForestRegressor",
    "SVC",
]
IN_FLOAT64 = [
    "BayesianRidge",
    "GaussianMixture",
    "GaussianProcessRegressor",
    "HistGradientBoostingClassifier",
    "KMeans",
    "KNeighborsRegressor",
    "LogisticRegression",
    "MLPClassifier",
    "NuSVC",
    "OneClassSVM",
    "RandomForestClassifier",
    "SVC",
    "SVR",
]
OF_INTEGERS = [
    "BernoulliNB",
    "DecisionTreeClassifier",
    "ElasticNet",
    "GradientBoostingClassifier",
    "KMeans",
    "LinearRegression",
    "LogisticRegression",
    "RandomForestRegressor",
    "SVC",
    "SVR",
    "StandardScaler",
]


def entries() -> Iterator[Entry]:
    kinds = {kind.__name__: kind for kind in sklearn_operator_name_map}
    for name in sorted(kinds.keys() - set(ELSEWHERE)):
        yield _fitted(name, kinds[name]).entry()
    for name in BY_OPSET:
        for opset in OPSETS:
            label = f"{name} opset {opset[0]} ml {opset[1]}"
            yield _fitted(name, kinds[name], label=label, opset=opset).entry()
    for name in IN_FLOAT64:
        convert = partial(np.asarray, dtype=np.float64)
        yield _fitted(name, kinds[name], convert, label=f"{name} float64").entry()
    for name in OF_INTEGERS:
        yield _fitted(name, kinds[name], _integers, label=f"{name} int64").entry()


def _fitted(
    name: str,
    kind: type,
    convert: Callable[[np.ndarray], np.ndarray] = np.asarray,
    *,
    label: str = "",
    opset: tuple[int, int] | None = None,
) -> Fitted:
    rows = grid(60)
    if name in COUNTS:
        rows = np.abs(np.round(rows * 2))
    x = convert(rows)

    def fit() -> Any:
        model = kind(**ARGUMENTS.get(name, {}))
        return model.fit(x, _targets_of(name, kind, rows))

    scored = issubclass(kind, (base.ClassifierMixin, base.RegressorMixin, base.TransformerMixin))
    plain = not issubclass(kind, base.ClassifierMixin) or name in WITHOUT_OPTIONS
    options = {} if plain else {"zipmap": False}
    opset = opset or OPSET_OF.get(name)
    calls = [x[:20], x[20:21]]
    return Fitted(label or name, fit, calls, options, opset=opset, sourced=scored)


def _integers(x: np.ndarray) -> np.ndarray:
    return np.round(x * 4).astype(np.int64)


def _targets_of(name: str, kind: type, rows: np.ndarray) -> np.ndarray:
    if issubclass(kind, base.RegressorMixin):
        y = target(rows)
        return np.stack([y, y[::-1]], axis=1) if name.startswith("Multi") else y
    y = classes(rows, 2 if name in OF_TWO_CLASSES else 3)
    return np.stack([y, y[::-1]], axis=1) if name.startswith("MultiOutput") else y
