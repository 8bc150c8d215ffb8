"""`python -m tests.zoo`: exports every model, compares its results and prints the table.

`python -m tests.zoo FAMILY ...` does so for some families; `--page docs/zoo.md` writes the page,
`--record` keeps graphs without their weights for tests/test_zoo.py, `--folder` keeps the files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.zoo.entry import FAMILIES, entries_of
from tests.zoo.judge import BACKENDS, Verdict, judged
from tests.zoo.page import renew, table_of
from tests.zoo.recording import record


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.one:
            _judge_here(arguments, folder)
            return
        for family in arguments.families:
            _in_a_process(family, arguments, folder)
        verdicts = {family: _read(_lines_of(family, folder)) for family in FAMILIES}
    verdicts = {family: models for family, models in verdicts.items() if models}
    print(table_of(verdicts))
    if arguments.page:
        renew(Path(arguments.page), verdicts)
    sys.exit(any(each.problem for family in verdicts.values() for each in family))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo")
    parser.add_argument("families", nargs="*", default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--only", default="", help="models whose label contains this text")
    parser.add_argument("--page", help="write the page of the documentation to this path")
    parser.add_argument(
        "--folder",
        help="keep models and verdicts in this folder; what has a verdict there is not run again",
    )
    parser.add_argument("--record", action="store_true", help="keep graphs for the tests")
    parser.add_argument("--backends", nargs="+", default=BACKENDS, metavar="BACKEND")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="FAMILY=PATH",
        help="another interpreter for a family whose exporter needs an environment of its own",
    )
    # Exporters may end the process, and keep memory: each family has one of its own.
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_a_process(family: str, arguments: argparse.Namespace, folder: Path) -> None:
    interpreters = dict(each.split("=", 1) for each in arguments.python)
    command = [interpreters.get(family, sys.executable), "-m", "tests.zoo", family, "--one"]
    command += ["--folder", str(folder), "--only", arguments.only]
    command += ["--backends", *arguments.backends]
    command += ["--record"] if arguments.record else []
    code = subprocess.run(command, check=False).returncode
    if code:
        print(f"{family}: the process ended with code {code}", file=sys.stderr)


def _judge_here(arguments: argparse.Namespace, folder: Path) -> None:
    (family,) = arguments.families
    known = {(each.name, each.exporter) for each in _read(_lines_of(family, folder))}
    for entry in entries_of(family):
        if arguments.only not in entry.label or (entry.name, entry.exporter) in known:
            continue
        path = folder / f"{entry.stem}.onnx"
        verdict, calls = judged(entry, path, arguments.backends)
        said = verdict.problem or verdict.not_exported or verdict.not_in_onnxruntime or "ok"
        print(f"{family}: {entry.label}: {said}", file=sys.stderr, flush=True)
        with _lines_of(family, folder).open("a") as lines:
            print(json.dumps(verdict.as_json()), file=lines)
        agrees = not (verdict.not_exported or verdict.not_in_onnxruntime or verdict.problem)
        if arguments.record and agrees and not entry.onnxruntime_differs:
            record(family, entry, path, calls)


def _lines_of(family: str, folder: Path) -> Path:
    return folder / f"verdicts of {family}.jsonl"


def _read(path: Path) -> list[Verdict]:
    if not path.exists():
        return []
    return [Verdict(**json.loads(line)) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()
