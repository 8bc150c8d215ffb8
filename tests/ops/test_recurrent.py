from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.definition import Op
from sardonyx.ops.recurrent import GRU, LSTM, RNN, ReverseSequence
from tests.ops.oracle import assert_same, onnxruntime_run, run

GATES = {RNN: 1, GRU: 3, LSTM: 4}
STEPS, BATCH, FEATURES, HIDDEN = 5, 4, 3, 2
LENGTHS = np.array([5, 1, 3, 2], np.int32)
DIRECTIONS = ["forward", "reverse", "bidirectional"]
OPS = pytest.mark.parametrize("op", list(GATES), ids=lambda op: op.name)


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def inputs(
    op: Op,
    direction: str,
    *,
    bias: bool = True,
    lengths: bool = True,
    initial: bool = True,
    peepholes: bool = True,
) -> list[np.ndarray | None]:
    """X, W, R and what is asked for of the optional inputs."""
    count, rows = 1 + (direction == "bidirectional"), GATES[op] * HIDDEN
    state = (count, BATCH, HIDDEN)
    found = [
        drawn(STEPS, BATCH, FEATURES),
        drawn(count, rows, FEATURES, seed=1),
        drawn(count, rows, HIDDEN, seed=2),
        drawn(count, 2 * rows, seed=3) if bias else None,
        LENGTHS if lengths else None,
        drawn(*state, seed=4) if initial else None,
    ]
    if op is LSTM:
        found.append(drawn(*state, seed=5) if initial else None)
        found.append(drawn(count, 3 * HIDDEN, seed=6) if peepholes else None)
    return found


def assert_as_onnxruntime(xp: Backend, op: Op, given: Any, **options: Any) -> None:
    results = run(xp, op, *given, **options)
    expected = onnxruntime_run(
        op.name, *given, opset=14, outputs=len(results), hidden_size=HIDDEN, **options
    )
    for result, other in zip(results, expected, strict=True):
        assert_same(result, other, ulps=64)


@pytest.mark.sampled(3)
@OPS
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    "present",
    [
        {},
        {"bias": False},
        {"lengths": False},
        {"initial": False, "peepholes": False},
        {"bias": False, "lengths": False, "initial": False, "peepholes": False},
    ],
    ids=lambda present: "-".join(present) or "all",
)
def test_inputs_as_in_onnxruntime(xp: Backend, op: Op, direction: str, present: Any) -> None:
    assert_as_onnxruntime(xp, op, inputs(op, direction, **present), direction=direction)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("op", "options"),
    [
        (RNN, {"clip": 0.5}),
        (GRU, {"clip": 0.5}),
        (GRU, {"linear_before_reset": 1}),
        (GRU, {"linear_before_reset": 1, "clip": 0.3}),
        (LSTM, {"input_forget": 1}),
    ],
    ids=str,
)
@pytest.mark.parametrize("bias", [True, False], ids=["biased", "unbiased"])
@pytest.mark.sampled(3)
def test_attributes_as_in_onnxruntime(
    xp: Backend, op: Op, direction: str, options: dict[str, Any], bias: bool
) -> None:
    assert_as_onnxruntime(xp, op, inputs(op, direction, bias=bias), direction=direction, **options)


@pytest.mark.parametrize("initial", [True, False], ids=["begun", "new"])
def test_LSTM_clips_what_every_activation_gets(xp: Backend, initial: bool) -> None:
    """The cell before `h` too, as the standard says. onnxruntime leaves that as it is."""
    given: list[Any] = [*inputs(LSTM, "forward", lengths=False, initial=initial)]
    X, W, R, B, *_, P = given
    i, o, f, n = (slice(k * HIDDEN, (k + 1) * HIDDEN) for k in range(4))
    h, c = (np.zeros((BATCH, HIDDEN)) if x is None else x[0] for x in given[5:7])

    def clipped(x: np.ndarray) -> np.ndarray:
        return np.clip(x, -0.25, 0.25)

    def gate(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-clipped(x)))

    for x in X.astype(np.float64):
        z = x @ W[0].T + h @ R[0].T + B[0, : 4 * HIDDEN] + B[0, 4 * HIDDEN :]
        kept, let_in = gate(z[:, f] + P[0, 2 * HIDDEN :] * c), gate(z[:, i] + P[0, i] * c)
        c = kept * c + let_in * np.tanh(clipped(z[:, n]))
        h = gate(z[:, o] + P[0, o] * c) * np.tanh(clipped(c))
    _, last_h, last_c = run(xp, LSTM, *given, clip=0.25)
    assert_same(last_h[0], h.astype(np.float32), ulps=64)
    assert_same(last_c[0], c.astype(np.float32), ulps=64)


