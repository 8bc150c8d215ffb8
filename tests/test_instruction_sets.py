"""Casts give the same bits on processors with and without instructions for narrow floats."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.numpy import HOST
from tests.support import casts

# float8e8m0 has rules of its own, which tests/ops/test_casting.py holds.
ROUNDED = [t for t in casts.DTYPES if isdtype(t, "real floating") and t.name != "float8_e8m0fnu"]
TINY = float(np.finfo(np.float32).tiny)
WHOLE = [t for t in casts.DTYPES if isdtype(t, "integral")]
finfo = cache(ml_dtypes.finfo)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instruction sets are x86-64's")
@pytest.mark.slow
def test_casts_do_not_depend_on_the_instruction_set(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.support.casts", str(tmp_path / "casts.npz")],
        env={**os.environ, "XLA_FLAGS": "--xla_cpu_max_isa=AVX2"},
        check=True,
    )
    here = casts.all_words()
    with np.load(tmp_path / "casts.npz") as there:
        assert set(there.files) == set(here)
        for cast, expected in here.items():
            np.testing.assert_array_equal(there[cast], expected, cast)


def exactly(value: Any) -> tuple[int, int]:
    """`(n, e)` such that `value` is n * 2**e."""
    if isinstance(value, int):
        return value, 0
    fraction, exponent = math.frexp(value)
    return int(math.ldexp(fraction, 53)), exponent - 53


def rounded_once(value: Any, to: np.dtype[Any]) -> float:
    """The nearest of `to`, ties to even; what is too large saturates where Cast has it so."""
    form = finfo(to)
    beyond = math.copysign(float(form.max) if to.itemsize == 1 else math.inf, value)
    if isinstance(value, float) and math.isinf(value):
        return beyond
    n, exponent = exactly(value)
    unit = max(n.bit_length() + exponent - form.nmant - 1, form.minexp - form.nmant)
    if unit > exponent:
        half = 1 << (unit - exponent - 1)
        whole, rest = divmod(abs(n), 2 * half)
        whole += rest > half or (rest == half and whole % 2 == 1)
        n, exponent = (whole if n >= 0 else -whole), unit
    if n and n.bit_length() + exponent > form.maxexp + 1:
        return beyond
    nearest = math.copysign(float(abs(n)) * 2.0**exponent, value)
    return beyond if abs(nearest) > float(form.max) else nearest


@pytest.mark.parametrize("source", casts.DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("backend", [HOST, casts.JAX], ids=lambda backend: backend.name)
@pytest.mark.sampled(3)
def test_casts_to_floats_round_once(backend: Backend, source: np.dtype[Any]) -> None:
    x = casts.values(source)
    is_whole = source == np.bool_ or isdtype(source, "integral")
    # XLA for CPU takes subnormal numbers of float32, float64 and bfloat16 for zero.
    least = TINY if backend.name == "jax" else 0.0
    chosen = [abs(float(value)) >= least for value in x]
    numbers = [(int if is_whole else float)(value) for value in x[chosen]]
    for (to, saturate), result in zip(casts.TARGETS, casts.results(backend, source), strict=True):
        if to == source or to not in ROUNDED or not saturate:
            continue
        expected = np.array([rounded_once(value, to) for value in numbers])
        with np.errstate(invalid="ignore"):
            found = result.astype(np.float64)[chosen]
        np.testing.assert_array_equal(found, expected, f"{source.name} to {to.name}")


@pytest.mark.parametrize("source", ROUNDED, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("backend", [HOST, casts.JAX], ids=lambda backend: backend.name)
def test_casts_to_integers_cut_the_fraction_off(backend: Backend, source: np.dtype[Any]) -> None:
    """What is beyond the type's range becomes some integer, but narrow ones wrap around."""
    x = casts.values(source)
    wide = x.astype(np.float64)
    for (to, _), result in zip(casts.TARGETS, casts.results(backend, source), strict=True):
        if to not in WHOLE:
            continue
        info = ml_dtypes.iinfo(to if ml_dtypes.iinfo(to).bits >= 8 else np.int32)
        has_one = (wide > float(info.min) - 1) & (wide < float(info.max) + (info.bits < 53))
        bits = ml_dtypes.iinfo(to).bits
        expected = [int(value) % 2**bits for value in wide[has_one]]
        assert [int(value) % 2**bits for value in result[has_one]] == expected
