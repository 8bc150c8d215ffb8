"""Rows of caches as accelerators write them, beside the general form, which CPUs keep."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sardonyx.backends import find
from sardonyx.backends.jax.indexing import write_whole_rows

CASES = [
    ((3, 2, 7, 4), 2),
    ((3, 7, 4), 1),
    ((2, 7), 1),
    ((2, 3, 2, 7, 4), 3),
    ((3, 0, 7, 4), 2),
    ((0, 2, 7, 4), 2),
]


def drawn(shape: tuple[int, ...], axis: int, count: int, seed: int) -> list[Any]:
    """A cache, rows of which some may lie behind its end, and updates."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, shape[axis] + 1, (shape[0], 1)) + np.arange(count)
    updates = rng.normal(size=(*shape[:axis], count, *shape[axis + 1 :]))
    return [
        rng.normal(size=shape).astype(np.float32),
        rows,
        updates.astype(np.float32),
    ]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("count", [1, 3, 7])
@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_both_forms_write_the_same(shape: tuple[int, ...], axis: int, count: int) -> None:
    backend = find("jax", "cpu").for_ops
    for seed in range(4):
        with backend.scope():
            arrays = list(map(jnp.asarray, drawn(shape, axis, count, seed)))
            wanted = backend.write_rows(*arrays, axis=axis)
            found = jax.jit(partial(write_whole_rows, axis=axis))(*arrays)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
def test_the_derivatives_are_the_same() -> None:
    backend = find("jax", "cpu").for_ops
    x, rows, updates = drawn((3, 2, 7, 4), 2, 3, 0)

    def loss(write: Any, x: Any, updates: Any) -> Any:
        return (write(x, jnp.asarray(rows), updates, axis=2) ** 2).sum()

    with backend.scope():
        forms = (backend.write_rows, write_whole_rows)
        slopes = [jax.grad(partial(loss, write), argnums=(0, 1))(x, updates) for write in forms]
    for one, other in zip(*slopes, strict=True):
        np.testing.assert_array_equal(one, other)
