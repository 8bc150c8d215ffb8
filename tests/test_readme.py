"""What the pages say is so: their code runs, their figures and commands are the present ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sardonyx.ops import OPS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEST_COMMAND = "pip install '.[test]' && pytest"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/architecture.md",
        "docs/checked.md",
        "examples/README.md",
        pytest.param("docs/jax.md", marks=pytest.mark.slow),
        "docs/functions.md",
        "docs/onnxruntime.md",
        "docs/service.md",
    ],
)
def test_the_code_of_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / page).read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL), 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


def test_the_transcript_is_that_of_the_demo() -> None:
    """All of it but what is measured, without oneDNN, as the README installs the package."""
    shown = subprocess.run(
        [sys.executable, "-m", "sardonyx", "demo", "--device", "cpu"],
        env={**os.environ, "SARDONYX_ONEDNN": "0"},
        check=True,
        capture_output=True,
        text=True,
    )
    before_figures, *_ = shown.stdout.partition("The largest difference")
    assert "nodes became" in before_figures
    assert before_figures in README


def test_the_number_of_operators() -> None:
    own = {key for key, op in OPS.items() if op.__module__.startswith("sardonyx.ops.microsoft.")}
    standard = sum(not domain.startswith("com.microsoft") for domain, _ in OPS.keys() - own)
    assert f"All {standard} operators of onnx" in README


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert f"\n{TEST_COMMAND}\n" in README
    assert f'"{TEST_COMMAND}"' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
