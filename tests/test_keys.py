"""Keys under which shapes, programs and recordings are found: nothing is taken for its equal.

To Python 0.0 == -0.0 and 1 == 1.0 == True, and NaN is not even equal to itself.
"""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import Activation, Epilogue
from sardonyx.graph.programs.stable_keys import name_of
from sardonyx.graph.tracing.op_call import HOLE, Drawing, OpCall
from sardonyx.graph.values.kinds import Static, exact
from sardonyx.ops.fused_products import packed
from tests.support.onnx_builders import INT64, model, node, value

PLUS, MINUS = 0.0, -0.0
X = np.float32([-1, -2])


def split(first: list[Any], second: list[Any]) -> onnx.ModelProto:
    """Two programs of one step each, since NonZero cuts the graph between them."""
    nodes = [*first, node("NonZero", ["first"], ["places"]), *second]
    return model(nodes, ["x"], ["first", "second", value("places", None, INT64)])


def slope(alpha: float, result: str) -> list[Any]:
    return [node("LeakyRelu", ["x"], [result], alpha=alpha)]


def limit(bound: float, result: str) -> list[Any]:
    at = {"value_float": bound}
    return [
        node("Constant", [], [f"{result} bound"], **at),
        node("Mul", ["x", f"{result} bound"], [result]),
    ]


def bits(array: Any) -> bytes:
    return np.asarray(array).tobytes()


@pytest.mark.parametrize("made", [slope, limit])
def test_programs_that_differ_in_the_sign_of_zero(
    xp: Backend, made: Callable[..., list[Any]]
) -> None:
    for one, other in ((PLUS, MINUS), (MINUS, PLUS)):
        loaded = sardonyx.load(split(made(one, "first"), made(other, "second")), backend=xp)
        for _ in range(2):
            first, second, _ = loaded(X)
            assert bits(first) == bits(X * np.float32(one))
            assert bits(second) == bits(X * np.float32(other))


def test_programs_that_differ_in_an_epilogue() -> None:
    """A dataclass among the attributes, with a float in it."""
    keys = [
        OpCall(packed, (HOLE,), {"epilogue": Epilogue(activation=Activation("clip", zero))}, ()).key
        for zero in (PLUS, MINUS, PLUS)
    ]
    assert keys[0] == keys[2] != keys[1]


ALIKE = [
    (PLUS, MINUS),
    (1, 1.0),
    (1, True),
    (0, False),
    (1.0, np.float64(1)),
    (1, np.int64(1)),
    (np.float32(0), np.float32(-0.0)),
    (complex(0, 0.0), complex(0, -0.0)),
    ((2, 3), Spec(2, 3)),  # type: ignore[arg-type]
    (np.array("a", object), np.array(b"a", object)),
    (np.array([0], object), np.array([False], object)),
    (Drawing(packed, 1, 0), Drawing(packed, 1, False)),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
@pytest.mark.parametrize(
    "within",
    [lambda v: v, lambda v: (v,), lambda v: ((1, v), "a"), lambda v: Spec((v,), None)],  # type: ignore[arg-type]
    ids=["alone", "in a tuple", "nested", "in a named tuple"],
)
def test_what_python_takes_for_the_same(one: Any, other: Any, within: Callable[[Any], Any]) -> None:
    assert exact(within(one)) != exact(within(other))
    assert exact(within(one)) == exact(within(one))
    assert hash(exact(within(one))) == hash(exact(within(one)))
    keys = [OpCall(packed, (within(v),), {"a": within(v)}, ()).key for v in (one, other, one)]
    assert keys[0] == keys[2] != keys[1]
    assert name_of(keys[0]) == name_of(keys[2]) != name_of(keys[1])
    assert name_of(within(one)) != name_of(within(other))


def test_a_nan_is_found_again_by_its_bits() -> None:
    plain, marked = math.nan, struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
    again = float("nan")
    assert exact((plain,)) == exact((again,)) != exact((marked,))
    assert name_of(exact(plain)) == name_of(exact(again)) != name_of(exact(marked))


def test_values_that_are_handed_through_are_told_apart() -> None:
    one, other = (OpCall(packed, (Static(np.full(2, v)),), {}, ()).key for v in (1, 2))
    assert one != other


def scaled(factor: float = 1.0) -> Callable[[float], float]:
    def scale(x: float, by: float = factor) -> float:
        return x * by

    scale.__module__ = "sardonyx.ops.elementwise"
    return scale


def test_functions_that_were_made_with_other_defaults_have_other_names() -> None:
    assert name_of(scaled(2.0)) == name_of(scaled(2.0)) != name_of(scaled(3.0))
    assert name_of(scaled(PLUS)) != name_of(scaled(MINUS))


RUNS = """
import sys, numpy as np, sardonyx
loaded = sardonyx.load(sys.argv[1], backend="jax", cache=sys.argv[2])
print(loaded(np.float32([-1, -2])).tolist())
"""


@pytest.mark.slow
def test_the_sign_of_zero_across_processes(tmp_path: Path) -> None:
    said = []
    for turn, zero in enumerate((PLUS, MINUS, PLUS, MINUS)):
        proto = model(slope(zero, "y"), ["x"], ["y"])
        path = tmp_path / f"{turn}.onnx"
        path.write_bytes(proto.SerializeToString())
        run = [sys.executable, "-c", RUNS, str(path), str(tmp_path / "cache")]
        said.append(subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip())
    assert said == ["[-0.0, -0.0]", "[0.0, 0.0]"] * 2
