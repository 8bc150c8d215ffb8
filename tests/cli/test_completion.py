"""`sardonyx completion`: the script runs in the shell that it is for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sardonyx.cli.main import main
from tests.cli.processes import COMMAND, environment

# Each asks for what completes the last of the words.
EXPECTED = {
    "com": {"compare", "compile", "completion"},
    "run m.onnx --backend ''": {"jax", "cupy", "numpy", "onnxruntime"},
    "ops SoftmaxC": {"SoftmaxCrossEntropyLoss"},
    "export m.onnx --plat": {"--platform"},
}
ASK = """
COMPREPLY=()
COMP_WORDS=(sardonyx {words})
COMP_CWORD={place}
_sardonyx_completion sardonyx 2> /dev/null
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_SARDONYX_COMPLETE" in capsys.readouterr().out


def test_other_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "abacus"]) == 2
    assert main(["completion"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.slow
def test_bash(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None or sys.platform == "win32":
        pytest.skip("there is no bash that can start a script here")
    script = tmp_path / "sardonyx"
    script.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    script.chmod(0o755)
    variables = environment()
    variables["PATH"] = f"{tmp_path}:{variables['PATH']}"
    asks = [ASK.format(words=words, place=len(words.split())) for words in EXPECTED]
    code = "".join(['eval "$(sardonyx completion bash)"', *asks])
    run = subprocess.run(
        [bash, "-c", code], env=variables, capture_output=True, text=True, check=True
    )
    found = [set(line.split()) for line in run.stdout.splitlines()]
    assert dict(zip(EXPECTED, found, strict=True)) == EXPECTED


def test_files_are_completed_for_a_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shell is told to complete names of files."""
    monkeypatch.setenv("_SARDONYX_COMPLETE", "bash_complete")
    for words in ("run mod", "compare a.onnx mod", "run a.onnx --input mod", "save a.onnx -o mod"):
        monkeypatch.setenv("COMP_WORDS", f"sardonyx {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
        main([])
        assert capsys.readouterr().out == "file,mod\n"
