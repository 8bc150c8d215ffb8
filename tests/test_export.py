"""Exported programs: one for all sizes, and for platforms that are not here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from jax import export as jax_export
from onnx import parser

import sardonyx
from tests.support.onnx_builders import FLOAT, INT64, STRING, model, node, value, weight

MODELS = sorted((Path(__file__).parent / "models").glob("*.onnx"))
RNG = np.random.default_rng(5)


def roundtrip(source: Any, signature: Any = None, **options: Any) -> Any:
    return sardonyx.load(sardonyx.export(source, signature, **options).to_bytes())


def checked(source: Any, exported: Any, *calls: Mapping[str, Any], tolerance: float = 2e-5) -> None:
    """The exported program gives for each call what the model gives."""
    loaded = sardonyx.load(source)
    for feeds in calls:
        for found, wanted in zip(exported.run(None, feeds), loaded.run(None, feeds), strict=True):
            assert found.dtype == wanted.dtype
            assert found.shape == wanted.shape
            if wanted.dtype.kind in "biu":
                np.testing.assert_array_equal(found, wanted)
            else:
                kinds = (np.complex128, np.float64)
                wide = kinds[wanted.dtype.kind != "c"]
                np.testing.assert_allclose(
                    found.astype(wide), wanted.astype(wide), rtol=tolerance, atol=tolerance
                )


def floats(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def small() -> onnx.ModelProto:
    return model(
        [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])],
        [value("x", ["batch", 4])],
        [value("y", ["batch", 8])],
        [weight("w", np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8))],
    )


# -- sizes that stay free -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_models_of_exporters_run_for_all_sizes(path: Path) -> None:
    """Every size that such a model leaves open stays open, and what it computes stays the same."""
    program = roundtrip(path)
    assert any(isinstance(d, str) for info in program.inputs for d in info.shape)
    stored = np.load(path.with_suffix(".npz"))
    numbers = sorted({name.split("/")[0] for name in stored})
    calls = [
        {info.name: stored[f"{number}/in/{info.name}"] for info in program.inputs}
        for number in numbers
    ]
    fitting = [feeds for feeds in calls if all(a.size and len(a) > 2 for a in feeds.values())]
    lower = [bound for bound in program.bounds if ">=" in bound]
    if path.stem == "scripted_torchscript":
        assert lower == ["batch >= 3"]  # It has a branch for smaller ones.
    elif path.stem.startswith("decoder"):
        fitting = [feeds for feeds in calls if all(a.size for a in feeds.values())]
    else:
        assert lower == []
        fitting = calls
    assert fitting
    checked(path, program, *fitting)


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_one_program_serves_every_batch(batch: int) -> None:
    program = roundtrip(small())
    x = floats(batch, 4)
    assert isinstance(program(x), np.ndarray)
    assert isinstance(program(jnp.asarray(x)), jax.Array)
    checked(small(), program, {"x": x})


def positions(length: int = 12) -> onnx.ModelProto:
    """As many rows of a table as the input is long, found by shape arithmetic."""
    return model(
        [
            node("Shape", ["x"], ["shape"]),
            node("Gather", ["shape", "one"], ["size"]),
            node("Slice", ["table", "zero", "size", "zero"], ["rows"]),
            node("Add", ["x", "rows"], ["y"], name="add"),
        ],
        [value("x", ["batch", "length", 3])],
        [value("y", ["batch", "length", 3])],
        [
            weight("table", RNG.normal(size=(length, 3)).astype(np.float32)),
            weight("zero", np.asarray([0])),
            weight("one", np.asarray([1])),
        ],
    )


def test_how_far_a_size_may_go_is_found_and_kept() -> None:
    proto = positions(40)
    program = roundtrip(proto)
    assert program.bounds == ("batch <= 1048576", "length <= 40")
    checked(proto, program, {"x": floats(2, 40, 3)}, {"x": floats(1, 1, 3)})
    with pytest.raises(sardonyx.InvalidInput, match="holds for length <= 40"):
        program(floats(2, 41, 3))


def test_a_size_that_changes_what_the_graph_does_is_kept_from_it() -> None:
    """Of 30 rows and more only 30 are taken: no formula of JAX's symbols says that."""
    proto = model(
        [
            node("Shape", ["x"], ["size"], end=1),
            node("Min", ["size", "most"], ["end"]),
            node("Slice", ["x", "zero", "end"], ["y"]),
        ],
        [value("x", ["n", 2])],
        [value("y", ["m", 2])],
        [weight("most", np.asarray([130])), weight("zero", np.asarray([0]))],
    )
    program = roundtrip(proto)
    assert program.bounds == ("n <= 130",)
    checked(proto, program, {"x": floats(130, 2)}, {"x": floats(3, 2)})