@pytest.mark.parametrize(
    ("op", "activations"),
    [
        (RNN, ("Relu",)),
        (RNN, ("Softsign", "Elu")),
        (GRU, ("HardSigmoid", "ScaledTanh")),
        (GRU, ("Sigmoid", "Tanh", "HardSigmoid", "LeakyRelu")),
        (LSTM, ("HardSigmoid", "Affine", "Softplus")),
        (LSTM, ("Sigmoid", "ThresholdedRelu", "Elu") * 2),
        (LSTM, ("Sigmoid", "LeakyRelu", "Tanh", "HardSigmoid", "Tanh", "ScaledTanh")),
    ],
    ids=str,
)
def test_activations_as_in_onnxruntime(xp: Backend, op: Op, activations: Any) -> None:
    """Their scales are consumed by those that have some, forwards and then backwards."""
    direction = "bidirectional" if len(activations) > GATES[op] - (op is not RNN) else "reverse"
    options: dict[str, Any] = {
        "direction": direction,
        "activations": activations,
        "activation_alpha": (0.25, 0.75, 0.5, 0.125),
        "activation_beta": (0.5, 0.875, 0.25, 0.375),
    }
    assert_as_onnxruntime(xp, op, inputs(op, direction), **options)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("relu", {}, [0, 0, 0, 1, 2]),
        ("TANH", {}, np.tanh([-2, -1, 0, 1, 2])),
        ("sigmoid", {}, 1 / (1 + np.exp([2, 1, 0, -1, -2]))),
        ("Affine", {}, [-2, -1, 0, 1, 2]),
        ("leakyRelu", {}, [-0.02, -0.01, 0, 1, 2]),
        ("ThresholdedRelu", {}, [0, 0, 0, 1, 2]),
        ("ThresholdedRelu", {"activation_alpha": (-1.0,)}, [0, -1, 0, 1, 2]),
        ("scaledtanh", {"activation_alpha": (2.0,)}, 2 * np.tanh([-2, -1, 0, 1, 2])),
        ("HardSigmoid", {}, [0.1, 0.3, 0.5, 0.7, 0.9]),
        ("elu", {}, [*np.expm1([-2, -1]), 0, 1, 2]),
        ("SoftSign", {}, [-2 / 3, -0.5, 0, 0.5, 2 / 3]),
        ("softplus", {}, np.log1p(np.exp([-2, -1, 0, 1, 2]))),
    ],
    ids=str,
)
def test_each_activation(xp: Backend, name: str, options: Any, expected: Any) -> None:
    """By name in any case, and with the defaults of its operator."""
    x = np.arange(-2.0, 3.0).reshape(1, 1, 5)
    same, nothing = np.eye(5)[None], np.zeros((1, 5, 5))
    _, last = run(xp, RNN, x, same, nothing, activations=(name,), **options)
    assert_same(last.ravel(), np.asarray(expected, np.float64))


@OPS
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.sampled(3)
def test_batches_first(xp: Backend, op: Op, direction: str) -> None:
    given = inputs(op, direction)
    expected = run(HOST, op, *given, direction=direction)
    swapped = [x.swapaxes(0, 1) if i in (0, 5, 6) else x for i, x in enumerate(given)]
    Y, *last = run(xp, op, *swapped, direction=direction, layout=1)
    assert_same(Y, expected[0].transpose(2, 0, 1, 3), ulps=64)
    for state, other in zip(last, expected[1:], strict=True):
        assert_same(state, other.swapaxes(0, 1), ulps=64)


@OPS
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_an_empty_sequence_ends_where_it_begins(xp: Backend, op: Op, direction: str) -> None:
    given = inputs(op, direction)
    given[4] = np.array([0, 5, 0, 2], np.int32)
    Y, *last = run(xp, op, *given, direction=direction)
    assert not Y[:, :, [0, 2]].any()
    for state, first in zip(last, given[5:7], strict=False):
        assert first is not None
        np.testing.assert_array_equal(state[:, [0, 2]], first[:, [0, 2]])


@OPS
@pytest.mark.parametrize("shape", [(0, 4, 3), (5, 0, 3), (5, 4, 0)], ids=str)
def test_nothing_to_go_through(xp: Backend, op: Op, shape: Any) -> None:
    rows = GATES[op] * HIDDEN
    Y, *last = run(xp, op, np.ones(shape), np.ones((1, rows, shape[2])), np.ones((1, rows, 2)))
    assert Y.shape == (shape[0], 1, shape[1], 2)
    assert all(state.shape == (1, shape[1], 2) for state in last)


