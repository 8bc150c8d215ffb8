"""How padding spreads through JAX's primitives, with padding that would show if it counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from numpy.testing import assert_allclose, assert_array_equal

from sardonyx.backends.executable import Spec
from sardonyx.backends.jax.padding.arrays import JaxPadding
from sardonyx.backends.padding.axes import (
    Axis,
    Cut,
    Different,
    Layout,
    Part,
    Unpaddable,
    merged,
    reshaped,
    unpadded,
)
from sardonyx.backends.padding.protocols import Call
from tests.support.poisoned_padding import poisoned

Function = Callable[..., Any]
# The sizes of a call, and what they are padded to.
TRUE, WIDE = (3, 5), (4, 8)


def end(size: int, wide: int) -> Axis:
    return Axis.of(wide, size, is_padded=True)


def padded_runs(function: Function, x: Any, *more: Any, template: Sequence[bool] = ()) -> Any:
    """The function's results for arrays padded on their first two axes, cut to what is true."""
    true = [np.asarray(a) for a in (x, *more)]
    wide = [poisoned(a, (*WIDE, *a.shape[2:])[: a.ndim]) for a in true]
    layouts = [
        tuple(
            end(n, m) if i < 2 else unpadded(n)
            for i, (n, m) in enumerate(zip(a.shape, w.shape, strict=True))
        )
        for a, w in zip(true, wide, strict=True)
    ]
    padding = JaxPadding()
    prover = padding.prover(template, {}, {})

    def several(*arrays: Any) -> list[Any]:
        return jax.tree.leaves(function(*arrays))

    calls = [
        Call(several, None, [Spec(a.shape, a.dtype) for a in arrays]) for arrays in (true, wide)
    ]
    made, act = prover.step(*calls, layouts, {})
    results = several(*wide) if act is None else jax.jit(act)(list(prover.runtime_args), wide)
    return padding.unpad(results, list(map(Cut.of, made)), is_native=False)


def check(function: Function, *arrays: Any) -> None:
    with jax.enable_x64(True):
        expected = jax.tree.leaves(function(*arrays))
        found = padded_runs(function, *arrays)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert_allclose(one, other, rtol=1e-12, atol=1e-12)


X = np.random.default_rng(0).normal(size=(*TRUE, 2))
IDS = np.random.default_rng(1).integers(-1, 3, TRUE)


def position(x: Any, axis: int) -> Any:
    return lax.broadcasted_iota(np.int64, x.shape, axis)


def windowed(x: Any, combine: Any, initial: float, padding: Any, **more: Any) -> Any:
    window = {"window_dimensions": (1, 3, 1), "window_strides": (1, 1, 1), **more}
    return lax.reduce_window(x, initial, combine, padding=padding, **window)


def convolved(x: Any, padding: Any, **more: Any) -> Any:
    weight = jnp.arange(2 * 3 * 3, dtype=x.dtype).reshape(3, 2, 3)
    return lax.conv_general_dilated(jnp.swapaxes(x, 1, 2), weight, (1,), [padding], **more)


def updated(x: Any, size: int) -> Any:
    start = jnp.argmax(x[0, :, 0]) + 3
    return lax.dynamic_update_slice_in_dim(jnp.asarray(x), -x[:, :size], start, axis=1)


def gathered(x: Any, indices: Any, mode: str) -> Any:
    return jnp.asarray(x).at[:, jnp.asarray(indices)].get(mode=mode, fill_value=7)


def scattered(x: Any, indices: Any, mode: str) -> Any:
    updates = 2 * jnp.ones((x.shape[0], len(indices), 2))
    return jnp.asarray(x).at[:, jnp.asarray(indices)].add(updates, mode=mode)


