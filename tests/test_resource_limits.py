"""Small files that ask for much memory, time or nesting: refused before any of it is spent."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.memory_limit import _of_the_groups, memory_limit
from sardonyx.backends.numpy import HOST, NumpyBackend
from sardonyx.backends.size_limits import largest_value
from sardonyx.errors import InvalidInput, LimitExceeded
from tests.support.onnx_builders import BOOL, INT64, STRING, graph, model, node, value, weight
from tests.support.raises import refused

ONE = np.ones((1, 1), np.float32)
X = np.ones((2, 3), np.float32)
ORDERED = np.arange(6, dtype=np.float32).reshape(2, 3)
IMAGE = np.ones((1, 1, 4), np.float32)
MEGABYTE = 2**20


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def bomb(
    operator: str, inputs: list[np.ndarray[Any, Any]], *, known: bool, **attributes: Any
) -> tuple[onnx.ModelProto, list[np.ndarray[Any, Any]]]:
    """One node called 'bomb', of weights or of inputs, and what is to be passed to it."""
    names = [f"i{i}" for i in range(len(inputs))]
    types = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in inputs]
    result = onnx.ValueInfoProto(name="y")
    made = model(
        [node(operator, names, ["y"], name="bomb", **attributes)],
        [] if known else [value(n, None, t) for n, t in zip(names, types, strict=True)],
        [result],
        [weight(n, array) for n, array in zip(names, inputs, strict=True)] if known else [],
    )
    return made, [] if known else inputs


BOMBS = [
    ("Range", [np.array(0), np.array(2**32), np.array(1)], {}, ["[4294967296]", "34,359,738,368"]),
    ("Range", [np.array(0), np.array(-(2**62)), np.array(-1)], {}, ["[4611686018427387904]"]),
    ("Range", [np.float32(0), np.float32(1e30), np.float32(1)], {}, ["bytes"]),
    ("Tile", [X, ints(2**20, 2**20)], {}, ["[2097152, 3145728]"]),
    ("Tile", [X, ints(2**62, 2**62)], {}, ["bytes"]),
    ("Expand", [ONE, ints(10**6, 10**6)], {}, ["[1000000, 1000000]", "4,000,000,000,000"]),
    ("Expand", [ONE, ints(2**62, 2**62)], {}, ["large"]),
    ("ConstantOfShape", [ints(10**6, 10**6)], {}, ["[1000000, 1000000]"]),
    ("ConstantOfShape", [ints(2**40, 2**40)], {}, ["[1099511627776, 1099511627776]"]),
    ("Pad", [X, ints(0, 0, 2**20, 2**20)], {}, ["[1048578, 1048579]"]),
    ("Pad", [X, ints(0, 0, 0, 2**45)], {"mode": "edge"}, ["[2, 35184372088835]"]),
    ("Pad", [X, ints(2**40, 0, 0, 0)], {"mode": "reflect"}, ["[1099511627778, 3]"]),
    ("Pad", [X, ints(2**40, 0, 0, 0)], {"mode": "wrap"}, ["[1099511627778, 3]"]),
    ("Conv", [IMAGE, IMAGE], {"pads": [2**39, 2**39]}, ["bytes"]),
]


@pytest.mark.parametrize("known", [True, False], ids=["folded", "on the device"])
@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "words"),
    BOMBS,
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_large_results_are_refused_before_they_are_made(
    operator: str, inputs: Any, attributes: Any, words: Any, backend: str, known: bool
) -> None:
    made, feeds = bomb(operator, inputs, known=known, **attributes)
    sardonyx.load(model([node("Neg", ["x"], ["y"])], ["x"], ["y"]), backend=backend)(X)
    tracemalloc.start()
    try:
        with refused(LimitExceeded, "'bomb'", operator, "opset 18", *words):
            sardonyx.load(made, backend=backend)(*feeds)
        assert tracemalloc.get_traced_memory()[1] < 8 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_matrix_like_a_huge_one_is_refused(backend: str) -> None:
    eye = model(
        [
            node("ConstantOfShape", ["s"], ["c"]),
            node("EyeLike", ["c"], ["y"], name="bomb", dtype=11),
        ],
        [],
        [onnx.ValueInfoProto(name="y")],
        [weight("s", ints(2**15, 2**15))],
    )
    with refused(LimitExceeded, "'bomb'", "EyeLike", "[32768, 32768]", "8,589,934,592"):
        sardonyx.load(eye, backend=backend)()


def test_the_limit_can_be_moved() -> None:
    class Modest(NumpyBackend):
        largest_value = 1000

    made, feeds = bomb("Tile", [X, ints(20, 30)], known=False)
    with refused(LimitExceeded, "[40, 90]", "14,400 bytes", "at most 1,000", "value_bytes"):
        sardonyx.load(made, backend=Modest())(*feeds)
    assert sardonyx.load(made, backend=Modest(), limits=sardonyx.Limits(value_bytes=14_400))(
        *feeds
    ).shape == (40, 90)
    assert sardonyx.load(made, backend=HOST)(*feeds).shape == (40, 90)


@pytest.mark.parametrize("most", [0, -1, 1.5, "4 GiB"])
def test_what_is_no_limit_is_refused(most: Any) -> None:
    with refused(InvalidInput, "value_bytes"):
        sardonyx.load(
            model([node("Neg", ["x"], ["y"])], ["x"], ["y"]),
            limits=sardonyx.Limits(value_bytes=most),
        )


def test_the_limit_is_a_part_of_the_memory() -> None:
    assert 0 < largest_value() <= min(2**32, memory_limit() // 4)


def test_large_inputs_and_weights_are_no_bombs(xp: Backend) -> None:
    """Nothing is refused that is as large as what the model is given, or some times its inputs."""
    large = np.ones((50, 100), np.float32)
    added = model([node("Add", ["x", "w"], ["y"])], ["x"], ["y"], [weight("w", large)])
    loaded = sardonyx.load(added, backend=xp, limits=sardonyx.Limits(value_bytes=1))
    for _ in range(2):
        assert np.asarray(loaded(large)).sum() == 2 * large.size
        assert np.asarray(loaded(np.float32(1))).sum() == 2 * large.size
    tiled, _ = bomb("Tile", [large, ints(4, 4)], known=False)
    loaded = sardonyx.load(tiled, backend=xp, limits=sardonyx.Limits(value_bytes=1))
    for _ in range(2):
        assert loaded(large, ints(4, 4)).shape == (200, 400)
    with refused(LimitExceeded, "'bomb'", "[200, 500]"):
        loaded(large, ints(4, 5))


def constants_held(count: int) -> onnx.ModelProto:
    """So many values of a megabyte, all of which are needed at the end."""
    names = [f"c{i}" for i in range(count)]
    nodes = [node("Expand", ["x", "s"], [name]) for name in names]
    join = node("Sum", names, ["y"], name="last")
    return model([*nodes, join], ["x"], ["y"], [weight("s", ints(2**18))])


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_values_that_live_at_once_are_counted(backend: str) -> None:
    x = np.ones(1, np.float32)
    few = sardonyx.load(
        constants_held(6), backend=backend, limits=sardonyx.Limits(value_bytes=4 * MEGABYTE)
    )
    for _ in range(2):
        assert few(x)[0] == 6
    many = sardonyx.load(
        constants_held(9), backend=backend, limits=sardonyx.Limits(value_bytes=4 * MEGABYTE)
    )
    with refused(LimitExceeded, "all values in use", "8,388,608", "value_bytes"):
        many(x)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_values_that_are_let_go_are_not_counted(backend: str) -> None:
    """A long chain holds two values at a time."""
    steps = [node("Abs", [f"x{i}"], [f"x{i + 1}"]) for i in range(50)]
    start = node("Expand", ["x", "s"], ["x0"])
    made = model([start, *steps], ["x"], ["x50"], [weight("s", ints(2**18))])
    loaded = sardonyx.load(made, backend=backend, limits=sardonyx.Limits(value_bytes=2 * MEGABYTE))
    for _ in range(2):
        assert loaded(np.ones(1, np.float32)).shape == (2**18,)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_values_that_double_are_refused(backend: str) -> None:
    steps = [node("Concat", [f"x{i}"] * 2, [f"x{i + 1}"], axis=0) for i in range(60)]
    small = node("ReduceSum", ["x60"], ["y"])
    loaded = sardonyx.load(
        model([*steps, small], ["x0"], ["y"]),
        backend=backend,
        limits=sardonyx.Limits(value_bytes=2**16),
    )
    with refused(LimitExceeded, "Concat", "[32768]", "65,536"):
        loaded(np.ones(1, np.float32))


def test_text_that_grows_at_a_later_call_is_refused() -> None:
    class Modest(NumpyBackend):
        largest_value = 2**20

    nodes = [node("StringConcat", [f"x{i}"] * 2, [f"x{i + 1}"]) for i in range(10)]
    ends = [[value(name, None, STRING)] for name in ("x0", "x10")]
    loaded = sardonyx.load(model(nodes, *ends, opset=20), backend=Modest())
    assert len(loaded(np.array(["a"], object))[0]) == 1024
    with pytest.raises(LimitExceeded, match="2,048,000 bytes"):
        loaded(np.array(["a" * 2000], object))


# -- the memory that there is ---------------------------------------------------------------------


def grouped(folder: Path, membership: str, limits: dict[str, str]) -> list[int]:
    files = {"proc/self/cgroup": membership}
    files |= {f"sys/fs/cgroup/{place}": text for place, text in limits.items()}
    for place, text in files.items():
        file = folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return sorted(_of_the_groups(folder))


V1 = "4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n"


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        ("0::/\n", {}, []),
        ("0::/\n", {"memory.max": "max"}, []),
        ("0::/\n", {"memory.max": "1000"}, [1000]),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "70"}, [70]),
        ("0::/a/b\n", {"a/b/memory.max": "60", "a/memory.max": "70"}, [60, 70]),
        ("0::/elsewhere\n", {"memory.max": "80"}, [80]),
        ("0::/../x\n", {"memory.max": "80"}, [80]),
        (V1, {"memory/docker/a/memory.limit_in_bytes": "90"}, [90]),
        (V1, {"memory/memory.limit_in_bytes": "95", "cpu/memory.limit_in_bytes": "1"}, [95]),
        ("nonsense", {}, []),
        ("", {}, []),
    ],
)
def test_control_groups(tmp_path: Path, membership: str, limits: Any, expected: Any) -> None:
    assert grouped(tmp_path, membership, limits) == expected


def test_a_limit_of_the_process_counts() -> None:
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**33));"
        "from sardonyx.backends.memory_limit import memory_limit; print(memory_limit() <= 2**33)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "True"


# -- constants that would be folded ---------------------------------------------------------------


def constants(nodes: list[onnx.NodeProto], output: str, *weights: onnx.TensorProto) -> Any:
    return model(nodes, [], [onnx.ValueInfoProto(name=output)], weights)


RANGE = [node("Range", ["zero", "most", "one"], ["r0"])]
ENDS = [weight("zero", np.array(0)), weight("one", np.array(1))]


def folded_bytes(made: onnx.ModelProto) -> int:
    program = sardonyx.load(made, backend="numpy").trace()
    own = {id(v): v.nbytes for v in program.static.values() if 0 not in v.strides}
    return sum(own.values())


DOUBLED = [node("Concat", [f"r{i}", f"r{i}"], [f"r{i + 1}"], axis=0) for i in range(14)]
NEGATED = [node("Neg", [f"r{i}"], [f"r{i + 1}"]) for i in range(100)]
CROSSED = [
    node("Unsqueeze", ["r0", "zeros"], ["row"]),
    node("Unsqueeze", ["r0", "ones"], ["column"]),
    node("Less", ["row", "column"], ["r1"]),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("nodes", "most"),
    [
        pytest.param(DOUBLED, 2**11, id="doubled again and again"),
        pytest.param(NEGATED, 2**20, id="many of a fair size"),
        pytest.param(CROSSED, 2**13, id="a table of pairs"),
    ],
)
def test_what_is_folded_stays_small(nodes: list[onnx.NodeProto], most: int) -> None:
    axes = [weight("zeros", ints(0)), weight("ones", ints(1))]
    small = [node("Shape", [nodes[-1].output[0]], ["y"])]
    made = constants([*RANGE, *nodes, *small], "y", *ENDS, *axes, weight("most", np.array(most)))
    assert folded_bytes(made) < 2**30
    total = sardonyx.load(made, backend="numpy")()
    assert total.tolist() in ([most * 2**14], [most], [most, most])


# -- time -----------------------------------------------------------------------------------------


def chain(length: int, *operators: str) -> onnx.ModelProto:
    nodes = [node(operators[i % len(operators)], [f"x{i}"], [f"x{i + 1}"]) for i in range(length)]
    return model(nodes, ["x0"], [f"x{length}"])


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.sampled(2)
def test_thousands_of_nodes_run(backend: str) -> None:
    start = time.process_time()
    loaded = sardonyx.load(chain(3000, "Sin", "Tanh"), backend=backend)
    for _ in range(2):
        assert np.isfinite(loaded(X)).all()
    assert time.process_time() - start < 60


def test_thousands_of_operands_are_joined(xp: Backend) -> None:
    join = model([node("Concat", ["x"] * 3000, ["y"], name="join", axis=0)], ["x"], ["y"])
    start = time.process_time()
    joined = np.asarray(sardonyx.load(join, backend=xp)(ORDERED))
    assert joined.reshape(3000, 6).tolist() == [[0, 1, 2, 3, 4, 5]] * 3000
    assert time.process_time() - start < 5
    wrong = model([node("Concat", ["x"] * 3000, ["y"], name="join", axis=9)], ["x"], ["y"])
    with refused(InvalidInput, "'join'", "and 2992 more", "axis 9"):
        sardonyx.load(wrong, backend=xp)(ORDERED)


@pytest.mark.slow
def test_the_time_to_trace_grows_with_the_number_of_nodes() -> None:
    taken: dict[int, list[float]] = {2000: [], 8000: []}
    for length in (2000, 8000) * 3:  # The least counts: the machine may be busy.
        start = time.process_time()
        sardonyx.load(chain(length, "Neg", "Abs"), backend="numpy")(X)
        taken[length].append(time.process_time() - start)
    assert min(taken[8000]) < 4 * min(taken[2000]) * 2.5


@pytest.mark.parametrize("length", [10**5, 2**40])
def test_long_windows_cost_no_more_than_what_they_meet(length: int, xp: Backend) -> None:
    attributes: dict[str, Any] = {"kernel_shape": [length], "pads": [length // 2, length // 2]}
    start = time.process_time()
    for operator, names in (("MaxPool", ["y", "i"]), ("MaxPool", ["y"]), ("AveragePool", ["y"])):
        outputs = ["y", value("i", None, INT64)][: len(names)]
        pool = model([node(operator, ["x"], names, **attributes)], ["x"], outputs)
        found = sardonyx.load(pool, backend=xp)(IMAGE)
        largest = found if len(names) == 1 else found["y"]
        assert largest.shape == (1, 1, 5)
    assert time.process_time() - start < 10


# -- nesting --------------------------------------------------------------------------------------


def nested(depth: int) -> onnx.ModelProto:
    """If in If in If; built in place, since protobuf copies no message that is nested deeper."""
    made = model([], ["x", value("c", [], BOOL)], ["y0"])
    inside = made.graph
    for level in range(depth):
        choice = inside.node.add(op_type="If", input=["c"], output=[f"y{level}"])
        for name in ("else_branch", "then_branch"):
            attribute = choice.attribute.add(name=name, type=onnx.AttributeProto.GRAPH)
            attribute.g.name = name
            if name == "else_branch":
                attribute.g.CopyFrom(graph([node("Neg", ["x"], [f"e{level}"])], [], [f"e{level}"]))
            else:
                inside = attribute.g
        inside.output.add(name=f"y{level + 1}")
    inside.node.add(op_type="Relu", input=["x"], output=[f"y{depth}"])
    return made


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_branches_nested_as_deep_as_files_allow(backend: str) -> None:
    loaded = sardonyx.load(nested(30).SerializeToString(), backend=backend)
    assert loaded(X, np.array(True)).tolist() == X.tolist()
    assert loaded(X, np.array(False)).tolist() == (-X).tolist()


@pytest.mark.parametrize("depth", [40, 1000, 20_000])
def test_branches_nested_deeper_are_refused(depth: int) -> None:
    with refused(LimitExceeded, "nested"):
        sardonyx.load(nested(depth), backend="numpy")


def deep_bytes(depth: int) -> bytes:
    """A file nested deeper than protobuf writes one."""

    def field(number: int, content: bytes) -> bytes:
        size = len(content)
        length = bytearray()
        while True:
            size, low = size >> 7, size & 0x7F
            length.append(low | (0x80 if size else 0))
            if not size:
                return bytes([number << 3 | 2]) + bytes(length) + content

    inner = b""
    for _ in range(depth):
        inner = field(1, field(5, field(6, inner)))  # node.attribute.g
    return field(7, inner)


def test_a_file_nested_deeper_is_refused() -> None:
    with refused(LimitExceeded, "deeper"):
        sardonyx.load(deep_bytes(5000), backend="numpy")


def functions(count: int, calls: int) -> onnx.ModelProto:
    """Each function calls the one before it so many times."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]

    def function(i: int) -> onnx.FunctionProto:
        names = ["a", *(f"m{k}" for k in range(calls - 1)), "b"] if i else ["a", "b"]
        steps = [
            node(f"F{i - 1}" if i else "Relu", [source], [result], domain="mine" if i else "")
            for source, result in pairwise(names)
        ]
        return helper.make_function("mine", f"F{i}", ["a"], ["b"], steps, opsets)

    call = node(f"F{count - 1}", ["x"], ["y"], domain="mine")
    return model([call], ["x"], ["y"], functions=[function(i) for i in range(count)], mine=1)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_functions_may_call_functions(backend: str) -> None:
    assert sardonyx.load(functions(100, 1), backend=backend)(-X).tolist() == (0 * X).tolist()


@pytest.mark.parametrize(
    ("count", "calls", "words"),
    [(3000, 1, ["3000 deep", "inline"]), (60, 2, ["576,460,752,303,423,488 nodes"])],
)
def test_functions_in_functions_without_end_are_refused(
    count: int, calls: int, words: list[str]
) -> None:
    with refused(LimitExceeded, *words):
        sardonyx.load(functions(count, calls), backend="numpy")
