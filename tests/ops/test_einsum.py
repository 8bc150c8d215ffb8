from __future__ import annotations

import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.errors import LimitExceeded
from sardonyx.ops.einsum import Einsum
from tests.ops.oracle import assert_same, onnxruntime_run, run


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape))


EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij->ji", [(2, 3)]),
    ("ba", [(2, 3)]),
    ("aB", [(2, 3)]),
    (" i j , j k -> i k ", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("ij,ij->", [(2, 3), (2, 3)]),
    ("ij,ij->ij", [(2, 3), (2, 3)]),
    ("i,j->ji", [(2,), (3,)]),
    ("ij,k->", [(2, 3), (4,)]),
    ("ij,jk->", [(2, 3), (3, 4)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("iji->j", [(3, 2, 3)]),
    ("iii->i", [(3, 3, 3)]),
    ("iijj->ij", [(3, 3, 2, 2)]),
    ("ii,ij->j", [(3, 3), (3, 2)]),
    ("...ii->...i", [(2, 4, 3, 3)]),
    ("...", [(2, 3)]),
    ("...->...", [()]),
    ("...i", [(2, 3, 4)]),
    ("i...->...i", [(2, 3, 4)]),
    ("a...b,b...c->...ac", [(2, 5, 6, 3), (3, 5, 6, 4)]),
    ("...ij,...jk->...ik", [(5, 1, 2, 3), (1, 6, 3, 4)]),
    ("...ij,jk->i...k", [(5, 6, 2, 3), (3, 4)]),
    ("i...,i...->...", [(2, 3), (2, 3)]),
    ("ij->ij...", [(2, 3)]),
    ("ij,jk->ik", [(2, 1), (5, 3)]),
    ("ij,ij->ij", [(2, 1), (1, 3)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("ij,jk,ki->", [(2, 3), (3, 4), (4, 2)]),
    ("a,ab,abc->abc", [(2,), (2, 3), (2, 3, 4)]),
    ("i,i,i->i", [(4,), (4,), (4,)]),
    ("ea,fb,abcd,gc,hd->efgh", [(2, 3), (4, 5), (3, 5, 2, 3), (3, 2), (2, 3)]),
    (",->", [(), ()]),
    ("i,->i", [(3,), ()]),
    ("ij,jk->ik", [(2, 0), (0, 3)]),
    ("ij,jk->ik", [(0, 2), (2, 3)]),
    ("ij,jk->ik", [(2, 1), (0, 3)]),
    ("ii->i", [(0, 0)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=str)
def test_Einsum(xp: Backend, equation: str, shapes: Any) -> None:
    given = [drawn(*shape, seed=i) for i, shape in enumerate(shapes)]
    expected = np.asarray(np.einsum(equation, *given))
    assert_same(run(xp, Einsum, *given, equation=equation), expected, ulps=64)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij->", [(9, 7)]),
        ("ij,jk->ik", [(2, 9), (9, 4)]),
        ("bij,bjk->bik", [(3, 2, 9), (3, 9, 4)]),
        ("i,i->i", [(9,), (9,)]),
    ],
    ids=str,
)
def test_integers_wrap_in_their_own_type(
    xp: Backend, dtype: Any, equation: str, shapes: Any
) -> None:
    bounds = np.iinfo(dtype)
    generator = np.random.default_rng(0)
    given = [generator.integers(bounds.min, bounds.max, shape, dtype) for shape in shapes]
    expected = np.einsum(equation, *given, dtype=dtype)
    assert_same(run(xp, Einsum, *given, equation=equation), np.asarray(expected))


@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_once(backend: Backend, dtype: Any) -> None:
    given = [np.abs(drawn(*shape)).astype(dtype) for shape in ((3, 3000), (3000, 2), (2, 4))]
    wide = [x.astype(np.float64) for x in given]
    expected = (wide[0] @ wide[1] @ wide[2] / 256).astype(dtype)
    given[2] = (wide[2] / 256).astype(dtype)
    result = run(backend, Einsum, *given, equation="ij,jk,kl->il")
    assert_same(result, expected, ulps=1)


def test_an_ellipsis_that_the_result_lacks_is_summed_over(xp: Backend) -> None:
    """As the standard says of every index; onnxruntime and NumPy refuse it."""
    x = drawn(2, 3, 4)
    assert_same(run(xp, Einsum, x, equation="...i->i"), x.sum(axis=(0, 1)))


# Not among them: that capitals come first where the result is not spelt out, which it refuses.
KNOWN_TO_ONNXRUNTIME = [case for case in EQUATIONS if case[0] != "aB" and 0 not in sum(case[1], ())]


@pytest.mark.parametrize(("equation", "shapes"), KNOWN_TO_ONNXRUNTIME, ids=str)
def test_it_is_onnxruntimes(equation: str, shapes: Any) -> None:
    given = [drawn(*shape, seed=i).astype(np.float32) for i, shape in enumerate(shapes)]
    expected = onnxruntime_run("Einsum", *given, opset=12, equation=equation)
    assert_same(run(HOST, Einsum, *given, equation=equation), np.asarray(expected), ulps=64)


def test_operands_are_multiplied_in_an_order_that_keeps_products_small() -> None:
    """From left to right this would pass through 2**32 elements, or 2**36 operations."""
    n = 2**16
    given = [np.ones(shape, np.float32) for shape in ((n, 2), (2, n), (n, 2), (2, n), (n, 3))]
    start = time.process_time()
    result = run(HOST, Einsum, *given, equation="ab,bc,cd,de,ef->af")
    assert time.process_time() - start < 5
    assert result.shape == (n, 3)
    assert result[0, 0] == 4.0 * n * n


def test_many_operands_take_no_longer_than_they_must() -> None:
    count = 200
    start = time.process_time()
    equation = ",".join(["ij"] * count) + "->ij"
    result = run(HOST, Einsum, *[np.full((2, 3), 1.5)] * count, equation=equation)
    assert time.process_time() - start < 5
    assert_same(result, np.full((2, 3), 1.5**count))


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk->ik", [(2, 3)], "needs 2 inputs, but there are 1"),
        ("ij->i", [(2,)], "does not fit an input of rank 1"),
        ("i->i", [(2, 3)], "does not fit an input of rank 2"),
        ("ij...->i", [(2,)], "does not fit an input of rank 1"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "sizes 3 and 4"),
        ("ii->i", [(2, 3)], "no diagonal"),
        ("ii->i", [(1, 3)], "no diagonal"),
        ("i->ij", [(2,)], "uses one that no input has"),
        ("ij->ii", [(2, 2)], "repeats a letter"),
        ("i->j", [(2,)], "uses one that no input has"),
        (".i->i", [(2,)], "must consist of letters"),
        ("i.->i", [(2,)], "must consist of letters"),
        ("......i->i", [(2,)], "must consist of letters"),
        ("i0->i", [(2, 2)], "must consist of letters"),
        ("é->é", [(2,)], "must consist of letters"),
        ("i->i->i", [(2,)], "must consist of letters"),
        ("i>j", [(2,)], "must consist of letters"),
        ("...i,...i->...", [(2, 3, 4), (4,)], "stands for"),
    ],
)
def test_refuses(xp: Backend, equation: str, shapes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, Einsum, *map(np.ones, shapes), equation=equation)


def test_refuses_to_make_what_is_too_large(xp: Backend) -> None:
    given = [np.ones(2**21, np.float32)] * 2
    with pytest.raises(LimitExceeded):
        run(xp, Einsum, *given, equation="i,j->ij")
