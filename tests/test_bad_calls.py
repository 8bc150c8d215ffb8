"""Calls that do not fit the model: refused in words that name the input and the way out."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import array_api_strict
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax import JaxBackend
from sardonyx.backends.numpy import NumpyBackend
from sardonyx.errors import InvalidInput, InvalidModel, UnsupportedModel
from tests.graphs import BOOL, FLOAT, INT64, STRING, graph, model, node, value, weight
from tests.refusal import refused

X = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.ones(3, np.float32)
SUM = model(
    [node("Add", ["x", "b"], ["y"], name="sum")],
    [value("x", ["rows", 3]), value("b", [3])],
    ["y"],
)


@pytest.fixture
def summing(xp: Backend) -> sardonyx.Model:
    return sardonyx.load(SUM, backend=xp)


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "named", "words"),
    [
        ([], {}, ["needs", "x: tensor(float)[rows, 3]", "b: tensor(float)[3]"]),
        ([X], {}, ["needs", "b: tensor(float)[3]"]),
        ([X], {"c": B}, ["no input 'c'", "x, b"]),
        ([X, B], {"c": B}, ["no input 'c'", "x, b"]),
        ([X, B], {"b": B}, ["'b'", "twice"]),
        ([X, B, B], {}, ["2 inputs", "x, b", "3"]),
        ([], {"x": X, "b": None}, ["'b'", "None"]),
        ([None, B], {}, ["'x'", "None"]),
    ],
)
def test_names(
    summing: sardonyx.Model, inputs: list[Any], named: dict[str, Any], words: list[str]
) -> None:
    for call in (summing, summing.trace):
        with refused(InvalidInput, *words):
            call(*inputs, **named)


def test_feeds(summing: sardonyx.Model) -> None:
    feeds = {"x": X, "b": B}
    with refused(InvalidInput, "no input 'z'", "x, b"):
        summing.run(None, {**feeds, "z": X})
    with refused(InvalidInput, "needs", "b: tensor(float)[3]"):
        summing.run(None, {"x": X})
    with refused(InvalidInput, "no output 'z'", "y"):
        summing.run(["y", "z"], feeds)
    with refused(InvalidInput, "no input '3'"):
        summing.run(None, {**feeds, 3: X})  # type: ignore[dict-item]
    with refused(InvalidInput, "list", "dict"):
        summing.run(None, [X, B])  # type: ignore[arg-type]
    with refused(InvalidInput, "str", "['y']"):
        summing.run("y", feeds)
    assert len(summing.run([], feeds)) == 0


# -- dtypes, ranks and sizes ----------------------------------------------------------------------


class Shapeless:
    shape, dtype = None, np.dtype(np.float32)


class Unreadable:
    shape, dtype = (2, 3), np.dtype(np.float32)


class Failing:
    shape, dtype = (2, 3), np.dtype(np.float32)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("the file behind it is gone")


RECORDS = np.zeros((2, 3), [("a", "f4"), ("b", "i4")])


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (X.astype(np.float64), ["must be float32", "float64[2, 3]", "astype"]),
        (X.astype(np.int32), ["must be float32", "int32[2, 3]"]),
        (X.astype(ml_dtypes.bfloat16), ["must be float32", "bfloat16[2, 3]"]),
        (X > 1, ["must be float32", "bool[2, 3]"]),
        (X[0], ["2 dimensions", "[rows, 3]", "float32[3] with 1"]),
        (X[None], ["2 dimensions", "float32[1, 2, 3] with 3"]),
        (np.float32(1), ["2 dimensions"]),
        (X[:, :2], ["size 3 on axis 1", "float32[2, 2]"]),
        (np.zeros((2, 0), np.float32), ["size 3 on axis 1", "float32[2, 0]"]),
        (RECORDS, ["dtype", "'a'", "no ONNX type"]),
        (np.zeros((2, 3), "V4"), ["must be float32"]),
        (np.zeros((2, 3), "M8[s]"), ["datetime64[s]", "no ONNX type"]),
        (np.zeros((2, 3), "m8[s]"), ["timedelta64[s]", "no ONNX type"]),
        (np.zeros((2, 3), "S4"), ["no ONNX type"]),
        (np.zeros((2, 3), np.longdouble), ["must be float32"]),
        (X.astype(object), ["Python objects", "float", "numeric dtype"]),
        (np.array([["a", "b", "c"]]), ["must be float32", "string[1, 3]"]),
        (np.ma.masked_less(X, 2), ["masked", "filled"]),
        ([[1, 2, 3], [4, 5]], ["list", "inhomogeneous"]),
        ([["1", "2", "3"]], ["list", "without loss"]),
        ([[1j, 2, 3]], ["list", "without loss"]),
        ([[None, 2, 3]], ["list"]),
        ([[10**400, 2, 3]], ["list"]),
        ("text", ["str"]),
        (object(), ["object"]),
        ({"x": 1}, ["dict"]),
        (Shapeless(), ["Shapeless", "shape"]),
        (Unreadable(), ["Unreadable", "no array"]),
        (Failing(), ["Failing", "the file behind it is gone"]),
    ],
    ids=lambda v: "" if isinstance(v, list) and isinstance(v[0], str) else None,
)
def test_arrays_that_do_not_fit(summing: sardonyx.Model, x: Any, words: list[str]) -> None:
    for _ in range(2):
        with refused(InvalidInput, "'x'", *words):
            summing(x, B)
    assert np.asarray(summing(X, B)).tolist() == (X + B).tolist()


def test_sizes_of_one_name_must_agree(xp: Backend) -> None:
    both = model(
        [node("Add", ["a", "b"], ["y"])], [value("a", ["n", 1]), value("b", ["n", 2])], ["y"]
    )
    loaded = sardonyx.load(both, backend=xp)
    with refused(InvalidInput, "'b'", "size 2 on axis 0", "[n, 2]", "float32[3, 2]"):
        loaded(np.ones((2, 1), np.float32), np.ones((3, 2), np.float32))


@pytest.mark.parametrize("given", [[0.5], [float("nan")], [2**70], ["1"]])
def test_lists_lose_nothing(xp: Backend, given: list[Any]) -> None:
    loaded = sardonyx.load(
        model([node("Neg", ["i"], ["y"])], [value("i", None, INT64)], [value("y", None, INT64)]),
        backend=xp,
    )
    with refused(InvalidInput, "'i'", "int64", "list"):
        loaded(given)
    assert loaded([3, 4]).tolist() == [-3, -4]


def test_texts_are_text() -> None:
    same = model(
        [node("Identity", ["s"], ["y"])], [value("s", None, STRING)], [value("y", None, STRING)]
    )
    loaded = sardonyx.load(same, backend="numpy")
    assert loaded(np.array(["a", "b"])).tolist() == ["a", "b"]
    assert loaded(["a", "b"]).tolist() == ["a", "b"]
    for bad in ([["a", "b"], ["c"]], [1, 2], [b"a"], np.array([1.5], object)):
        with refused(InvalidInput, "'s'", "objects"):
            loaded(bad)
    with refused(InvalidInput, "'s'", "must be string"):
        loaded(X)


def test_sequences_are_lists_of_arrays_of_one_type(xp: Backend) -> None:
    info = onnx.helper.make_tensor_sequence_value_info("s", FLOAT, None)
    result = onnx.helper.make_tensor_sequence_value_info("y", FLOAT, None)
    loaded = sardonyx.load(model([node("Identity", ["s"], ["y"])], [info], [result]), backend=xp)
    assert [np.asarray(one).tolist() for one in loaded([B, [[1]]])] == [B.tolist(), [[1.0]]]
    for bad, word in (
        (X, "list of arrays"),
        ([X, X.astype(int)], "must be float32"),
        (None, "None"),
    ):
        with refused(InvalidInput, "'s'", word):
            loaded(bad)


# -- what is as it should be ----------------------------------------------------------------------


class Lent:
    """An array of a library nobody has heard of, which lends its memory."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def read_only(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    copy = x.copy()
    copy.flags.writeable = False
    return copy


