from __future__ import annotations

import math
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.backends import random
from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import LimitExceeded
from sardonyx.ops import random as ops
from tests.ops.oracle import assert_same, run

KEY = random.fold_in(HOST, random.key_of(0.0), 2024)
F32 = np.dtype(np.float32)
F64 = np.dtype(np.float64)
NARROW = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
LIKE = {ops.RandomUniform: ops.RandomUniformLike, ops.RandomNormal: ops.RandomNormalLike}


def drawn(xp: Backend, op: Any, *inputs: Any, opset: int = 99, **attributes: Any) -> Any:
    return run(xp, op, *inputs, opset=opset, key=xp.put(KEY), **attributes)


def floats_of(xp: Backend) -> list[np.dtype[Any]]:
    return [F32, F64] if xp.name == "strict" else [F32, F64, *NARROW]


def assert_distributed(sample: np.ndarray, cumulative: Any) -> None:
    """The test of Kolmogorov and Smirnov, at one in a thousand."""
    x = np.sort(sample.astype(np.float64).ravel())
    steps = np.arange(x.size + 1) / x.size
    expected = cumulative(x)
    distance = max(np.max(steps[1:] - expected), np.max(expected - steps[:-1]))
    assert distance * math.sqrt(x.size) < 1.95


def normal_cumulative(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])


# -- the generator --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "counters", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1, 2**32 - 1), (2**32 - 1, 2**32 - 1), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_by_its_authors_vectors(
    xp: Backend, key: tuple[int, int], counters: tuple[int, int], words: tuple[int, int]
) -> None:
    given = (np.array(key, np.uint32), *(np.array([c], np.uint32) for c in counters))
    with xp.scope():
        found = random.threefry(xp, *map(xp.put, given))  # type: ignore[arg-type]
        assert tuple(int(xp.fetch(word)[0]) for word in found) == words


@pytest.mark.parametrize("number", [0, 7, 2**31, 2**32 - 1])
def test_keys_are_folded_as_jax_folds_them(xp: Backend, number: int) -> None:
    expected = np.asarray(jax.random.fold_in(jax.random.wrap_key_data(KEY), number)._base_array)
    with xp.scope():
        key = xp.put(KEY)
        for given in (number, np.uint32(number), xp.put(np.array([number], np.int64))):
            np.testing.assert_array_equal(xp.fetch(random.fold_in(xp, key, given)), expected)


def test_a_number_of_64_bits_makes_a_key_of_its_own() -> None:
    keys = [random.fold_in(HOST, KEY, n) for n in (1, 2**32 + 1, 2**63)]
    assert len({tuple(key.tolist()) for key in keys}) == 3


def test_seeds_make_keys_of_their_own() -> None:
    seeds = [0.0, 1.0, -1.0, 0.5, 1e30, float(np.float32(0.1)), math.inf]
    assert len({tuple(random.key_of(seed).tolist()) for seed in seeds}) == len(seeds)
    assert random.key_of(-0.0).tolist() == random.key_of(0.0).tolist()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5)])
@pytest.mark.sampled(4)
def test_every_library_draws_the_same_numbers(xp: Backend, shape: tuple[int, ...]) -> None:
    for dtype in floats_of(xp):
        with xp.scope():
            key = xp.put(KEY)
            uniform = xp.fetch(random.uniform(xp, key, shape, dtype))
            np.testing.assert_array_equal(uniform, random.uniform(HOST, KEY, shape, dtype))
            assert uniform.dtype == dtype
            assert uniform.shape == shape
            if dtype.itemsize >= 4:
                normal = xp.fetch(random.normal(xp, key, shape, dtype))
                assert_same(normal, np.asarray(random.normal(HOST, KEY, shape, dtype)), ulps=16)


@pytest.mark.parametrize("dtype", [F32, F64, *NARROW], ids=lambda dtype: dtype.name)
def test_uniform_numbers_are_evenly_spaced_from_zero_to_one(dtype: np.dtype[Any]) -> None:
    x = random.uniform(HOST, KEY, (40_000,), dtype).astype(np.float64)
    assert x.min() >= 0
    assert x.max() < 1
    spacing = float(ml_dtypes.finfo(dtype).eps) / 2
    assert np.all(x / spacing == np.floor(x / spacing))
    assert_distributed(x + spacing / 2, lambda v: np.clip(v, 0, 1)) if spacing < 1e-4 else None
    assert abs(np.mean(x) + spacing / 2 - 0.5) < 4 / math.sqrt(12 * x.size)


