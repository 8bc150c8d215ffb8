"""Softmax and attention in the forms for TPUs and GPUs, run on the CPU, against float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import export

from sardonyx.backends.jax.accelerators import attention, long_attention
from sardonyx.backends.jax.accelerators.attention import attended, attended_on_tpu, is_supported
from sardonyx.backends.jax.accelerators.long_attention import attended_in_blocks, block_sizes
from sardonyx.backends.jax.accelerators.scores import Products
from sardonyx.backends.jax.accelerators.softmax import below_top, nonzero_total
from sardonyx.backends.operations.scores import Mask, Scoring, Tile, scoring_with

pytestmark = pytest.mark.sampled(3)

KERNEL_KEYS = 6
BATCH, HEADS, SHARED, QUERIES, KEYS, SIZE, VALUES = 2, 4, 2, 13, 17, 8, 6
DTYPES = {
    "float32": (np.dtype(np.float32), 2e-6),
    "float16": (np.dtype(np.float16), 3e-3),
    "bfloat16": (np.dtype(ml_dtypes.bfloat16), 3e-2),
}


def in_blocks(q: Any, k: Any, v: Any, scoring: Scoring, precision: str | None) -> Any:
    return attended_in_blocks(q, k, v, scoring, Products(precision))


def beyond_a_block(q: Any, k: Any, v: Any, scoring: Scoring, precision: str | None) -> Any:
    """For TPUs, where the compiler's kernel takes one block of keys after another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "KERNEL_KEYS", KERNEL_KEYS)
        return attended_on_tpu(q, k, v, scoring, precision)


