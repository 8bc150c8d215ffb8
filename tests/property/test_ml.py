"""Classical machine learning, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from onnx import numpy_helper

from sardonyx.graph.standard.types import DType
from tests.ops.forests import COMPARISONS, MODES, grown, with_ids, with_leaves
from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    FLOAT32,
    INT64,
    Shape,
    chosen,
    drawn_array,
    drawn_shape,
    drawn_types,
    placed,
)

DOMAIN = "ai.onnx.ml"
EIGHTHS = np.arange(-16, 17) / 8
WORDS = ["a", "b", "cc", "", "ä"]
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]


def case(draw: Draw, op: str, opset: int, *inputs: Any, given: Any, **rest: Any) -> Case:
    layout = placed(draw, inputs) if all(isinstance(x, np.ndarray) for x in inputs) else {}
    return Case(op, opset, inputs, given, domain=DOMAIN, **rest, **layout)


def floats(draw: Draw, count: int) -> list[float]:
    return [draw(st.sampled_from(EIGHTHS.tolist())) for _ in range(count)]


def table(draw: Draw, dtype: DType, columns: int) -> np.ndarray:
    return drawn_array(draw, dtype, (draw(st.integers(1, 4)), columns), range(-4, 5))


def labels(draw: Draw, count: int) -> dict[str, Any]:
    """Names or numbers for classes, under the attribute that a linear or an SVM model has."""
    if draw(st.booleans()):
        return {"classlabels_strings": [f"c{i}" for i in range(count)]}
    return {"classlabels_ints": draw(st.permutations(range(count)))}


# -- columns --------------------------------------------------------------------------------------


def extract(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_array(
        draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw, least=1, empty=False)
    )
    places = drawn_array(draw, INT64, (draw(st.integers(1, 4)),), range(x.shape[-1]))
    return case(draw, op, opset, x, places, given={})


def binarize(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw))
    return case(draw, op, opset, x, given=chosen(draw, {"threshold": [0.0, 1.0, -0.5]}))


def vectorize(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T1"]
    rows = draw(st.integers(1, 3))
    inputs = [drawn_array(draw, dtype, (rows, draw(st.integers(1, 3)))) for _ in range(2)]
    given = {"inputdimensions": [x.shape[1] for x in inputs]}
    return case(draw, op, opset, *inputs, given=given)


def impute(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    columns = draw(st.integers(1, 3))
    real = dtype.kind == "f"
    values = [1, 2, 7.5, np.nan] if real else [1, 2, 7]
    x = drawn_array(draw, dtype, (draw(st.integers(1, 3)), columns), values)
    count = draw(st.sampled_from([1, columns]))
    given: dict[str, Any] = {}
    if real:
        given["imputed_value_floats"] = floats(draw, count)
        given["replaced_value_float"] = draw(st.sampled_from([float("nan"), 2.0]))
    else:
        given["imputed_value_int64s"] = [draw(st.integers(-9, 9)) for _ in range(count)]
        given["replaced_value_int64"] = draw(st.sampled_from([1, 2]))
    return case(draw, op, opset, x, given=given)


def normalize(draw: Draw, op: str, opset: int) -> Case:
    x = table(draw, drawn_types(draw, op, opset)["T"], draw(st.integers(1, 4)))
    given = {"norm": draw(st.sampled_from(["MAX", "L1", "L2"]))}
    return case(draw, op, opset, x, given=given)


def scale(draw: Draw, op: str, opset: int) -> Case:
    columns = draw(st.integers(1, 4))
    x = table(draw, drawn_types(draw, op, opset)["T"], columns)
    count = draw(st.sampled_from([1, columns]))
    given = {name: floats(draw, count) for name in ("scale", "offset")}
    return case(draw, op, opset, x, given=given)


# -- categories -----------------------------------------------------------------------------------


def drawn_keys(draw: Draw, dtype: DType, shape: Shape) -> np.ndarray:
    words = np.array([*WORDS, "zz"], object)
    return drawn_array(draw, dtype, shape, (lambda _: words) if dtype.kind == "O" else range(6))


def one_hot(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    x = drawn_keys(draw, dtype, drawn_shape(draw, most=2, empty=False))
    given: dict[str, Any] = (
        {"cats_strings": WORDS} if dtype.kind == "O" else {"cats_int64s": [*range(5)]}
    )
    return case(draw, op, opset, x, given=given | chosen(draw, {"zeros": [1]}))


def map_categories(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_keys(
        draw, draw(st.sampled_from([INT64, np.dtype(object)])), drawn_shape(draw, most=2)
    )
    given = {"cats_strings": WORDS, "cats_int64s": draw(st.permutations(range(5)))}
    given |= chosen(draw, {"default_int64": [-7], "default_string": ["none"]})
    return case(draw, op, opset, x, given=given)


def encode(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    shape = drawn_shape(draw, most=2)
    if opset < 2:
        x = drawn_keys(draw, types["T1"], shape)
        given: dict[str, Any] = {"classes_strings": WORDS}
        given |= chosen(draw, {"default_int64": [-7], "default_string": ["none"]})
        return case(draw, op, opset, x, given=given)
    x = drawn_keys(draw, types["T1"], shape)
    names = {"O": "strings", "i": "int64s", "f": "floats"}
    plain = {np.dtype(object), INT64, FLOAT32}
    given = {}
    for side, dtype in (("keys", types["T1"]), ("values", types["T2"])):
        held: Any = WORDS if dtype.kind == "O" else [*range(5)]
        held = [*map(float, held)] if dtype == FLOAT32 else held
        if {types["T1"], types["T2"]} <= plain:
            given[f"{side}_{names[dtype.kind]}"] = held
        else:
            given[f"{side}_tensor"] = numpy_helper.from_array(np.array(held, dtype))
    if any("tensor" in name for name in given):
        missing = np.array(["?" if types["T2"].kind == "O" else 9], types["T2"])
        given["default_tensor"] = numpy_helper.from_array(missing)
    elif draw(st.booleans()):
        defaults = {"O": ("string", "?"), "i": ("int64", -7), "f": ("float", 1.5)}
        name, value = defaults[types["T2"].kind]
        given[f"default_{name}"] = value
    return case(draw, op, opset, x, given=given)


# -- maps -----------------------------------------------------------------------------------------


def cast_map(draw: Draw, op: str, opset: int) -> Case:
    keys = sorted(draw(st.sets(st.integers(0, 6), min_size=1, max_size=4)))
    # Maps to strings onnxruntime takes from no Python object.
    values = floats(draw, len(keys))
    given = {"cast_to": draw(st.sampled_from(["TO_FLOAT", "TO_STRING", "TO_INT64"]))}
    if draw(st.booleans()):
        given |= {"map_form": "SPARSE", "max_map": 7}
    return case(draw, op, opset, dict(zip(keys, values, strict=True)), given=given)


def zip_map(draw: Draw, op: str, opset: int) -> Case:
    columns = draw(st.integers(1, 4))
    x = drawn_array(draw, FLOAT32, (draw(st.integers(1, 3)), columns))
    given: dict[str, Any] = {"classlabels_strings": WORDS[:columns]}
    if draw(st.booleans()):
        given = {"classlabels_int64s": draw(st.permutations(range(columns)))}
    return case(draw, op, opset, x, given=given)


# -- linear models, and those of support vectors ---------------------------------------------------


def linear_classifier(draw: Draw, op: str, opset: int) -> Case:
    columns, classes = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    rows = 1 if classes == 2 and draw(st.booleans()) else classes
    x = table(draw, drawn_types(draw, op, opset)["T1"], columns)
    given = {"coefficients": floats(draw, rows * columns), **labels(draw, classes)}
    # The standard has them optional; onnxruntime does not.
    given["intercepts"] = floats(draw, rows)
    given |= chosen(draw, {"post_transform": TRANSFORMS, "multi_class": [0, 1]})
    return case(draw, op, opset, x, given=given, outputs=2, ulps=64, scale=16)


def linear_regressor(draw: Draw, op: str, opset: int) -> Case:
    columns, targets = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x = table(draw, FLOAT32, columns)
    given = {"coefficients": floats(draw, targets * columns), "targets": targets}
    given |= {"intercepts": floats(draw, targets)} if draw(st.booleans()) else {}
    given |= chosen(draw, {"post_transform": TRANSFORMS})
    return case(draw, op, opset, x, given=given, ulps=64, scale=16)


def drawn_kernel(draw: Draw) -> dict[str, Any]:
    return {
        "kernel_type": draw(st.sampled_from(["LINEAR", "POLY", "RBF", "SIGMOID"])),
        "kernel_params": [0.25, 0.5, draw(st.sampled_from([1.0, 2.0, 3.0]))],
    }


def svm_regressor(draw: Draw, op: str, opset: int) -> Case:
    columns, count = draw(st.integers(1, 3)), draw(st.integers(0, 4))
    x = table(draw, FLOAT32, columns)
    given = {"coefficients": floats(draw, count or columns), "rho": floats(draw, 1)}
    given |= {"n_supports": count, **drawn_kernel(draw)}
    if count:
        given["support_vectors"] = floats(draw, count * columns)
    else:
        given["kernel_type"] = "LINEAR"
    given |= chosen(draw, {"one_class": [0, 1]})
    return case(draw, op, opset, x, given=given, ulps=64, scale=256)


def svm_classifier(draw: Draw, op: str, opset: int) -> Case:
    columns, classes = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    per_class = [draw(st.integers(1, 3)) for _ in range(classes)]
    pairs, count = classes * (classes - 1) // 2, sum(per_class)
    x = table(draw, drawn_types(draw, op, opset)["T1"], columns)
    given = {
        "coefficients": floats(draw, (classes - 1) * count),
        "support_vectors": floats(draw, count * columns),
        "vectors_per_class": per_class,
        "rho": floats(draw, pairs),
        **labels(draw, classes),
        **drawn_kernel(draw),
    }
    if draw(st.booleans()):
        given |= {
            "prob_a": [-abs(v) - 0.5 for v in floats(draw, pairs)],
            "prob_b": floats(draw, pairs),
        }
    given |= chosen(draw, {"post_transform": TRANSFORMS})
    return case(draw, op, opset, x, given=given, outputs=2, ulps=512, scale=64)


# -- trees ----------------------------------------------------------------------------------------


def drawn_forest(
    draw: Draw, targets: int, modes: Any = tuple(COMPARISONS), **how: Any
) -> list[Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    if draw(st.booleans()):
        modes = (draw(st.sampled_from(modes)),)
    depth, count = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return [grown(rng, depth=depth, targets=targets, modes=modes, **how) for _ in range(count)]


def drawn_rows(draw: Draw, dtype: DType) -> np.ndarray:
    values = [*range(-3, 4), *([np.nan] if dtype.kind == "f" else [])]
    return drawn_array(draw, dtype, (draw(st.integers(1, 4)), 3), values)


def tree_regressor(draw: Draw, op: str, opset: int) -> Case:
    targets = draw(st.integers(1, 3))
    forest = with_ids(drawn_forest(draw, targets, votes="all"))
    x = drawn_rows(draw, drawn_types(draw, op, opset)["T"])
    given = {**forest, "n_targets": targets}
    given |= chosen(draw, {"aggregate_function": ["SUM", "MIN", "MAX", "AVERAGE"]})
    given |= {"base_values": floats(draw, targets)} if draw(st.booleans()) else {}
    given |= chosen(draw, {"post_transform": TRANSFORMS})
    return case(draw, op, opset, x, given=given, ulps=64, scale=8)


def tree_classifier(draw: Draw, op: str, opset: int) -> Case:
    classes = draw(st.integers(2, 4))
    voted = 1 if classes == 2 and draw(st.booleans()) else classes
    forest = with_ids(drawn_forest(draw, voted, votes="all"), "class")
    x = drawn_rows(draw, drawn_types(draw, op, opset)["T1"])
    given = {**forest}
    if draw(st.booleans()):
        given["classlabels_strings"] = [f"c{i}" for i in range(classes)]
    else:
        given["classlabels_int64s"] = [*range(classes)]
    given |= {"base_values": floats(draw, voted)} if draw(st.booleans()) else {}
    given |= chosen(draw, {"post_transform": TRANSFORMS})
    return case(draw, op, opset, x, given=given, outputs=2, ulps=64, scale=8)


def tree_ensemble(draw: Draw, op: str, opset: int) -> Case:
    dtype = draw(st.sampled_from([FLOAT32, np.dtype(np.float64)]))
    targets = draw(st.integers(1, 3))
    forest = with_leaves(drawn_forest(draw, targets, MODES), dtype)
    tensors = {
        k: numpy_helper.from_array(v) for k, v in forest.items() if isinstance(v, np.ndarray)
    }
    given = {**forest, **tensors, "n_targets": targets}
    given |= chosen(draw, {"aggregate_function": range(4), "post_transform": range(3)})
    return case(draw, op, opset, drawn_rows(draw, dtype), given=given, ulps=64, scale=8)


CASES = {
    "ArrayFeatureExtractor": extract,
    "Binarizer": binarize,
    "FeatureVectorizer": vectorize,
    "Imputer": impute,
    "Normalizer": normalize,
    "Scaler": scale,
    "OneHotEncoder": one_hot,
    "CategoryMapper": map_categories,
    "LabelEncoder": encode,
    "CastMap": cast_map,
    "ZipMap": zip_map,
    "LinearClassifier": linear_classifier,
    "LinearRegressor": linear_regressor,
    "SVMRegressor": svm_regressor,
    "SVMClassifier": svm_classifier,
    "TreeEnsembleRegressor": tree_regressor,
    "TreeEnsembleClassifier": tree_classifier,
    "TreeEnsemble": tree_ensemble,
}


@versions_of(CASES)
@pytest.mark.sampled(5)
def test_ml(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
