"""GitHub's workflows: what they test is what pyproject.toml promises, and what they call exists."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS: dict[str, Any] = {f.stem: yaml.safe_load(f.read_text("utf-8")) for f in FILES}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

JOBS = [
    pytest.param(job, id=f"{name}-{key}")
    for name, workflow in WORKFLOWS.items()
    for key, job in workflow["jobs"].items()
]


def steps(key: str) -> Iterator[str]:
    """What all steps say under this key."""
    for workflow in WORKFLOWS.values():
        for job in workflow["jobs"].values():
            yield from (step[key] for step in job["steps"] if key in step)


def test_the_matrix_has_the_versions_of_python_that_the_classifiers_name() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert WORKFLOWS["tests"]["jobs"]["newest"]["strategy"]["matrix"]["python"] == named
    newest = int(named[-1].removeprefix("3."))
    assert PROJECT["requires-python"] == f">={named[0]},<3.{newest + 1}"


def test_the_lowest_versions_are_tested_with_the_lowest_python() -> None:
    job = WORKFLOWS["tests"]["jobs"]["lowest"]
    versions = [
        step["with"]["python-version"] for step in job["steps"] if "python" in str(step.get("with"))
    ]
    assert [f">={version}" for version in versions] == [PROJECT["requires-python"].split(",")[0]]


def test_scripts_and_extras_that_a_step_names_exist() -> None:
    commands = "\n".join(steps("run"))
    scripts = set(re.findall(r"\.ci/\w+", commands))
    assert scripts == {".ci/lowest"}
    assert all((ROOT / script).is_file() for script in scripts)
    extras = {name for names in re.findall(r"\[([\w,]+)\]", commands) for name in names.split(",")}
    assert {"test", "lint"} <= extras <= PROJECT["optional-dependencies"].keys()


def test_linters_are_those_of_the_ci_script() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    commands = [step["run"] for step in WORKFLOWS["lint"]["jobs"]["lint"]["steps"] if "run" in step]
    assert [c for c in commands if not c.startswith("pip") and f'step "{c}"' not in script] == []


@pytest.mark.parametrize("action", sorted(set(steps("uses"))))
def test_actions_are_pinned_by_a_commit(action: str) -> None:
    assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", action)


@pytest.mark.parametrize("job", JOBS)
def test_jobs_name_their_permissions_and_end(job: dict[str, Any]) -> None:
    assert job["timeout-minutes"] <= 120
    assert "write-all" not in str(job["permissions"])


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_have_no_permissions_beyond_those_of_jobs(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {}
    assert WORKFLOWS[name]["concurrency"]["group"]