@pytest.mark.parametrize(
    "given",
    [
        lambda x: x.T.copy().T,
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[::-1, ::-1][::-1, ::-1],
        lambda x: x.astype(x.dtype.newbyteorder("S")),
        read_only,
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3),
        lambda x: x.tolist(),
        lambda x: tuple(map(tuple, x)),
        np.asmatrix,
        array_api_strict.asarray,
        jnp.asarray,
        Lent,
    ],
    ids="turned strided reversed swapped read-only unaligned list tuple matrix strict jax lent".split(),
)
def test_arrays_of_all_layouts_and_libraries(summing: sardonyx.Model, given: Any) -> None:
    for _ in range(2):
        assert np.asarray(summing(given(X), B)).tolist() == (X + B).tolist()


def test_a_matrix_multiplies_as_an_array_does(xp: Backend) -> None:
    loaded = sardonyx.load(model([node("Mul", ["x", "x"], ["y"])], ["x"], ["y"]), backend=xp)
    assert np.asarray(loaded(np.asmatrix(np.eye(2) * 3, np.float32))).tolist() == [[9, 0], [0, 9]]


@pytest.mark.parametrize("shape", [(0, 3), (2**31, 0, 3)])
def test_arrays_without_elements(xp: Backend, shape: tuple[int, ...]) -> None:
    free = model([node("Add", ["x", "b"], ["y"])], ["x", "b"], ["y"])
    assert sardonyx.load(free, backend=xp)(np.zeros(shape, np.float32), B).shape == shape