def test_sizes_for_which_another_program_would_run_are_kept_from_it() -> None:
    """Of fewer than five rows all are taken, and of more than that five."""
    proto = model(
        [node("Slice", ["x", "zero", "five"], ["y"])],
        [value("x", ["n", 2])],
        [value("y", ["m", 2])],
        [weight("zero", np.asarray([0])), weight("five", np.asarray([5]))],
    )
    program = roundtrip(proto)
    assert program.bounds == ("n >= 6", "n <= 1048576")
    checked(proto, program, {"x": floats(6, 2)}, {"x": floats(3000, 2)})
    with pytest.raises(sardonyx.InvalidInput, match="holds for n >= 6"):
        program(floats(4, 2))


def test_relations_between_sizes_are_kept() -> None:
    proto = model(
        [node("Concat", ["past", "new"], ["y"], axis=1)],
        [value("past", ["batch", "past", 2]), value("new", ["batch", "past + 1", 2])],
        [value("y", ["batch", "total", 2])],
    )
    program = roundtrip(proto)
    assert [str(d) for d in program.outputs[0].shape] == ["batch", "2*past + 1", "2"]
    checked(proto, program, {"past": floats(2, 3, 2), "new": floats(2, 4, 2)})
    with pytest.raises(sardonyx.InvalidInput, match=r"must have size 4 \(past \+ 1\)"):
        program(floats(2, 3, 2), floats(2, 5, 2))
    with pytest.raises(sardonyx.InvalidInput, match="must have size 2 on axis 0"):
        program(floats(2, 3, 2), floats(1, 4, 2))
    with pytest.raises(sardonyx.InvalidInput, match="takes no named sizes of 0"):
        program(floats(0, 3, 2), floats(0, 4, 2))


def test_a_number_that_follows_no_formula_names_its_node() -> None:
    proto = model(
        [
            node("Shape", ["x"], ["shape"], start=1, end=2),
            node("Cast", ["shape"], ["size"], to=FLOAT),
            node("Sqrt", ["size"], ["root"]),
            node("Div", ["x", "root"], ["y"], name="scale"),
        ],
        [value("x", ["batch", "length"])],
        [value("y", ["batch", "length"])],
    )
    with pytest.raises(sardonyx.UnsupportedModel, match=r"node 'scale' .* for every batch, length"):
        sardonyx.export(proto)
    program = roundtrip(proto, {"x": ("batch", 9)})
    checked(proto, program, {"x": floats(1, 9)}, {"x": floats(5, 9)})


@pytest.mark.parametrize("op_type", ["LSTM", "GRU", "RNN"])
def test_recurrent_networks_keep_batch_and_length_free(op_type: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op_type]
    proto = model(
        [node(op_type, ["x", "w", "r"], ["y", "last"], hidden_size=5)],
        [value("x", ["length", "batch", 3])],
        [value("y", ["length", 1, "batch", 5]), value("last", [1, "batch", 5])],
        [weight("w", floats(1, gates * 5, 3)), weight("r", floats(1, gates * 5, 5))],
    )
    program = roundtrip(proto)
    checked(proto, program, {"x": floats(1, 1, 3)}, {"x": floats(6, 2, 3)})


