"""What XLA for TPUs and GPUs refused, or took long to compile, compiles or is on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from sardonyx.backends.jax.compiling import WITHOUT_TRITON
from sardonyx.targets.jobs import PURE, ModelJob
from sardonyx.targets.names import named
from sardonyx.targets.records import REFUSED, Compilation, Record
from sardonyx.targets.worker import Worker
from tests.aot.quantized_encoder import encoder

pytestmark = pytest.mark.aot

TARGETS = ("v5e", "h100")

# Seconds within which one operator compiles, on a machine that is not busy.
AT_MOST = 15


def one_node(
    operator: str, inputs: Any, result: str, *, domain: str = "", **attributes: Any
) -> bytes:
    """The bytes of a model with one node; inputs are pairs of a type and a shape."""
    types: Any = onnx.TensorProto
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(operator, names, ["y"], domain=domain, **attributes)
    infos = [
        helper.make_tensor_value_info(name, getattr(types, kind), shape)
        for name, (kind, shape) in zip(names, inputs, strict=True)
    ]
    output = helper.make_tensor_value_info("y", getattr(types, result), None)
    graph = helper.make_graph([node], "graph", infos, [output])
    opsets = [helper.make_opsetid("", 26), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=13)
    return bytes(model.SerializeToString())


def program_of(record: Record) -> Compilation:
    assert record.is_compiled, record.reason
    (program,) = record.programs
    return program


def of_integers(kind: str) -> dict[str, bytes]:
    vector, matrix = (kind, (1000,)), (kind, (64, 80))
    return {
        "Div": one_node("Div", [vector, vector], kind),
        "Mod": one_node("Mod", [vector, vector], kind),
        "fmod": one_node("Mod", [vector, vector], kind, fmod=1),
        "MatMul": one_node("MatMul", [matrix, (kind, (80, 30))], kind),
        "MatMul of large": one_node("MatMul", [(kind, (4, 64, 64)), (kind, (64, 64))], kind),
        "Gemm": one_node("Gemm", [matrix, (kind, (30, 80)), (kind, (30,))], kind, transB=1),
        "ReduceMean": one_node("ReduceMean", [matrix], kind),
    }


CASES = {
    **{f"{name} of INT64": case for name, case in of_integers("INT64").items()},
    **{f"{name} of UINT64": case for name, case in of_integers("UINT64").items()},
    "Einsum of INT64": one_node(
        "Einsum", [("INT64", (3, 4, 5)), ("INT64", (5, 4, 6))], "INT64", equation="abc,cbd->ad"
    ),
    **{
        f"DFT of {kind}": one_node("DFT", [(kind, (2, 60, 1))], kind)
        for kind in ("FLOAT", "DOUBLE", "FLOAT16")
    },
    "DFT of one side": one_node("DFT", [("FLOAT", (2, 60, 1))], "FLOAT", onesided=1),
    "a signal of one side": one_node(
        "DFT", [("FLOAT", (2, 31, 2))], "FLOAT", onesided=1, inverse=1
    ),
    "Rfft": one_node(
        "Rfft", [("FLOAT", (2, 6, 8))], "FLOAT", domain="com.microsoft", signal_ndim=2
    ),
    "Irfft": one_node(
        "Irfft", [("FLOAT", (2, 5, 2))], "FLOAT", domain="com.microsoft", signal_ndim=1
    ),
    "DFT of a prime length": one_node("DFT", [("FLOAT", (2, 211, 2))], "FLOAT", inverse=1),
    "Det of DOUBLE": one_node("Det", [("DOUBLE", (2, 6, 6))], "DOUBLE"),
    "ConvInteger": one_node(
        "ConvInteger", [("UINT8", (1, 8, 9, 9)), ("INT8", (8, 8, 3, 3))], "INT32"
    ),
    "BitCast": one_node("BitCast", [("DOUBLE", (8, 128))], "INT64", to=onnx.TensorProto.INT64),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_operators_of_64_bits_compile_soon(target_worker: Worker, name: str, target: str) -> None:
    program = program_of(target_worker.run(ModelJob(CASES[name], named(target)), limit=200))
    assert program.seconds < AT_MOST
    assert program.facts is not None
    assert not program.facts.host_calls


def test_stft_compiles(target_worker: Worker) -> None:
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("STFT", ["x", "step", "", "length"], ["y"])],
            "graph",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 400, 1))],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
            [
                helper.make_tensor("step", onnx.TensorProto.INT64, (), [16]),
                helper.make_tensor("length", onnx.TensorProto.INT64, (), [48]),
            ],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    for target in TARGETS:
        program_of(target_worker.run(ModelJob(model.SerializeToString(), named(target))))


def test_bytes_are_convolved_by_instructions_on_tpus(target_worker: Worker) -> None:
    images, filters = ("UINT8", (8, 64, 28, 28)), ("INT8", (64, 64, 3, 3))
    model = one_node("ConvInteger", [images, filters], "INT32", pads=[1, 1, 1, 1])
    facts = program_of(target_worker.run(ModelJob(model, named("v5e")))).facts
    assert facts is not None
    columns = 8 * 64 * 9 * 28 * 28
    assert facts.temporaries < columns / 2


LACKING = {
    "INT2": one_node("Cast", [("INT2", (7, 5))], "FLOAT", to=onnx.TensorProto.FLOAT),
    "UINT2": one_node("Cast", [("UINT2", (7, 5))], "FLOAT", to=onnx.TensorProto.FLOAT),
    "COMPLEX128": one_node("Transpose", [("COMPLEX128", (7, 5))], "COMPLEX128"),
}


@pytest.mark.parametrize("kind", LACKING)
def test_types_that_tpus_lack_stay_on_the_host(target_worker: Worker, kind: str) -> None:
    model = LACKING[kind]
    record = target_worker.run(ModelJob(model, named("v5e")))
    assert record.is_compiled, record.reason
    assert not record.programs
    assert program_of(target_worker.run(ModelJob(model, named("h100")))).facts is not None


@pytest.mark.parametrize("kind", LACKING)
def test_pure_functions_of_such_types_are_refused(target_worker: Worker, kind: str) -> None:
    record = target_worker.run(ModelJob(LACKING[kind], named("v5e"), PURE, wide=True))
    assert record.outcome == REFUSED, record.reason
    assert f"arrays of {kind.lower()}" in record.reason
    assert target_worker.run(ModelJob(LACKING[kind], named("h100"), PURE, wide=True)).is_compiled


@pytest.mark.parametrize("name", ["DFT of FLOAT", "DFT of DOUBLE", "a signal of one side", "Rfft"])
def test_pure_transforms_compile(target_worker: Worker, name: str) -> None:
    for target in TARGETS:
        program_of(target_worker.run(ModelJob(CASES[name], named(target), PURE, wide=True)))


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E5M2FNUZ"])
def test_integers_times_short_floats_compile(target_worker: Worker, kind: str) -> None:
    one = ("FLOAT", (1,))
    left, right = [("UINT8", (2, 4)), one, ("UINT8", (1,))], [(kind, (4, 3)), one, (kind, (1,))]
    model = one_node("QLinearMatMul", [*left, *right, one, ("UINT8", (1,))], "UINT8")
    program_of(target_worker.run(ModelJob(model, named("v5e"))))


@pytest.mark.parametrize(
    ("shape", "heads", "activations", "weights"),
    [
        ((2, 7, 48), 1, np.int8, np.uint8),
        ((8, 5, 32), 1, np.uint8, np.uint8),
        ((1, 32, 64), 4, np.int8, np.int8),
    ],
)
def test_quantized_encoders_compile(
    target_worker: Worker, shape: Any, heads: int, activations: Any, weights: Any
) -> None:
    model = encoder(shape, heads=heads, hidden=96, activations=activations, weights=weights)
    for target in TARGETS:
        program_of(target_worker.run(ModelJob(model, named(target)), limit=300))


def test_products_that_triton_cannot_tile_say_so(target_worker: Worker) -> None:
    model = encoder((2, 7, 48), heads=1, hidden=16, activations=np.int8, weights=np.uint8)
    program = program_of(target_worker.run(ModelJob(model, named("h100")), limit=300))
    assert program.reason == WITHOUT_TRITON
