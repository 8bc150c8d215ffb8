"""Conditions on data: constants are refused, and other data clamped or refused, as documented."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from tests.support.onnx_builders import model, node, value, weight
from tests.support.raises import refused

ML = "ai.onnx.ml"
X = np.arange(6, dtype=np.float32).reshape(2, 3)
IMAGES = np.arange(32, dtype=np.float32).reshape(2, 1, 4, 4)
REGION = np.array([[0, 0, 1, 1]], np.float32)
LOGS = np.log(np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], np.float32))
WORDS = X.astype(np.int64)
STEPS = np.ones((3, 2, 1), np.float32)
GATE = np.ones((1, 1, 1), np.float32)
LENGTHS = np.array([4, -1], np.int32)
TURNS = np.arange(4, dtype=np.float32).reshape(2, 2) / 4
HEADS = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
HEAD = np.ones((1, 1, 1, 4), np.float32)


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Row:
    """An operator, inputs of which the one numbered `bad` breaks a condition, and what follows."""

    operator: str
    inputs: list[Any]
    bad: int
    good: Any
    words: str
    # What a device that does not check makes of it: the same as for these in its place.
    like: Any
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    opset: int = 24

    def __str__(self) -> str:
        return (
            f"{self.operator} {self.words.split(' ', 1)[0]} {np.ravel(self.inputs[self.bad])[:2]}"
        )

    def model(self, constant: bool) -> onnx.ModelProto:
        """A model of this node alone. With `constant` what is bad is an initializer."""
        names = ["" if x is None else f"i{i}" for i, x in enumerate(self.inputs)]
        made = node(
            self.operator, names, ["y"], name="spot", domain=self.domain, **self.attributes
        )  # fmt: skip
        infos = []
        weights = []
        for i, (name, array) in enumerate(zip(names, self.inputs, strict=True)):
            if constant and i == self.bad:
                weights.append(weight(name, array))
            elif array is not None:
                dtype = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
                infos.append(value(name, None, dtype))
        result = value("y", None, onnx.TensorProto.UNDEFINED)
        result.ClearField("type")
        domains = {"ai_onnx_ml": 4} if self.domain else {}
        return model([made], infos, [result], weights, opset=self.opset, **domains)

    def with_data(self, data: Any) -> list[Any]:
        replaced = (data if i == self.bad else array for i, array in enumerate(self.inputs))
        return [array for array in replaced if array is not None]

    @property
    def data(self) -> list[Any]:
        return self.with_data(self.inputs[self.bad])


def divided(operator: str, dtype: Any, good: int, **attributes: Any) -> Row:
    a, b = np.array([7, 7], dtype), np.array([good, 0], dtype)
    words = "'B' holds 0, by which integers cannot be divided"
    return Row(operator, [a, b], 1, np.array([good, good], dtype), words, None, attributes)


ROWS = [
    # What is read is the nearest element.
    Row("Gather", [X, ints(0, 2)], 1, ints(0, 1), "'indices' holds 2", ints(0, 1)),
    Row("Gather", [X, ints(-3, -1)], 1, ints(-2, -1), "'indices' holds -3", ints(0, 1)),
    Row("Gather", [X, ints(9)], 1, ints(-3), "'indices' holds 9", ints(2), {"axis": 1}),
    Row(
        "GatherElements", [X, ints(0, 5, -9)[None]], 1, ints(0, 1, 1)[None],
        "'indices' holds 5", ints(0, 1, 0)[None],
    ),
    Row(
        "GatherND", [X, np.array([[0, 3], [-7, 1]])], 1, np.array([[0, 2], [-2, 1]]),
        "'indices' holds -7", np.array([[0, 2], [0, 1]]),
    ),
    Row(
        "GatherND", [X, np.array([[3], [-4]])], 1, np.array([[2], [-3]]),
        "'indices' holds 3", np.array([[2], [0]]), {"batch_dims": 1},
    ),
    Row(
        "RotaryEmbedding", [HEAD, TURNS, TURNS, ints(7)[None]], 3, ints(1)[None],
        "'position_ids' holds 7", ints(1)[None],
    ),
    Row(
        "NegativeLogLikelihoodLoss", [LOGS, ints(-1, 3)], 1, ints(0, 2),
        "'target' holds -1", ints(0, 2), {"reduction": "none"},
    ),
    Row(
        "SoftmaxCrossEntropyLoss", [LOGS, ints(-1, 3)], 1, ints(-1, 2),
        "'labels' holds 3, out of the range from 0 to 2, or -1", ints(-1, 2), {"ignore_index": -1},
    ),
    Row(
        "RoiAlign", [IMAGES, REGION, ints(2)], 2, ints(1), "'batch_indices' holds 2", ints(1)
    ),
    Row(
        "RoiAlign", [IMAGES, REGION, ints(-1)], 2, ints(0), "'batch_indices' holds -1", ints(0)
    ),
    Row(
        "MaxRoiPool", [IMAGES, np.float32([[2, 0, 0, 1, 1]])], 1, np.float32([[1, 0, 0, 1, 1]]),
        "'rois' holds 2", np.float32([[1, 0, 0, 1, 1]]), {"pooled_shape": [1, 1]},
    ),
    Row(
        "ArrayFeatureExtractor", [X, ints(3)], 1, ints(2), "'Y' holds 3", ints(2), domain=ML
    ),
    # What is written out of range is not.
    Row(
        "ScatterElements", [X, ints(2, 1, -3)[None], -X[1:]], 1, ints(1, 1, -2)[None],
        "'indices' holds 2", np.array([[0, 1, 2], [3, -4, 5]], np.float32),
    ),
    Row(
        "ScatterElements", [X, ints(2, 1, -3)[None], X[1:]], 1, ints(1, 1, -2)[None],
        "'indices' holds 2", np.array([[0, 1, 2], [3, 16, 5]], np.float32),
        {"axis": 0, "reduction": "mul"},
    ),
    Row(
        "Scatter", [X, ints(2, 1, -3)[None], -X[1:]], 1, ints(1, 1, -2)[None],
        "'indices' holds 2", np.array([[0, 1, 2], [3, -4, 5]], np.float32), opset=10,
    ),
    Row(
        "ScatterND", [X, ints(2, 1)[:, None], -X], 1, ints(0, 1)[:, None],
        "'indices' holds 2", np.array([[0, 1, 2], [0, 0, 0]], np.float32), {"reduction": "add"},
    ),
    Row(
        "ScatterND", [X, np.array([[0, 3], [1, -3]]), X[0, 1:]], 1, np.array([[0, 2], [1, -3]]),
        "'indices' holds 3", np.array([[0, 1, 2], [2, 4, 5]], np.float32),
    ),
    Row(
        "TensorScatter", [X, X[:, :1], ints(3, 1)], 2, ints(2, 0),
        "'write_indices' holds 3", np.array([[0, 1, 2], [3, 3, 5]], np.float32), {"axis": 1},
    ),
    Row(
        "TensorScatter", [X, X[:, :2], ints(-1, 2)], 2, ints(0, 1),
        "'write_indices' holds -1", np.array([[1, 1, 2], [3, 4, 3]], np.float32), {"axis": 1},
    ),
    Row(
        "MaxUnpool", [X[:1, :1, None] + 1, ints(7)[None, None]], 1, ints(1)[None, None],
        "'I' holds 7", np.zeros((1, 1, 2), np.float32), {"kernel_shape": [2]},
    ),
    Row(
        "MaxUnpool", [X[:1, :1, None] + 1, ints(-1)[None, None]], 1, ints(1)[None, None],
        "'I' holds -1", np.zeros((1, 1, 2), np.float32), {"kernel_shape": [2]},
    ),
    # Lengths are at least 0 and at most all.
    Row(
        "ReverseSequence", [X, ints(2, 9, -1)], 1, ints(2, 2, 0),
        "'sequence_lens' holds 9", ints(2, 2, 0),
    ),
    *(
        Row(
            operator,
            [STEPS, *[GATE.repeat(gates, 1)] * 2, np.zeros((1, 2 * gates), np.float32), LENGTHS],
            4, np.array([3, 0], np.int32), "'sequence_lens' holds 4", np.array([3, 0], np.int32),
            {"hidden_size": 1},
        )
        for operator, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
    ),
    # A division by zero makes zero.
    *(divided("Div", dtype, 2) for dtype in (np.int32, np.int64, np.int8, np.uint8, np.uint64)),
    divided("Div", np.int64, -2),
    divided("Mod", np.int32, 2),
    divided("Mod", np.uint8, 2),
    divided("Mod", np.int64, -2, fmod=1),
    Row(
        "Attention", [HEAD, HEADS, HEADS, None, None, None, ints(9)], 6, ints(3),
        "'nonpad_kv_seqlen' holds 9", ints(3),
    ),
    # Others.
    Row(
        "OneHotEncoder", [ints(1, 5)], 0, ints(1, 2), "'X' holds a category that is not listed",
        np.float32([[1, 0], ["nan", "nan"]]), {"cats_int64s": [1, 2], "zeros": 0}, domain=ML,
    ),
    Row(
        "Bernoulli", [np.float32([0, 2])], 0, np.float32([0, 1]), "'input' holds 2.0",
        np.float32([0, 1]), {"seed": 1.0},
    ),
]  # fmt: skip

WRITES = ("Scatter", "TensorScatter", "MaxUnpool", "OneHotEncoder")


def expected_of(row: Row, xp: Backend) -> Any:
    """What an unchecked device returns."""
    if row.like is None:
        a, b = row.inputs
        safe = np.where(b == 0, 1, b)
        loaded = sardonyx.load(row.model(False), backend=xp)
        return np.where(b == 0, 0, np.asarray(loaded(a, safe)))
    if row.operator.startswith(WRITES):
        return row.like
    return np.asarray(sardonyx.load(row.model(False), backend=xp)(*row.with_data(row.like)))


def is_lenient(xp: Backend) -> bool:
    return xp.name in ("jax", "cupy")


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.sampled(6)
def test_data_are_clamped_on_devices_and_refused_elsewhere(xp: Backend, row: Row) -> None:
    loaded = sardonyx.load(row.model(constant=False), backend=xp)
    for _ in range(2):
        if is_lenient(xp):
            np.testing.assert_allclose(np.asarray(loaded(*row.data)), expected_of(row, xp))
        else:
            with refused(InvalidInput, "'spot'", row.operator, row.words):
                loaded(*row.data)
        loaded(*row.with_data(row.good))


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.sampled(8)
def test_checked_data_are_refused_everywhere(xp: Backend, row: Row, jit: bool) -> None:
    if not jit and not xp.compiled:
        pytest.skip("this library compiles nothing")
    loaded = sardonyx.load(row.model(constant=False), backend=xp, checked=True, jit=jit)
    plain = sardonyx.load(row.model(constant=False), backend=xp)
    for _ in range(2):
        with refused(InvalidInput, "'spot'", row.operator, row.words):
            loaded(*row.data)
        good = row.with_data(row.good)
        np.testing.assert_array_equal(np.asarray(loaded(*good)), np.asarray(plain(*good)))


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_constants_are_refused_while_tracing(xp: Backend, row: Row) -> None:
    others = row.with_data(None)
    for options in ({}, {"jit": False}, {"checked": True}):
        loaded = sardonyx.load(row.model(constant=True), backend=xp, **options)
        with refused(InvalidInput, "'spot'", row.operator, row.words):
            loaded(*others)
    if xp.name == "jax" and others:
        loaded = sardonyx.load(row.model(constant=True), backend=xp)
        with refused(InvalidInput, "'spot'", row.operator, row.words):
            jax.jit(loaded)(*others)