def test_what_is_not_a_number_becomes_some_integer(xp: Backend) -> None:
    cast = model([node("Cast", ["x"], ["y"], to=INT64)], ["x"], [value("y", None, INT64)])
    loaded = sardonyx.load(cast, backend=xp)
    assert loaded(np.array([np.nan, np.inf, -np.inf, 2], np.float32)).dtype == np.int64


def test_an_array_that_was_deleted_or_donated(summing: sardonyx.Model) -> None:
    summing(jnp.asarray(X), B)
    gone, given_away = jnp.array(X), jnp.array(X)
    gone.delete()
    jax.jit(lambda x: x + 1, donate_argnums=0)(given_away)
    for dead in (gone, given_away):
        with refused(InvalidInput, "deleted"):
            summing(dead, B)
    assert np.asarray(summing(jnp.asarray(X), B)).tolist() == (X + B).tolist()


TWO_DEVICES = """
import jax, numpy as np, sardonyx
from sardonyx.errors import InvalidInput
first, second = jax.devices()
x = np.ones(3, np.float32)
proto = sardonyx.load(%r, backend="jax", device=first)
proto.params["w"] = jax.device_put(x, first)
assert proto(jax.device_put(x, first)).tolist() == [2, 2, 2]
try:
    proto(jax.device_put(x, second))
except InvalidInput as error:
    print(error)
"""


