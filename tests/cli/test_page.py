"""The transcripts of docs/command_line.md are those of the commands, but for what is measured."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from sardonyx.cli.group import COMMANDS
from sardonyx.cli.main import main
from tests.cli.models import ROOT

PAGE = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
TRANSCRIPTS = re.findall(r"```console\n\$ sardonyx (.*)\n((?:.*\n)*?)```", PAGE)
# Quick ones by default; the others measure, compile or export.
QUICK = ("run", "show", "extract", "save", "ops")
_NUMBER = re.compile(r"-?\d[\d.,]*(?:e[+-]\d+)?(?: ?(?:s|ms|us|kB|MB|B|k|M|G)\b|%)?")


def without_figures(text: str) -> list[str]:
    """Return the words of each line: figures differ from machine to machine."""
    return [" ".join(_NUMBER.sub("#", line).split()) for line in text.splitlines()]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        pytest.param(
            *each,
            id=each[0].split()[0],
            marks=() if each[0].split()[0] in QUICK else [pytest.mark.slow],
        )
        for each in TRANSCRIPTS
    ],
)
def test_transcripts(
    command: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)) == 0
    told, expected = without_figures(capsys.readouterr().out), without_figures(shown)
    if command.startswith(("profile", "compare")):
        # Which rows are the slowest, or differ most, is measured too.
        told, expected = (sorted(line.split()[:1] for line in each if line.endswith("#") is False)
                          for each in (told, expected))  # fmt: skip
    assert told == expected


def test_every_command_is_on_the_page() -> None:
    for name in COMMANDS:
        assert f"\n## {name}\n" in PAGE
        assert f"| [`{name}`](#{name}) |" in PAGE
