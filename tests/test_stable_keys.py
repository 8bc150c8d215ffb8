"""Names of what segments do: equal where they do the same, in every process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import Activation, Epilogue
from sardonyx.graph.programs.stable_keys import LARGE, name_of
from sardonyx.graph.tracing.op_call import HOLE, Holes
from sardonyx.ops.casting import Cast
from sardonyx.ops.elementwise import Add

KEYS: list[Any] = [
    (),
    ((),),
    1,
    1.0,
    True,
    "1",
    b"1",
    None,
    np.float32(1),
    np.float64(1),
    np.dtype(np.float32),
    (1, 2),
    [1, 2],
    (1, (2,)),
    np.zeros(2),
    np.zeros((2, 1)),
    np.zeros(2, np.int64),
    np.ones(2),
    np.zeros(LARGE),
    np.zeros((2, LARGE // 2)),
    np.arange(LARGE),
    np.array(["a", "b"], object),
    Spec((1, 2), np.dtype(np.int8)),
    Spec((1, 2), np.dtype(np.int16)),
    HOLE,
    Holes(1),
    Holes(2),
    float("nan"),
    -0.0,
    0.0,
    Add.at(22).function,
    Cast.at(22).function,
    Epilogue(activation=Activation("relu")),
    Epilogue(activation=Activation("sigmoid")),
]


def test_different_keys_have_different_names() -> None:
    names = [name_of(key) for key in KEYS]
    assert None not in names
    assert len(set(names)) == len(KEYS)


def test_equal_keys_have_one_name() -> None:
    for key in KEYS:
        # Parts that are one object, and parts that are only equal.
        assert name_of((key, key)) == name_of(tuple([key] * 2))
    word = "".join(["wo", "rd"])
    assert name_of((word, word)) == name_of(("word", "".join(["w", "ord"])))


def test_a_name_is_the_same_in_another_process() -> None:
    program = "from tests.test_stable_keys import KEYS, name_of; print(name_of(tuple(KEYS)))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == name_of(tuple(KEYS))


class Sized:
    """A type of somebody else's."""


def closing_over(value: Any) -> Callable[[], Any]:
    return lambda: value


@pytest.mark.parametrize("key", [object(), closing_over(1), len, {1: object()}, Sized, lambda: 0])
def test_what_may_mean_something_else_elsewhere_has_none(key: Any) -> None:
    assert name_of(key) is None
    assert name_of((1, [key])) is None
