"""Nodes keep their names in lowered and compiled programs, and the names change nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.graph.ir import Node
from sardonyx.graph.tracing.scope_names import LONGEST, function_name, scope_name, unique

X = np.linspace(0.1, 1, 8, dtype=np.float32)


def chain(names: list[str], title: str = "a graph") -> onnx.ModelProto:
    nodes, previous = [], "x"
    for i, name in enumerate(names):
        operator = ("Sin", "Exp")[i % 2]
        nodes.append(helper.make_node(operator, [previous], [f"v{i}"], name))
        previous = f"v{i}"
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])]
    graph = helper.make_graph(nodes, title, inputs, [onnx.ValueInfoProto(name=previous)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


NAMES = ["/layer.0/Sin", "/layer.0/Exp", "head:0", ""]
SCOPES = ["layer.0/Sin", "layer.0/Exp", "head_0", "Exp_v3"]


def scopes(text: str) -> set[str]:
    return set(re.findall(r'op_name="([^"]*)"', text))


def are_seen(found: set[str]) -> bool:
    return all(any(scope in name for name in found) for scope in SCOPES)


def test_a_caller_sees_them_under_jit() -> None:
    fn, params = sardonyx.to_jax(chain(NAMES))
    assert fn.__name__ == "a_graph"
    lowered = jax.jit(fn).lower(params, X)
    text = lowered.as_text(debug_info=True)
    assert "jit_a_graph" in text
    for scope in SCOPES:
        assert f"jit(a_graph)/{scope}/" in text
    compiled = lowered.compile().as_text()
    assert compiled.startswith("HloModule jit_a_graph")
    assert are_seen(scopes(compiled))


def test_they_are_seen_in_gradients() -> None:
    fn, params = sardonyx.to_jax(chain(NAMES))
    gradient = jax.jit(jax.grad(lambda x: fn(params, x).sum()))
    assert "transpose(jvp(head_0))" in gradient.lower(X).as_text(debug_info=True)


@pytest.mark.parametrize("options", [{}, {"checked": True}])
def test_compiled_models_have_them(options: dict[str, Any]) -> None:
    loaded = sardonyx.load(chain(NAMES), backend="jax", compile="now", **options)
    loaded(X)
    (stage,) = [stage for stage in loaded.trace(X).stages if stage.segment is not None]
    executable: Any = stage.executable
    text = executable.listing()
    assert text.startswith("HloModule jit_a_graph")
    assert are_seen(scopes(text))
    assert list(executable.scopes) == SCOPES


def test_exported_programs_have_them() -> None:
    for signature in ({"x": (8,)}, {"x": ("n",)}):
        proto = chain(NAMES)
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
        exported = jax.export.deserialize(sardonyx.export(proto, signature).program)
        assert exported.fun_name == "a_graph"
        stand_ins = [
            jax.ShapeDtypeStruct([n if isinstance(n, int) else 8 for n in a.shape], a.dtype)
            for a in exported.in_avals
        ]
        arguments, _ = jax.tree.unflatten(exported.in_tree, stand_ins)
        lowered = jax.jit(exported.call).lower(*arguments)
        assert "head_0" in lowered.as_text(debug_info=True)


def test_sharded_programs_have_them() -> None:
    mesh = jax.make_mesh((1,), ("data",))
    sharded = sardonyx.shard(chain(NAMES), mesh)
    sharded(X)
    (program,) = sharded._programs.values()
    assert program.compiled.as_text().startswith("HloModule jit_a_graph")
    assert are_seen(scopes(program.compiled.as_text()))


def test_nodes_of_functions_have_the_path_that_leads_to_them() -> None:
    inner = helper.make_node("Sin", ["a"], ["b"], "inner")
    function = helper.make_function(
        "own", "Twice", ["a"], ["b"], [inner], [helper.make_opsetid("", 18)]
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["h"], "first", domain="own"),
        helper.make_node("Twice", ["h"], ["y"], "second", domain="own"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)
    fn, params = sardonyx.to_jax(proto)
    text = jax.jit(fn).lower(params, X).as_text(debug_info=True)
    assert "jit(g)/first/inner/" in text
    assert "jit(g)/second/inner/" in text


def test_names_do_not_keep_equal_programs_apart(tmp_path: Path) -> None:
    """In one process, and in a folder of compiled programs."""
    counts = []
    for names, title in ((NAMES, "one"), (["", "", "", ""], "other")):
        loaded = sardonyx.load(chain(names, title), backend="jax", cache=tmp_path, compile="now")
        loaded(X)
        counts.append(len(list(tmp_path.glob("**/*.xla"))))
    assert counts[0] == counts[1] == 1


def test_equal_layers_share_one_executable() -> None:
    deep = chain([f"layer.{i}" for i in range(2200)])
    loaded = sardonyx.load(deep, backend="jax", compile="now")
    loaded(X)
    assert loaded.stats().shared > 0


def test_odd_names() -> None:
    def of(name: str, path: str = "") -> str:
        return scope_name(path, Node("Sin", "", "", name, (), ("out",), {}))

    assert of("//a//b/") == "a/b"
    assert of("") == "Sin_out"
    assert of("é<\n\x1b") == "____"
    assert of("///") == "node"
    assert of("n", "f/") == "f/n"
    assert len(of("x" * 1000)) == LONGEST
    assert unique(["a", "a", "a.2", "a"]) == ("a", "a.2", "a.2.2", "a.3")
    assert [function_name(name) for name in ("", "a b", "1")] == ["graph", "a_b", "1"]
