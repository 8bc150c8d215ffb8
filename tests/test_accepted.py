"""What is accepted beyond the standard: by default, as in onnxruntime, and not by `strict=True`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ValueInfoProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.deviations import (
    ACCEPTED,
    HIDDEN_INITIALIZER,
    MISSING_IMPORT,
    NAMELESS_DIMENSION,
    NEGATIVE_DIMENSION,
    OPERATOR_BESIDE,
    REPEATED_IMPORT,
    SHADOWED_NAME,
    SIGNAL_WITHOUT_PARTS,
    UNSORTED_NODES,
    ZERO_BESIDE_UNKNOWN,
    Deviation,
)
from sardonyx.errors import InvalidInput, InvalidModel, UnsupportedModel
from sardonyx.ops.microsoft.default_domain import BESIDE_THE_STANDARD
from tests.support.onnx_builders import BOOL, INT64, graph, model, node, value, weight
from tests.support.raises import refused

PAGE = Path(__file__).parents[1] / "docs" / "accepted.md"
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
UNTYPED = [ValueInfoProto(name="y")]


def imports(proto: onnx.ModelProto, *versions: tuple[str, int]) -> onnx.ModelProto:
    del proto.opset_import[:]
    proto.opset_import.extend(helper.make_opsetid(*each) for each in versions)
    return proto


def normalizing(*versions: tuple[str, int]) -> onnx.ModelProto:
    """A Softmax, which normalizes other axes from opset 13 on, after a Normalizer."""
    first = node("Normalizer", ["x"], ["n"], domain="ai.onnx.ml", norm="L2")
    return imports(model([first, node("Softmax", ["n"], ["y"], axis=0)], ["x"], ["y"]), *versions)


def softmax(*versions: tuple[str, int]) -> onnx.ModelProto:
    return imports(model([node("Softmax", ["x"], ["y"], axis=0)], ["x"], ["y"]), *versions)


def branches_with_weights() -> onnx.ModelProto:
    """An If whose branches have weights with names of values around them."""

    def branch(op: str, *names: str) -> onnx.GraphProto:
        nodes = [node(op, names, ["inner"])]
        return graph(nodes, [], ["inner"], [weight(names[1], np.float32(3))], name=op)

    chosen = node("If", ["c"], ["b"], then_branch=branch("Mul", "x", "w"), else_branch=OTHER)
    nodes = [
        node("ReduceMax", ["x"], ["s"], keepdims=0),
        node("Cast", ["s"], ["c"], to=BOOL),
        chosen,
        node("Add", ["b", "w"], ["y"]),
    ]
    return model(nodes, ["x"], ["y"], [weight("w", np.float32(10))])


OTHER = graph([node("Neg", ["x"], ["other"])], [], ["other"], name="other")


def loop(trips: list[onnx.NodeProto], *inputs: ValueInfoProto) -> onnx.ModelProto:
    """A Loop whose body's state is called x, as the model's input is."""
    body = graph(
        [node("Mul", ["x", "two"], ["double"]), node("Identity", ["go"], ["still"])],
        [value("i", [], INT64), value("go", [], BOOL), value("x")],
        [value("still", [], BOOL), "double"],
        [weight("two", np.float32(2))],
        name="body",
    )
    nodes = [*trips, node("Loop", ["n", "", "x"], ["l"], body=body), node("Add", ["l", "x"], ["y"])]
    return model(nodes, ["x", *inputs], ["y"], [] if inputs else [weight("n", np.int64(3))])


def hidden() -> onnx.ModelProto:
    proto = model([node("Add", ["x", "w"], ["y"])], ["x"], ["y"], [weight("w", X)])
    proto.ir_version = 3
    return proto


def spectrum(*, onesided: int = 1) -> onnx.ModelProto:
    weights = [weight("step", np.int64(1)), weight("window", np.ones(3, np.float32))]
    nodes = [node("STFT", ["x", "step", "window"], ["y"], onesided=onesided)]
    return model(nodes, ["x"], UNTYPED, weights)


def reshaped(*parts: str) -> onnx.ModelProto:
    """A Reshape of indices that depend on data: onnxruntime refuses what it knows at load."""
    nodes = [
        node("Less", ["x", "x"], ["less"]),
        node("NonZero", ["less"], ["indices"]),
        node("Shape", ["indices"], ["zero"], start=1),
        node("Concat", parts, ["shape"], axis=0),
        node("Reshape", ["indices", "shape"], ["y"], allowzero=1),
    ]
    return model(nodes, ["x"], UNTYPED, [weight("unknown", np.array([-1]))])


def normalizing_before(opset: int, operator: str) -> onnx.ModelProto:
    """The normalization of layers, at opsets at which the standard has none."""
    nodes = [node(operator, ["x", "scale"], ["y"], epsilon=1e-3)]
    return model(nodes, ["x"], ["y"], [weight("scale", X[0])], opset=opset)


def scaled(*, opset: int) -> onnx.ModelProto:
    """An operator that the standard has at no opset."""
    return model([node("Affine", ["x"], ["y"], alpha=2.0, beta=1.0)], ["x"], ["y"], opset=opset)


def declared(*shape: int | str) -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["y"])], [value("x", shape)], ["y"])


RELU_LATER = [node("Neg", ["r"], ["y"]), node("Relu", ["x"], ["r"])]
EXAMPLES: list[tuple[Deviation, Callable[[], onnx.ModelProto]]] = [
    (MISSING_IMPORT, lambda: normalizing(("", 13))),
    (MISSING_IMPORT, lambda: normalizing(("ai.onnx.ml", 3))),
    (MISSING_IMPORT, lambda: softmax(("com.microsoft", 1))),
    (
        MISSING_IMPORT,
        lambda: model([node("Gelu", ["x"], ["y"], domain="com.microsoft")], ["x"], ["y"]),
    ),
    (REPEATED_IMPORT, lambda: softmax(("", 11), ("", 13))),
    (REPEATED_IMPORT, lambda: softmax(("", 13), ("", 11))),
    (REPEATED_IMPORT, lambda: softmax(("", 11), ("ai.onnx", 13))),
    (REPEATED_IMPORT, lambda: softmax(("", 11), ("", 13), ("ai.onnx", 12))),
    (REPEATED_IMPORT, lambda: normalizing(("", 13), ("ai.onnx.ml", 3), ("ai.onnx.ml", 1))),
    (OPERATOR_BESIDE, lambda: normalizing_before(13, "LayerNormalization")),
    (OPERATOR_BESIDE, lambda: normalizing_before(17, "SimplifiedLayerNormalization")),
    (OPERATOR_BESIDE, lambda: scaled(opset=7)),
    (UNSORTED_NODES, lambda: model(RELU_LATER, ["x"], ["y"])),
    (SHADOWED_NAME, lambda: loop([])),
    (SHADOWED_NAME, branches_with_weights),
    (NEGATIVE_DIMENSION, lambda: declared(-1, 4)),
    (NAMELESS_DIMENSION, lambda: declared("?", "?")),
    (HIDDEN_INITIALIZER, hidden),
    (SIGNAL_WITHOUT_PARTS, spectrum),
    (SIGNAL_WITHOUT_PARTS, lambda: spectrum(onesided=0)),
    (ZERO_BESIDE_UNKNOWN, lambda: reshaped("zero", "unknown")),
    (ZERO_BESIDE_UNKNOWN, lambda: reshaped("unknown", "zero", "zero")),
]
# An op meets these in a call.
IN_CALLS = {SIGNAL_WITHOUT_PARTS, ZERO_BESIDE_UNKNOWN}
IDS = [f"{deviation.name} {number}" for number, (deviation, _) in enumerate(EXAMPLES)]


@pytest.mark.parametrize(("deviation", "example"), EXAMPLES, ids=IDS)
def test_the_default_runs_as_onnxruntime_does(
    xp: Backend, deviation: Deviation, example: Callable[[], onnx.ModelProto]
) -> None:
    proto = example()
    for strict, mode in ((None, "now"), (None, "background"), (False, "background")):
        loaded = sardonyx.load(proto, backend=xp, strict=strict, compile=mode)
        np.testing.assert_allclose(loaded(X), onnxruntime_result(proto), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(("deviation", "example"), EXAMPLES, ids=IDS)
def test_strict_names_the_deviation(
    deviation: Deviation, example: Callable[[], onnx.ModelProto]
) -> None:
    error = InvalidInput if deviation in IN_CALLS else InvalidModel
    for jit in (True, False):
        with refused(error, f"('{deviation.name}') that strict=True refuses"):
            sardonyx.load(example(), strict=True, jit=jit)(X)


def onnxruntime_result(proto: onnx.ModelProto) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    result: np.ndarray = session.run(None, {"x": X})[0]
    return result


def test_every_entry_has_an_example_and_a_row_of_the_page() -> None:
    assert {deviation for deviation, _ in EXAMPLES} == set(ACCEPTED)
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    table = rows[rows.index("| deviation | the standard | accepted | written by |") + 1 :]
    assert table == ["| " + " | ".join(entry) + " |" for entry in ACCEPTED]


def test_the_page_lists_the_operators_beside_the_standard() -> None:
    ends: dict[float, list[str]] = {}
    for (_, name), end in BESIDE_THE_STANDARD.items():
        ends.setdefault(end, []).append(name)
    page = PAGE.read_text("utf-8")
    for end, names in ends.items():
        opsets = "at all opsets" if end == float("inf") else f"below opset {end}"
        assert f"- {opsets}: {', '.join(sorted(names))}\n" in page


def test_onnxruntime_has_no_other_operators_beside_the_standard() -> None:
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            first[schema.name] = min(first.get(schema.name, 99), schema.since_version)
    kernels = (kernel for kernel in get_all_opkernel_def() if kernel.domain == "")
    beside = {("", k.op_name) for k in kernels if k.version_range[0] < first.get(k.op_name, 99)}
    # These two copy to and from a GPU; onnxruntime inserts them, and no file has them.
    assert beside - {("", "MemcpyFromHost"), ("", "MemcpyToHost")} == set(BESIDE_THE_STANDARD)


def test_what_follows_the_standard_is_not_refused() -> None:
    sound = model([node("Relu", ["x"], ["y"])], [value("x", ["n", 4])], ["y"])
    assert sardonyx.load(sound, strict=True)(X).shape == X.shape
    same_twice = imports(sound, ("", 18), ("ai.onnx", 18))
    assert sardonyx.load(same_twice, strict=True)(X).shape == X.shape


def test_an_unknown_domain_is_not_imported() -> None:
    unknown = model([node("Relu", ["x"], ["y"], domain="made.up")], ["x"], ["y"])
    with refused(UnsupportedModel, "imports no opset of 'made.up'"):
        sardonyx.load(unknown)


def twice_initialized() -> onnx.ModelProto:
    return model([node("Add", ["x", "w"], ["y"])], ["x"], ["y"], [weight("w", X), weight("w", X)])


def cut_short() -> onnx.ModelProto:
    proto = model([node("Neg", ["x"], ["y"])], ["x"], ["y"])
    proto.graph.initializer.add(name="unused", data_type=1, dims=[3])
    return proto


@pytest.mark.parametrize(
    "example",
    [
        twice_initialized,
        cut_short,
        lambda: declared(-5, 4),
        lambda: declared("n", "n"),
        declared,
        lambda: model([node("Relu", ["x"], ["y"])], ["x"], ["y", "y"]),
        lambda: imports(softmax(), ("", 13), ("unused", 0)),
    ],
)
def test_what_onnxruntime_runs_and_no_exporter_writes_is_refused(
    example: Callable[[], onnx.ModelProto],
) -> None:
    """The page lists them."""
    assert onnxruntime_result(example()).shape == X.shape
    with pytest.raises(sardonyx.SardonyxError):
        sardonyx.load(example(), backend="numpy")(X)


def test_names_of_nodes_in_a_branch_are_not_accepted() -> None:
    """Onnxruntime refuses them too."""
    then = graph([node("Neg", ["x"], ["w"])], [], ["w"], name="then")
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=OTHER)]
    ends = [value("c", [], BOOL), "x"]
    with refused(InvalidModel, "'w'", "outer graph"):
        sardonyx.load(model(nodes, ends, ["y"], [weight("w", X)]))


def test_other_entry_points_have_the_same_levels() -> None:
    mesh = jax.make_mesh((1,), ("data",))
    unsorted = model(RELU_LATER, [value("x", [3, 4])], ["y"])
    for call in (sardonyx.to_jax, sardonyx.export, partial(sardonyx.shard, mesh=mesh)):
        call(unsorted)
        with refused(InvalidModel, "'unsorted nodes'"):
            call(unsorted, strict=True)
    signal = np.ones((2, 8), np.float32), np.int64(2), None, np.int64(4)
    assert sardonyx.run_op("STFT", *signal, opset=17).shape == (2, 3, 3, 2)
    with refused(InvalidInput, "'signal without parts'"):
        sardonyx.run_op("STFT", *signal, opset=17, strict=True)


def test_a_model_keeps_its_level() -> None:
    exact = sardonyx.load(spectrum(), strict=True, backend="numpy")
    fn, params = sardonyx.to_jax(exact)
    with pytest.raises(InvalidInput, match="signal without parts"):
        fn(params, X)
    assert exact.is_strict