def test_numbers_are_independent_of_their_neighbours_and_of_other_keys() -> None:
    rows = [random.uniform(HOST, random.fold_in(HOST, KEY, i), (5000,), F32) for i in range(4)]
    rows += [np.roll(rows[0], shift) for shift in (1, 2, 2500)]
    correlation = np.corrcoef(np.array(rows)) - np.eye(len(rows))
    assert np.abs(correlation).max() < 5 / math.sqrt(5000)


# -- tensors of numbers ---------------------------------------------------------------------------


def test_uniform(xp: Backend) -> None:
    for dtype in floats_of(xp):
        x = drawn(xp, ops.RandomUniform, shape=(100, 100), low=-3.0, high=5.0, dtype=dtype)
        assert x.dtype == dtype
        wide = x.astype(np.float64)
        assert abs(wide.mean() - 1) < 0.1
        assert wide.min() >= -3
        assert wide.max() < 5
        if dtype.itemsize >= 4:
            assert_distributed(wide, lambda v: (v + 3) / 8)


def test_normal(xp: Backend) -> None:
    for dtype in floats_of(xp):
        x = drawn(xp, ops.RandomNormal, shape=(20_001,), mean=2.0, scale=0.5, dtype=dtype)
        assert x.dtype == dtype
        wide = x.astype(np.float64)
        assert abs(wide.mean() - 2) < 0.02
        assert abs(wide.std() - 0.5) < 0.02
        if dtype.itemsize >= 4:
            assert_distributed(wide, lambda v: normal_cumulative((v - 2) * 2))
            assert wide.max() > 2 + 0.5 * 3.5


@pytest.mark.parametrize("dtype", NARROW, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (100.0, 101.0), (-1.0, 0.0), (3.0, 3.0)])
def test_uniform_stays_below_its_upper_end(dtype: Any, low: float, high: float) -> None:
    x = drawn(HOST, ops.RandomUniform, shape=(4000,), low=low, high=high, dtype=dtype)
    x = x.astype(np.float64)
    assert x.min() >= low
    assert x.max() < high or low == high == x.max()


@pytest.mark.parametrize("op", LIKE)
def test_like_another_tensor(xp: Backend, op: Any) -> None:
    for dtype in floats_of(xp):
        expected = drawn(xp, op, shape=(2, 3), dtype=dtype)
        like = drawn(xp, LIKE[op], np.zeros((2, 3), dtype))
        other = drawn(xp, LIKE[op], np.zeros((2, 3), np.int16), dtype=dtype)
        np.testing.assert_array_equal(like, expected)
        np.testing.assert_array_equal(other, expected)
    with pytest.raises(ValueError, match="int16, but must be a floating-point type"):
        drawn(xp, LIKE[op], np.zeros((2, 3), np.int16))