def test_an_array_on_another_device() -> None:
    proto = model([node("Add", ["x", "w"], ["y"])], ["x"], ["y"], [weight("w", B)])
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES % proto.SerializeToString()],
        env={
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
            "PYTHONPATH": ":".join(sys.path),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "incompatible devices" in done.stdout


# -- values the program depends on ----------------------------------------------------------------


def gather() -> onnx.ModelProto:
    return model(
        [node("Gather", ["x", "i"], ["y"], name="pick")], ["x", value("i", None, INT64)], ["y"]
    )


def test_an_index_out_of_range_names_its_node_on_every_call() -> None:
    loaded = sardonyx.load(gather(), backend="numpy")
    for index in (9, 1, -9):  # The first call records, the others replay.
        if index == 1:
            assert loaded(X, np.array([index])).tolist() == X[[1]].tolist()
            continue
        words = ["'pick'", "Gather, opset 18", "x: float32[2, 3]", "i: int64[1]", f"{index}"]
        with refused(InvalidInput, *words):
            loaded(X, np.array([index]))


def test_a_shape_that_does_not_fit_names_its_node(xp: Backend) -> None:
    reshape = model(
        [node("Reshape", ["x", "shape"], ["y"], name="fold")],
        ["x", value("shape", None, INT64)],
        ["y"],
    )
    loaded = sardonyx.load(reshape, backend=xp)
    for shape in ([4], [3, 2], [5, -1], [-1, -1]):
        if shape == [3, 2]:
            assert loaded(X, shape).shape == (3, 2)
            continue
        with refused(InvalidInput, "'fold'", "Reshape, opset 18", "x: float32[2, 3]"):
            loaded(X, shape)


# -- attributes -----------------------------------------------------------------------------------

IMAGE = np.ones((1, 4, 5, 5), np.float32)
FILTERS = np.ones((4, 4, 3, 3), np.float32)
BAD_ATTRIBUTES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("Softmax", [X], {"axis": 2}, "axis 2"),
    ("Softmax", [X], {"axis": -3}, "axis -3"),
    ("Concat", [X, X], {"axis": 2}, "axis 2"),
    ("Concat", [X, B], {"axis": 0}, "differ"),
    ("Flatten", [X], {"axis": 3}, "axis 3"),
    ("Gather", [X, np.array([0])], {"axis": 7}, "axis 7"),
    ("Squeeze", [X, np.array([0])], {}, "size 1"),
    ("Unsqueeze", [X, np.array([0, 0])], {}, "twice"),
    ("Unsqueeze", [X, np.array([4])], {}, "axis 4"),
    ("ReduceSum", [X, np.array([0, 0])], {}, "twice"),
    ("ReduceMax", [X, np.array([5])], {}, "axis 5"),
    ("ArgMax", [X], {"axis": 2}, "axis 2"),
    ("LayerNormalization", [X, B], {"axis": 5}, "axis 5"),
    ("Transpose", [X], {"perm": [0, 0]}, "perm"),
    ("Transpose", [X], {"perm": [0, 1, 2]}, "perm"),
    ("Transpose", [X], {"perm": [2, 1]}, "perm"),
    ("Reshape", [X, np.array([-1, -1])], {}, "-1"),
    ("Reshape", [X, np.array([4, 2])], {}, "fill"),
    ("Expand", [X, np.array([5, 5])], {}, "broadcast"),
    ("Tile", [X, np.array([1, -1])], {}, "repeats"),
    ("Tile", [X, np.array([1])], {}, "repeats"),
    ("Slice", [X, np.array([0]), np.array([1]), np.array([0]), np.array([0])], {}, "steps"),
    ("Slice", [X, np.array([0, 0]), np.array([1])], {}, "match"),
    ("Split", [X, np.array([2, 2])], {"axis": 1}, "parts"),
    ("Split", [X, np.array([4, -1])], {"axis": 1}, "parts"),
    ("Split", [X], {"num_outputs": 2**40}, "num_outputs"),
    ("Pad", [X, np.array([0, -9, 0, 0])], {}, "pads"),
    ("Pad", [X, np.array([1])], {}, "pads"),
    ("Pad", [X, np.array([1, 1, 1, 1])], {"mode": "fold"}, "mode"),
    ("ConstantOfShape", [np.array([2, -1])], {}, "negative"),
    ("ConstantOfShape", [np.array([2])], {"value": X}, "one"),
    ("Range", [np.array(0), np.array(3), np.array(0)], {}, "no range"),
    ("Range", [np.float32(0), np.float32("nan"), np.float32(1)], {}, "no range"),
    ("Range", [np.float32(0), np.float32("inf"), np.float32(1)], {}, "no range"),
    ("EyeLike", [B], {}, "matrix"),
    ("Trilu", [B], {}, "matri"),
    ("DepthToSpace", [IMAGE], {"blocksize": 0}, "blocksize"),
    ("DepthToSpace", [IMAGE], {"blocksize": -2}, "blocksize"),
    ("DepthToSpace", [IMAGE], {"blocksize": 3}, "blocks of 3"),
    ("SpaceToDepth", [IMAGE], {"blocksize": 2**40}, "blocks"),
    ("Conv", [IMAGE, FILTERS], {"strides": [0, 1]}, "strides"),
    ("Conv", [IMAGE, FILTERS], {"strides": [-1, 1]}, "strides"),
    ("Conv", [IMAGE, FILTERS], {"dilations": [0, 1]}, "dilations"),
    ("Conv", [IMAGE, FILTERS], {"group": 0}, "group"),
    ("Conv", [IMAGE, FILTERS], {"group": -1}, "group"),
    ("Conv", [IMAGE, FILTERS], {"group": 3}, "group"),
    ("Conv", [IMAGE, FILTERS], {"kernel_shape": [5, 5]}, "kernel_shape"),
    ("Conv", [IMAGE, FILTERS], {"pads": [-1, 0, 0, 0]}, "pads"),
    ("Conv", [IMAGE, FILTERS], {"pads": [1, 1]}, "pads"),
    ("Conv", [IMAGE, FILTERS], {"dilations": [9, 9]}, "does not fit"),
    ("Conv", [IMAGE, FILTERS], {"auto_pad": "SOME"}, "auto_pad"),
    ("ConvTranspose", [IMAGE, FILTERS], {"strides": [0, 0]}, "strides"),
    ("ConvTranspose", [IMAGE, FILTERS], {"group": 0}, "group"),
    ("MaxPool", [IMAGE], {"kernel_shape": [0, 1]}, "kernel_shape"),
    ("MaxPool", [IMAGE], {"kernel_shape": [-2, 1]}, "kernel_shape"),
    ("MaxPool", [IMAGE], {"kernel_shape": [2]}, "kernel_shape"),
    ("MaxPool", [IMAGE], {"kernel_shape": [9, 9]}, "does not fit"),
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "strides": [0, 1]}, "strides"),
    ("Gemm", [X, X], {}, "product"),
    ("MatMul", [X, X], {}, "product"),
    ("Add", [X, np.ones(2, np.float32)], {}, "broadcast"),
    ("Where", [np.array([True, False]), X, X], {}, "broadcast"),
    ("Cast", [X], {"to": 99}, "99"),
    ("GatherND", [X, np.array([[0]])], {"batch_dims": 5}, "batch_dims"),
]


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "word"),
    BAD_ATTRIBUTES,
    ids=[f"{o} {a or ''}" for o, _, a, _ in BAD_ATTRIBUTES],
)
def test_attributes(
    xp: Backend, operator: str, inputs: list[Any], attributes: dict[str, Any], word: str
) -> None:
    names = [f"i{i}" for i in range(len(inputs))]
    types = [onnx.helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype) for array in inputs]
    if "value" in attributes:
        attributes = {"value": weight("value", attributes["value"])}
    outputs = ["y", "z"] if operator == "Split" else ["y"]
    bad = model(
        [node(operator, names, outputs, name="it", **attributes)],
        [value(n, None, t) for n, t in zip(names, types, strict=True)],
        [onnx.ValueInfoProto(name="y")],
    )
    shape = f"{np.asarray(inputs[0]).dtype}{list(np.shape(inputs[0]))}"
    with refused(InvalidInput, "'it'", f"{operator}, opset 18", f"i0: {shape}", word):
        sardonyx.load(bad, backend=xp)(*inputs)