FORMS = {
    "gpu": attended,
    "tpu": attended_on_tpu,
    "tpu, many keys": beyond_a_block,
    "blocks": in_blocks,
}
FORM = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
DTYPE = pytest.mark.parametrize("dtype", DTYPES)


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks of queries and of keys, of which the last ones overlap those before."""
    monkeypatch.setattr(long_attention, "BLOCK_SCORES", BATCH * HEADS * 5 * 3)
    monkeypatch.setattr(long_attention, "LEAST_KEYS", 3)
    assert block_sizes((BATCH, HEADS, QUERIES, SIZE), KEYS) == (5, 3)


def arrays(dtype: str, *, scale: float = 1.0) -> list[np.ndarray]:
    draw = np.random.default_rng(7).standard_normal
    shapes = (HEADS, QUERIES, SIZE), (SHARED, KEYS, SIZE), (SHARED, KEYS, VALUES)
    q, k, v = (draw((BATCH, *shape)).astype(DTYPES[dtype][0]) for shape in shapes)
    return [q * q.dtype.type(scale), k, v]


def expected(
    arrays: list[np.ndarray],
    bias: Any = 0.0,
    allowed: Any = True,
    sink: Any = None,
    *,
    scale: float = 0.3,
    softcap: float = 0.0,
) -> np.ndarray:
    """Attention row by row in float64; a row without a key is zeros."""
    q, k, v = (x.astype(np.float64) for x in arrays)
    sharing = HEADS // SHARED
    k, v = (np.repeat(x, sharing, axis=1) for x in (k, v))
    with np.errstate(invalid="ignore"):
        scores = q @ np.swapaxes(k, -1, -2) * scale
        scores = softcap * np.tanh(scores / softcap) if softcap else scores
        scores = np.where(allowed, scores + bias, -np.inf)
        top = scores.max(-1, keepdims=True)
        top = top if sink is None else np.maximum(top, sink)
        top = np.where(top == -np.inf, 0, top)
        weights = np.exp(scores - top)
        total = weights.sum(-1, keepdims=True)
        total = total if sink is None else total + np.exp(sink - top)
        return weights / np.where(total == 0, 1, total) @ v


def check(form: Callable[..., Any], given: list[np.ndarray], scoring: Scoring, right: Any) -> None:
    found = jax.jit(lambda *arrays: form(*arrays, scoring, "highest"))(*given)
    assert found.dtype == given[0].dtype
    tolerance = DTYPES[given[0].dtype.name][1]
    np.testing.assert_allclose(np.asarray(found, np.float64), right, rtol=tolerance, atol=tolerance)


@FORM
@DTYPE
def test_without_a_mask(form: Any, dtype: str) -> None:
    given = arrays(dtype)
    check(form, given, Scoring(0.3), expected(given))
    check(form, given, Scoring(0.3, softcap=1.5), expected(given, softcap=1.5))


@FORM
@DTYPE
def test_causal(form: Any, dtype: str) -> None:
    given = arrays(dtype)
    allowed = np.arange(KEYS) <= np.arange(QUERIES)[:, None] + 2
    for sees_some in (False, True):
        scoring = Scoring(
            0.3, mask=lambda tile: Mask(None, tile.keys <= tile.queries + 2), sees_some=sees_some
        )
        check(form, given, scoring, expected(given, allowed=allowed))


@FORM
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, KEYS), (BATCH, 1, QUERIES, KEYS), (1, HEADS, QUERIES, 1)]
)
def test_masks_of_all_shapes_and_rows_without_keys(form: Any, shape: Any) -> None:
    given = arrays("float32")
    allowed = np.random.default_rng(3).random(shape) < 0.4
    allowed[..., min(4, shape[2] - 1) : 6, :] = shape[2] == 1
    scoring = Scoring(0.3, mask=lambda tile: Mask(None, tile.cut(jnp.asarray(allowed))))
    right = expected(given, allowed=allowed)
    assert shape[2] == 1 or not right[:, :, 4].any()
    check(form, given, scoring, right)


@FORM
def test_a_sink_takes_weight(form: Any) -> None:
    given = arrays("float32")
    sink = np.asarray([0.5, -2.0, 30.0, -np.inf], np.float32).reshape(1, -1, 1, 1)
    allowed = np.arange(KEYS) <= np.arange(QUERIES)[:, None] - 1
    scoring = Scoring(
        0.3, mask=lambda tile: Mask(None, tile.keys <= tile.queries - 1), sink=jnp.asarray(sink)
    )
    check(form, given, scoring, expected(given, allowed=allowed, sink=sink))


@FORM
def test_large_scores_give_the_greatest_one_all_weight(form: Any) -> None:
    given = arrays("float32", scale=1e16)
    check(form, given, Scoring(0.3), expected(given))


@FORM
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_masked_score_does_not_count_whatever_it_is(form: Any, number: float) -> None:
    given = arrays("float32")
    plain = [x.copy() for x in given]
    given[1][:, :, 5] = number
    scoring = Scoring(0.3, mask=lambda tile: Mask(None, tile.keys != 5))
    check(form, given, scoring, expected(plain, allowed=np.arange(KEYS) != 5))


@FORM
def test_not_a_number_stays_in_its_row(form: Any) -> None:
    given = arrays("float32")
    right = expected(given)
    given[0][1, 2, 7] = np.nan
    right[1, 2, 7] = np.nan
    check(form, given, Scoring(0.3), right)


@FORM
def test_an_infinite_score_makes_its_row_nan(form: Any) -> None:
    given = arrays("float32")
    bias = np.zeros((1, 1, QUERIES, KEYS), np.float32)
    bias[..., 3, 9] = np.inf
    right = expected(given)
    right[:, :, 3] = np.nan
    check(form, given, scoring_with(jnp.asarray(bias), 0.3), right)


@pytest.mark.parametrize("form", [attended, attended_on_tpu])
def test_a_guard_is_for_weights_and_not_for_values_that_are_nan(form: Any) -> None:
    given = arrays("float32")
    given[0][1, 2, 7] = np.nan
    given[2][0, :, 3] = np.nan
    right = expected(given)
    right[1, 2, 7] = 0.0
    assert np.isnan(right[0]).all()
    check(form, given, scoring_with(None, 0.3, is_guarded=True), right)


@FORM
@pytest.mark.parametrize("is_guarded", [False, True])
def test_a_bias_that_forbids_all_keys(form: Any, is_guarded: bool) -> None:
    given = arrays("float32")
    bias = np.random.default_rng(1).standard_normal((BATCH, 1, QUERIES, KEYS)).astype(np.float32)
    bias[:, :, 2] = -np.inf
    bias[:, :, 6, ::2] = -np.inf
    right = expected(given, bias=bias)
    right[:, :, 2] = 0.0 if is_guarded else np.nan
    scoring = scoring_with(jnp.asarray(bias), 0.3, is_guarded=is_guarded)
    check(form, given, scoring, right)


def without_scores(dtype: str, number: float) -> tuple[list[np.ndarray], np.ndarray]:
    """Return arrays whose fourth query has no score above minus infinity, and the right values."""
    given = [np.abs(x) for x in arrays(dtype)]
    given[1] = -given[1]
    right = expected(given)
    given[0][:, :, 3] = number
    given[1][..., 0] = np.minimum(given[1][..., 0], -1e-2)
    right = expected([np.where(np.arange(QUERIES)[:, None] == 3, 0, given[0]), *given[1:]])
    if np.isfinite(number):
        # Their products leave the range of float32.
        given[1][..., 0] = -number
        given[0][:, :, :3, 0] = given[0][:, :, 4:, 0] = 0
        right = expected([np.where(np.arange(QUERIES)[:, None] == 3, 0, given[0]), *given[1:]])
    right[:, :, 3] = 0.0
    return given, right


@FORM
@pytest.mark.parametrize("sees_some", [False, True])
@pytest.mark.parametrize("number", [np.inf, 1e25])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_query_whose_scores_are_all_minus_infinity(
    form: Any, sees_some: bool, number: float, dtype: str
) -> None:
    given, right = without_scores(dtype, number)
    scoring = Scoring(0.3, mask=lambda tile: Mask(None, tile.keys >= 0), sees_some=sees_some)
    check(form, given, scoring, right)
    check(form, given, Scoring(0.3), right)


@FORM
def test_such_a_query_beside_one_without_a_key_and_one_that_is_nan(form: Any) -> None:
    given, right = without_scores("float32", np.inf)
    given[0][1, 2, 7] = np.nan
    right[1, 2, 7] = np.nan
    allowed = np.arange(QUERIES)[:, None] != 5
    right[:, :, 5] = 0.0
    scoring = Scoring(0.3, mask=lambda tile: Mask(None, tile.cut(jnp.asarray(allowed))))
    check(form, given, scoring, right)


@FORM
@pytest.mark.parametrize("queries", [1, QUERIES])
def test_nan_stays_where_a_query_without_scores_shall_not_be_zeros(form: Any, queries: int) -> None:
    given, _ = without_scores("float32", np.inf)
    given[0] = given[0][:, :, 3 : 3 + queries]
    for scoring, is_nan in ((scoring_with(None, 0.3), True), (Scoring(0.3), False)):
        y = form(*map(jnp.asarray, given), scoring, "highest")
        assert bool(jnp.isnan(y[:, :, 0]).all()) == is_nan
        assert bool((y[:, :, 0] == 0).all()) != is_nan


def as_the_kernel_does(scores: Any, v: Any) -> Any:
    """Mix values as the compiled kernel of libtpu 0.0.52 does, block by block of its keys."""
    v = jnp.repeat(v, HEADS // SHARED, axis=1)
    top = jnp.full((*scores.shape[:3], 1), -jnp.inf, jnp.float32)
    total, y = jnp.zeros_like(top), jnp.zeros((*scores.shape[:3], v.shape[3]), jnp.float32)
    for begin in range(0, scores.shape[3], KERNEL_KEYS):
        block = scores[..., begin : begin + KERNEL_KEYS]
        above = jnp.maximum(top, jnp.max(block, axis=-1, keepdims=True))
        rest = jnp.exp(jnp.where(top == above, 0.0, top - above)) * total
        e = jnp.exp(block - above)
        top, total = above, rest + jnp.sum(e, axis=-1, keepdims=True)
        y = (rest * y + e @ v[:, :, begin : begin + KERNEL_KEYS]) / total
    return y


@pytest.mark.parametrize("kind", ["allowed", "bias", "guarded"])
def test_a_mask_that_hides_the_first_block_of_the_kernel(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "plainly_mixed", lambda _, __, *x: as_the_kernel_does(*x))
    given = arrays("float32")
    allowed = np.arange(KEYS) > np.arange(QUERIES)[:, None] + 5
    right = expected(given, allowed=allowed)
    bias = jnp.where(allowed, 0.0, -jnp.inf).astype(jnp.float32)[None, None]
    if kind == "allowed":
        scoring = Scoring(0.3, mask=lambda tile: Mask(None, tile.keys > tile.queries + 5))
    else:
        scoring = scoring_with(bias, 0.3, is_guarded=kind == "guarded")
        right = np.where(allowed.any(-1, keepdims=True) | (kind == "guarded"), right, np.nan)
    check(beyond_a_block, given, scoring, right)


def test_a_single_query_without_scores() -> None:
    for number in (np.inf, 1e25):
        given, right = without_scores("float32", number)
        given[0], right = given[0][:, :, 3:4], right[:, :, 3:4]
        y = attended_on_tpu(*map(jnp.asarray, given), Scoring(0.3), "highest")
        np.testing.assert_array_equal(y, right)


OTHERS = np.asarray([row for row in range(QUERIES) if row != 3])
TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: jax.grad(f, argnums=(0, 1, 2)),
    "grad of checkpoint": lambda f: jax.grad(jax.checkpoint(f), argnums=(0, 1, 2)),
    "linearize": lambda f: (
        lambda *x: jax.linear_transpose(jax.linearize(f, *x)[1], *x)(jnp.float32(1))
    ),
    "jacfwd": lambda f: jax.jacfwd(f, argnums=(0, 1, 2)),
    "vmap of grad": lambda f: (
        lambda *x: jax.tree.map(
            lambda y: y[0], jax.vmap(jax.grad(f, (0, 1, 2)))(*(jnp.stack([y, y]) for y in x))
        )
    ),
    "grad of vmap": lambda f: jax.grad(lambda *x: jax.vmap(f)(*(y[None] for y in x))[0], (0, 1, 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("transform", TRANSFORMED.values(), ids=TRANSFORMED)
def test_derivatives_beside_a_query_whose_scores_overflow(transform: Any) -> None:
    """A query without a score has none, and those of other queries do not change."""
    given = [jnp.asarray(x) for x in without_scores("float32", 1e25)[0]]
    small = (slice(0, 1), slice(0, 2)), (slice(0, 1), slice(0, 1)), (slice(0, 1), slice(0, 1))
    given = [x[cut] for x, cut in zip(given, small, strict=True)]

    def total(form: Any, rows: Any, *x: Any) -> Any:
        return jnp.sum(form(x[0][:, :, rows], *x[1:], Scoring(0.3), "highest") ** 2)

    found = transform(partial(total, attended_on_tpu, jnp.arange(QUERIES)))(*given)
    right = jax.grad(partial(total, attended, OTHERS), (0, 1, 2))(*given)
    for a, b in zip(found, right, strict=True):
        # Along the first axis of queries the keys are so large that sums cancel to anything.
        np.testing.assert_allclose(a[..., 1:], b[..., 1:], rtol=2e-5, atol=1e-6)


def test_second_derivatives_beside_a_query_whose_scores_overflow() -> None:
    q, k, v = (jnp.asarray(x) for x in without_scores("float32", 1e25)[0])

    def slope(form: Any, rows: Any, v: Any) -> Any:
        def total(q: Any) -> Any:
            return jnp.sum(form(q[:, :, rows], k, v, Scoring(0.3), "highest") ** 2)

        return jax.grad(total)(q)[..., 1:]

    every = jnp.arange(QUERIES)
    _, found = jax.jvp(partial(slope, attended_on_tpu, every), (v,), (v,))
    _, right = jax.jvp(partial(slope, attended, OTHERS), (v,), (v,))
    np.testing.assert_allclose(found, right, rtol=2e-4, atol=2e-5)


def test_the_search_for_such_queries_stays_a_branch_under_vmap() -> None:
    """Where each sample had its own condition, all of them would search."""
    given = [jnp.stack([jnp.asarray(x)] * 2) for x in arrays("float32")]
    mapped = jax.vmap(jax.vmap(lambda *x: attended_on_tpu(*x, Scoring(0.3), "highest")))
    jaxpr = jax.make_jaxpr(mapped)(*(x[None] for x in given))
    (branch,) = [each for each in jaxpr.eqns if each.primitive.name == "cond"]
    assert branch.invars[0].aval.shape == ()


def test_one_sample_without_scores_among_those_of_vmap() -> None:
    given, right = without_scores("float32", np.inf)
    usual = arrays("float32")
    both = [jnp.stack([jnp.asarray(a), jnp.asarray(b)]) for a, b in zip(usual, given, strict=True)]
    y = jax.jit(jax.vmap(lambda *x: attended_on_tpu(*x, Scoring(0.3), "highest")))(*both)
    np.testing.assert_allclose(y[0], expected(usual), rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(y[1], right, rtol=2e-6, atol=2e-6)


@pytest.mark.slow
@FORM
def test_gradients(form: Any) -> None:
    """They are those of softmax in float64, also in rows beside one without a key."""
    given = [jnp.asarray(x) for x in arrays("float32")]
    allowed = jnp.asarray(np.random.default_rng(3).random((QUERIES, KEYS)) < 0.6).at[4].set(False)
    sink = jnp.asarray([0.5, -2.0, 3.0, 0.0], jnp.float32).reshape(1, -1, 1, 1)

    def of_form(sink: Any, *arrays: Any) -> Any:
        scoring = Scoring(0.3, 2.0, lambda tile: Mask(None, tile.cut(allowed)), sink=sink)
        return jnp.sum(form(*arrays, scoring, "highest") ** 2)

    def plain(sink: Any, q: Any, k: Any, v: Any) -> Any:
        k, v = (jnp.repeat(x, HEADS // SHARED, axis=1) for x in (k, v))
        scores = 2.0 * jnp.tanh(q @ jnp.swapaxes(k, -1, -2) * 0.3 / 2.0)
        e = jnp.where(allowed, jnp.exp(scores), 0.0)
        return jnp.sum((e / (e.sum(-1, keepdims=True) + jnp.exp(sink)) @ v) ** 2)

    found = jax.grad(of_form, argnums=(0, 1, 2, 3))(sink, *given)
    doubles = [x.astype(jnp.float64) for x in (sink, *given)]
    for a, b in zip(found, jax.grad(plain, argnums=(0, 1, 2, 3))(*doubles), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.slow
@FORM
def test_gradients_with_a_mask_and_without_a_sink_are_finite(form: Any) -> None:
    given = [jnp.asarray(x) for x in arrays("float32")]
    scoring = Scoring(0.3, mask=lambda tile: Mask(None, tile.keys < tile.queries))
    total = jax.grad(lambda *x: jnp.sum(form(*x, scoring, "highest")), argnums=(0, 1, 2))
    assert all(bool(jnp.isfinite(x).all()) for x in total(*given))


@FORM
def test_under_vmap_and_forward_derivatives(form: Any) -> None:
    q, k, v = (jnp.asarray(x) for x in arrays("float32"))

    def run(q: Any) -> Any:
        return form(q, k, v, Scoring(0.3), "highest")

    np.testing.assert_allclose(
        jax.vmap(run)(jnp.stack([q, 2 * q])), jnp.stack([run(q), run(2 * q)]), atol=1e-6
    )
    _, tangent = jax.jvp(run, (q,), (jnp.ones_like(q),))
    step = (run(q + 1e-2) - run(q - 1e-2)) / 2e-2
    np.testing.assert_allclose(tangent, step, atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_below_top(dtype: Any) -> None:
    rows = [[1e4, 3.0, 1e4], [np.inf, 1.0, 2.0], [-np.inf] * 3, [np.nan, 1, 2], [-np.inf, 0, 1]]
    x = jnp.asarray(np.asarray(rows).astype(dtype))
    top = x.max(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        right = np.asarray(x, np.float64) - np.asarray(top, np.float64)
    found = below_top(x, top)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(found, np.float64), right.astype(dtype).astype(float))


def test_the_gradient_of_a_difference_with_the_maximum_passes_where_they_are_equal() -> None:
    x = jnp.asarray([1.0, 3.0, 3.0])
    gradient = jax.grad(lambda x: (below_top(x, x.max()) * jnp.asarray([1.0, 2.0, 4.0])).sum())(x)
    np.testing.assert_array_equal(gradient, [1.0, 2.0, 4.0])


def test_a_total_of_zero_divides_to_zeros() -> None:
    totals = jnp.asarray([0.0, 1.0, np.nan, 2.5], jnp.float32)
    np.testing.assert_array_equal(nonzero_total(totals)[1:], totals[1:])
    assert float(jnp.float32(0) / nonzero_total(totals)[0]) == 0.0


def test_what_has_no_such_form() -> None:
    q, k, v = (jnp.asarray(x) for x in arrays("float32"))
    assert is_supported(q, k, v)
    assert not is_supported(q.astype(np.float64), k.astype(np.float64), v.astype(np.float64))
    assert not is_supported(q, k.astype(np.float16), v)
    assert not is_supported(q[:, :, :0], k, v)
    assert not is_supported(q[0], k[0], v[0])


def test_a_tile_of_a_block_is_that_part_of_all_scores() -> None:
    """The mask is asked for tiles whose places and cuts belong together."""
    seen: list[tuple[int, int]] = []
    places = jnp.arange(QUERIES)[:, None] * 100 + jnp.arange(KEYS)

    def mask(tile: Tile) -> Mask:
        same = jnp.all(tile.cut(places) == tile.queries * 100 + tile.keys)
        jax.debug.callback(
            lambda same, row: seen.append((int(row), bool(same))), same, tile.queries[0, 0]
        )
        return Mask(None, None)

    in_blocks(*map(jnp.asarray, arrays("float32")), Scoring(0.3, mask=mask), "highest")
    jax.effects_barrier()
    assert {row for row, _ in seen} == {0, 5, 8}
    assert all(same for _, same in seen)


def test_sizes_that_stay_open() -> None:
    given, right = without_scores("float32", np.inf)
    batch, queries, keys = export.symbolic_shape("batch, queries, keys")
    shapes = (HEADS, queries, SIZE), (SHARED, keys, SIZE), (SHARED, keys, VALUES)
    specs = [jax.ShapeDtypeStruct((batch, *shape), jnp.float32) for shape in shapes]
    for form in (attended, attended_on_tpu):
        function = jax.jit(lambda *x, form=form: form(*x, Scoring(0.3), "highest"))
        exported = export.export(function)(*specs)
        np.testing.assert_allclose(exported.call(*given), right, rtol=2e-6, atol=2e-6)
