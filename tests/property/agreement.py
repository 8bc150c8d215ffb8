"""Whether sardonyx and onnxruntime make the same of a case."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from zlib import crc32

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx.backends.dtypes import isdtype
from tests.property import reference
from tests.property.case import Case
from tests.property.disagreements import known_disagreement
from tests.property.reference import Lacking, Refused

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]
Maker: TypeAlias = Callable[[Draw, str, int], Case]

# Where examples run: tests/property/conftest.py has them run on CuPy too.
BACKENDS: tuple[str, ...] = ("numpy", "jax")
# What the errors of types say that CuPy cannot hold.
LACKING_TYPE = "CuPy has no arrays of"

# How many examples each version of an operator gets; more, by this variable, find more.
EXAMPLES = int(os.environ.get("SARDONYX_EXAMPLES", "25"))


def versions_of(makers: Mapping[str, Maker]) -> pytest.MarkDecorator:
    """A test's parameters: each operator, at each version that onnxruntime runs."""
    pairs = [(op, version) for op in makers for version in reference.versions(op)]
    return pytest.mark.parametrize(("op", "version"), pairs)


def assert_examples_agree(maker: Maker, op: str, version: int) -> None:
    """Draw examples of an operator at a version, and compare what both make of each."""
    verdicts = verdicts_on(cases_of(maker, op, version), f"{op}-{version}")
    if BACKENDS == ("cupy",) and set(verdicts) <= {"lacking", "known to differ", "both refuse"}:
        pytest.skip(f"CuPy has no type of {op} at version {version}")
    assert verdicts["agree"], f"no example of {op} at version {version} compared: {verdicts}"


def verdicts_on(cases: st.SearchStrategy[Case], label: str) -> Counter[str]:
    """Draw examples, the same ones for each label, and return how often which verdict came."""
    verdicts: Counter[str] = Counter()

    @seed(crc32(label.encode()))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def compare(case: Case) -> None:
        verdicts[verdict(case)] += 1

    compare()
    return verdicts


@st.composite
def cases_of(draw: Draw, maker: Maker, op: str, version: int) -> Case:
    """A strategy for examples of an operator at a version."""
    opset = draw(st.sampled_from(sorted({version, reference.last_opset(op, version)})))
    return maker(draw, op, opset)


def verdict(case: Case) -> str:
    """What became of a case; where the two differ and the table does not say so, an error."""
    return "known to differ" if known_disagreement(case) else compared(case)


def compared(case: Case) -> str:
    """How the two agree on a case, or an error where they do not."""
    try:
        expected = reference.run(case)
    except Lacking:
        return "lacking"
    except Refused as refusal:
        for backend in _backends(case):
            _require_refusal(case, backend, refusal)
        return "both refuse"
    for backend in _backends(case):
        try:
            results = run(case, backend)
        except sardonyx.SardonyxError as error:
            if LACKING_TYPE in str(error):
                return "lacking"
            raise
        for one, other in zip(results, expected, strict=True):
            assert_close(one, other, case)
    return "agree"


def _require_refusal(case: Case, backend: str, refusal: Refused) -> None:
    try:
        made = run(case, backend)
    except sardonyx.SardonyxError:
        return
    raise AssertionError(f"onnxruntime refuses ({refusal}), and {backend} made {made}")


def _backends(case: Case) -> tuple[str, ...]:
    return tuple(name for name in BACKENDS if case.on_jax or name != "jax")


def run(case: Case, backend: str = "numpy") -> list[np.ndarray]:
    model = sardonyx.load(case.model, backend=backend)
    return model.run(None, case.feeds)


def assert_close(found: Any, expected: Any, case: Case) -> None:
    """Equal dtype and shape, the same integers, strings and bits, and floats that are close."""
    if isinstance(expected, (list, dict)):
        assert_all_close(found, expected, case)
        return
    if expected is None:
        assert found is None
        return
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if not isdtype(expected.dtype, "real floating"):
        np.testing.assert_array_equal(found, expected)
        return
    limits = ml_dtypes.finfo(expected.dtype)
    unit = case.ulps * float(limits.eps)
    np.testing.assert_allclose(
        found.astype(np.float64),
        expected.astype(np.float64),
        rtol=unit,
        atol=max(unit * case.scale, float(limits.smallest_normal)),
    )


def assert_all_close(found: Any, expected: Any, case: Case) -> None:
    """The same of what sequences and maps hold."""
    assert len(found) == len(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        keys = sorted(expected)
        found, expected = ([np.float32(m[key]) for key in keys] for m in (found, expected))
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, case)
