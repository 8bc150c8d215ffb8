"""Types that a device lacks: arrays of them stay on the host, and so do the steps that read them.

XLA for TPUs ends the process on arguments of two bits, and on complex128 in older versions. A
backend that says so of the CPU shows the way through the library.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.inside import InsideBackend
from sardonyx.backends.jax.xla_tpu.refusals import TPUS_LACK

INT2 = np.dtype(ml_dtypes.int2)


class Lacking(JaxBackend):
    """JAX on a device that lacks what TPUs lack."""

    missing_types = TPUS_LACK

    def compile(self, replay: Any, arguments: Any, **options: Any) -> Any:
        assert not [a for a in arguments if a.dtype in TPUS_LACK]
        return super().compile(replay, arguments, **options)


def model(*nodes: onnx.NodeProto, inputs: Any, outputs: Any, weights: Any = ()) -> Any:
    types = onnx.TensorProto
    infos = [
        [
            helper.make_tensor_value_info(name, getattr(types, kind), shape)
            for name, kind, shape in x
        ]
        for x in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "graph", *infos, weights)
    opsets = [helper.make_opsetid("", 25)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=13)


def loaded(proto: Any) -> Any:
    return sardonyx.load(proto, backend=Lacking(), compile="now")


REASON = "steps on the host: the device has no int2"


def test_steps_of_a_type_that_the_device_lacks_run_on_the_host() -> None:
    proto = model(
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Cast", ["r"], ["n"], to=onnx.TensorProto.INT2),
        helper.make_node("Cast", ["n"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Exp", ["f"], ["y"]),
        inputs=[("x", "FLOAT", [4])],
        outputs=[("y", "FLOAT", [4]), ("n", "INT2", [4])],
    )
    x = np.array([-1.0, 0.0, 1.0, 1.9], np.float32)
    running = loaded(proto)
    for _ in range(2):
        y, n = running(x)
        assert n.dtype == INT2
        np.testing.assert_array_equal(n.astype(int), [0, 0, 1, 1])
        np.testing.assert_allclose(y, np.exp([0, 0, 1, 1]), rtol=1e-6)
    assert running.stats().workarounds == {REASON: 2}


@pytest.mark.parametrize("takes_jax", [False, True])
def test_inputs_and_results_of_such_a_type_are_arrays_of_numpy(takes_jax: bool) -> None:
    proto = model(
        helper.make_node("Transpose", ["x"], ["y"]),
        inputs=[("x", "INT2", [2, 3])],
        outputs=[("y", "INT2", [3, 2])],
    )
    x: Any = np.array([[0, 1, -1], [-2, 0, 1]]).astype(INT2)
    import jax.numpy as jnp  # noqa: PLC0415

    y = loaded(proto)(jnp.asarray(x) if takes_jax else x)
    np.testing.assert_array_equal(np.asarray(y).astype(int), x.astype(int).T)


def test_weights_of_such_a_type_are_never_on_the_device() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.integers(-2, 2, (64, 64))
    packed = helper.make_tensor(
        "w", onnx.TensorProto.INT2, (64, 64), numbers.astype(int).ravel().tolist()
    )
    scale = onnx.numpy_helper.from_array(np.float32(0.5), "s")
    proto = model(
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
        inputs=[("x", "FLOAT", ["n", 64])],
        outputs=[("y", "FLOAT", ["n", 64])],
        weights=[packed, scale],
    )
    running = loaded(proto)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    for _ in range(2):
        np.testing.assert_allclose(running(x), x @ (numbers * 0.5), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn])
def test_floats_of_six_bits_run_on_jax(dtype: Any) -> None:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    kind = onnx.TensorProto.DataType.Name(number)
    proto = model(
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "scale"], ["q"], output_dtype=number),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["y"]),
        inputs=[("x", "FLOAT", [4]), ("scale", "FLOAT", [])],
        outputs=[("q", kind, [4]), ("y", "FLOAT", [4])],
    )
    proto.opset_import[0].version, proto.ir_version = 28, 14
    x, scale = np.array([-1, 0, 1, 2], np.float32), np.float32(0.5)
    on_jax = sardonyx.load(proto, backend="jax", compile="now")
    on_numpy = sardonyx.load(proto, backend="numpy")
    for _ in range(2):
        for found, expected in zip(
            on_jax.run(None, {"x": x, "scale": scale}),
            on_numpy.run(None, {"x": x, "scale": scale}),
            strict=True,
        ):
            assert found.dtype == expected.dtype
            assert found.tobytes() == expected.tobytes()


# -- subgraphs ------------------------------------------------------------------------------------


def info(name: str, kind: str, shape: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, getattr(onnx.TensorProto, kind), shape)


def body(nodes: Any, inputs: Any, outputs: Any) -> onnx.GraphProto:
    infos = [[info(*each) for each in x] for x in (inputs, outputs)]
    return helper.make_graph([helper.make_node(*node) for node in nodes], "body", *infos)


KIND = pytest.mark.parametrize(
    ("kind", "dtype"), [("INT2", INT2), ("COMPLEX128", np.dtype(np.complex128))], ids=str
)


@KIND
def test_branches_that_return_such_a_type_run_on_the_host(kind: str, dtype: Any) -> None:
    branches = {
        "then_branch": body([("Identity", ["x"], ["t"])], [], [("t", kind, [3])]),
        "else_branch": body([("Identity", ["z"], ["e"])], [], [("e", kind, [3])]),
    }
    proto = model(
        helper.make_node("If", ["c"], ["y"], **branches),
        inputs=[("c", "BOOL", []), ("x", kind, [3]), ("z", kind, [3])],
        outputs=[("y", kind, [3])],
    )
    running = loaded(proto)
    x, z = np.array([0, 1, -1]).astype(dtype), np.array([1, -2, 0]).astype(dtype)
    for _ in range(2):
        np.testing.assert_array_equal(running(np.array(True), x, z), x)
        np.testing.assert_array_equal(running(np.array(False), x, z), z)


@KIND
def test_loops_that_carry_such_a_type_run_on_the_host(kind: str, dtype: Any) -> None:
    nodes = [("Identity", [a], [b]) for a, b in (("b", "a2"), ("a", "b2"), ("go", "go2"))]
    nodes.append(("Add", ["n", "one"], ["n2"]))
    carried = [("a", kind, [3]), ("b", kind, [3]), ("n", "FLOAT", [])]
    results = [("go2", "BOOL", []), *((f"{name}2", *rest) for name, *rest in carried)]
    loop = body(nodes, [("i", "INT64", []), ("go", "BOOL", []), *carried], results)
    proto = model(
        helper.make_node("Loop", ["trips", "", "x", "z", "start"], ["y", "w", "total"], body=loop),
        inputs=[("trips", "INT64", []), ("x", kind, [3]), ("z", kind, [3]), ("start", "FLOAT", [])],
        outputs=[("y", kind, [3]), ("w", kind, [3]), ("total", "FLOAT", [])],
        weights=[helper.make_tensor("one", onnx.TensorProto.FLOAT, [], [1.0])],
    )
    running = loaded(proto)
    x, z = np.array([0, 1, -1]).astype(dtype), np.array([1, -2, 0]).astype(dtype)
    for trips in (3, 2):
        y, w, total = running(np.array(trips), x, z, np.float32(0))
        np.testing.assert_array_equal(y, z if trips % 2 else x)
        np.testing.assert_array_equal(w, x if trips % 2 else z)
        assert total == trips


# -- complex128 -----------------------------------------------------------------------------------


def test_steps_of_complex128_run_on_the_host() -> None:
    proto = model(
        helper.make_node("Transpose", ["x"], ["y"]),
        helper.make_node("Exp", ["a"], ["b"]),
        inputs=[("x", "COMPLEX128", [2, 3]), ("a", "FLOAT", [4])],
        outputs=[("y", "COMPLEX128", [3, 2]), ("b", "FLOAT", [4])],
    )
    x, a = np.arange(6).reshape(2, 3) * (1 + 1j / 3), np.ones(4, np.float32)
    running = loaded(proto)
    for _ in range(2):
        y, b = running(x, a)
        assert y.dtype == np.complex128
        np.testing.assert_array_equal(y, x.T)
        np.testing.assert_allclose(b, np.exp(a), rtol=1e-6)
    assert running.stats().workarounds == {"steps on the host: the device has no complex128": 1}


def test_transforms_have_no_arrays_of_complex128() -> None:
    proto = model(
        helper.make_node("DFT", ["x"], ["y"]),
        inputs=[("x", "FLOAT", [2, 6, 1])],
        outputs=[("y", "FLOAT", [2, 6, 2])],
    )
    running = loaded(proto)
    running(np.ones((2, 6, 1), np.float32))
    assert running.stats().workarounds == {}


# -- pure functions of JAX ------------------------------------------------------------------------

CAST = [
    helper.make_node("Cast", ["x"], ["n"], to=onnx.TensorProto.INT2),
    helper.make_node("Cast", ["n"], ["f"], to=onnx.TensorProto.FLOAT),
    helper.make_node("Mul", ["f", "x"], ["y"]),
]
FLOATS = {"inputs": [("x", "FLOAT", [4])], "outputs": [("y", "FLOAT", [4])]}


def of_kind(kind: str) -> Any:
    return model(
        helper.make_node("Transpose", ["x"], ["y"]),
        inputs=[("x", kind, [1, 3])],
        outputs=[("y", kind, [3, 1])],
    )


@pytest.mark.parametrize(
    ("proto", "x"),
    [
        (model(*CAST, **FLOATS), np.array([0, 1, -1, 1.5], np.float32)),
        (of_kind("INT2"), np.array([[0, 1, -1]]).astype(INT2)),
        (of_kind("COMPLEX128"), np.array([[0, 1, 2 + 1j]])),
    ],
    ids=["cast", "argument", "complex128"],
)
def test_pure_functions_of_such_a_type_are_not_lowered_for_tpus(proto: Any, x: Any) -> None:
    import jax  # noqa: PLC0415

    function, params = sardonyx.to_jax(proto)
    with jax.enable_x64(x.dtype.itemsize == 16):
        traced = jax.jit(function).trace(params, x)
        with pytest.raises(sardonyx.UnsupportedModel, match=r"arrays of (int2|complex128)"):
            traced.lower(lowering_platforms=("tpu",))
        assert traced.lower(lowering_platforms=("cuda",)) is not None
        right = sardonyx.load(proto, backend="numpy")(x)
        batch = jax.vmap(function, in_axes=(None, 0))(params, np.stack([x, x]))
        for found in (function(params, x), jax.jit(function)(params, x), *batch):
            np.testing.assert_array_equal(found, right)


def test_derivatives_pass_such_a_type() -> None:
    import jax  # noqa: PLC0415

    function, params = sardonyx.to_jax(model(*CAST, **FLOATS))
    x = np.array([0, 1, -1, 1.5], np.float32)
    slopes = jax.jit(jax.grad(lambda x: function(params, x).sum()))(x)
    np.testing.assert_array_equal(slopes, [0, 1, -1, 1])
    function, params = sardonyx.to_jax(of_kind("COMPLEX128"))
    with jax.enable_x64(True):
        slopes = jax.grad(lambda x: (function(params, x).real ** 2).sum())(np.ones((1, 3), complex))
    np.testing.assert_array_equal(slopes, [[2, 2, 2]])


def test_a_traced_step_on_the_host_names_the_type_that_is_lacking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import jax  # noqa: PLC0415

    monkeypatch.setattr(InsideBackend, "missing_types", TPUS_LACK)
    function, params = sardonyx.to_jax(model(*CAST, **FLOATS))
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(function(params, x), x)
    with pytest.raises(sardonyx.InvalidInput, match="host, because the device has no int2, but"):
        jax.jit(function)(params, x)
