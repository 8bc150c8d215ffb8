"""Small nodes of quantized operators, and of those in onnxruntime's blocked layout."""

from __future__ import annotations

import numpy as np

from tests.ops.microsoft.small_node import (
    BLOCKS16,
    CONV,
    F8,
    QUANTIZED,
    S,
    Small,
    Z,
    blocked,
    floats,
    halves,
    ints,
    octets,
    small,
)

QUANTIZED_NODES: tuple[Small, ...] = (
    # Quantization.
    small("QuantizeLinear", floats(2, 3), S, Z),
    small("DequantizeLinear", *QUANTIZED),
    small("QLinearAdd", *QUANTIZED, *QUANTIZED, S, Z),
    small("QLinearMul", *QUANTIZED, *QUANTIZED, S, Z),
    small("QLinearSigmoid", *QUANTIZED, S, Z),
    small("QLinearLeakyRelu", *QUANTIZED, S, Z),
    small("QLinearSoftmax", *QUANTIZED, S, Z, opset=13),
    small("QLinearConcat", S, Z, *QUANTIZED, *QUANTIZED, axis=0),
    small("QLinearWhere", np.array([True, False, True]), *QUANTIZED, *QUANTIZED, S, Z),
    small("QLinearReduceMean", *QUANTIZED, S, Z, axes=[1], keepdims=1),
    small("QLinearAveragePool", octets(1, 2, 5, 5), S, Z, S, Z, kernel_shape=[2, 2]),
    small("QLinearGlobalAveragePool", octets(1, 2, 5, 5), S, Z, S, Z),
    small("QLinearConv", octets(1, 2, 5, 5), S, Z, octets(3, 2, 3, 3), S, Z, S, Z, ints(3)),
    small("ReduceSumInteger", octets(2, 3), axes=[1], keepdims=1),
    small("GatherBlockQuantized", octets(5, 16), ints(3), floats(5, 2), block_size=16),
    small(
        "DynamicQuantizeLSTM",
        *(floats(3, 2, 4), octets(1, 4, 8), octets(1, 2, 8), floats(1, 16), None, None, None, None),
        *(floats(1, low=0.01, high=0.02), octets(1), floats(1, low=0.01, high=0.02), octets(1)),
        hidden_size=2,
        outputs=3,
    ),
    small("QuantizeWithOrder", floats(1, 3, 32), S, order_input=1, order_output=1),
    small(
        "DequantizeWithOrder",
        *(ints(1, 3, 32, dtype=np.int8), S),
        order_input=1,
        order_output=1,
        to=1,
    ),
    small("QOrderedGelu", ints(1, 3, 32, dtype=np.int8), S, S, order_X=1, order_Y=1),
    small(
        "QOrderedLayerNormalization",
        *(ints(1, 3, 32, dtype=np.int8), S, floats(32), floats(32, seed=1), S),
        order_X=1,
        order_Y=1,
    ),
    small(
        "QOrderedMatMul",
        *(ints(1, 3, 32, dtype=np.int8), S, ints(32, 32, dtype=np.int8), S, S),
        order_A=1,
        order_B=0,
        order_Y=1,
    ),
    small(
        "MatMulBlockQuantizedFp4Weight",
        *(halves(2, 32), octets(3, 16), octets(3, 2), S),
        weights=[1, 2],
    ),
    small(
        "MatMulBlockQuantizedFp8Weight",
        *(halves(2, 32), floats(3, 32).astype(F8), floats(3, 1)),
        weights=[1],
    ),
)

IN_BLOCKS: tuple[Small, ...] = (
    # In blocks.
    blocked("ReorderInput", floats(*BLOCKS16)),
    blocked("ReorderOutput", floats(*BLOCKS16), channels=9),
    blocked("Conv", floats(*BLOCKS16), floats(16, 16, 3, 3), floats(16), activation="Relu", **CONV),
    blocked("MaxPool", floats(*BLOCKS16), kernel_shape=[2, 2]),
    blocked("AveragePool", floats(*BLOCKS16), kernel_shape=[2, 2]),
    blocked("GlobalMaxPool", floats(*BLOCKS16)),
    blocked("GlobalAveragePool", floats(*BLOCKS16)),
    blocked("Upsample", floats(*BLOCKS16), scales=[1, 1, 2, 2]),
)