FUNCTIONS: dict[str, Function] = {
    "elementwise": lambda x: jnp.log(x) + jnp.where(x > 0, x, 1 / x),
    "mean": lambda x: jnp.mean(x, axis=(0, 1)),
    "variance": lambda x: jnp.var(x, axis=1),
    "product": lambda x: jnp.prod(x, axis=0),
    "extremes": lambda x: (jnp.max(x, axis=1), jnp.min(x, axis=0)),
    "all of it": lambda x: (jnp.all(x < 9, axis=1), jnp.any(x > 9, axis=0)),
    "xor": lambda x: lax.reduce_xor((10 * x).astype(np.int64), (1,)),
    "or": lambda x: lax.reduce_or((10 * x).astype(np.int64), (0, 1)),
    "and": lambda x: lax.reduce_and((10 * x).astype(np.int64), (1,)),
    "places of extremes": lambda x: (jnp.argmax(x, axis=1), jnp.argmin(x, axis=0)),
    "running totals": lambda x: (jnp.cumsum(x, axis=1), lax.cumprod(x, 0)),
    "running totals backwards": lambda x: (
        lax.cumsum(x, 1, reverse=True),
        lax.cummax(x, 0, reverse=True),
        lax.cummin(x, 1, reverse=True),
        lax.cumlogsumexp(x, 1, reverse=True),
    ),
    "softmax": lambda x: (jax.nn.softmax(x, axis=1), jax.nn.log_softmax(x, axis=0)),
    "gelu": jax.nn.gelu,
    "normalised": lambda x: jax.nn.standardize(x, axis=(0, 1)),
    "sorted": lambda x: lax.sort((x, position(x, 1)), dimension=1, num_keys=1),
    "order": lambda x: jnp.argsort(x, axis=0),
    "largest": lambda x: lax.top_k(jnp.swapaxes(x, 1, 2), 2),
    "all in order": lambda x: lax.top_k(jnp.swapaxes(x, 1, 2), x.shape[1]),
    "reversed": lambda x: x[::-1, ::-1],
    "shifted": lambda x: jnp.concatenate([x[:, -2:], x[:, :-2]], axis=1),
    "every other": lambda x: (x[:, ::2], x[:, 1::2], x[:, ::-2]),
    "rolled": lambda x: jnp.roll(x, 2, axis=1),
    "split": lambda x: jnp.split(x, [1, x.shape[1] - 1], axis=1),
    "twice": lambda x: jnp.tile(x, (2, 3, 1)),
    "stacked": lambda x: jnp.stack([x, -x], axis=1),
    "repeated": lambda x: jnp.repeat(x, 2, axis=2).reshape(*x.shape[:2], 4),
    "merged": lambda x: jnp.exp(x.reshape(-1, 2)).reshape(x.shape),
    "merged, then summed": lambda x: x.reshape(-1, 2).max(axis=0),
    "rows": lambda x: x.reshape(x.shape[0], -1),
    "padded": lambda x: jnp.pad(x, [(0, 0), (1, 2), (0, 0)], constant_values=3),
    "padded with its edge": lambda x: jnp.pad(x, [(0, 1), (1, 2), (0, 0)], mode="edge"),
    "padded to a size": lambda x: jnp.pad(x, [(0, 0), (0, 10 - x.shape[1]), (0, 0)]),
    "cropped": lambda x: lax.pad(x, 0.0, [(0, 0, 0), (-1, -1, 0), (0, 0, 0)]),
    "spread": lambda x: lax.pad(x, 0.0, [(0, 0, 0), (1, 1, 2), (0, 0, 0)]),
    "products": lambda x: jnp.einsum("bsk,btk->bst", x, x),
    "products over what is padded": lambda x: jnp.einsum("bsk,bsj->kj", x, 1 / x),
    "products of merged": lambda x: x.reshape(-1, 2).T @ x.reshape(-1, 2),
    "covariance": lambda x: (x - x.mean(1, keepdims=True)).swapaxes(1, 2) @ x / x.shape[1],
    "convolution": lambda x: convolved(x, (0, 0)),
    "convolution beyond the end": lambda x: convolved(x, (1, 1)),
    "convolution of spread": lambda x: convolved(x, (2, 2), lhs_dilation=(2,)),
    "dilated convolution": lambda x: convolved(x, (1, 2), rhs_dilation=(2,)),
    "maximum of windows": lambda x: windowed(x, lax.max, -np.inf, "VALID"),
    "maximum of windows at the end": lambda x: windowed(x, lax.max, -np.inf, "SAME"),
    "sums of windows": lambda x: windowed(x, lax.add, 0.0, [(0, 0), (1, 2), (0, 0)]),
    "windows with gaps": lambda x: windowed(
        x, lax.min, np.inf, [(0, 0), (2, 2), (0, 0)], window_dilation=(1, 2, 1)
    ),
    "windows in steps": lambda x: windowed(x, lax.add, 0.0, "VALID", window_strides=(1, 2, 1)),
    "positions": lambda x: x * position(x, 1) / x.shape[1] + x.shape[0],
    "causal": lambda x: jnp.tril(x @ jnp.swapaxes(x, 1, 2)),
    "where first is last": lambda x: x[:, [0, -1]] - x[:, -1:],
    "one of it": lambda x: lax.dynamic_slice_in_dim(x, jnp.argmax(x[0, :, 0]) + 1, 2, axis=1),
    "written": lambda x: updated(x, 2),
    "written within a table": lambda x: lax.dynamic_update_slice(
        jnp.zeros((9, 9, 2)), x, (jnp.int32(8), jnp.int32(3), jnp.int32(0))
    ),
    "gathered": lambda x: gathered(x, [0, -1, 2], "clip"),
    "gathered beyond the end": lambda x: gathered(x, [0, x.shape[1], 2], "clip"),
    "gathered or filled": lambda x: gathered(x, [0, x.shape[1], 1], "fill"),
    "gathered by what is padded": lambda x: x[:, jnp.argmax(x, axis=1)[:, 0]],
    "gathered along": lambda x: jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1),
    "scattered": lambda x: scattered(x, [0, 1, 1], "drop"),
    "scattered beyond the end": lambda x: scattered(x, [0, x.shape[1], 1], "drop"),
    "scattered to the nearest": lambda x: scattered(x, [0, x.shape[1], 1], "clip"),
    "scattered from what is padded": lambda x: jnp.zeros(9).at[position(x, 1)].add(x),
    "largest of each": lambda x: jnp.zeros((3, 2)).at[position(x, 1)[..., 0] % 3].max(x),
    "put back": lambda x: jnp.put_along_axis(x, jnp.argsort(x, axis=1), x, 1, inplace=False),
    "scan": lambda x: lax.scan(lambda c, row: (c + row, c * row), x[:, 0], x.swapaxes(0, 1)),
    "scan backwards": lambda x: lax.scan(
        lambda c, row: (c - row, c * row.sum()), x[0], x, reverse=True
    ),
    "scan of clean": lambda x: lax.scan(lambda c, k: (c + k * x, c.sum()), x, jnp.arange(3.0)),
    "while": lambda x: lax.while_loop(
        lambda c: c[0] < x.shape[1], lambda c: (c[0] + 1, c[1] + x.sum()), (0, 1 / x)
    )[1],
    "branches": lambda x: lax.cond(x.sum() > 0, lambda: x.mean(1), lambda: x.max(1)),
    "forms": lambda x: lax.platform_dependent(
        x, cpu=lambda x: x.swapaxes(0, 1).swapaxes(0, 1) * 2, default=lambda x: x + x
    ),
    "forms that mask": lambda x: lax.platform_dependent(
        x, cpu=lambda x: x.sum(1), default=lambda x: (x * 1).sum(axis=1)
    ),
    "functions": jax.jit(lambda x: jax.nn.relu(x).sum(axis=0)),
    "spectrum": lambda x: jnp.abs(jnp.fft.fft(x, axis=2)),
    "determinants": lambda x: jnp.linalg.det(x[..., None] * jnp.eye(2)),
    "bits": lambda x: lax.bitcast_convert_type(x, np.int32),
    "ones": lambda x: jnp.ones(x.shape).reshape(-1, 2).sum(axis=0) * jnp.ones(x.shape[1]).sum(),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_true_is_what_it_was(name: str) -> None:
    check(FUNCTIONS[name], X)


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint32", "bool"])
@pytest.mark.parametrize(
    "name", ["extremes", "places of extremes", "sorted", "all of it", "shifted", "padded"]
)
@pytest.mark.sampled(4)
def test_other_types_have_other_neutral_elements(name: str, dtype: str) -> None:
    check(FUNCTIONS[name], (4 * X).astype(dtype))


