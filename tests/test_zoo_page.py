"""The zoo's verdicts in the repository and its page: see docs/zoo.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.zoo import stored_verdicts as stored
from tests.zoo.entry import FAMILIES, Entry
from tests.zoo.judge import Verdict
from tests.zoo.page import renew, table_of

PAGE = Path(__file__).parents[1] / "docs" / "zoo.md"
MOST_BYTES = 400_000


def test_the_page_shows_the_verdicts(tmp_path: Path) -> None:
    again = tmp_path / "zoo.md"
    again.write_text(PAGE.read_text())
    renew(again, {family: stored.read(family) for family in FAMILIES})
    assert again.read_text() == PAGE.read_text()


def test_files_are_small_and_of_families_that_exist() -> None:
    files = sorted(stored.FOLDER.iterdir())
    assert {stored.path_of(family) for family in FAMILIES} >= set(files)
    assert sum(file.stat().st_size for file in files) < MOST_BYTES


@pytest.mark.parametrize("family", FAMILIES)
def test_lines_are_sorted_and_as_they_would_be_written(family: str) -> None:
    lines = stored.path_of(family).read_text().splitlines()
    found = stored.read(family)
    assert len(found.verdicts) == len(lines) - 1
    assert [each.name for each in found.ordered] == [json.loads(x)["name"] for x in lines[1:]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(stored, "FOLDER", tmp_path)
    return tmp_path


def test_a_family_is_read_as_it_was_written(folder: Path) -> None:
    found = stored.Family(models=3)
    found.add(Verdict("b", "torch dynamo", worst=1e-7, operators=3, backends=["numpy"]))
    found.add(Verdict("a", "skl2onnx", coarse=True, worst=float("inf"), problem="other strings"))
    found.add(Verdict("b", "torch dynamo", worst=1e-6, worst_of_source=0.0, backends=["jax"]))
    found.date_today()
    stored.write("some family", found)
    assert [each.name for each in folder.iterdir()] == ["some_family.jsonl"]
    assert stored.read("some family") == found
    assert set(found.versions) == {"onnx", "onnxruntime", "skl2onnx", "torch"}


def test_models_that_are_gone_lose_their_verdicts(folder: Path) -> None:
    found = stored.Family()
    for name in "abc":
        found.add(Verdict(name, "torch dynamo"))
    found.keep([Entry(name, "torch dynamo", lambda _: []) for name in "cd"])
    assert [each.name for each in found.ordered] == ["c"]
    stored.write("one", found)
    assert list(stored.read("one").verdicts) == [("c", "torch dynamo")]
    assert stored.read("another") == stored.Family()


def test_the_page_counts_what_agrees_and_names_what_does_not(tmp_path: Path) -> None:
    found = stored.Family(models=6, date="2026-01-02")
    found.add(Verdict("good", "spox", worst=2e-7, worst_of_source=1e-7, backends=["jax", "numpy"]))
    found.add(Verdict("half", "spox", coarse=True, worst=3e-3, backends=["numpy"]))
    found.add(Verdict("wrong", "spox", problem="numpy: off by 1", worst=1.0, backends=["numpy"]))
    found.add(Verdict("drawn", "spox", worst_of_source=0.5, backends=["numpy"]))
    found.add(Verdict("other", "spox", onnxruntime_differs="it truncates", backends=["numpy"]))
    page = tmp_path / "page.md"
    page.write_text("By hand.\n")
    renew(page, {"some": found, "none": stored.Family()})
    text = page.read_text()
    assert text.startswith("By hand.\n")
    assert "| some | spox | 5 of 5 | 3 of 4 | 1 of 2 | 2e-07 | 0.003 | jax 1, numpy 5 |" in text
    assert "| some | **5 of 6** | 2026-01-02 |" in text
    assert "| none | **0 of ?** | **never** |" in text
    assert "- `wrong`, spox: **numpy: off by 1**\n" in text
    assert "- `other`, spox: not as onnxruntime (it truncates)\n" in text
    assert (
        "- `drawn`, spox: the file parts from its source by 0.5 of the largest, in both\n" in text
    )
    assert "`good`" not in text


def test_a_table_without_verdicts_has_no_rows() -> None:
    assert table_of({}).splitlines()[-1].startswith("| all |  | 0 of 0 |")
