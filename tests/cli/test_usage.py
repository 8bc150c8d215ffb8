"""What all commands share: help, statuses, one sentence for each mistake, lazy imports, logs."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import sardonyx
from sardonyx.cli.group import COMMANDS, CommandGroup
from sardonyx.cli.main import main
from tests.cli.models import ENCODER, saved
from tests.cli.processes import COMMAND, environment

OF_MODELS = ("run", "show", "check", "bench", "profile", "compare", "compile", "export", "extract",
             "save")  # fmt: skip
MORE = {"export": ["-o", "out"], "extract": ["-o", "out", "--to", "y"], "save": ["-o", "out"]}


def test_help_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr()
    assert not told.err
    for name in COMMANDS:
        assert f"\n  {name} " in told.out
    assert main(["--help"]) == main(["-h"]) == 0
    assert capsys.readouterr().out == told.out * 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"Usage: sardonyx {name} ")
    assert "--verbose" in told
    assert max(map(len, told.splitlines())) <= 100
    group = CommandGroup()
    command = group.get_command(click.Context(group), name)
    assert command is not None
    first = (command.help or "").partition("\n\n")[0].replace("\n", " ")
    assert first == COMMANDS[name], "the list of commands says what the command itself says"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"sardonyx {sardonyx.__version__}\n"


SLOW = """
import sys
from sardonyx.cli.main import main
main({arguments})
print(*(name for name in ("jax", "rich", "onnxruntime", "PIL", "sardonyx.cli.commands.show",
                          "sardonyx.targets.worker") if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["no such command"]])
def test_commands_are_imported_when_they_are_used(arguments: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SLOW.format(arguments=arguments)],
        env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stderr.splitlines()[-1] == ""


def test_python_m_sardonyx() -> None:
    run = subprocess.run(
        [*COMMAND, "nonsense"], env=environment(), capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert run.stderr == "sardonyx: No such command 'nonsense'. See 'sardonyx --help'.\n"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", OF_MODELS)
def test_files_that_are_no_models(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.onnx").write_text("nothing of the kind")
    Path("empty.onnx").write_bytes(b"")
    Path("folder.onnx").mkdir()
    paths = ["none.onnx", "text.onnx", "empty.onnx", "folder.onnx", "odd\x1b[2J\n.onnx", "", "~"]
    for path in paths:
        assert main([name, path, *MORE.get(name, [])]) == 1, path
        told = capsys.readouterr()
        assert not told.out
        (line,) = told.err.splitlines()
        assert line.startswith("sardonyx: ")
        assert "\x1b" not in line
    assert main([name]) == 2
    assert "MODEL" in capsys.readouterr().err


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", [name for name in OF_MODELS if name not in ("run", "bench")])
def test_commands_that_need_the_onnx_model(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exported program is an archive."""
    path = tmp_path / "exported"
    path.write_bytes(b"PK\x03\x04")
    assert main([name, str(path), *MORE.get(name, [])]) == 1
    assert "pass the ONNX model" in capsys.readouterr().err


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser reads all files"
)
def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path)
    Path(path).chmod(0)
    assert main(["show", path]) == 1
    assert "cannot be opened" in capsys.readouterr().err


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ["show", ENCODER, "--backend", "abacus"],
        ["show", ENCODER, "--devise", "cpu"],
        ["demo", "--device", "abacus"],
        ["demo", "extra"],
        ["--no-such-option"],
        ["nonsense\x1b[2J"],
        ["run", ENCODER, "--seed"],
        ["run", ENCODER, "--output", ""],
        ["extract", ENCODER, "--to", "layer_norm", "-o", "/"],
        ["export", ENCODER, "-o", "out", "--shape", "x=batch,-1,48"],
        ["show", "a\0b"],
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith("sardonyx: ")
    assert "--help'." in line
    assert "\x1b" not in line
    assert not told.out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full disk to try")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [*COMMAND, "ops", "Softmax"],
            env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (run.returncode, len(run.stderr.splitlines())) == (1, 1)


def test_letters_that_an_encoding_lacks(tmp_path: Path) -> None:
    path = saved(tmp_path, "g (float[2] zz) => (float[2] y) { y = Exp (zz) }")
    Path(path).write_bytes(Path(path).read_bytes().replace(b"zz", "ö".encode()))
    run = subprocess.run(
        [*COMMAND, "show", path, "--backend", "numpy"],
        env=environment(PYTHONIOENCODING="ascii"), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert r"\xf6: tensor(float)[2]" in run.stdout


def test_the_log_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    """And only while the command runs."""
    logger = logging.getLogger("sardonyx")
    before = list(logger.handlers), logger.level
    command = CommandGroup().get_command(click.Context(CommandGroup()), "ops")
    assert command is not None
    said = command.callback

    def logging_too(**options: object) -> object:
        logging.getLogger("sardonyx.part").info("a name \x1b[2J")
        logging.getLogger("sardonyx.part").debug("in detail")
        return said(**options) if said else None

    command.callback = logging_too
    try:
        for flags, lines in (([], 0), (["-v"], 1), (["-vv"], 2), (["--verbose"], 1)):
            assert main(["ops", "Softmax", "-q", *flags]) == 0
            told = capsys.readouterr().err
            assert len(told.splitlines()) == lines
            assert "\x1b" not in told
    finally:
        command.callback = said
    assert (list(logger.handlers), logger.level) == before
