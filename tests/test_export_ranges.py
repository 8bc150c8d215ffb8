"""An exported program gives what the model gives for every size that its bounds allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from tests.support.onnx_builders import model, node, value, weight


def rows(text: str, *more: onnx.NodeProto, **numbers: Any) -> onnx.ModelProto:
    """A model whose result are the rows of `x` from `start` to `end`, computed of its length n."""
    graph = onnx.parser.parse_graph(
        f"g (int64[1] n) => (int64[1] start, int64[1] end) {{ {text} }}"
    )
    return model(
        [
            node("Shape", ["x"], ["n"], end=1),
            *graph.node,
            *more,
            node("Slice", ["x", "start", "end"], ["y"]),
        ],
        [value("x", ["n", 1])],
        [value("y", None)],
        [weight(name, np.asarray([number])) for name, number in numbers.items()],
        opset=21,
    )


ALL = "end = Identity (n) "
PIECEWISE = {
    "a window": rows(ALL + "d = Sub (n, w) start = Max (d, o)", w=4096, o=0),
    "a window of a sum": rows(ALL + "s = Add (a, b) d = Sub (n, s) start = Max (d, o)",
                              a=3000, b=1096, o=0),
    "a crop": rows("start = Identity (o) end = Min (n, w)", w=5000, o=0),
    "a crop by clipping": rows("start = Identity (o) end = Identity (w)", w=5000, o=0),
    "a floor": rows(ALL + "start = Div (n, w)", w=3000),
    "a remainder": rows(ALL + "start = Mod (n, w)", w=3000),
    "whole blocks": rows("b = Div (n, w) start = Identity (o) end = Mul (b, w)", w=8, o=0),
    "a branch": rows(ALL + "c = Less (n, w) start = Where (c, o, p)", w=3000, o=0, p=9),
    "a hole": rows(ALL + "a = Greater (n, lo) b = Less (n, hi) c = And (a, b) "
                   "start = Where (c, p, o)", lo=1000, hi=1300, o=0, p=9),
    "one size": rows(ALL + "c = Equal (n, w) start = Where (c, p, o)", w=777, o=0, p=9),
    "one small size": rows(ALL + "c = Equal (n, w) start = Where (c, p, o)", w=77, o=0, p=9),
    "a product": rows(ALL + "m = Mul (a, b) c = Greater (n, m) start = Where (c, p, o)",
                      a=40, b=50, o=0, p=9),
    "a logarithm": rows(ALL + "f = Cast <to = 1> (n) l = Log (f) start = Cast <to = 7> (l)"),
    "half": rows(ALL + "start = Div (n, two)", two=2),
}  # fmt: skip
LENGTHS = (1, 2, 8, 9, 20, 22, 76, 77, 78, 255, 256, 777, 1000, 1001, 1299, 1300, 2000, 2001, 2999,
           3000, 3001, 4095, 4096, 4097, 5000, 5001, 6000, 70000)  # fmt: skip


def agrees(proto: Any, program: Any, calls: Sequence[dict[str, Any]]) -> int:
    """How many of the calls the program answers; it gives what the model gives, or refuses."""
    loaded, answered = sardonyx.load(proto, backend="numpy"), 0
    for feeds in calls:
        try:
            found = program.run(None, feeds)
        except sardonyx.InvalidInput as refusal:
            assert "The program holds for" in str(refusal)  # noqa: PT017
            continue
        answered += 1
        for one, wanted in zip(found, loaded.run(None, feeds), strict=True):
            np.testing.assert_array_equal(one, wanted)
    return answered


@pytest.mark.parametrize("name", PIECEWISE)
@pytest.mark.sampled(5)
def test_a_piecewise_function_of_a_size_is_never_wrong(name: str) -> None:
    proto = PIECEWISE[name]
    artefact = sardonyx.export(proto, platforms=["cpu"])
    assert any(" <= " in bound for bound in artefact.bounds)
    program = sardonyx.load(artefact.to_bytes())
    calls = [{"x": np.arange(n, dtype=np.float32)[:, None]} for n in LENGTHS]
    assert agrees(proto, program, calls) >= 1


def test_a_window_is_for_sizes_within_it() -> None:
    program = sardonyx.export(PIECEWISE["a window"], platforms=["cpu"])
    assert program.bounds == ("n <= 4096",)
    loaded = sardonyx.load(program.to_bytes())
    with pytest.raises(sardonyx.InvalidInput, match="n <= 4096, but the call has n = 6000"):
        loaded(np.zeros((6000, 1), np.float32))


def two_sizes() -> onnx.ModelProto:
    """The last 4,096 of what two inputs have together."""
    return model(
        [
            node("Concat", ["a", "b"], ["c"], axis=0),
            node("Shape", ["c"], ["n"]),
            node("Sub", ["n", "w"], ["d"]),
            node("Max", ["d", "o"], ["start"]),
            node("Slice", ["c", "start", "n"], ["y"]),
        ],
        [value("a", ["past"]), value("b", ["new"])],
        [value("y", None)],
        [weight("w", np.asarray([4096])), weight("o", np.asarray([0]))],
    )


def floats(shape: Sequence[int]) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(*shape, 1)


@pytest.mark.parametrize("names", [("batch", "length"), ("length", "batch")])
def test_a_window_needs_a_length_and_the_batch_none(names: tuple[str, str]) -> None:
    perm = [names.index("batch"), 2, names.index("length")]
    proto = model(
        [node("Transpose", ["x"], ["t"], perm=perm), node("Conv", ["t", "w"], ["y"])],
        [value("x", [*names, 1])],
        [value("y", None)],
        [weight("w", np.arange(14, dtype=np.float32).reshape(2, 1, 7))],
    )
    program = sardonyx.export(proto, platforms=["cpu"])
    assert [bound for bound in program.bounds if ">=" in bound] == ["length >= 7"]
    sizes = [{"batch": b, "length": n} for b in (1, 2, 5) for n in (6, 7, 8, 20)]
    calls = [{"x": floats([s[name] for name in names])} for s in sizes]
    assert agrees(proto, sardonyx.load(program.to_bytes()), calls) == 9


def test_another_program_for_few_rows_leaves_the_columns_free() -> None:
    """Of fewer than five rows all are taken, whatever their length."""
    proto = model(
        [node("Slice", ["x", "zero", "five"], ["y"])],
        [value("x", ["n", "m"])],
        [value("y", None)],
        [weight("zero", np.asarray([0])), weight("five", np.asarray([5]))],
    )
    program = sardonyx.export(proto, platforms=["cpu"])
    assert [bound for bound in program.bounds if ">=" in bound] == ["n >= 6"]
    calls = [{"x": np.ones((n, m), np.float32)} for n in (6, 70) for m in (1, 2, 9)]
    assert agrees(proto, sardonyx.load(program.to_bytes()), calls) == len(calls)


def test_two_sizes_that_matter_together_are_never_wrong() -> None:
    program = sardonyx.load(sardonyx.export(two_sizes(), platforms=["cpu"]).to_bytes())
    pairs = [(3, 4), (2000, 2000), (2048, 2048), (2100, 2000), (4000, 4000), (4095, 1), (4096, 9)]
    calls = [
        {"a": np.arange(a, dtype=np.float32), "b": np.arange(b, dtype=np.float32)} for a, b in pairs
    ]
    assert agrees(two_sizes(), program, calls) >= 2


# -- the largest size -----------------------------------------------------------------------------


def doubled() -> onnx.ModelProto:
    return model(
        [node("Add", ["x", "x"], ["y"])], [value("x", ["n", "m"])], [value("y", ["n", "m"])]
    )


def test_the_largest_size_can_be_given() -> None:
    export = sardonyx.export
    assert export(doubled()).bounds == ("n <= 1048576", "m <= 1048576")
    assert export(doubled(), largest=100).bounds == ("n <= 100", "m <= 100")
    assert export(doubled(), largest={"n": 2**21}).bounds == ("n <= 2097152", "m <= 1048576")
    loaded = sardonyx.load(export(doubled(), largest={"n": 100}).to_bytes())
    assert loaded(np.zeros((100, 2), np.float32)).shape == (100, 2)
    with pytest.raises(
        sardonyx.InvalidInput, match=r'n = 101, m = 2. Export it with largest=\{"n": 101\}'
    ):
        loaded(np.zeros((101, 2), np.float32))


@pytest.mark.parametrize("largest", [0, -1, True, 1.5, "n", {"n": 0}, {"n": "9"}, 2**40])
def test_largest_sizes_that_make_no_sense_are_refused(largest: Any) -> None:
    with pytest.raises(sardonyx.InvalidInput, match="A largest size is from 1 to 2147483647, not"):
        sardonyx.export(doubled(), largest=largest)


def test_a_largest_size_of_another_name_is_refused() -> None:
    with pytest.raises(sardonyx.InvalidInput, match=r"have 'k', but the signature .* n, m"):
        sardonyx.export(doubled(), largest={"k": 5})


def test_a_size_in_expressions_alone_has_its_bound_too() -> None:
    proto = model([node("Neg", ["x"], ["y"])], [value("x", ["n"])], [value("y", None)])
    exported = sardonyx.export(proto, {"x": ("3 * k",)}, platforms=["cpu"], largest=100)
    program = sardonyx.load(exported.to_bytes())
    assert program(np.zeros(300, np.float32)).shape == (300,)
    with pytest.raises(sardonyx.InvalidInput):
        program(np.zeros(303, np.float32))