@OPS
@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_once(backend: Backend, op: Op, dtype: Any) -> None:
    given = [
        x if x is None or x.dtype.kind == "i" else x.astype(dtype) for x in inputs(op, "reverse")
    ]
    wide = [x if x is None or x.dtype.kind == "i" else x.astype(np.float32) for x in given]
    results = run(backend, op, *given, direction="reverse")
    expected = run(HOST, op, *wide, direction="reverse")
    for result, other in zip(results, expected, strict=True):
        assert_same(result, other.astype(dtype), ulps=1)


@pytest.mark.parametrize(
    ("op", "opset", "options"),
    [
        (RNN, 1, {"output_sequence": 1}),
        (GRU, 1, {"output_sequence": 1}),
        (GRU, 1, {"direction": "foward"}),
        (GRU, 3, {"linear_before_reset": 1, "output_sequence": 0}),
        (LSTM, 6, {"input_forget": 1, "output_sequence": 1}),
    ],
    ids=str,
)
def test_old_opsets(xp: Backend, op: Op, opset: int, options: dict[str, Any]) -> None:
    given = inputs(op, "forward")
    today = {k: v for k, v in options.items() if k not in ("output_sequence", "direction")}
    results = run(xp, op, *given, opset=opset, **options)
    for result, other in zip(results, run(xp, op, *given, **today), strict=True):
        np.testing.assert_array_equal(result, other)


@OPS
@pytest.mark.parametrize(
    ("place", "value", "options", "message"),
    [
        (0, np.ones((5, 3)), {}, "must have 3 axes"),
        (1, np.ones((1, 9, 3)), {}, "W has shape"),
        (2, np.ones((2, 2, 2)), {}, "R has shape"),
        (2, np.ones((1, 2, 0)), {}, "must have 3 axes"),
        (3, np.ones((1, 3)), {}, "B has shape"),
        (4, np.ones(3, np.int32), {}, "sequence_lens has shape"),
        (5, np.ones((4, 1, 2)), {}, "initial state has shape"),
        (0, None, {"direction": "sideways"}, "but must be forward, reverse or"),
        (0, None, {"hidden_size": 3}, "hidden_size is 3"),
        (0, None, {"layout": 2}, "layout is 2"),
        (0, None, {"clip": -1.0}, "must be positive"),
        (0, None, {"activations": ()}, "activations"),
        (0, None, {"activations": ("Sine",) * 3}, "activation"),
    ],
)
def test_refuses(
    xp: Backend, op: Op, place: int, value: Any, options: dict[str, Any], message: str
) -> None:
    given = inputs(op, "forward", peepholes=False)
    if value is not None:
        given[place] = value
    if options == {"activations": ()} and op is not RNN:
        options = {"activations": ("Tanh",)}
    with pytest.raises(ValueError, match=message):
        run(xp, op, *given, **options)


def test_refuses_peepholes_of_another_shape(xp: Backend) -> None:
    given = inputs(LSTM, "forward")
    given[7] = np.ones((1, 4), np.float32)
    with pytest.raises(ValueError, match="P has shape"):
        run(xp, LSTM, *given)


# -- ReverseSequence ------------------------------------------------------------------------------


@pytest.mark.parametrize("time_axis", [0, 1])
@pytest.mark.parametrize("rest", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int8, np.complex64])
def test_ReverseSequence(xp: Backend, time_axis: int, rest: Any, dtype: Any) -> None:
    lengths = np.array([0, 1, 5, 3], np.int64)
    x = (drawn(*((5, 4), (4, 5))[time_axis], *rest) * 8).astype(dtype)
    expected = x.copy()
    by_batch, original = expected, x
    if not time_axis:
        by_batch, original = expected.swapaxes(0, 1), x.swapaxes(0, 1)
    for place, length in enumerate(lengths):
        by_batch[place, :length] = original[place, :length][::-1]
    options = {"time_axis": time_axis, "batch_axis": 1 - time_axis}
    assert_same(run(xp, ReverseSequence, x, lengths, **options), expected)


def test_strings_are_reversed_too() -> None:
    x = np.array([["a", "b", "c"], ["d", "e", "f"]], dtype=object)
    options: dict[str, Any] = {"time_axis": 1, "batch_axis": 0, "opset": 10}
    result = sardonyx.run_op("ReverseSequence", x, np.array([2, 3]), **options)
    assert result.tolist() == [["b", "a", "c"], ["f", "e", "d"]]


@pytest.mark.parametrize(
    ("shape", "lengths", "options"),
    [
        ((5, 4), 3, {}),
        ((5,), 5, {}),
        ((5, 4, 2), 4, {"time_axis": 2}),
        ((5, 4, 2), 4, {"time_axis": 1}),
    ],
)
def test_ReverseSequence_refuses(xp: Backend, shape: Any, lengths: int, options: Any) -> None:
    with pytest.raises(ValueError, match="shape"):
        run(xp, ReverseSequence, np.ones(shape), np.ones(lengths, np.int64), **options)
