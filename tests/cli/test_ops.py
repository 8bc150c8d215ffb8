"""`sardonyx ops`: all operators, or the details of one."""

from __future__ import annotations

import json

import pytest

from sardonyx.cli.main import main
from sardonyx.cli.operator_list import names
from sardonyx.ops import OPS


def test_a_row_for_each_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = {line.split()[0]: line.split() for line in lines if line}
    assert rows["NonZero"][-2:] == ["host", "device"]
    assert main(["ops", "--json"]) == 0
    found = {row["operator"]: row for row in json.loads(capsys.readouterr().out)}
    assert found.keys() == set(names())
    assert found["NonZero"]["versions"] == [9, 13]
    own = {f"{domain}::{name}" if domain else name for domain, name in OPS}
    assert own <= found.keys()


@pytest.mark.parametrize("name", ["Softmax", "softmax", "ai.onnx::Softmax"])
def test_details(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", name]) == 0
    told = capsys.readouterr().out
    assert told.startswith("Softmax\n")
    assert "opsets: 1, 11, 13" in told
    assert "axis  int  default -1" in told


def test_every_operator_has_details(capsys: pytest.CaptureFixture[str]) -> None:
    for name in names():
        assert main(["ops", name, "--json"]) == 0, name
        assert json.loads(capsys.readouterr().out)["operator"] == name


def test_operators_of_onnxruntime(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "com.microsoft::FusedGemm"]) == 0
    assert "transA" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Sofmax", "did you mean Softmax"),
        ("\x1b[2J", "There is no operator '\\x1b[2J'"),
        ("", "There is no operator ''"),
    ],
)
def test_names_of_none(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", name]) == 1
    assert message in capsys.readouterr().err


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "Softmax", "--markdown"]) == 2
    assert main(["ops", "Softmax", "Conv"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
