"""An op on a backend, and the same node in onnxruntime."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import onnxruntime
from onnx import ValueInfoProto, helper

from sardonyx.backends.base import Backend
from sardonyx.ops.definition import Op


def run(xp: Backend, op: Op, *inputs: Any, opset: int = 99, **attributes: Any) -> Any:
    """What `op` makes of NumPy inputs, traced and compiled where the backend compiles.

    None stands for an optional input that is absent.
    """
    definition = op.at(opset)
    options = {name: v for name, v in attributes.items() if name not in definition.ignored}
    with xp.scope(), np.errstate(all="ignore"):
        arrays = [xp.put(value) for value in inputs if value is not None]

        def replay(*arguments: Any) -> list[Any]:
            given = iter(arguments)
            each = (None if value is None else next(given) for value in inputs)
            result = definition.function(xp, *each, **options)
            return list(result) if isinstance(result, tuple) else [result]

        results = [xp.fetch(result) for result in xp.compile(replay, arrays).run(*arrays)]
    return results[0] if len(results) == 1 else tuple(results)


def onnxruntime_run(
    op: str,
    *inputs: np.ndarray | None,
    opset: int,
    domain: str = "",
    outputs: int = 1,
    absent: Collection[int] = (),
    **attributes: Any,
) -> Any:
    """The only output, or all of them where several are asked for, but those that are absent."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    feeds = {name: value for name, value in zip(names, inputs, strict=True) if value is not None}
    typed = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in feeds.items()
    ]
    made = ["" if i in absent else f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made, domain=domain, **attributes)
    results = [ValueInfoProto(name=name) for name in made if name]
    graph = helper.make_graph([node], op, typed, results)
    version = helper.make_opsetid(domain, opset)
    model = helper.make_model(graph, opset_imports=[version], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    arrays = session.run(None, feeds)
    return arrays[0] if outputs == 1 else tuple(arrays)


def assert_same(actual: np.ndarray, expected: np.ndarray, ulps: float = 4) -> None:
    """Equal dtype and shape, and values equal to within some units in the last place."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if expected.dtype.kind not in "fV":
        np.testing.assert_array_equal(actual, expected)
        return
    eps = float(np.finfo(expected.dtype).eps) if expected.dtype.kind == "f" else 2.0**-7
    wide = expected.astype(np.float64)
    np.testing.assert_allclose(actual.astype(np.float64), wide, rtol=ulps * eps, atol=ulps * eps)
