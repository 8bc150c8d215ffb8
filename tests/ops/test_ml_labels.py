"""Labels, and maps from labels to numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from tests.ops.ml_oracle import DOMAIN, assert_like, onnxruntime_ml, run_ml, strings

# -- labels ---------------------------------------------------------------------------------------

KEYS: dict[str, list[Any]] = {
    "keys_strings": ["a", "b"],
    "keys_int64s": [7, -2],
    "keys_floats": [1.5, 0.0],
}
VALUES: dict[str, list[Any]] = {
    "values_strings": ["x", "y"],
    "values_int64s": [10, 20],
    "values_floats": [0.5, 0.25],
}
INPUTS = {
    "keys_strings": strings("a", "b", "?", "a").reshape(2, 2),
    "keys_int64s": np.asarray([[7, 3], [-2, 7]]),
    "keys_floats": np.asarray([1.5, np.nan, -0.0, 3], np.float32),
}


@pytest.mark.parametrize("opset", [2, 4])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("keys", KEYS)
def test_LabelEncoder_is_that_of_onnxruntime(
    xp: Backend, keys: str, values: str, opset: int
) -> None:
    known = {keys: KEYS[keys], values: VALUES[values], "default_string": "none"}
    expected = onnxruntime_ml("LabelEncoder", INPUTS[keys], opset=opset, **known)
    assert_like(run_ml(xp, "LabelEncoder", INPUTS[keys], opset=opset, **known), expected)


@pytest.mark.parametrize("x", [strings("b", "a", "c"), np.asarray([1, 0, 2, -1])], ids=str)
def test_the_first_LabelEncoder_counts_its_classes(xp: Backend, x: np.ndarray) -> None:
    known = {"classes_strings": ["a", "b"], "default_int64": -7}
    expected = onnxruntime_ml("LabelEncoder", x, opset=1, **known)
    assert_like(run_ml(xp, "LabelEncoder", x, opset=1, **known), expected)


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.int16, np.int32, np.float64, object])
def test_keys_and_values_may_be_tensors_of_any_type(xp: Backend, value: Any, dtype: Any) -> None:
    known = {
        "keys_tensor": np.asarray([4, 9], dtype),
        "values_tensor": np.asarray([1, 2], np.int64).astype(str if value is object else value),
    }
    known["values_tensor"] = known["values_tensor"].astype(value)
    y = run_ml(xp, "LabelEncoder", np.asarray([[9, 5]], dtype), **known)
    default: Any = "_Unused" if value is object else -1 if value is not np.float64 else -0.0
    assert_like(y, np.asarray([[known["values_tensor"][1], default]], value))
    given = known["values_tensor"][:1]
    y = run_ml(xp, "LabelEncoder", np.asarray([[9, 5]], dtype), default_tensor=given, **known)
    assert_like(y, np.asarray([[known["values_tensor"][1], given[0]]], value))


def test_of_repeated_keys_the_last_counts_and_NaN_is_a_key(xp: Backend) -> None:
    known = {"keys_floats": [1.0, np.nan, 1.0, -np.nan], "values_int64s": [1, 2, 3, 4]}
    x = np.asarray([1.0, np.nan, 2.0], np.float32)
    assert_like(run_ml(xp, "LabelEncoder", x, **known), np.asarray([3, 4, -1]))


@pytest.mark.parametrize("x", [INPUTS["keys_strings"], INPUTS["keys_int64s"]], ids=["text", "int"])
def test_CategoryMapper_is_that_of_onnxruntime(xp: Backend, x: np.ndarray) -> None:
    known = {"cats_int64s": [7, -2], "cats_strings": ["b", "a"], "default_int64": 99}
    expected = onnxruntime_ml("CategoryMapper", x, **known)
    assert_like(run_ml(xp, "CategoryMapper", x, **known), expected)


@pytest.mark.parametrize(
    ("op", "known", "told"),
    [
        ("LabelEncoder", {"keys_int64s": [1, 2], "values_int64s": [1]}, "2 keys, but 1 values"),
        ("LabelEncoder", {"keys_int64s": [1]}, r"0 of the lists values_\*"),
        ("LabelEncoder", {"keys_int64s": [1], "keys_floats": [1.0], **VALUES}, r"2 of .* keys_\*"),
        (
            "LabelEncoder",
            {"keys_strings": ["1"], "values_int64s": [1]},
            "the type of the keys, string",
        ),
        (
            "LabelEncoder",
            {"keys_int64s": [1], "values_int64s": [1], "default_tensor": np.zeros(2, np.int64)},
            "single value",
        ),
        ("CategoryMapper", {}, "list of categories is empty"),
        ("CategoryMapper", {"cats_int64s": [1], "cats_strings": ["a", "b"]}, "1 keys, but 2"),
    ],
)
def test_tables_that_do_not_fit_are_refused(op: str, known: dict[str, Any], told: str) -> None:
    with pytest.raises(sardonyx.InvalidInput, match=told):
        run_ml(HOST, op, np.asarray([1]), **known)


# -- maps -----------------------------------------------------------------------------------------

TYPES = {float: TensorProto.FLOAT, int: TensorProto.INT64, str: TensorProto.STRING}


def of_a_map(op: str, keys: type, values: type, result: int, **known: Any) -> bytes:
    scalar = helper.make_tensor_type_proto(TYPES[values], [])
    x = helper.make_value_info("x", helper.make_map_type_proto(TYPES[keys], scalar))
    y = helper.make_tensor_value_info("y", result, None)
    node = helper.make_node(op, ["x"], ["y"], domain=DOMAIN, **known)
    return _serialized(helper.make_graph([node], op, [x], [y]))


def _serialized(graph: Any) -> bytes:
    opsets = [helper.make_opsetid(DOMAIN, 1)]
    serialized: bytes = helper.make_model(
        graph, opset_imports=opsets, ir_version=8
    ).SerializeToString()
    return serialized


def in_onnxruntime(model: bytes, x: Any) -> Any:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
@pytest.mark.parametrize("to", ["FLOAT", "INT64", "STRING"])
def test_CastMap_is_that_of_onnxruntime(xp: Backend, to: str, form: str) -> None:
    known = {"cast_to": f"TO_{to}", "map_form": form, "max_map": 5}
    model = of_a_map("CastMap", int, float, getattr(TensorProto, to), **known)
    x = {3: 1.5, 1: -2.25, 4: 8.0}
    assert_like(sardonyx.load(model, backend=xp)(x), in_onnxruntime(model, x))


def test_CastMap_reads_numbers(xp: Backend) -> None:
    x = {3: "15", 1: "-2"}
    for to, expected in (
        ("INT64", np.asarray([[-2, 15]])),
        ("FLOAT", np.asarray([[-2, 15]], np.float32)),
        ("STRING", strings("-2", "15").reshape(1, 2)),
    ):
        model = of_a_map("CastMap", int, str, getattr(TensorProto, to), cast_to=f"TO_{to}")
        assert_like(sardonyx.load(model, backend=xp)(x), expected)


@pytest.mark.parametrize(
    ("x", "known", "expected"),
    [
        ({"c": 4.5, "a": 8.0}, {"string_vocabulary": ["a", "c", "b"]}, [8.0, 4.5, 0.0]),
        ({2: 4.5, 7: 8.0}, {"int64_vocabulary": [5, 7, 2]}, [0.0, 8.0, 4.5]),
        ({"c": 4, "a": 8}, {"string_vocabulary": ["a", "c", "b"]}, [8, 4, 0]),
        ({2: "p"}, {"int64_vocabulary": [5, 2]}, ["", "p"]),
    ],
)
def test_DictVectorizer_follows_its_vocabulary(
    xp: Backend, x: dict[Any, Any], known: dict[str, Any], expected: list[Any]
) -> None:
    key, value = (type(one) for one in next(iter(x.items())))
    model = of_a_map("DictVectorizer", key, value, TYPES[value], **known)
    dtype = {float: np.float32, int: np.int64, str: object}[value]
    assert_like(sardonyx.load(model, backend=xp)(x), np.asarray([expected], dtype))


def test_DictVectorizer_returns_one_row_as_onnxruntime_does(xp: Backend) -> None:
    known = {"string_vocabulary": ["a", "c", "b"]}
    model = of_a_map("DictVectorizer", str, float, TensorProto.FLOAT, **known)
    x = {"c": 4.5, "a": 8.0}
    assert_like(sardonyx.load(model, backend=xp)(x), in_onnxruntime(model, x))


def test_a_key_without_a_place_is_refused() -> None:
    model = of_a_map("DictVectorizer", str, float, TensorProto.FLOAT, string_vocabulary=["a"])
    with pytest.raises(sardonyx.InvalidInput, match="'b' is not in the vocabulary"):
        sardonyx.load(model, backend="numpy")({"b": 1.0})
    known = {"map_form": "SPARSE", "max_map": 2}
    model = of_a_map("CastMap", int, float, TensorProto.FLOAT, **known)
    for key in (2, -1):
        with pytest.raises(sardonyx.InvalidInput, match="max_map 2"):
            sardonyx.load(model, backend="numpy")({key: 1.0})


@pytest.mark.parametrize("shape", [(2, 2), (2,)])
@pytest.mark.parametrize("labels", [["u", "v"], [7, 5]], ids=str)
def test_ZipMap_is_that_of_onnxruntime(
    xp: Backend, labels: list[Any], shape: tuple[int, ...]
) -> None:
    kind = "strings" if isinstance(labels[0], str) else "int64s"
    known = {f"classlabels_{kind}": labels}
    scalar = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    row = helper.make_map_type_proto(TYPES[type(labels[0])], scalar)
    node = helper.make_node("ZipMap", ["x"], ["y"], domain=DOMAIN, **known)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    y = helper.make_value_info("y", helper.make_sequence_type_proto(row))
    model = _serialized(helper.make_graph([node], "ZipMap", [x], [y]))
    given = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    assert sardonyx.load(model, backend=xp)(given) == in_onnxruntime(model, given)
