"""Identity, Shape and Constant: every version with every type, allowed or refused by name."""

from __future__ import annotations

import pytest

from sardonyx.backends.base import Backend
from tests.support.type_matrix import OPERATORS, cells, check_allowed, check_refused, versions

ROWS = [(operator, version) for operator in OPERATORS for version in versions(operator)]


@pytest.fixture(params=["numpy", "jax"])
def library(request: pytest.FixtureRequest) -> str | Backend:
    """The libraries that hold every type; array_api_strict has no low-precision ones."""
    return str(request.param)


@pytest.mark.parametrize(("operator", "version"), ROWS)
@pytest.mark.sampled(2)
def test_types_the_schema_allows_come_out_identical(
    operator: str, version: int, library: str
) -> None:
    row = [c for c in cells() if (c.operator, c.version, c.allowed) == (operator, version, True)]
    assert row
    for cell in row:
        check_allowed(cell, library)


@pytest.mark.parametrize(("operator", "version"), ROWS)
def test_types_the_schema_does_not_allow_are_refused_by_name(
    operator: str, version: int, library: str
) -> None:
    row = [c for c in cells() if (c.operator, c.version, c.allowed) == (operator, version, False)]
    assert row
    for cell in row:
        check_refused(cell, library)
