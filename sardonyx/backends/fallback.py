"""The primitives in the standard's own terms, for libraries that have nothing better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.backends.standard import Array, Operand

if TYPE_CHECKING:
    from sardonyx.backends.base import Backend


def pad(xp: Backend, x: Array, widths: Sequence[tuple[int, int]], value: Operand | str) -> Array:
    xp.allow(padded_shape(x.shape, widths), xp.numpy_dtype(x.dtype))
    filling = xp.asarray(value, dtype=x.dtype)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            sides = [(*x.shape[:axis], width, *x.shape[axis + 1 :]) for width in (before, after)]
            left, right = (xp.broadcast_to(filling, side) for side in sides)
            x = xp.concat([left, x, right], axis=axis)
    return x


def padded_shape(shape: Sequence[int], widths: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """What `pad` makes of an array of `shape`."""
    return tuple(size + sum(width) for size, width in zip(shape, widths, strict=True))


def bitcast(xp: Backend, x: Array, dtype: Any) -> Array:
    """By way of the host: the standard has no way to look at bits."""
    return xp.put(xp.fetch(x).view(xp.numpy_dtype(dtype)))


def gather(xp: Backend, x: Array, places: Sequence[Array]) -> Array:
    sizes, rest = x.shape[: len(places)], x.shape[len(places) :]
    rows = xp.zeros((), dtype=places[0].dtype)
    for place, size in zip(places, sizes, strict=True):
        rows = rows * size + xp.where(place < 0, place + size, place)
    x = xp.reshape(x, (math.prod(sizes), *rest))
    return xp.reshape(xp.take(x, xp.reshape(rows, (-1,)), axis=0), (*rows.shape, *rest))


def scatter(
    xp: Backend, x: Array, places: Sequence[Array], updates: Array, combine: str | None
) -> Array:
    """One update after the other: the standard has no way to write to many places at once."""
    sizes, rest = x.shape[: len(places)], x.shape[len(places) :]
    chosen = xp.broadcast_arrays(*places)
    count = math.prod(chosen[0].shape)
    flat = [xp.fetch(xp.reshape(place, (-1,))).tolist() for place in chosen]
    result = xp.asarray(x, copy=True)
    writable: Any = result  # As all of the standard's are, if not all of every library's.
    updates = xp.reshape(updates, (count, *rest))
    into = {"add": xp.add, "mul": xp.multiply, "max": xp.maximum, "min": xp.minimum}
    for i, place in enumerate(zip(*flat, strict=True)):
        if not all(-size <= p < size for p, size in zip(place, sizes, strict=True)):
            raise ValueError(f"the index {list(place)} is out of bounds for {list(sizes)}")
        key = (*place, ...)
        value = updates[i, ...]
        writable[key] = value if combine is None else into[combine](result[key], value)
    return result


def top_k(xp: Backend, x: Array, k: int, *, axis: int, largest: bool) -> Array:
    order = xp.argsort(x, axis=axis, descending=largest, stable=True)
    first = order[(*(slice(None),) * axis, slice(0, k), ...)]
    return xp.astype(first, xp.dtype(np.dtype(np.int64)))


def scan(
    xp: Backend,
    step: Callable[[Any, Any], tuple[Any, Any]],
    carry: tuple[Array, ...],
    inputs: tuple[Array, ...],
    length: int,
    *,
    reverse: bool,
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    if not length:
        # What a step would make tells the shapes of what no step makes.
        blank = tuple(xp.zeros(x.shape[1:], dtype=x.dtype) for x in inputs)
        _, made = step(carry, blank)
        return carry, tuple(xp.zeros((0, *y.shape), dtype=y.dtype) for y in made)
    made_by_step = []
    for i in reversed(range(length)) if reverse else range(length):
        carry, made = step(carry, tuple(x[i, ...] for x in inputs))
        made_by_step.append(made)
    ordered = made_by_step[::-1] if reverse else made_by_step
    return carry, tuple(xp.stack(ys, axis=0) for ys in zip(*ordered, strict=True))


def gradients(xp: Backend, function: Any, arrays: Sequence[Array], count: int) -> tuple[Array, ...]:
    """By JAX, since no array library but it tells derivatives."""
    from sardonyx.backends.jax.backend import JaxBackend  # noqa: PLC0415  (imported only where it is used)

    function.specs(*arrays)
    jax = JaxBackend(jit=False)
    with jax.scope():
        moved = [jax.put(xp.fetch(array)) for array in arrays]
        found = jax.gradients(function.on(jax), moved, count)
        return tuple(xp.put(jax.fetch(gradient)) for gradient in found)


def integer_matmul(xp: Backend, a: Array, b: Array) -> Array:
    """Through floats, which libraries multiply fast, and which hold these sums exactly."""
    largest = a.shape[-1] * 2**16
    wide = xp.dtype(np.dtype(np.float32 if largest <= 2**24 else np.float64))
    product = xp.matmul(xp.astype(a, wide), xp.astype(b, wide))
    if largest > 2**31:
        product = xp.astype(product, xp.dtype(np.dtype(np.int64)))
    return xp.astype(product, xp.dtype(np.dtype(np.int32)))


def attention(
    xp: Backend,
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None,
    *,
    scale: float,
    is_guarded: bool,
) -> Array:
    scores = attention_scores(xp, q, k, scale)
    if bias is not None:
        scores = scores + bias
    if xp.numpy_dtype(q.dtype).itemsize < 4:
        scores = xp.astype(scores, xp.dtype(np.dtype(np.float32)))
    top = xp.max(scores, axis=-1, keepdims=True)
    # A compiler may round the scores later than what is the greatest of them; see `Softmax`.
    is_top = xp.equal(scores, top) & xp.isfinite(top)
    below = scores - xp.detached(top)
    e = xp.exp(xp.where(is_top, below - xp.detached(below), below))
    weights = e / xp.sum(e, axis=-1, keepdims=True)
    if is_guarded:
        weights = xp.where(xp.isnan(weights), xp.zeros_like(weights), weights)
    return attention_mix(xp, xp.astype(weights, q.dtype), v)


def attention_scores(xp: Backend, q: Array, k: Array, scale: float) -> Array:
    """Queries times keys. Narrow floats overflow less if either bears the root of the scale."""
    if xp.numpy_dtype(q.dtype).itemsize < 4:
        root = math.sqrt(abs(scale))
        q, k = q * _like(xp, math.copysign(root, scale), q), k * _like(xp, root, k)
    else:
        q = q * scale
    product = xp.matmul(_by_shared_head(xp, q, k), xp.matrix_transpose(k))
    return xp.reshape(product, (*q.shape[:-1], k.shape[-2]))


def attention_mix(xp: Backend, weights: Array, v: Array) -> Array:
    """Weights times values."""
    product = xp.matmul(_by_shared_head(xp, weights, v), v)
    return xp.reshape(product, (*weights.shape[:-1], v.shape[-1]))


def _by_shared_head(xp: Backend, x: Array, other: Array) -> Array:
    """`x` with the heads that share one of `other`'s heads put one below the other."""
    if x.shape[:-2] == other.shape[:-2]:
        return x
    sharing = x.shape[-3] // other.shape[-3]
    return xp.reshape(x, (*other.shape[:-2], sharing * x.shape[-2], x.shape[-1]))