# -- one operator by itself -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "inputs", "options", "error", "words"),
    [
        ("NoSuchThing", [X], {}, UnsupportedModel, ["NoSuchThing"]),
        ("Relu", [X], {"opset": 99}, UnsupportedModel, ["99", "up to"]),
        ("Relu", [X], {"opset": 0}, InvalidModel, ["0"]),
        ("Relu", [X], {"domain": "no.such"}, UnsupportedModel, ["no.such"]),
        ("Relu", [], {}, InvalidModel, ["Relu", "0 inputs"]),
        ("Relu", [X, X], {}, InvalidModel, ["Relu", "2 inputs"]),
        ("Relu", [X], {"slope": 1}, InvalidModel, ["slope"]),
        ("Relu", [X], {"outputs": 3}, InvalidModel, ["3 outputs"]),
        ("Relu", [["a"]], {}, InvalidModel, ["tensor(string)", "strict=False"]),
        ("Relu", [[[1], [2, 3]]], {}, InvalidInput, ["inhomogeneous"]),
        ("Softmax", [X], {"axis": "last"}, InvalidModel, ["axis", "INT"]),
        ("Softmax", [X], {"axis": object()}, InvalidInput, ["axis", "object"]),
        ("Constant", [], {"value_int": 1, "value_float": 2.0}, InvalidModel, ["exactly one"]),
        ("Cast", [X], {"to": "complex512"}, InvalidModel, ["to", "INT"]),
    ],
)
def test_one_operator(
    operator: str, inputs: list[Any], options: dict[str, Any], error: Any, words: list[str]
) -> None:
    with refused(error, *words):
        sardonyx.run_op(operator, *inputs, **options)


