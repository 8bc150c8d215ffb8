"""200 calls with 100 different batch sizes: compiles, and the time of all from the load on.

Run it: `python -m benchmarks.shapes`. Each run is a process of its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser
from rich.table import Table

from benchmarks.processes import measured_apart
from benchmarks.results import console

SIZES = 100
CHOICES = {
    "by default": "auto",
    "with buckets": {"batch": [1, 8, 32, 128]},
    "without buckets": None,
}
# Of the largest magnitude, in float32.
TOLERANCE = 1e-5

MLP = """<ir_version: 10, opset_import: ["": 20]>
mlp (float[batch, 64] x) => (float[batch, 10] y)
<float[64, 256] w0, float[256] b0, float[256, 256] w1, float[256] b1, float[256, 10] w2> {
    a = Gemm (x, w0, b0)
    b = Relu (a)
    c = Gemm (b, w1, b1)
    d = Relu (c)
    e = MatMul (d, w2)
    y = Softmax <axis = -1> (e)
}"""

CONVOLUTIONS = """<ir_version: 10, opset_import: ["": 20]>
convolutions (float[batch, 1, 28, 28] x) => (float[batch, 10] y)
<float[16, 1, 3, 3] w0, float[16] b0, float[32, 16, 3, 3] w1, float[32] b1, float[32, 10] w2> {
    a = Conv <pads = [1, 1, 1, 1]> (x, w0, b0)
    b = Relu (a)
    c = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (b)
    d = Conv <pads = [1, 1, 1, 1]> (c, w1, b1)
    e = Relu (d)
    f = GlobalAveragePool (e)
    g = Flatten (f)
    y = MatMul (g, w2)
}"""

MODELS = {"small MLP": MLP, "small convolutional net": CONVOLUTIONS}


def model(text: str) -> onnx.ModelProto:
    """The model, whose text lists its weights, with random numbers for them."""
    proto = parser.parse_model(text)
    rng = np.random.default_rng(0)
    for info in proto.graph.value_info:
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        values = rng.standard_normal(shape, np.float32) / 4
        proto.graph.initializer.append(numpy_helper.from_array(values, info.name))
    del proto.graph.value_info[:]
    return proto


def calls(proto: onnx.ModelProto) -> list[Any]:
    """Each size twice, in random order."""
    rng = np.random.default_rng(1)
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim[1:]]
    sizes = rng.permutation(np.repeat(np.arange(1, SIZES + 1), 2))
    return [rng.standard_normal((size, *shape)).astype(np.float32) for size in sizes]


def run(title: str, kind: str) -> dict[str, Any]:
    """One runtime's 200 calls, compared with onnxruntime's when the clock has stopped."""
    import onnxruntime  # noqa: PLC0415

    import sardonyx  # noqa: PLC0415

    proto = model(MODELS[title])
    inputs = calls(proto)
    data = proto.SerializeToString()

    def session() -> Callable[[Any], Any]:
        opened = onnxruntime.InferenceSession(data)
        return lambda x: opened.run(None, {"x": x})[0]

    expected = list(map(session(), inputs))
    start = time.perf_counter()
    if kind == "onnxruntime":
        results = list(map(session(), inputs))
        return {"seconds": time.perf_counter() - start, "error": _error(results, expected)}
    loaded = sardonyx.load(data, backend="jax", buckets=CHOICES[kind])
    results = [loaded(x) for x in inputs]
    seconds = time.perf_counter() - start
    told = loaded.stats()
    return {
        "seconds": seconds,
        "error": _error(results, expected),
        "compiles": told.compiles,
        "compile_seconds": told.compile_seconds,
    }


def _error(results: list[Any], expected: list[Any]) -> float:
    assert all(a.shape == b.shape for a, b in zip(results, expected, strict=True))
    pairs = zip(results, expected, strict=True)
    error = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
    assert error <= TOLERANCE, f"off by {error:.1e} of the largest"
    return error


def main() -> None:
    table = Table(title=f"{2 * SIZES} calls with {SIZES} batch sizes, from the load on")
    for column in ("", "runtime", "compiles", "compiling, s", "all, s", "ratio", "largest error"):
        table.add_column(column, justify="left" if column in ("", "runtime") else "right")
    for title in MODELS:
        base = 0.0
        for kind in ("onnxruntime", *CHOICES):
            found = measured_apart("benchmarks.shapes", title, kind)
            base = base or found["seconds"]
            table.add_row(
                title,
                kind if kind == "onnxruntime" else f"sardonyx {kind}",
                str(found.get("compiles", "")),
                f"{found['compile_seconds']:.2f}" if "compiles" in found else "",
                f"{found['seconds']:.3f}",
                f"{found['seconds'] / base:.1f}",
                f"{found['error']:.0e}",
            )
        table.add_section()
    console().print(table)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(run(sys.argv[1], sys.argv[2])))
    else:
        main()
