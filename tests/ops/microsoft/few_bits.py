"""Weights of few bits for tests: packed as the documentation says, bit by bit."""

from __future__ import annotations

import numpy as np


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
