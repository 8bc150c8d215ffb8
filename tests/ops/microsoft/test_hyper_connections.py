from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import InvalidInput
from tests.ops.microsoft.comparison import assert_agrees, results
from tests.support.types_present import needs

SHAPE = (2, 3, 4, 8)
SUFFIXES = [(4,), (4, 1), (4, 8)]


def drawn(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("suffix", [*SUFFIXES, (32,)])
@pytest.mark.parametrize("is_flat", [False, True])
def test_pre_mix(xp: Backend, dtype: Any, suffix: Any, is_flat: bool) -> None:
    needs(xp, dtype)
    streams, mix = drawn(*SHAPE, dtype=dtype), drawn(2, 3, *suffix)
    options: dict[str, Any] = {"reduction_scale": 0.5}
    if is_flat:
        streams, options = streams.reshape(2, 3, 32), {**options, "num_branches": 4}
    elif suffix == (32,):
        with pytest.raises(InvalidInput, match="pre_mix has shape"):
            results(xp, "HyperConnectionPreMix", streams, mix, **options)
        return
    assert_agrees(xp, "HyperConnectionPreMix", streams, mix, ulps=8, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize("is_flat", [False, True])
def test_post_mix(xp: Backend, dtype: Any, suffix: Any, mixes: bool, is_flat: bool) -> None:
    needs(xp, dtype)
    streams, block = drawn(*SHAPE, dtype=dtype), drawn(2, 3, 8, dtype=dtype)
    options = {}
    if is_flat:
        streams, options = streams.reshape(2, 3, 32), {"num_branches": 4}
    inputs = [streams, block, drawn(2, 3, *suffix), *([drawn(2, 3, 4, 4)] if mixes else [])]
    assert_agrees(xp, "HyperConnectionPostMix", *inputs, ulps=8, **options)


@pytest.mark.parametrize(
    ("streams", "block", "mix", "branches", "message"),
    [
        ((8,), (8,), (4,), 0, "do not contain 0 branches"),
        ((2, 30), (2, 8), (2, 4), 4, "do not contain 4 branches"),
        ((2, 4, 8), (2, 7), (2, 4), 0, "block_output has shape"),
        ((2, 4, 8), (2, 8), (2, 8), 0, "post_mix has shape"),
    ],
)
def test_the_shapes_are_checked(
    streams: Any, block: Any, mix: Any, branches: int, message: str
) -> None:
    inputs = (np.ones(shape, np.float32) for shape in (streams, block, mix))
    with pytest.raises(InvalidInput, match=message):
        results(HOST, "HyperConnectionPostMix", *inputs, num_branches=branches)