def test_indices_of_arguments() -> None:
    check(lambda x, i: jnp.take_along_axis(x, i[..., None], axis=1), X, IDS)
    check(lambda x, i: jnp.zeros((7, 2)).at[i].add(x, mode="drop"), X, IDS)


@pytest.mark.parametrize("largest", [True, False])
def test_the_largest_among_what_is_not_a_number(largest: bool) -> None:
    x = np.where(X > 0.5, np.nan, np.where(X < -0.5, -np.inf, X)) * (1 if largest else -1)
    x[:, :2] = -np.nan
    check(lambda x: lax.top_k(jnp.swapaxes(x, 1, 2), 4)[1], x)


REFUSED: dict[str, tuple[Function, str]] = {
    "pieces": (lambda x: x.reshape(x.shape[1], -1), "pieces that padding would"),
    "spectrum": (lambda x: jnp.fft.fft(x.swapaxes(1, 2)).real, "fft_lengths"),
    "places in two": (lambda x: jnp.argmax(x.reshape(-1, 2), axis=0), "merged from two"),
    "two and one": (
        lambda x: x.reshape(-1, 2) + jnp.arange(x.shape[0] * x.shape[1])[:, None],
        "different places",
    ),
    "matrices": (lambda x: jnp.linalg.qr(x)[1], "whole rows or matrices"),
    "front": (lambda x: jnp.pad(x, [(0, 0), (9 - x.shape[1], 0), (0, 0)]), "padding in front"),
    "unknown": (
        lambda x: lax.reduce(x, 0.0, lambda a, b: a + 2 * b, (1,)), "JAX's reduce",
    ),
    "another program": (
        lambda x: x if x.shape[1] == 5 else -x, "another way"
    ),
    "a slice of it": (
        lambda x: lax.dynamic_slice_in_dim(x, jnp.argmax(x[0, :, 0]), x.shape[1] - 1, 1),
        "a padded size",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_shown_is_refused(name: str) -> None:
    function, reason = REFUSED[name]
    with pytest.raises((Unpaddable, Different), match=reason), jax.enable_x64(True):
        padded_runs(function, X)


def test_one_program_serves_sizes_that_differ_in_what_they_tell() -> None:
    """A template asks for the decisions of other sizes, also where a call fills its bucket."""

    def halves(x: Any) -> list[Any]:
        return [x[: (x.shape[0] + 1) // 2] / x.shape[0]]

    def decisions(size: int, template: Sequence[bool] = ()) -> list[bool]:
        prover = JaxPadding().prover(template, {}, {})
        calls = [Call(halves, None, [Spec((n,), np.dtype(np.float32))]) for n in (size, 8)]
        prover.step(*calls, [(end(size, 8),)], {})
        return list(prover.decisions)

    five, seven, full = decisions(5), decisions(7), decisions(8)
    assert five != seven != full
    assert decisions(8, five) == decisions(7, five) == five


# -- axes as number systems ---------------------------------------------------------------------


@st.composite
def layouts(draw: Any) -> Layout:
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4))
    axes = []
    for size in sizes:
        true = draw(st.integers(1, size)) if size > 1 else 1
        axes.append(end(true, size) if size > 1 and draw(st.booleans()) else unpadded(size))
    return tuple(axes)


def marked(layout: Layout) -> Any:
    """For each element whether it is true."""
    digits = [part for axis in layout for part in axis.parts]
    mask = np.zeros([part.padded for part in digits], bool)
    mask[tuple(slice(part.true) for part in digits)] = True
    return mask.reshape([axis.padded for axis in layout])


@given(layouts(), st.data())
def test_a_reshape_keeps_what_is_true_and_its_order(layout: Layout, data: Any) -> None:
    shape = [axis.padded for axis in layout]
    order = np.arange(math.prod(shape)).reshape(shape)
    after = data.draw(st.sampled_from(_factorings(math.prod(shape))))
    try:
        made = reshaped(layout, after)
    except Unpaddable:
        return
    assert_array_equal(marked(made), marked(layout).reshape(after))
    true = order[marked(layout)]
    found = order.reshape(after)[marked(made)]
    assert_array_equal(found, true)
    assert math.prod(axis.true for axis in made) == true.size


def _factorings(size: int) -> list[tuple[int, ...]]:
    pairs = [(a, size // a) for a in range(1, size + 1) if size % a == 0]
    return [(size,), *pairs, *((a, b, c) for a, rest in pairs for b, c in _pairs(rest))]


def _pairs(size: int) -> list[tuple[int, int]]:
    return [(a, size // a) for a in range(1, size + 1) if size % a == 0]


def test_digits_that_are_whole_join_the_one_before() -> None:
    parts = [Part(4, 3, True), Part(6, 6, False), Part(8, 5, True), Part(2, 2, False)]
    assert merged(parts) == Axis((Part(24, 18, True), Part(16, 10, True)))
