"""Where the time of a call goes, on every backend that is present."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.backends.jax.op_times import Event, shared_time
from sardonyx.graph.profiling.listing import by_step
from sardonyx.graph.profiling.watching import WatchedStage

MODELS = Path(__file__).parent / "models"
RNG = np.random.default_rng(0)
WAYS: list[dict[str, Any]] = [
    {"backend": "numpy"},
    {"backend": "jax"},
    {"backend": "jax", "jit": False},
    {"backend": "jax", "compile": "never"},
    {"backend": "jax", "rewrites": False},
]
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))


def info(name: str, shape: Any = None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[str],
    weights: dict[str, Any] | None = None,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(
        nodes, "net", inputs, [onnx.ValueInfoProto(name=n) for n in outputs], tensors
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def convolutions() -> onnx.ModelProto:
    nodes, weights, previous, channels = [], {}, "x", 3
    for i, count in enumerate((16, 32, 32)):
        shape = (count, channels, 3, 3)
        weights[f"w{i}"] = (RNG.standard_normal(shape) * 0.1).astype(np.float32)
        nodes += [
            helper.make_node("Conv", [previous, f"w{i}"], [f"c{i}"], f"/f/{i}/conv", pads=[1] * 4),
            helper.make_node("Relu", [f"c{i}"], [f"r{i}"], f"/f/{i}/relu"),
        ]
        previous, channels = f"r{i}", count
    nodes.append(helper.make_node("GlobalAveragePool", [previous], ["y"], "pool"))
    return model(nodes, [info("x", ["n", 3, 64, 64])], ["y"], weights)


def products(depth: int = 12) -> onnx.ModelProto:
    nodes, weights, previous = [], {}, "x"
    for i in range(depth):
        weights[f"w{i}"] = (RNG.standard_normal((256, 256)) / 16).astype(np.float32)
        nodes += [
            helper.make_node("MatMul", [previous, f"w{i}"], [f"m{i}"], f"layer.{i}/product"),
            helper.make_node("Softmax", [f"m{i}"], [f"s{i}"], f"layer.{i}/softmax"),
        ]
        previous = f"s{i}"
    return model(nodes, [info("x", ["n", 256])], [previous], weights)


# -- what adds up ---------------------------------------------------------------------------------


@each_way
@pytest.mark.parametrize("build", [convolutions, products])
def test_segments_and_the_rest_add_up_to_the_call(build: Any, way: dict[str, Any]) -> None:
    """Within 10 %. Other work on the machine can slow one of the two down, so there are tries."""
    loaded = sardonyx.load(build(), **way)
    x = np.ones((2, 3, 64, 64) if build is convolutions else (512, 256), np.float32)
    found = []
    for _ in range(8):
        profile = sardonyx.profile(loaded, [x], calls=10)
        found.append(profile.accounted / profile.total)
        if abs(found[-1] - 1) < 0.1:
            break
    assert min(abs(each - 1) for each in found) < 0.1, found
    assert profile.accounted + profile.remainder == pytest.approx(profile.total)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("name", ["../../examples/encoder", "cnn_dynamo", "sklearn_mlp"])
def test_a_profile_adds_up_to_calls_that_are_measured_apart(name: str, backend: str) -> None:
    """Small graphs, of which a watch that is not light is a large part; minima of many calls."""
    loaded = sardonyx.load(MODELS / f"{name}.onnx", backend=backend)
    (info,) = loaded.inputs
    shape = (
        (3, 8, 48) if "encoder" in name else [n if isinstance(n, int) else 3 for n in info.shape]
    )
    x = np.ones(shape, info.dtype)
    loaded.compile({info.name: x})
    found = []
    for _ in range(8):
        calls = [seconds_of_call(loaded, x) for _ in range(100)]
        profile = sardonyx.profile(loaded, [x], calls=200)
        calls += [seconds_of_call(loaded, x) for _ in range(100)]
        found.append(profile.accounted / min(calls))
        if abs(found[-1] - 1) < 0.1:
            break
    assert min(abs(each - 1) for each in found) < 0.1, found


def seconds_of_call(loaded: sardonyx.Model, x: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(loaded(x))
    return time.perf_counter() - start


@pytest.mark.sampled(3)
@each_way
def test_nodes_add_up_to_their_segments(way: dict[str, Any]) -> None:
    profile = sardonyx.load(products(), **way).profile(np.ones((64, 256), np.float32))
    for segment in profile.segments:
        seconds = sum(n.seconds for n in profile.nodes if n.segment == segment.number)
        assert seconds + segment.overhead == pytest.approx(segment.seconds, rel=1e-6)
        assert seconds > 0.2 * segment.seconds
    assert all(node.seconds >= 0 for node in profile.nodes)


@pytest.mark.sampled(3)
@each_way
def test_names_and_operations(way: dict[str, Any]) -> None:
    profile = sardonyx.load(convolutions(), **way).profile(np.ones((1, 3, 64, 64), np.float32))
    is_stepped = "jit" in way or way["backend"] == "numpy" or way.get("compile") == "never"
    # Whether NumPy's steps are worth a function of their own is a matter of microseconds.
    tiers = {"step by step", "written out"} if is_stepped else {"compiled"}
    assert profile.tier in tiers
    assert sum(profile.bytes_by_node.values()) == sum(s.bytes for s in profile.segments)
    expected = 2 * 64 * 64 * 9 * (3 * 16 + 16 * 32 + 32 * 32)
    operations = sum(node.operations for node in profile.nodes)
    assert expected <= operations <= 1.1 * expected
    if way.get("rewrites") is False:
        assert {f"/f/{i}/conv" for i in range(3)} <= profile.seconds_by_node.keys()
        exact = {n.name: n.operations for n in profile.nodes}
        assert exact["/f/1/conv"] == 2 * 64 * 64 * 9 * 16 * 32 + 64 * 64 * 32
        assert {"Conv", "Relu", "GlobalAveragePool"} == {g.name for g in profile.by("operator")}
        assert "/f/1" in {group.name for group in profile.by("scope")}


def test_products_of_subgraphs_count_as_often_as_they_run() -> None:
    graph = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]>
        g (float[20,4,4] x, bool which) => (float[4,4] y, float[4,4] z, float[4,4] u) {
            zero = Constant<value_int = 0>() first = Gather(x, zero)
            yes = Constant<value = bool {1}>() n = Constant<value_int = 30>()
            y = Loop(n, yes, first) <body = b
                (int64 i, bool c, float[4,4] s) => (bool co, float[4,4] so) {
                    co = Identity(c) so = MatMul(s, first) }>
            z = Scan(first, x) <num_scan_inputs = 1, body = d
                (float[4,4] s, float[4,4] xi) => (float[4,4] so) { so = MatMul(s, xi) }>
            u = If(which) <then_branch = t () => (float[4,4] p) { p = MatMul(first, first) },
                           else_branch = e () => (float[4,4] q) {
                               r = MatMul(first, first) q = MatMul(r, r) }> }"""
    )
    x = np.zeros((20, 4, 4), np.float32)
    profile = sardonyx.load(graph, backend="jax").profile(x, np.asarray(True))
    found = {n.operator: n.operations for n in profile.nodes}
    product, results = 2 * 4**3, 4 * 4
    assert found["Loop"] == 30 * product + results
    assert found["Scan"] == 20 * product + results
    assert found["If"] == 2 * product + results


