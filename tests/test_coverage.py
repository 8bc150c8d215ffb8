"""The page of operators: all of the standard's are there, and the page is the one of today."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from sardonyx.cli.main import main
from sardonyx.cli.operator_page import missing, page
from sardonyx.ops import OPS

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"


# The versions that definitions are written for; of later ones, what has a body runs by that.
NEWEST = {"": 28, "ai.onnx.ml": 5, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1}


def test_no_operator_is_missing() -> None:
    schemas = onnx.defs.get_all_schemas_with_history()
    known = {(s.domain, s.name) for s in schemas if s.since_version <= NEWEST.get(s.domain, 0)}
    assert len(known) == 227
    assert known <= set(OPS)
    assert not {"ai.onnx::Relu", *(f"{d or 'ai.onnx'}::{n}" for d, n in known)} & set(missing())


@pytest.mark.skipif(
    f"onnx {onnx.__version__}," not in PAGE.read_text(),
    reason="the page is of another release of onnx",
)
def test_the_page_is_current() -> None:
    assert page() == PAGE.read_text(), (
        "write it anew: python -m sardonyx ops --markdown > docs/operators.md"
    )


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "--markdown"]) == 0
    assert capsys.readouterr().out == page()


def test_a_row_says_where_an_operator_runs() -> None:
    rows = {line.split("]")[0][3:]: line.split(" | ") for line in page().splitlines()[10:]}
    assert rows["Shape"][3:] == ["tracing", "tracing |"]
    assert rows["NonZero"][3:] == ["host", "device |"]
    assert rows["StringConcat"][3:] == ["host", "host |"]
    assert rows["Conv"][1:] == ["1, 11, 22", "floats", "device", "device |"]
    assert rows["Upsample"][1] == "1, 7, 9, 10 (deprecated)"
