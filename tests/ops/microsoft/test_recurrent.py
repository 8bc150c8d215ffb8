from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import assert_agrees, results

STEPS, BATCH, FEATURES, HIDDEN, MEMORY, DEPTH, WIDTH = 5, 3, 4, 6, 7, 3, 2


def inputs(directions: int, *, has_layer: bool, has_lengths: bool) -> list[Any]:
    rng = np.random.default_rng(0)
    size = 5 if has_layer else DEPTH
    shapes = [
        (STEPS, BATCH, FEATURES),
        (directions, 4 * HIDDEN, FEATURES + size),
        (directions, 4 * HIDDEN, HIDDEN),
        (directions, 8 * HIDDEN),
        (),
        (directions, BATCH, HIDDEN),
        (directions, BATCH, HIDDEN),
        (directions, 3 * HIDDEN),
        (directions, HIDDEN, WIDTH),
        (directions, DEPTH, WIDTH),
        (directions, WIDTH),
        (BATCH, MEMORY, DEPTH),
        (),
        (directions, HIDDEN + DEPTH, size),
    ]
    arrays: list[Any] = [rng.normal(0, 0.5, shape).astype(np.float32) for shape in shapes]
    arrays[4] = np.asarray([5, 2, 4], np.int32) if has_lengths else None
    arrays[12] = np.asarray([7, 1, 4], np.int32) if has_lengths else None
    if not has_layer:
        arrays.pop()
    return arrays


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("has_layer", [False, True])
@pytest.mark.parametrize("has_lengths", [False, True])
def test_attention(xp: Backend, direction: str, has_layer: bool, has_lengths: bool) -> None:
    directions = 2 if direction == "bidirectional" else 1
    assert_agrees(
        xp,
        "AttnLSTM",
        *inputs(directions, has_layer=has_layer, has_lengths=has_lengths),
        outputs=3,
        ulps=32,
        direction=direction,
        hidden_size=HIDDEN,
        activations=["Sigmoid", "Tanh", "Tanh"] * directions,
    )


@pytest.mark.parametrize("options", [{"input_forget": 1}, {"clip": 0.9}])
def test_options_of_the_lstm(options: Any) -> None:
    """No state exceeds the bound, as onnxruntime does not clip that one, unlike its own text."""
    arrays = inputs(1, has_layer=True, has_lengths=False)
    for optional in (3, 5, 6, 7):
        arrays[optional] = None
    assert_agrees(HOST, "AttnLSTM", *arrays, outputs=3, ulps=32, hidden_size=HIDDEN, **options)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (8, None, "is missing"),
        (1, np.zeros((1, 4 * HIDDEN, FEATURES + 1), np.float32), "W has shape"),
        (9, np.zeros((1, DEPTH, 9), np.float32), "MW has shape"),
        (11, np.zeros((1, MEMORY, DEPTH), np.float32), "M has shape"),
        (12, np.asarray([7, 0, 1], np.int32), "'memory_seq_lens' holds 0"),
    ],
)
def test_the_inputs_are_checked(place: int, value: Any, message: str) -> None:
    arrays = inputs(1, has_layer=False, has_lengths=True)
    arrays[place] = value
    with pytest.raises(InvalidInput, match=message):
        results(HOST, "AttnLSTM", *arrays, outputs=3, hidden_size=HIDDEN)
