"""Types that a device lacks: arrays of them stay on the host, and so do the steps that read them.

XLA for TPUs ends the process on arguments of two bits. A backend that says so of the CPU shows the
way through the library.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx.backends.jax.backend import TWO_BITS, JaxBackend

INT2 = np.dtype(ml_dtypes.int2)


class Lacking(JaxBackend):
    """JAX on a device that has no integers of two bits."""

    missing_types = TWO_BITS

    def compile(self, replay: Any, arguments: Any, **options: Any) -> Any:
        assert not [a for a in arguments if a.dtype in TWO_BITS]
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
