from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.ops import OPS
from tests.ops.microsoft.quantized import (
    BYTES,
    DOMAIN,
    assert_as_onnxruntime,
    floats,
    integers,
    scales,
)
from tests.ops.oracle import run
from tests.support.byte_products import byte_factors

ROWS: list[tuple[Any, ...]] = [
    ((5, 30), (30, 7), ()),
    ((5, 30), (30, 7), (7,)),
    ((2, 3, 5, 8), (3, 8, 7), ()),
    ((2, 5, 8), (8, 7), (7,)),
    ((0, 8), (8, 7), ()),
]


@pytest.mark.parametrize("other", BYTES, ids=str)
@pytest.mark.parametrize("case", ROWS, ids=str)
@pytest.mark.parametrize("has_others", [True, False])
def test_products_to_floats(
    xp: Backend, case: tuple[Any, ...], has_others: bool, other: Any
) -> None:
    a, b, per_column = case
    bias = floats(b[-1]) if has_others else None
    zero = integers(other, *per_column) if has_others else None
    weights = byte_factors(integers(other, *b)), scales(*per_column)
    assert_as_onnxruntime(xp, "DynamicQuantizeMatMul", floats(*a), *weights, zero, bias)
    x_zero = integers(np.uint8) if has_others else None
    x, factor = integers(np.uint8, *a), (scales(seed=4), weights[1])
    inputs = (x, weights[0], *factor, x_zero, zero, bias)
    assert_as_onnxruntime(xp, "MatMulIntegerToFloat", *inputs)


def test_products_of_16_bits(xp: Backend) -> None:
    a, b = integers(np.int16, 2, 4, 300), integers(np.int16, 300, 5)
    assert_as_onnxruntime(xp, "MatMulInteger16", a, b)
    a, b = (x.view(np.uint16) for x in (a, b))
    expected = (a.astype(np.uint64) @ b.astype(np.uint64)).astype(np.uint32)
    result = run(xp, OPS[DOMAIN, "MatMulInteger16"], a, b)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == np.uint32


@pytest.mark.parametrize("dtypes", [(0, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("per_column", [(), (7,)])
@pytest.mark.parametrize(
    ("c", "is_quantized", "attributes"),
    [
        (None, True, {}),
        ((7,), True, {"transB": 1, "alpha": 0.3}),
        ((5, 1), False, {"transA": 1}),
        ((5, 7), True, {"transA": 1, "transB": 1}),
        ((), False, {"alpha": 2.5}),
    ],
)
def test_gemm(
    xp: Backend, c: Any, is_quantized: bool, attributes: Any, per_column: Any, dtypes: Any
) -> None:
    one, other = (BYTES[i] for i in dtypes)
    a = integers(one, *((30, 5) if attributes.get("transA") else (5, 30)))
    b = byte_factors(integers(other, *((7, 30) if attributes.get("transB") else (30, 7))))
    inputs = [a, scales(), integers(one), b, scales(*per_column), integers(other, *per_column)]
    inputs.append(None if c is None else integers(np.int16, *c).astype(np.int32))
    if is_quantized:
        inputs += [np.array(3.1, np.float32), integers(one)]
    assert_as_onnxruntime(xp, "QGemm", *inputs, **attributes)


CONVOLUTIONS: dict[str, tuple[Any, ...]] = {
    "plain": ((2, 6, 7, 6), (4, 6, 3, 2), {}),
    "padded": ((2, 3, 7, 6), (4, 3, 3, 2), {"pads": (0, 1, 2, 3), "strides": (2, 1)}),
    "groups": ((2, 6, 7, 7), (4, 3, 3, 3), {"group": 2, "pads": (1,) * 4}),
    "depthwise": ((2, 8, 7, 7), (8, 1, 3, 3), {"group": 8, "strides": (2, 2), "pads": (1,) * 4}),
    "same": ((1, 2, 8, 7), (3, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": (2, 3)}),
    "1-D": ((2, 3, 11), (4, 3, 3), {"strides": (2,), "pads": (1, 2)}),
}


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_convolutions(xp: Backend, case: tuple[Any, ...], channels_last: int) -> None:
    shape, filters, attributes = case
    x = integers(np.uint8, *shape)
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if channels_last else x
    count = filters[0]
    inputs = (
        *(x, scales(), integers(np.uint8)),
        *(byte_factors(integers(np.int8, *filters)), scales(count), np.zeros(count, np.int8)),
        *(np.array(2.5, np.float32), np.array(128, np.uint8)),
        np.arange(count, dtype=np.int32) * 1000,
    )
    assert_as_onnxruntime(xp, "QLinearConv", *inputs, channels_last=channels_last, **attributes)


BYTE, ONE = np.zeros((), np.uint8), np.ones((), np.float32)
MATRIX = np.zeros((2, 3), np.uint8)


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("QGemm", (MATRIX, ONE, BYTE, MATRIX, ONE, BYTE), "cannot be multiplied"),
        ("QGemm", (floats(2, 3), ONE, BYTE, MATRIX.T, ONE, BYTE), "must hold integers"),
        ("QGemm", (MATRIX[0], ONE, BYTE, MATRIX, ONE, BYTE), "both must be matrices"),
        ("QGemm", (MATRIX, ONE, BYTE, MATRIX.T, ONE, BYTE, np.zeros((3, 2), np.int32)), "C of"),
        ("DynamicQuantizeMatMul", (floats(2, 3), MATRIX.T, ONE, None, floats(5)), "bias of"),
        ("MatMulIntegerToFloat", (MATRIX, MATRIX.T, ONE, floats(3)), "does not broadcast"),
        ("MatMulInteger16", (MATRIX.astype(np.int16),) * 2, "cannot be multiplied"),
    ],
)
def test_refusals(xp: Backend, name: str, inputs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, OPS[DOMAIN, name], *inputs)