def test_a_seed_stands_for_its_numbers(xp: Backend) -> None:
    for op in LIKE:
        first, other = (drawn(xp, op, shape=(9,), seed=seed) for seed in (1.0, 2.0))
        again = run(xp, op, shape=(9,), seed=1.0, key=xp.put(KEY + np.uint32(1)))
        np.testing.assert_array_equal(first, again)
        assert not np.any(first == other)
        unseeded = drawn(xp, op, shape=(9,), seed=math.nan)
        np.testing.assert_array_equal(unseeded, drawn(xp, op, shape=(9,)))


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("RandomNormal", (), {"shape": [50]}),
        ("RandomUniformLike", (np.zeros(50, F32),), {}),
        ("Bernoulli", (np.full(200, 0.5, F32),), {}),
        ("Multinomial", (np.zeros((1, 99), F32),), {"sample_size": 50}),
        ("Dropout", (np.ones(200, F32), np.array(0.5, F32), np.array(True)), {}),
    ],
)
@pytest.mark.sampled(4)
def test_calls_differ_unless_there_is_a_seed(
    backend: str, op: str, inputs: Any, attributes: Any
) -> None:
    def call(**seed: Any) -> np.ndarray:
        result = sardonyx.run_op(op, *inputs, backend=backend, **attributes, **seed)
        return np.asarray(result)

    assert np.any(call() != call())
    seed = 3 if op == "Dropout" else 3.0
    np.testing.assert_array_equal(call(seed=seed), call(seed=seed))


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        (ops.RandomNormal, {"shape": (2, -1)}, "negative"),
        (ops.RandomUniform, {"shape": (-(2**40),)}, "negative"),
        (ops.RandomNormal, {"shape": (1,), "dtype": np.dtype(np.int32)}, "floating-point"),
        (ops.RandomUniform, {"shape": (1,), "low": 2.0}, "low is 2.0 and high is 1.0"),
        (ops.RandomUniform, {"shape": (1,), "low": math.nan}, "must be in order"),
        (ops.RandomUniform, {"shape": (1,), "high": math.inf}, "must be in order"),
    ],
)
def test_what_cannot_be_drawn(op: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        drawn(HOST, op, **attributes)


@pytest.mark.parametrize("op", LIKE)
def test_too_many_numbers_are_refused_before_they_are_made(xp: Backend, op: Any) -> None:
    with pytest.raises(LimitExceeded):
        drawn(xp, op, shape=(2**20, 2**20))


# -- choices by probability -----------------------------------------------------------------------


def test_bernoulli(xp: Backend) -> None:
    p = np.repeat([0.0, 0.1, 0.5, 1.0], 5000)
    for dtype in floats_of(xp):
        ones = drawn(xp, ops.Bernoulli, p.astype(dtype)).reshape(4, -1)
        assert ones.dtype == dtype
        means = ones.astype(np.float64).mean(axis=1)
        assert means[0] == 0
        assert means[3] == 1
        np.testing.assert_allclose(means[1:3], [0.1, 0.5], atol=0.02)


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.int64, np.float64])
def test_bernoulli_in_other_types(xp: Backend, kind: Any) -> None:
    p = np.linspace(0, 1, 50, dtype=np.float32)
    result = drawn(xp, ops.Bernoulli, p, dtype=np.dtype(kind))
    assert_same(result, drawn(xp, ops.Bernoulli, p).astype(kind))


def test_multinomial(xp: Backend) -> None:
    shares = np.array([[0.1, 0.0, 0.6, 0.3, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2]])
    with np.errstate(divide="ignore"):
        logarithms = np.log(shares) + np.array([[500.0], [-700.0]])
    for dtype in floats_of(xp):
        if dtype.itemsize < 4:
            logarithms = np.where(np.isinf(logarithms), logarithms, np.log(shares + 1e-9))
        x = logarithms.astype(dtype)
        classes = drawn(xp, ops.Multinomial, x, sample_size=6000, dtype=np.dtype(np.int64))
        assert classes.dtype == np.int64
        assert classes.shape == (2, 6000)
        found = np.array([np.bincount(row, minlength=5) for row in classes]) / 6000
        np.testing.assert_allclose(found, shares, atol=0.025)
        assert found[0, 1] == found[0, 4] == 0


@pytest.mark.parametrize("classes", [1, 2, 3, 4, 7, 8, 9, 1000])
def test_multinomial_of_many_classes(xp: Backend, classes: int) -> None:
    x = np.random.default_rng(classes).normal(size=(2, classes))
    found = drawn(xp, ops.Multinomial, x, sample_size=300)
    assert found.dtype == np.int32
    shares = np.floor(np.exp(x - x.max(axis=1, keepdims=True)) * 2.0 ** (52 - classes.bit_length()))
    points = random.uniform(HOST, KEY, (2, 300), F64) * shares.sum(axis=1, keepdims=True)
    for row, at, each in zip(found, points, shares, strict=True):
        expected = np.searchsorted(np.cumsum(each), np.floor(at), side="right")
        assert np.mean(row == expected) > 0.99