def _like(xp: Backend, value: float, x: Array) -> Array:
    return xp.asarray(value, dtype=x.dtype)


def solve_lower(xp: Backend, a: Array, b: Array) -> Array:
    """The upper half first. What is infinite or NaN then harms only what comes after it."""
    half = a.shape[-1] // 2
    if not half:
        return b
    above = solve_lower(xp, a[..., :half, :half], b[..., :half, :])
    rest = b[..., half:, :] - xp.matmul(a[..., half:, :half], above)
    return xp.concat([above, solve_lower(xp, a[..., half:, half:], rest)], axis=-2)


def elements_at(xp: Backend, x: Array, steps: Sequence[int]) -> Array:
    places = np.zeros((), np.int64)
    for size, step in zip(x.shape, steps, strict=True):
        places = places[..., None] + np.arange(size) * step
    flat = xp.reshape(x, (-1,))
    return xp.reshape(xp.take(flat, xp.put(places.reshape(-1)), axis=0), x.shape)


def windows(
    x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[Array]:
    """One strided view of `x` per element of the kernel, all of the output's size."""
    lead = (slice(None),) * (x.ndim - len(kernel))
    sizes = output_sizes(x.shape[len(lead) :], kernel, strides, dilations)
    views = []
    for offsets in product(*map(range, kernel)):
        starts = [o * d for o, d in zip(offsets, dilations, strict=True)]
        cut = (
            slice(start, start + (size - 1) * stride + 1, stride)
            for start, size, stride in zip(starts, sizes, strides, strict=True)
        )
        views.append(x[(*lead, *cut)])
    return views


def output_sizes(
    sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, ...]:
    """How many windows fit on each axis."""
    return tuple(
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
    )


# Windows with a longer side are not gone through element by element.
LONG_SIDE = 32


def window_reduce(
    combine: Callable[[Array, Array], Array],
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Array:
    """One axis after the other, which costs the sum of the kernel's sides and not their product."""
    for i, (side, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        beyond = (1,) * (len(kernel) - i - 1)
        if side > LONG_SIDE:
            x = _along_long_side(combine, x, x.ndim - len(beyond) - 1, side, stride, dilation)
            continue
        along = windows(x, (side, *beyond), (stride, *beyond), (dilation, *beyond))
        x = reduce(combine, along)
    return x


def _along_long_side(
    combine: Callable[[Array, Array], Array],
    x: Array,
    axis: int,
    side: int,
    stride: int,
    dilation: int,
) -> Array:
    """Put each window together of parts of 1, 2, 4, ... elements, as the bits of `side` say."""

    def cut(part: Array, start: int, size: int, step: int = 1) -> Array:
        return part[(*(slice(None),) * axis, slice(start, start + size, step), ...)]

    size = x.shape[axis] - dilation * (side - 1)
    found: list[Array] = []
    start, reach, part = 0, dilation, x
    while side:
        if side & 1:
            found.append(cut(part, start, size, stride))
            start += reach
        side >>= 1
        if side:
            rest = part.shape[axis] - reach
            part = combine(cut(part, 0, rest), cut(part, reach, rest))
            reach *= 2
    return reduce(combine, found)


def convolution(
    xp: Backend,
    x: Array,
    weight: Array,
    *,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int],
    groups: int,
) -> Array:
    """Gather the windows as columns, then multiply."""
    x = xp.pad(x, [(0, 0), (0, 0), *pads], 0)
    columns = xp.stack(windows(x, weight.shape[2:], strides, dilations), axis=2)
    return product_of_columns(xp, columns, weight, groups)


def product_of_columns(xp: Backend, columns: Array, weight: Array, groups: int) -> Array:
    """One matrix product per group, of (N, C, ..., *sizes) that holds the kernel's axes within."""
    batch, channels = columns.shape[:2]
    sizes = columns.shape[columns.ndim - (weight.ndim - 2) :]
    rows = channels // groups * math.prod(weight.shape[2:])
    columns = xp.reshape(columns, (batch, groups, rows, math.prod(sizes)))
    filters = xp.reshape(weight, (groups, weight.shape[0] // groups, rows))
    return xp.reshape(xp.matmul(filters, columns), (batch, weight.shape[0], *sizes))


Coefficients = tuple[float, ...]

# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969):
# three ranges of |x|, each to full float64 precision.
_NEAR_TOP: Coefficients = (
    3.16112374387056560e00, 1.13864154151050156e02, 3.77485237685302021e02,
    3.20937758913846947e03, 1.85777706184603153e-1,
)  # fmt: skip
_NEAR_BOTTOM: Coefficients = (
    2.36012909523441209e01, 2.44024637934444173e02, 1.28261652607737228e03,
    2.84423683343917062e03,
)  # fmt: skip
_MIDDLE_TOP: Coefficients = (
    5.64188496988670089e-1, 8.88314979438837594e00, 6.61191906371416295e01,
    2.98635138197400131e02, 8.81952221241769090e02, 1.71204761263407058e03,
    2.05107837782607147e03, 1.23033935479799725e03, 2.15311535474403846e-8,
)  # fmt: skip
_MIDDLE_BOTTOM: Coefficients = (
    1.57449261107098347e01, 1.17693950891312499e02, 5.37181101862009858e02,
    1.62138957456669019e03, 3.29079923573345963e03, 4.36261909014324716e03,
    3.43936767414372164e03, 1.23033935480374942e03,
)  # fmt: skip


def _rational(
    x: Array, top: Sequence[float], bottom: Sequence[float], steps: int
) -> tuple[Array, Array]:
    above, below = top[-1] * x, x
    for i in range(steps):
        above, below = (above + top[i]) * x, (below + bottom[i]) * x
    return above + top[steps], below + bottom[steps]


def erf(xp: Backend, x: Array) -> Array:
    size = xp.abs(x)
    near_top, near_bottom = _rational(xp.square(xp.minimum(size, 0.5)), _NEAR_TOP, _NEAR_BOTTOM, 3)
    # Beyond 6 the function is 1 to the last bit, so the middle range may serve for the far one.
    middle = xp.minimum(size, 6.0)
    top, bottom = _rational(middle, _MIDDLE_TOP, _MIDDLE_BOTTOM, 7)
    far = xp.copysign(1.0 - xp.exp(-xp.square(middle)) * top / bottom, x)
    result = xp.where(size <= 0.5, x * near_top / near_bottom, far)
    return xp.where(xp.isnan(x), x, result)


def fmod(xp: Backend, a: Array, b: Array) -> Array:
    if not xp.isdtype(a.dtype, "integral"):
        return xp.copysign(xp.remainder(xp.abs(a), xp.abs(b)), a)
    floored = xp.remainder(a, b)
    across = xp.not_equal(floored, 0) & ((a < 0) ^ (b < 0))
    return xp.where(across, floored - b, floored)
