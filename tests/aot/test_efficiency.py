"""What XLA makes of common patterns: as little as of hand-written JAX, and no more than before."""

from __future__ import annotations

import json

import pytest

from sardonyx.targets.worker import Worker
from tests.aot.efficiency import TABLE, TARGETS, found, versions
from tests.aot.patterns import PATTERNS, Pattern

pytestmark = pytest.mark.aot

# Of the bytes of hand-written JAX.
MOST_BYTES = 1.1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: f"{p.name}-{p.dtype}")
def test_patterns(pattern: Pattern, target: str, target_worker: Worker) -> None:
    row = found(target_worker, pattern, target)
    kernels, nbytes = row["sardonyx"]
    if row["by hand"] is not None:
        assert nbytes <= MOST_BYTES * row["by hand"][1]
    table = json.loads(TABLE.read_text())
    # Other compilers may have other kernels for the same programs.
    if table["compilers"] == versions():
        noted = table["kernels and bytes"][pattern.key(target)]["sardonyx"]
        assert [kernels, nbytes] == noted, "renew the table: python -m tests.aot.efficiency"