@pytest.mark.parametrize(
    ("row", "possible"),
    [
        ([math.inf, 0, 1], {0}),
        ([math.inf, 0, math.inf], {0, 2}),
        ([-math.inf, -math.inf, 3e38], {2}),
        ([-math.inf] * 3, {0, 1, 2}),
        ([math.nan, 0, 1], {0, 1, 2}),
    ],
)
def test_multinomial_at_the_edges(xp: Backend, row: list[float], possible: set[int]) -> None:
    x = np.array([row], np.float32)
    assert set(drawn(xp, ops.Multinomial, x, sample_size=64).ravel().tolist()) <= possible


@pytest.mark.parametrize(
    ("shape", "attributes", "message"),
    [
        ((2, 0), {}, "class"),
        ((2,), {}, "batch"),
        ((1, 2), {"sample_size": -1}, "negative"),
        ((1, 2), {"dtype": np.dtype(np.float32)}, "int32 or int64"),
    ],
)
def test_multinomial_refuses(shape: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        drawn(HOST, ops.Multinomial, np.zeros(shape, np.float32), **attributes)


# -- dropout --------------------------------------------------------------------------------------


def test_dropout_in_inference_is_its_input(xp: Backend) -> None:
    x = np.arange(6, dtype=F32).reshape(2, 3)
    with xp.scope():
        data, key = xp.put(x), xp.put(KEY)
        assert ops.Dropout(xp, data, 0.9, outputs=1, key=key) is data
        assert ops.Dropout(xp, data, 0.0, True, outputs=2, key=key)[0] is data
        assert ops.Dropout.at(7).function(xp, data, ratio=0.9, outputs=1) is data
        assert ops.Dropout.at(1).function(xp, data, is_test=1, outputs=1, key=key) is data


@pytest.mark.parametrize(("opset", "dtype"), [(7, F32), (10, bool), (12, bool), (22, bool)])
def test_dropout_keeps_everything_in_its_mask(xp: Backend, opset: int, dtype: Any) -> None:
    x = np.zeros((2, 3), F32)
    key = {"key": xp.put(KEY)} if opset >= 12 else {}
    output, mask = run(xp, ops.Dropout, x, opset=opset, outputs=2, **key)
    assert_same(output, x)
    assert_same(mask, np.ones((2, 3), dtype))


@pytest.mark.parametrize("seed", [None, 0, -7, 2**40])
def test_dropout_in_training(xp: Backend, seed: int | None) -> None:
    for dtype in floats_of(xp):
        x = np.linspace(1, 2, 20_000).astype(dtype)
        training = {"ratio": 0.75, "training_mode": True, "outputs": 2, "seed": seed}
        output, mask = drawn(xp, ops.Dropout, x, **training)
        assert mask.dtype == np.bool_
        assert abs(mask.mean() - 0.25) < 0.02
        kept = x.astype(F64) * 4
        assert_same(output, np.where(mask, kept, 0).astype(dtype), ulps=0)
        if seed is not None:
            legacy = np.random.RandomState(seed % 2**32).uniform(size=x.shape)
            np.testing.assert_array_equal(mask, legacy >= 0.75)


def test_dropout_in_the_first_opsets_unless_tested(xp: Backend) -> None:
    x = np.linspace(1, 2, 2000, dtype=F32)
    output, mask = drawn(xp, ops.Dropout, x, opset=6, outputs=2)
    assert mask.dtype == F32
    assert 0.45 < mask.mean() < 0.55
    assert_same(output, x * 2 * mask, ulps=0)


def test_dropout_of_eight_bits() -> None:
    x = np.ones(64, ml_dtypes.float8_e5m2)
    output = drawn(HOST, ops.Dropout, x, ratio=0.5, training_mode=True, outputs=1)
    assert output.dtype == x.dtype
    assert set(output.astype(F32).tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("ratio", [1.0, -0.5, math.nan])
def test_dropout_of_no_ratio(ratio: float) -> None:
    with pytest.raises(ValueError, match="at least 0 and less than 1"):
        drawn(HOST, ops.Dropout, np.zeros(3, F32), ratio=ratio, training_mode=True, outputs=1)
