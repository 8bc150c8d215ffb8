"""Weights of few bits for tests: packed as the documentation says, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import ValueInfoProto, helper, numpy_helper

from tests.support import onnx_builders as builders


def packed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """The numbers of the last axis as bytes: the lowest bits of the first one come first."""
    each = np.unpackbits(numbers.astype(np.uint8)[..., None], axis=-1, bitorder="little")
    stream = each[..., :bits].reshape(*numbers.shape[:-1], -1)
    return np.packbits(stream, axis=-1, bitorder="little")


def numbers(bits: int, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, bits, *shape]).integers(0, 1 << bits, shape, np.uint8)


def normal(*shape: int, dtype: object = np.float32, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return np.asarray(drawn).astype(dtype)


def scales(*shape: int, dtype: object = np.float32, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng([seed, *shape]).uniform(0.01, 0.1, shape)
    return np.asarray(drawn).astype(dtype)


def onnxruntime_with_weights(
    op: str, inputs: Sequence[np.ndarray | None], weights: Sequence[int], **attributes: Any
) -> np.ndarray:
    """The result of a node; inputs at these places are initializers, and may have few bits."""
    named = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    fixed = {f"x{i}" for i in weights}
    feeds = {name: x for name, x in named.items() if name not in fixed}
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = builders.node(op, names, ["y"], domain="com.microsoft", **attributes)
    proto = builders.model(
        [node],
        [
            builders.value(name, x.shape, helper.np_dtype_to_tensor_dtype(x.dtype))
            for name, x in feeds.items()
        ],
        [ValueInfoProto(name="y")],
        [numpy_helper.from_array(x, name) for name, x in named.items() if name in fixed],
        com_microsoft=1,
    )
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    result: Any = session.run(None, feeds)[0]
    return np.asarray(result)
