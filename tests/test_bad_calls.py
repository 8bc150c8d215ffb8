"""Calls that do not fit the model: refused in words that name the input and the way out."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
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
from sardonyx.errors import InvalidInput
from tests.support.onnx_builders import FLOAT, INT64, STRING, model, node, value, weight
from tests.support.raises import refused

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
        ([X, B], {"b": B}, ["'b'", "pass it once"]),
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


def test_feeds_with_a_default_are_not_asked_for_it(summing: sardonyx.Model) -> None:
    feeds = defaultdict(lambda: B, {"x": X, "z": B})
    with refused(InvalidInput, "no input 'z'"):
        summing.run(None, feeds)
    assert set(feeds) == {"x", "z"}


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
    with refused(InvalidInput, "no input 'z'", "x, b"):
        summing.run(None, {"x": X, "z": B})
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
        (RECORDS, ["dtype", "'a'", "ONNX does not have"]),
        (np.zeros((2, 3), "V4"), ["must be float32"]),
        (np.zeros((2, 3), "M8[s]"), ["datetime64[s]", "ONNX does not have"]),
        (np.zeros((2, 3), "m8[s]"), ["timedelta64[s]", "ONNX does not have"]),
        (np.zeros((2, 3), "S4"), ["ONNX does not have"]),
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
        (Unreadable(), ["Unreadable", "not a readable array"]),
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
        (None, "list"),
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


class Bare:
    """Memory with DLPack's methods alone: no shape, no dtype."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._lent = Lent(array)

    def __dlpack__(self, **options: Any) -> Any:
        return self._lent.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._lent.__dlpack_device__()


class Far(Bare):
    """Bare memory that is on another device, and stays there."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the memory is on a device of its own")

    def __dlpack_device__(self) -> Any:
        return 12, 0


def read_only(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    copy = x.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS = ["turned", "strided", "reversed", "swapped", "read-only", "unaligned"]


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
        Bare,
    ],
    ids=[*LAYOUTS, "list", "tuple", "matrix", "strict", "jax", "lent", "bare"],
)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_arrays_of_all_layouts_and_libraries(summing: sardonyx.Model, given: Any) -> None:
    for _ in range(2):
        assert np.asarray(summing(given(X), B)).tolist() == (X + B).tolist()


def test_bare_memory_that_no_host_reads(summing: sardonyx.Model) -> None:
    with pytest.raises(sardonyx.InvalidInput, match=r"'x', a Far .* a device of its own.*pass an"):
        summing(Far(X), B)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
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
    assert "different devices" in done.stdout


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
