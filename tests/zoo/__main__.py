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
from tests.zoo.judge import Verdict, judged
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
        verdicts = {name: _in_a_process(name, arguments) for name in arguments.families}
    print(table_of(verdicts))
    if arguments.page:
        renew(Path(arguments.page), verdicts)
    sys.exit(any(each.problem for family in verdicts.values() for each in family))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo")
    parser.add_argument("families", nargs="*", default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--only", default="", help="models whose label contains this text")
    parser.add_argument("--page", help="write the page of the documentation to this path")
    parser.add_argument("--folder", help="write the models to this folder")
    parser.add_argument("--record", action="store_true", help="keep graphs for the tests")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="FAMILY=PATH",
        help="another interpreter for a family whose exporter needs an environment of its own",
    )
    # Exporters may end the process, and keep memory: each family has one of its own.
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_a_process(family: str, arguments: argparse.Namespace) -> list[Verdict]:
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as lines:
        interpreters = dict(each.split("=", 1) for each in arguments.python)
        python = interpreters.get(family, sys.executable)
        command = [python, "-m", "tests.zoo", family, "--one", lines.name]
        command += ["--only", arguments.only] if arguments.only else []
        command += ["--folder", arguments.folder] if arguments.folder else []
        command += ["--record"] if arguments.record else []
        code = subprocess.run(command, check=False).returncode
        verdicts = [Verdict(**json.loads(line)) for line in lines]
    if code:
        ended = f"the process ended with code {code}"
        verdicts.append(Verdict("the rest", family, not_exported=ended))
    return verdicts


def _judge_here(arguments: argparse.Namespace, folder: Path) -> None:
    (family,) = arguments.families
    with open(arguments.one, "a") as lines:
        for entry in entries_of(family):
            if arguments.only not in entry.label:
                continue
            path = folder / f"{entry.stem}.onnx"
            verdict, calls = judged(entry, path)
            said = verdict.problem or verdict.not_exported or verdict.not_in_onnxruntime or "ok"
            print(f"{family}: {entry.label}: {said}", file=sys.stderr, flush=True)
            print(json.dumps(verdict.as_json()), file=lines, flush=True)
            cannot = verdict.not_exported or verdict.not_in_onnxruntime or entry.onnxruntime_differs
            if arguments.record and not cannot:
                record(family, entry, path, calls)


if __name__ == "__main__":
    main()
