"""`sardonyx profile`: where the time of a call goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sardonyx.cli.main import main
from tests.cli.models import ENCODER, saved

CALL = ["profile", ENCODER, "--shape", "x=1,4,48", "--calls", "3", "--backend", "numpy"]


@pytest.mark.parametrize("by", ["name", "operator", "scope", "segment"])
def test_rows(by: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CALL, "--by", by, "--rows", "3"]) == 0
    told = capsys.readouterr().out
    assert "per call (fastest of 3)" in told
    assert "remainder: call less the above" in told
    rows = told.rpartition("\n\n")[2].splitlines()
    assert rows[0].split() == ["node" if by == "name" else by, "time", "share", "bytes",
                               "operations", "nodes"]  # fmt: skip
    assert max(map(len, told.splitlines())) <= 80


def test_json_and_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    assert main([*CALL, "--json", "--trace", str(trace)]) == 0
    assert json.loads(capsys.readouterr().out)["calls"] == 3
    assert json.loads(trace.read_text())["traceEvents"]


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CALL, "--trace", str(tmp_path / "no" / "where.json")]) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert main(["profile", ENCODER, "--backend", "numpy"]) == 1
    assert "--shape x=1,1,48" in capsys.readouterr().err
    assert main([*CALL, "--by", "colour"]) == 2
    assert main([*CALL[:-2], "--calls", "0"]) == 2


def test_names_of_a_model_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, 'g (float[2] x) => (float[2] y) { ["[red]node"] y = Exp (x) }')
    assert main(["profile", path, "--calls", "2", "--backend", "numpy"]) == 0
    assert "[red]node" in capsys.readouterr().out
