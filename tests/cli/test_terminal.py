"""The command line in a terminal and in a pipe: widths, colours, signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from rich.text import Text

from tests.cli.models import ENCODER, saved
from tests.cli.processes import COLUMNS, COMMAND, environment, in_terminal

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
RUN = ["run", ENCODER, "--random", "--shape", "x=2,5,48", "--backend", "numpy"]
COMMANDS = (
    ["show", ENCODER],
    ["ops", "Attention"],
    ["profile", ENCODER, "--shape", "x=1,4,48", "--calls", "2", "--backend", "numpy"],
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such terminals")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
def test_eighty_columns(arguments: list[str]) -> None:
    status, shown = in_terminal(arguments)
    assert status == 0
    assert "\x1b[1m" in shown
    lines = Text.from_ansi(shown).plain.splitlines()
    assert max(map(len, lines)) <= COLUMNS


@pytest.mark.slow
def test_without_colours() -> None:
    assert COLOUR.search(in_terminal(RUN)[1])
    status, shown = in_terminal(RUN, NO_COLOR="1")
    assert status == 0
    assert not COLOUR.search(shown)
    run = subprocess.run(
        [*COMMAND, *RUN], env=environment(), capture_output=True, text=True, check=True
    )
    assert "\x1b" not in run.stdout
    assert not run.stderr


@pytest.mark.slow
def test_names_of_a_model_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """A name with codes that clear a terminal, and one that looks like rich's markup."""
    path = saved(
        tmp_path,
        'g (float[2] "a[red]") => (float[2] "y[/]") { "y[/]" = Exp ("a[red]") }',
    )
    data = Path(path).read_bytes().replace(b"a[red]", b"a\x1b[2J;")
    Path(path).write_bytes(data)
    for command in (["show", path], ["run", path, "--random", "--backend", "numpy"]):
        status, shown = in_terminal(command)
        assert status == 0
        assert r"a\x1b[2J;" in shown
        assert "y[/]" in Text.from_ansi(shown).plain
        assert "\x1b[2J" not in shown


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arguments", [["ops"], ["ops", "--json"], ["show", ENCODER]])
def test_a_reader_that_is_gone(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.Popen(
        [*COMMAND, *arguments], stdout=writer, stderr=subprocess.PIPE, env=environment()
    )
    os.close(writer)
    _, complaints = run.communicate()
    assert (run.returncode, complaints) == (141, b"")


# Jobs in the background of a shell ignore interruptions, and so would their commands.
HEEDING_INTERRUPTIONS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_interruption(tmp_path: Path) -> None:
    """While it waits for an input, whose writer it has met."""
    path = tmp_path / "x.npy"
    os.mkfifo(path)
    command = [*COMMAND, "run", ENCODER, "--input", str(path), "--backend", "numpy"]
    run = subprocess.Popen(
        [sys.executable, "-c", HEEDING_INTERRUPTIONS, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    told = complaints = b""
    with open(path, "wb"):
        # Python drops an interruption that arrives while an object is finalised.
        for _ in range(3):
            run.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                told, complaints = run.communicate(timeout=20)
                break
    assert run.returncode == 130
    assert not told
    assert b"Traceback" not in complaints


@pytest.mark.slow
def test_a_bar_moves_on_the_standard_error_of_a_terminal() -> None:
    """Beside what takes more than a second, and nowhere else."""
    bench = ["bench", ENCODER, "--shape", "x=1,4,48", "--backend", "numpy", "--seconds", "1.6"]
    status, shown = in_terminal(bench)
    assert status == 0
    assert "measuring" in shown
    run = subprocess.run(
        [*COMMAND, *bench], env=environment(), capture_output=True, text=True, check=True
    )
    assert not run.stderr
    assert "measuring" not in run.stdout
