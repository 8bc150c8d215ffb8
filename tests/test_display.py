"""What objects show of themselves in notebooks and terminals: content, escaping, and bounds."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.display.graph_view.page import notebook_script
from sardonyx.display.markup import LONGEST_DISPLAY
from sardonyx.display.text import MOST_LINES, WIDTH
from sardonyx.graph.calls.results import results_type
from sardonyx.graph.values.params_display import MOST_READ
from tests.support.onnx_builders import model, node, value, weight
from tests.test_display_builders import HOSTILE, Tags

EXAMPLE = "examples/encoder.onnx"
X = np.zeros((1, 8, 48), np.float32)


# The picture of a graph, which has a page and tests of its own.
FRAME = re.compile("<iframe[^']*'[^']*'></iframe>")


def shown(thing: Any) -> str:
    """The text of a display, after checks that hold for all of them."""
    text = repr(thing)
    assert len(text.splitlines()) <= MOST_LINES + 1
    assert len(text) <= (MOST_LINES + 1) * WIDTH
    # The only script is one that never changes, so that no name of a model is in it.
    page = FRAME.sub("", thing._repr_html_()).replace(notebook_script(), "")
    assert len(page) <= LONGEST_DISPLAY
    tags = Tags(page)
    assert "script" not in tags.tags
    assert "object at 0x" not in text + page
    return tags.text


def test_a_model_shows_its_graph(xp: Any) -> None:
    loaded = sardonyx.load(EXAMPLE, backend=xp)
    text = shown(loaded)
    for part in (f"on {xp.name}", "[batch, sequence, 48]", "LayerNormalization", "nodes by scope",
                 "blocks.0", "150,556 bytes", "ai.onnx"):  # fmt: skip
        assert part in text
    assert "random key" in shown(loaded.bind(key=3))


@pytest.mark.sampled(2)
def test_params_show_figures_and_fetch_nothing(xp: Any) -> None:
    loaded = sardonyx.load(EXAMPLE, backend=xp)
    array = loaded.params.host("val_5")
    assert f"{float(array.min()):.4g}" in shown(loaded.params)
    loaded.params["val_5"] = 2 * array
    before = loaded.params._store.now()._cells["val_5"].host
    shown(loaded.params)
    assert loaded.params._store.now()._cells["val_5"].host is before
    loaded.release()
    assert "val_5" in shown(loaded.params)


def test_large_arrays_are_not_read() -> None:
    large = np.full(MOST_READ // 4 + 1, 7.25, np.float32)
    small = np.full(MOST_READ // 4, 3.25, np.float32)
    proto = model(
        [node("Add", ["x", "large"], ["y"]), node("Add", ["z", "small"], ["s"])],
        [value("x", large.shape), value("z", small.shape)],
        [value("y", large.shape), value("s", small.shape)],
        [weight("large", large), weight("small", small)],
    )
    text = shown(sardonyx.load(proto, backend="numpy").params)
    assert "3.25" in text
    assert "7.25" not in text


@pytest.mark.parametrize("dtype", ["bool", "int4", "float8_e4m3fn", "bfloat16", "complex64", "str"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 2)])
def test_params_of_all_types(dtype: str, shape: tuple[int, ...]) -> None:
    numpy_type = np.dtype(object) if dtype == "str" else sardonyx_dtype(dtype)
    array = np.full(shape, "a" if dtype == "str" else 1).astype(numpy_type)
    proto = model([node("Identity", ["w"], ["y"])], [], [onnx.ValueInfoProto(name="y")], opset=23)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(array, "w"))
    proto.graph.output[0].type.tensor_type.elem_type = proto.graph.initializer[0].data_type
    assert "w" in shown(sardonyx.load(proto, backend="numpy").params)


def sardonyx_dtype(name: str) -> np.dtype[Any]:

    return np.dtype(getattr(ml_dtypes, name, name))


# -- programs -------------------------------------------------------------------------------------


def test_a_program_names_weights_and_fused_nodes(xp: Any) -> None:
    loaded = sardonyx.load(EXAMPLE, backend=xp)
    program = loaded.trace(X)
    text = shown(program)
    assert "blocks.0.before.weight" in text
    for segment in program.segments:
        assert "blocks.0.before.weight" in repr(segment) + shown(segment)
    assert "blocks.0.before.weight" in str(program)


def test_a_fused_step_says_what_it_fused() -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"], name="product"), node("Add", ["a", "b"], ["c"]),
             node("Relu", ["c"], ["y"], name="last")]  # fmt: skip
    weights = [weight("w", np.ones((4, 4), np.float32)), weight("b", np.ones(4, np.float32))]
    proto = model(nodes, [value("x", [64, 4])], [value("y", [64, 4])], weights)
    x = np.ones((64, 4), np.float32)
    (segment,) = sardonyx.load(proto, backend="jax").trace(x).segments
    (step,) = segment.steps
    assert [n.op_type for n in step.fused] == ["MatMul", "Add", "Relu"]
    assert "MatMul, Add, Relu" in shown(segment)
    (plain, *_) = sardonyx.load(proto, backend="jax", rewrites=False).trace(x).segments
    assert [s.fused for s in plain.steps] == [(), (), ()]


def test_a_cached_recording_knows_what_was_fused(tmp_path: Path) -> None:
    def origins() -> list[str]:
        loaded = sardonyx.load(EXAMPLE, backend="jax", cache=tmp_path, compile="now")
        loaded(X)
        return [step.origin for s in loaded.trace(X).segments for step in s.steps]

    assert origins() == origins()
    assert any("MatMul" in origin for origin in origins())


def test_blocks_are_folded_in_their_step() -> None:
    branch = partial(onnx.helper.make_graph, name="branch", inputs=[])
    body = branch([node("Neg", ["x"], ["inner"])], outputs=[onnx.ValueInfoProto(name="inner")])
    other = branch([node("Exp", ["x"], ["inner"])], outputs=[onnx.ValueInfoProto(name="inner")])
    condition = onnx.helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, [])
    proto = model(
        [node("If", ["flag"], ["y"], then_branch=body, else_branch=other)],
        [value("x", [2]), condition],
        [value("y", [2])],
    )
    program = sardonyx.load(proto, backend="jax").trace(np.ones(2, np.float32), np.array(True))
    text = shown(program)
    assert "block" in text
    assert "Neg(" in text


# -- what a call returns and costs ----------------------------------------------------------------


@pytest.mark.sampled(2)
def test_stats_and_memory_are_tables(xp: Any) -> None:
    loaded = sardonyx.load(EXAMPLE, backend=xp)
    loaded(X)
    assert "compile seconds" in shown(loaded.stats())
    text = shown(loaded.memory(X))
    assert "saved by aliases" in text
    assert "1,536" in text
    loaded.release()
    shown(loaded)
    shown(loaded.stats())


def test_results_show_a_few_elements(xp: Any) -> None:
    proto = model([node("Neg", ["x"], ["a"]), node("Exp", ["x"], ["b"])], ["x"], ["a", "b"])
    out = sardonyx.load(proto, backend=xp)(np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    text = shown(out)
    assert "float32[2, 3]" in text
    assert "-1 -2 -3 …" in text
    assert "-4" not in text


def test_results_under_transformations_are_tracers() -> None:
    proto = model([node("Neg", ["x"], ["a"]), node("Exp", ["x"], ["b"])], ["x"], ["a", "b"])
    loaded = sardonyx.load(proto, backend="jax")
    texts = []

    def called(x: Any) -> Any:
        out = loaded(x)
        texts.append(shown(out))
        return out[0].sum()

    x = jnp.ones((2, 3))
    jax.jit(called)(x)
    jax.grad(called)(x)
    jax.vmap(lambda row: called(row[None].repeat(2, 0)))(jnp.ones((4, 3)))
    assert all("traced" in text for text in texts)
    assert len(texts) == 3


def test_deleted_results_are_said_to_be() -> None:
    array = jnp.ones(3)
    array.delete()
    assert "deleted" in shown(results_type(("a", "b"))(array, np.ones(2)))


@pytest.mark.parametrize(
    "thing",
    [
        np.float64(2), 1.5, None, "text", [np.ones(3)] * 5, {"a": np.ones(2)}, np.zeros((0, 4)),
        np.array(3), np.array(["<b>"], object), np.array([1 + 2j]), jnp.ones((), jnp.bfloat16),
        jnp.ones((3, 2), jnp.float8_e5m2), np.broadcast_to(1.0, (10**6, 10**6)), [], {},
    ],
    ids=repr,
)  # fmt: skip
def test_results_of_any_kind(thing: Any) -> None:
    assert "other" in shown(results_type(("one", "other"))(thing, thing))


# -- other objects --------------------------------------------------------------------------------


def test_pure_functions() -> None:
    fn, params = sardonyx.to_jax(EXAMPLE)
    assert "blocks.0" in shown(fn)
    bound = fn.bind(key=1)
    assert "with a key" in shown(bound)
    np.testing.assert_array_equal(bound(params, X), fn(params, X))
    np.testing.assert_array_equal(jax.jit(bound)(params, X), jax.jit(fn)(params, X))


def test_exports_and_sharded_models() -> None:
    artefact = sardonyx.export(EXAMPLE)
    assert "cpu" in shown(artefact)
    assert "val_5" in shown(sardonyx.load(artefact.to_bytes()))
    sharded = sardonyx.shard(EXAMPLE, jax.make_mesh((1,), ("data",)))
    assert "blocks.0.before.weight" in shown(sharded)
    assert "blocks.0.before.weight" in shown(sharded.report)


# -- hostile and huge models ----------------------------------------------------------------------


def test_hostile_names_show_as_text(xp: Any) -> None:
    nodes = [node("MatMul", ["x", HOSTILE + "w"], [HOSTILE], name=HOSTILE)]
    weights = [weight(HOSTILE + "w", np.ones((3, 3), np.float32))]
    proto = model(nodes, [value("x", [HOSTILE, 3])], [value(HOSTILE, [HOSTILE, 3])], weights)
    proto.graph.name = proto.producer_name = HOSTILE
    loaded = sardonyx.load(proto, backend=xp)
    x = np.ones((2, 3), np.float32)
    program = loaded.trace(x)
    things = [loaded, loaded.params, program, *program.segments, loaded.memory(x), loaded.stats()]
    for thing in [*things, results_type((HOSTILE, "b"))(x, x)]:
        assert "\x1b" not in shown(thing) + repr(thing)
    assert "<script>" in shown(loaded)


def test_models_and_programs_show_their_graph() -> None:
    loaded = sardonyx.load("examples/encoder.onnx", backend="numpy")
    for thing in (loaded, loaded.trace(x=np.zeros((1, 8, 48), np.float32)), loaded.bind(key=1)):
        (frame,) = FRAME.findall(thing._repr_html_())
        assert "MatMul" in frame
        assert 'loading="lazy"' in frame


def test_a_graph_of_many_weights_is_shown_by_its_view_alone() -> None:
    weights = [weight(f"w{i}", np.ones(3, np.float32)) for i in range(4000)]
    nodes = [node("Sum", ["x", *(f"w{i}" for i in range(4000))], ["y"])]
    text = sardonyx.load(model(nodes, [value("x", [3])], [value("y", [3])], weights))._repr_html_()
    assert not FRAME.findall(text)
    assert "call .view()" in text


@pytest.mark.slow
def test_huge_models_are_bounded_and_quick() -> None:
    count = 20_000
    names = [f"/layer.{i // 100}/block.{i % 10}/v{i}" for i in range(count)]
    nodes = [node("Add", [names[i - 1] if i else "x", "x"], [names[i]]) for i in range(count)]
    inputs = [value(f"input_{i}", [2]) for i in range(10_000)]
    proto = model(nodes, [value("x", [2]), *inputs], [value(names[-1], [2])])
    loaded = sardonyx.load(proto, backend="numpy")
    text = shown(loaded)
    assert "… 9,961 more" in text
    assert "20,000 nodes" in text
    start = time.process_time()
    loaded._repr_html_()
    assert time.process_time() - start < 2


def test_many_params_are_bounded() -> None:
    weights = [weight(f"a.{i // 50}.w{i}", np.ones(3, np.float32)) for i in range(3000)]
    nodes = [node("Sum", [w.name for w in weights], ["y"])]
    loaded = sardonyx.load(model(nodes, [], [value("y", [3])], weights), backend="numpy")
    assert "… 2,970 more" in shown(loaded.params)
    shown(loaded)
    shown(loaded.trace())


@pytest.mark.slow
def test_threads_may_show_while_others_write() -> None:
    loaded = sardonyx.load(EXAMPLE, backend="jax")
    array = loaded.params.host("val_5")

    def work(i: int) -> str:
        if i % 4 == 0:
            loaded.params["val_5"] = array + i
        if i % 7 == 0:
            loaded.release()
        loaded(X)
        return shown(loaded) + shown(loaded.params) + shown(loaded.trace(X))

    with ThreadPoolExecutor(4) as pool:
        assert all("val_5" in text for text in pool.map(work, range(16)))