# -- overriding what has a default ----------------------------------------------------------------


def with_defaults(ir: int) -> onnx.ModelProto:
    """y = reshape(x * scale, shape), where scale and shape have defaults."""
    made = model(
        [node("Mul", ["x", "scale"], ["scaled"]), node("Reshape", ["scaled", "shape"], ["y"])],
        [value("shape", [2], INT64), value("x", [2, 3]), value("scale", [1])],
        ["y"],
        [weight("scale", np.array([2], np.float32)), weight("shape", np.array([3, 2]))],
    )
    made.ir_version = ir
    return made


@pytest.mark.parametrize("ir", [3, 10])
def test_a_default_may_be_overridden(xp: Backend, ir: int) -> None:
    loaded = sardonyx.load(with_defaults(ir), backend=xp)
    assert [info.name for info in loaded.inputs] == ["x"]
    assert [info.name for info in loaded.optional_inputs] == ["shape", "scale"]
    shape, scale = np.array([6, 1]), np.array([5], np.float32)
    for _ in range(2):
        assert np.asarray(loaded(X)).tolist() == (2 * X).reshape(3, 2).tolist()
        assert np.asarray(loaded(X, scale=scale)).tolist() == (5 * X).reshape(3, 2).tolist()
        assert np.asarray(loaded(X, shape)).tolist() == (2 * X).reshape(6, 1).tolist()
        assert np.asarray(loaded(X, [1, 6])).tolist() == (2 * X).reshape(1, 6).tolist()
        both = loaded.run(["y"], {"shape": shape, "scale": scale, "x": X})
        assert both[0].tolist() == (5 * X).reshape(6, 1).tolist()
    assert loaded.trace(X, scale=scale).kind("scale") == "device"
    loaded.params["scale"] = np.array([7], np.float32)
    assert np.asarray(loaded(X, shape)).tolist() == (7 * X).reshape(6, 1).tolist()


def test_a_default_is_overridden_by_what_fits(xp: Backend) -> None:
    loaded = sardonyx.load(with_defaults(3), backend=xp)
    with refused(InvalidInput, "'scale'", "must be float32"):
        loaded(X, scale=np.array([1]))
    with refused(InvalidInput, "'scale'", "size 1 on axis 0"):
        loaded(X, scale=B)
    with refused(InvalidInput, "4"):
        loaded(X, [3, 2], B[:1], B)
    with refused(InvalidInput, "'shape'", "twice"):
        loaded(X, [3, 2], shape=[3, 2])
    with refused(InvalidInput, "needs", "x: tensor(float)[2, 3]"):
        loaded(scale=B[:1])