def test_the_slowest_node_is_the_slowest() -> None:
    weights = {"a": np.ones((8, 1024), np.float32), "b": np.ones((1024, 1024), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], "small"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "b"], ["y"], "large"),
    ]
    proto = model(nodes, [info("x", [512, 8])], ["y"], weights)
    for way in ({"backend": "numpy"}, {"backend": "jax", "rewrites": False}):
        profile = sardonyx.load(proto, **way).profile(np.ones((512, 8), np.float32))
        assert profile.by("name")[0].name == "large"


def test_shares_of_one_moment_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run of the steps of a segment that was written out met a slow moment."""
    runs = iter([0.05])
    run_steps = WatchedStage.run_steps

    def slow_at_first(self: Any, backend: Any, arrays: Any) -> Any:
        results = run_steps(self, backend, arrays)
        self.steps[-1][0] += next(runs, 0.0)
        return results

    monkeypatch.setattr(WatchedStage, "run_steps", slow_at_first)
    proto = model(
        [
            helper.make_node("Relu", ["x"], ["r"], "small"),
            helper.make_node("MatMul", ["r", "w"], ["y"], "large"),
        ],
        [info("x", [256, 256])],
        ["y"],
        {"w": np.ones((256, 2048), np.float32)},
    )
    loaded = sardonyx.load(proto, backend="numpy")
    loaded.compile({"x": (256, 256)})
    profile = loaded.profile(np.ones((256, 256), np.float32))
    assert profile.method == "shares of steps one by one"
    assert profile.by("name")[0].name == "large"


# -- all kinds of models --------------------------------------------------------------------------


def loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Mul", ["v", "v"], ["w"], "square"),
        ],
        "body",
        [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("v", [64])],
        [info("on", [], TensorProto.BOOL), info("w", [64])],
    )
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y"], "repeat", body=body)]
    return model(nodes, [info("n", [], TensorProto.INT64), info("x", [64])], ["y"])


def test_control_flow() -> None:
    for backend in ("numpy", "jax"):
        profile = sardonyx.load(loop(), backend=backend).profile(np.int64(20), np.ones(64, "f"))
        assert profile.nodes
        assert profile.total > 0


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_host_steps(backend: str) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("NonZero", ["r"], ["places"], "places"),
        helper.make_node("Transpose", ["places"], ["y"], "turned"),
    ]
    loaded = sardonyx.load(model(nodes, [info("x", ["n"])], ["y"]), backend=backend)
    profile = loaded.profile(np.arange(6, dtype=np.float32))
    assert {"relu", "places", "turned"} <= profile.seconds_by_node.keys()
    if backend == "jax":
        assert "host" in profile.tier


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_strings(backend: str) -> None:
    nodes = [helper.make_node("StringConcat", ["x", "x"], ["y"], "twice")]
    proto = model(nodes, [info("x", [2], TensorProto.STRING)], ["y"])
    proto.opset_import[0].version = 20
    profile = sardonyx.load(proto, backend=backend).profile(np.array(["a", "b"], object))
    assert [node.name for node in profile.nodes] == ["twice"]


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_nothing_to_run(backend: str) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    profile = sardonyx.load(model(nodes, [info("x", [2])], ["y"]), backend=backend).profile(
        np.ones(2, np.float32)
    )
    assert not profile.nodes
    assert str(profile)
    assert profile._repr_html_()
    assert profile.by("scope") == []


def test_buckets() -> None:
    loaded = sardonyx.load(products(2), backend="jax", buckets={"n": [16]}, compile="now")
    profile = loaded.profile(np.ones((5, 256), np.float32))
    assert profile.tier == "compiled"
    assert {f"layer.{i}/softmax" for i in range(2)} <= profile.seconds_by_node.keys()


def test_buckets_with_steps_on_the_host() -> None:
    text = """<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3]>
    g (float[n, 2] X) => (string[n] label, float[n, 2] scores) {
      label, scores = ai.onnx.ml.LinearClassifier<coefficients = [1.0, 2.0, -1.0, 0.5],
        intercepts = [0.0, 0.0], classlabels_strings = ["ham", "spam"]>(X)
    }"""
    classifier = sardonyx.load(
        onnx.parser.parse_model(text), backend="jax", buckets={"n": [16]}, compile="now"
    )
    profile = classifier.profile(np.ones((5, 2), np.float32))
    assert [segment.tier for segment in profile.segments] == ["compiled", "host"]
    assert classifier(np.ones((5, 2), np.float32))[0].tolist() == ["ham"] * 5


def test_equal_layers_of_long_programs() -> None:
    """Their segments share an executable, whose names are those of the first."""
    nodes, previous = [], "x"
    for i in range(1400):
        operator = ("Sin", "Cos")[i % 2]
        nodes.append(helper.make_node(operator, [previous], [f"v{i}"], f"layer.{i}"))
        previous = f"v{i}"
    proto = model(nodes, [info("x", [256])], [previous])
    loaded = sardonyx.load(proto, backend="jax", compile="now")
    profile = sardonyx.profile(loaded, [np.ones(256, np.float32)], calls=2)
    assert len(profile.segments) > 1
    assert profile.seconds_by_node.keys() == {f"layer.{i}" for i in range(1400)}
    for segment in profile.segments:
        times = [n.seconds for n in profile.nodes if n.segment == segment.number]
        assert sum(map(bool, times)) > len(times) / 2


@pytest.mark.slow
def test_a_cached_program(tmp_path: Path) -> None:
    x = np.ones((8, 256), np.float32)
    for _ in range(2):
        loaded = sardonyx.load(products(3), backend="jax", cache=tmp_path, compile="now")
        profile = loaded.profile(x)
        assert any(profile.seconds_by_node.values()), profile.method


# -- a profile changes nothing --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sampled(3)
@each_way
def test_a_profile_changes_neither_results_nor_counts(way: dict[str, Any]) -> None:
    loaded, x = sardonyx.load(products(3), **way), np.ones((8, 256), np.float32)
    expected = loaded(x)
    loaded.compile({"x": x})
    before = loaded.stats()
    loaded.profile(x)
    after = loaded.stats()
    assert (before.calls, before.hits, before.signatures, before.compiles) == (
        after.calls, after.hits, after.signatures, after.compiles,
    )  # fmt: skip
    assert np.allclose(loaded(x), expected, atol=1e-5)
    loaded.release()
    assert loaded.profile(x).nodes


def test_threads() -> None:
    loaded, x = sardonyx.load(products(3), backend="jax"), np.ones((8, 256), np.float32)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(sardonyx.profile(loaded, [x], calls=3)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(any(profile.seconds_by_node.values()) for profile in found)


@pytest.mark.slow
def test_while_somebody_else_traces(tmp_path: Path) -> None:
    loaded = sardonyx.load(products(3), backend="jax")
    with jax.profiler.trace(str(tmp_path)):
        profile = loaded.profile(np.ones((8, 256), np.float32))
    assert profile.method == "shares of steps one by one"
    assert any(profile.seconds_by_node.values())


# -- what is wrong --------------------------------------------------------------------------------


def test_bad_inputs_are_errors_as_in_a_call() -> None:
    loaded = sardonyx.load(products(2), backend="jax")
    with pytest.raises(sardonyx.InvalidInput, match="x"):
        loaded.profile(np.ones((2, 3), np.float32))
    with pytest.raises(sardonyx.InvalidInput, match="also needs"):
        loaded.profile()
    with pytest.raises(sardonyx.InvalidInput, match="at least one call"):
        sardonyx.profile(loaded, [np.ones((2, 256), np.float32)], calls=0)
    with pytest.raises(sardonyx.InvalidInput, match="list of arrays"):
        sardonyx.profile(loaded, np.ones((2, 256), np.float32))
    with pytest.raises(sardonyx.InvalidInput, match="loaded model"):
        sardonyx.profile("model.onnx", [])


def test_arrays_without_data_are_refused() -> None:
    loaded = sardonyx.load(products(2), backend="jax")
    with pytest.raises(sardonyx.InvalidInput, match="arrays with data"):
        jax.jit(lambda x: loaded.profile(x).total)(np.ones((2, 256), np.float32))


# -- what a profile shows -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def some_profile() -> sardonyx.Profile:
    return sardonyx.load(products(), backend="numpy").profile(x=np.ones((8, 256), np.float32))


def test_the_trace_is_one_of_chrome(some_profile: sardonyx.Profile, tmp_path: Path) -> None:
    some_profile.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    lines: dict[Any, float] = {}
    for event in events:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["name"]
        if event["ph"] == "X":
            assert event["dur"] >= 0
            # Events of one line do not overlap.
            assert event["ts"] >= lines.get(event["tid"], 0.0) - 1e-3
            lines[event["tid"]] = event["ts"] + event["dur"]
    names = {event["name"] for event in events}
    assert {"layer.0/product", "arguments in", "results out"} <= names
    assert max(lines.values()) == pytest.approx(1e6 * some_profile.accounted)


def test_text_and_page(some_profile: sardonyx.Profile) -> None:
    text = str(some_profile)
    assert len(text.splitlines()) < 40
    assert "written out" in text
    assert "Softmax" in text
    assert "remainder" in text
    assert "scaled" in text
    assert repr(some_profile).startswith("<profile of net")
    page = some_profile._repr_html_()
    assert "sx-bar" in page
    assert page.count("<details>") == 4
    assert json.loads(json.dumps(some_profile.as_dict()))["method"] == "shares of steps one by one"
    with pytest.raises(sardonyx.InvalidInput, match="grouped by"):
        some_profile.by("colour")


def test_names_are_escaped() -> None:
    nodes = [helper.make_node("Sin", ["x"], ["y"], "<script>\x1b[2J")]
    profile = sardonyx.load(model(nodes, [info("x", [2])], ["y"]), backend="numpy").profile(
        np.ones(2, np.float32)
    )
    assert "<script>" not in profile._repr_html_()
    assert "\x1b" not in str(profile) + profile._repr_html_()


def test_operations_share_a_moment() -> None:
    lines = [
        [Event(0, 10, "outer"), Event(2, 6, "inner")],
        [Event(4, 8, "beside")],
    ]
    assert shared_time(lines) == {"outer": 5, "inner": 3, "beside": 2}


def test_a_fused_operation_is_shared() -> None:
    text = """HloModule jit_net

%fused (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %sine.1 = f32[4]{0} sine(%p), metadata={op_name="jit(net)/a/b/sin"}
  ROOT %add.1 = f32[4]{0} add(%sine.1, %p), metadata={op_name="jit(net)/a/add"}
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %fusion.3 = f32[4]{0} fusion(%x), kind=kLoop, calls=%fused
}
"""
    assert by_step({"fusion.3": 8.0, "other": 1.0}, text, ["a", "a/b", "c"], [1, 3, 1]) == [2, 6, 0]