def test_loops_and_branches_stay_loops_and_branches() -> None:
    body = onnx.parser.parse_graph(
        "step (int64 i, bool go, float[n, 2] s) => (bool again, float[n, 2] t) "
        "{ again = Identity (go) t = Add (s, s) }"
    )
    then = onnx.parser.parse_graph("then () => (float[n, 2] a) { a = Neg (z) }")
    other = onnx.parser.parse_graph("other () => (float[n, 2] b) { b = Abs (z) }")
    proto = model(
        [
            node("Loop", ["count", "", "x"], ["z"], body=body),
            node("If", ["choice"], ["y"], then_branch=then, else_branch=other),
        ],
        [
            value("x", ["n", 2]),
            value("count", [], INT64),
            value("choice", [], onnx.TensorProto.BOOL),
        ],
        [value("y", ["n", 2])],
    )
    program = roundtrip(proto)
    calls = [
        {"x": floats(n, 2), "count": np.int64(k), "choice": np.bool_(k % 2)}
        for n, k in ((1, 0), (3, 3), (2, 4))
    ]
    checked(proto, program, *calls)


@pytest.mark.parametrize(
    ("op_type", "attributes", "shape"),
    [
        ("Conv", {"pads": [1, 1, 1, 1], "strides": [2, 2]}, ("batch", 3, "h", "w")),
        ("Conv", {"pads": [1, 1, 1, 1], "group": 3}, ("batch", 3, "h", "w")),
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2]}, ("batch", 3, 20, 30)),
        ("AveragePool", {"kernel_shape": [2, 2]}, ("batch", 3, "h", "w")),
        ("Flatten", {"axis": 2}, ("batch", 3, "h", "w")),
        ("CumSum", {}, ("batch", 3, "h")),
        ("Softmax", {"axis": 1}, ("batch", "h", 3)),
        ("TopK", {"axis": 2}, ("batch", "h", 6)),
        ("Trilu", {}, ("batch", "h", "h")),
        ("GlobalAveragePool", {}, ("batch", 3, "h", "w")),
        ("Einsum", {"equation": "bij,bjk->bik"}, ("batch", "h", "h")),
        ("DepthToSpace", {"blocksize": 2}, ("batch", 8, "h", "w")),
    ],
)
@pytest.mark.sampled(4)
def test_families_of_operators_keep_their_sizes_free(
    op_type: str, attributes: Mapping[str, Any], shape: tuple[Any, ...]
) -> None:
    weights, inputs, outputs = [], ["x"], ["y"]
    if op_type == "Conv":
        weights = [weight("w", floats(6, 3 // attributes.get("group", 1), 3, 3))]
        inputs.append("w")
    if op_type in ("CumSum", "TopK"):
        weights = [weight("k", np.asarray(1 if op_type == "CumSum" else [2]))]
        inputs.append("k")
    if op_type == "TopK":
        outputs.append("indices")
    if op_type == "Einsum":
        inputs.append("x")
    ends = [value("y"), value("indices", None, INT64)][: len(outputs)]
    proto = model(
        [node(op_type, inputs, outputs, **attributes)], [value("x", shape)], ends, weights
    )
    program = roundtrip(proto)
    calls = [
        {"x": floats(*(sizes.get(size, size) for size in shape))}
        for sizes in ({"batch": 1, "h": 5, "w": 6}, {"batch": 3, "h": 8, "w": 7})
    ]
    checked(proto, program, *calls, tolerance=1e-4)


# -- what is exported ---------------------------------------------------------------------------


def test_an_input_may_be_fixed_to_a_value() -> None:
    proto = model(
        [node("Reshape", ["x", "shape"], ["y"], name="reshape")],
        [value("x", ["n"]), value("shape", [2], INT64)],
        [value("y", None)],
    )
    with pytest.raises(sardonyx.InvalidInput, match=r"(?s)'reshape'.*value instead of a shape"):
        sardonyx.export(proto, {"x": (12,)})
    fixed = {"x": ("3 * rows",), "shape": np.asarray([-1, 3])}
    program = roundtrip(proto, fixed, platforms=["cpu"])
    assert [info.name for info in program.inputs] == ["x"]
    assert program(np.arange(12, dtype=np.float32)).shape == (4, 3)


@pytest.mark.parametrize("op_type", ["Gather", "Identity"])
@pytest.mark.parametrize(
    "dtype",
    ["float16", "bfloat16", "float64", "int8", "uint8", "int64", "bool", "complex64", "int4"],
)
def test_weights_of_every_type_are_kept(dtype: str, op_type: str) -> None:
    if (dtype, op_type) == ("int4", "Gather"):
        dtype, op_type = "float8_e4m3fn", "Identity"  # Of neither ONNX gathers anything.
    content = np.arange(2048).reshape(1024, 2).astype(np.int8).astype(np.dtype(dtype))
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = ["w", "at"] if op_type == "Gather" else ["w"]
    proto = model(
        [node(op_type, inputs, ["y"]), node("Neg", ["at"], ["z"])],
        [value("at", ["n"], INT64)],
        [value("y", [None, 2], kind), value("z", ["n"], INT64)],
        [onnx.numpy_helper.from_array(content, "w")],
        opset=21,
    )
    found = roundtrip(proto)(np.asarray([3, 1000, 0]))["y"]
    np.testing.assert_array_equal(found, content[[3, 1000, 0]] if op_type == "Gather" else content)
    assert found.dtype == np.dtype(dtype)


def test_outputs_of_every_kind_come_back() -> None:
    """An input, a weight, a constant, a shape, and what is computed."""
    proto = model(
        [
            node("Identity", ["x"], ["same"]),
            node("Identity", ["w"], ["held"]),
            node("Shape", ["x"], ["shape"]),
            node("Neg", ["x"], ["less"]),
        ],
        [value("x", ["n", 2])],
        [
            value("same", ["n", 2]),
            value("held", [3]),
            value("shape", [2], INT64),
            value("less", ["n", 2]),
        ],
        [weight("w", np.arange(3, dtype=np.float32))],
    )
    program = roundtrip(proto)
    checked(proto, program, {"x": floats(4, 2)}, {"x": floats(1, 2)})
    out = program(floats(5, 2))
    assert out.keys() == ("same", "held", "shape", "less")
    assert out["shape"].tolist() == [5, 2]


def test_replaced_weights_take_effect_before_and_after() -> None:
    loaded = sardonyx.load(small())
    loaded.params["w"] = np.ones((4, 8), np.float32)
    program = roundtrip(loaded)
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(program(x), np.full((2, 8), 4))
    program.params["w"] = np.full((4, 8), 2, np.float32)
    np.testing.assert_array_equal(program(x), np.full((2, 8), 8))


def test_random_operators_draw_anew_at_each_call() -> None:
    proto = model(
        [node("RandomUniformLike", ["x"], ["y"])], [value("x", ["n", 2])], [value("y", ["n", 2])]
    )
    program = roundtrip(proto)
    x = floats(50, 2)
    assert not np.array_equal(program(x), program(x))


def test_a_program_is_a_function_for_jax() -> None:
    program = roundtrip(small())
    x = floats(3, 4)
    np.testing.assert_allclose(jax.jit(lambda x: program(x) + 1)(x), program(x) + 1, rtol=1e-6)


def test_large_constants_lie_beside_the_weights() -> None:
    table = np.arange(5000, dtype=np.float32).reshape(2500, 2)
    proto = model(
        [
            node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(table)),
            node("Gather", ["c", "at"], ["y"]),
        ],
        [value("at", ["n"], INT64)],
        [value("y", ["n", 2])],
    )
    artefact = sardonyx.export(proto)
    assert len(artefact.program) < 10_000 < table.nbytes
    program = sardonyx.load(artefact.to_bytes())
    np.testing.assert_array_equal(program(np.asarray([2499])), table[2499:])


# -- platforms ----------------------------------------------------------------------------------


def targets(program: bytes) -> set[str]:
    """What a program calls that is not StableHLO itself."""
    text = jax_export.deserialize(bytearray(program)).mlir_module()
    return set(re.findall(r"custom_call @([\w.]+)", text))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ["encoder_dynamo", "separable_dynamo", "cnn_dynamo"])
def test_programs_are_lowered_for_platforms_that_are_not_here(name: str) -> None:
    """One program with a choice inside it; for a single platform there is none."""
    path = Path(__file__).parent / "models" / f"{name}.onnx"
    every = sardonyx.export(path, platforms=("cpu", "cuda", "rocm", "tpu"))
    exported = jax_export.deserialize(bytearray(every.program))
    assert exported.platforms == ("cpu", "cuda", "rocm", "tpu")
    assert targets(every.program) <= {"shape_assertion", "stablehlo.dynamic_reduce_window"}
    for platform in ("cuda", "tpu"):
        one = sardonyx.export(path, platforms=[platform])
        assert jax_export.deserialize(bytearray(one.program)).platforms == (platform,)
        with pytest.raises(sardonyx.BackendUnavailable, match=f"exported for {platform}, but"):
            sardonyx.load(one.to_bytes())


def test_each_platform_gets_its_own_form() -> None:
    """Depthwise convolutions are sums of shifted products on CPUs, and convolutions elsewhere."""
    proto = model(
        [node("Conv", ["x", "w"], ["y"], group=4)],
        [value("x", [1, 4, 9, 9])],
        [value("y", None)],
        [weight("w", floats(4, 1, 3, 3))],
    )

    def convolutions(platform: str) -> int:
        program = sardonyx.export(proto, platforms=[platform]).program
        text = jax_export.deserialize(bytearray(program)).mlir_module()
        return int(text.count("stablehlo.convolution"))

    assert convolutions("cpu") == 0
    assert convolutions("cuda") == convolutions("tpu") == 1
    assert convolutions("rocm") == 1


# -- requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signature", "options", "complaint"),
    [
        ({"z": (1, 4)}, {}, "has 'z', but the model takes x"),
        ({"x": (1, 4, 2)}, {}, "3 dimensions, but it has 2"),
        ({"x": (1, 5)}, {}, "the size 5 on axis 1, but the model declares 4"),
        ({"x": (1.5, 4)}, {}, "the size 1.5 on axis 0"),
        ({"x": (-1, 4)}, {}, "the size -1 on axis 0"),
        ({"x": ("a b", 4)}, {}, "neither a name nor an expression"),
        ({"x": np.zeros((2, 4))}, {}, "value of float64"),
        ((1, 4), {}, "The signature is a tuple"),
        (None, {"platforms": ("gpu",)}, "no platform 'gpu' .* that is 'cuda'"),
        (None, {"platforms": ()}, "The platforms are"),
        (None, {"platforms": "cpu"}, "The platforms are"),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    signature: Any, options: Mapping[str, Any], complaint: str
) -> None:
    with pytest.raises(sardonyx.InvalidInput, match=complaint):
        sardonyx.export(small(), signature, **options)


def test_what_no_program_can_be_made_of_names_its_node() -> None:
    found = model([node("NonZero", ["x"], ["y"], name="find")], ["x"], [value("y", None, INT64)])
    with pytest.raises(sardonyx.InvalidInput, match="not declare the rank of 'x'"):
        sardonyx.export(found)
    with pytest.raises(sardonyx.InvalidInput, match="'find'"):
        sardonyx.export(found, {"x": (3,)})
    ends = [[value(name, ["n"], STRING)] for name in "xy"]
    with pytest.raises(sardonyx.InvalidInput, match="no tensor of numbers"):
        sardonyx.export(model([node("Identity", ["x"], ["y"])], *ends))


def test_a_graph_that_runs_at_no_size_is_refused_at_its_node() -> None:
    text = '<ir_version: 10, opset_import: ["": 22]> g (float[n] x) => (float[1,m] y) '
    model = parser.parse_model(text + "{ i = NonZero(x) y = Cast<to=1>(i) }")
    with pytest.raises(sardonyx.SardonyxError, match="NonZero"):
        sardonyx.export(model, {"x": ("n",)})