# -- many at a time, and being interrupted --------------------------------------------------------

COMPRESSED = model(
    [
        node("Constant", [], ["half"], value=weight("half", np.float32(0.5))),
        node("Mul", ["x", "half"], ["scaled"]),
        node("Reshape", ["scaled", "shape"], ["folded"]),
        node("ReduceSum", ["folded"], ["total"], keepdims=0),
        node("Greater", ["total", "half"], ["large"]),
        node(
            "If",
            ["large"],
            ["y"],
            then_branch=graph([node("Neg", ["folded"], ["n"])], [], ["n"]),
            else_branch=graph([node("Exp", ["folded"], ["e"])], [], ["e"]),
        ),
    ],
    ["x", value("shape", None, INT64)],
    ["y"],
)


def compressed(x: np.ndarray[Any, Any], shape: list[int]) -> np.ndarray[Any, Any]:
    folded = (x * np.float32(0.5)).reshape(shape)
    return -folded if folded.sum() > 0.5 else np.exp(folded)


def test_threads_may_record_and_replay_at_once(xp: Backend) -> None:
    loaded = sardonyx.load(COMPRESSED, backend=xp)
    shapes = [[6], [2, 3], [3, 2], [1, 6], [6, 1, 1], [-1, 3]]
    calls = [(X * sign, shape) for sign in (1, -1, 0) for shape in shapes] * 4
    random.Random(3).shuffle(calls)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda call: np.asarray(loaded(*call)), calls))
    for call, y in zip(calls, found, strict=True):
        np.testing.assert_allclose(y, compressed(*call), rtol=1e-6)


class Interrupted:
    """A backend that is interrupted at one of its calls, as by Ctrl-C."""

    countdown: int = -1

    def scope(self) -> Any:
        self.tick()
        return super().scope()  # type: ignore[misc]

    def allow(self, shape: Any, dtype: Any) -> None:
        self.tick()
        super().allow(shape, dtype)  # type: ignore[misc]

    def spec(self, given: Any) -> Any:
        self.tick()
        return super().spec(given)  # type: ignore[misc]

    def put(self, given: Any) -> Any:
        self.tick()
        return super().put(given)  # type: ignore[misc]

    def fetch(self, given: Any) -> Any:
        self.tick()
        return super().fetch(given)  # type: ignore[misc]

    def multiply(self, a: Any, b: Any) -> Any:
        self.tick()
        return a * b

    def exp(self, x: Any) -> Any:
        self.tick()
        return jnp.exp(x) if isinstance(self, JaxBackend) else np.exp(x)

    def tick(self) -> None:
        self.countdown -= 1
        if self.countdown == 0:
            raise KeyboardInterrupt


class InterruptedNumpy(Interrupted, NumpyBackend):
    pass


class InterruptedJax(Interrupted, JaxBackend):
    pass


@pytest.mark.parametrize("library", [InterruptedNumpy, InterruptedJax])
def test_an_interrupted_model_is_as_good_as_new(library: Any) -> None:
    backend = library()
    calls = [(X, [3, 2]), (-X, [6]), (X, [6])]
    loaded = sardonyx.load(COMPRESSED, backend=backend)
    interruptions = 0
    for moment in range(1, 60):
        for call in calls:
            backend.countdown = moment
            try:
                loaded(*call)
            except KeyboardInterrupt:
                interruptions += 1
            backend.countdown = -1
            if moment % 5 == 0:
                np.testing.assert_allclose(loaded(*call), compressed(*call), rtol=1e-6)
                loaded = sardonyx.load(COMPRESSED, backend=backend)
    assert interruptions > 40
    for call in calls:
        np.testing.assert_allclose(loaded(*call), compressed(*call), rtol=1e-6)
