"""The table of disagreements is true, told in the docs, and leaves no operator out."""

from __future__ import annotations

from collections import ChainMap
from pathlib import Path

import pytest

import sardonyx
from sardonyx.ops import OPS
from tests.property import (
    test_attention,
    test_casting,
    test_control,
    test_elementwise,
    test_generation,
    test_indexing,
    test_linalg,
    test_loss,
    test_ml,
    test_quantization,
    test_recurrent,
    test_reductions,
    test_regions,
    test_resampling,
    test_selection,
    test_sequences,
    test_shapes,
    test_signal,
    test_text,
    test_windows,
)
from tests.property.agreement import compared
from tests.property.disagreements import DISAGREEMENTS, Disagreement
from tests.property.reference import PROBES, versions

PAGE = Path(__file__).parents[2] / "docs" / "disagreements.md"
MAKERS = ChainMap(
    test_attention.CASES,
    test_casting.CASES,
    test_control.CASES,
    test_elementwise.BINARY,
    test_elementwise.OTHERS,
    test_elementwise.UNARY,
    test_generation.CASES,
    test_indexing.CASES,
    test_linalg.CASES,
    test_loss.CASES,
    test_ml.CASES,
    test_quantization.CASES,
    test_recurrent.CASES,
    test_reductions.CASES,
    test_regions.CASES,
    test_resampling.CASES,
    test_selection.CASES,
    test_sequences.CASES,
    test_shapes.CASES,
    test_signal.CASES,
    test_text.CASES,
    test_windows.CASES,
)
# What onnxruntime runs and is not compared with.
APART = {
    **dict.fromkeys(["Bernoulli", "Multinomial", "RandomNormal"], "its results are random"),
    **dict.fromkeys(["RandomNormalLike", "RandomUniform"], "its results are random"),
    "RandomUniformLike": "its results are random",
    "DictVectorizer": "the two never agree, as the table says",
}


def label(entry: Disagreement) -> str:
    return f"{entry.example.op}-{DISAGREEMENTS.index(entry)}"


@pytest.mark.parametrize("entry", DISAGREEMENTS, ids=label)
def test_an_entry_knows_its_example_and_the_example_still_differs(entry: Disagreement) -> None:
    assert entry.example.op in entry.operators
    assert entry.applies(entry.example)
    with pytest.raises((AssertionError, sardonyx.SardonyxError)):
        compared(entry.example)


def row(entry: Disagreement) -> str:
    return f"| {', '.join(entry.operators)} | {entry.what} | {entry.right} | {entry.why} |"


def test_the_page_lists_every_entry_and_no_other() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert sorted(rows[1:]) == sorted(map(row, DISAGREEMENTS))


def test_every_operator_that_onnxruntime_runs_is_compared() -> None:
    built = {name for domain, name in OPS if domain in PROBES}
    assert {op for op in built if versions(op)} == {*MAKERS, *APART}
