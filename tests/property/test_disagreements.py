"""The table of disagreements is true, told in the docs, and leaves no operator out."""

from __future__ import annotations

from pathlib import Path

import pytest

import sardonyx
from sardonyx.ops import OPS
from tests.fuzz.disagreements import ENTRIES, Joint
from tests.property.agreement import compared
from tests.property.disagreements import DISAGREEMENTS, Disagreement
from tests.property.makers import MAKERS
from tests.property.reference import PROBES, versions

PAGE = Path(__file__).parents[2] / "docs" / "disagreements.md"
# What onnxruntime runs and is not compared with.
APART = {
    **dict.fromkeys(["Bernoulli", "Multinomial", "RandomNormal"], "its results are random"),
    **dict.fromkeys(["RandomNormalLike", "RandomUniform"], "its results are random"),
    "RandomUniformLike": "its results are random",
    "DictVectorizer": "tests/ops/test_ml_labels.py compares it",
}


def label(entry: Disagreement) -> str:
    return f"{entry.example.op}-{DISAGREEMENTS.index(entry)}"


@pytest.mark.parametrize("entry", DISAGREEMENTS, ids=label)
def test_an_entry_knows_its_example_and_the_example_still_differs(entry: Disagreement) -> None:
    assert entry.example.op in entry.operators
    assert entry.applies(entry.example)
    with pytest.raises((AssertionError, sardonyx.SardonyxError)):
        compared(entry.example)


def row_of(entry: Disagreement | Joint) -> str:
    return f"| {', '.join(entry.operators)} | {entry.what} | {entry.right} | {entry.why} |"


def test_the_page_lists_every_entry_and_no_other() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    entries = [row for row in rows if not row.startswith("| operators |")]
    assert sorted(entries) == sorted(map(row_of, (*DISAGREEMENTS, *ENTRIES)))


def test_every_operator_that_onnxruntime_runs_is_compared() -> None:
    built = {name for domain, name in OPS if domain in PROBES}
    assert {op for op in built if versions(op)} == {*MAKERS, *APART}
