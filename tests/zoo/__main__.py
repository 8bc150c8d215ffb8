"""`python -m tests.zoo`: exports models, compares their results and prints the table.

It runs every model without a verdict in tests/zoo/verdicts; `--again` runs the others too, and
`python -m tests.zoo FAMILY ...` all models of some families. `--page docs/zoo.md` writes the page,
`--record` keeps graphs without their weights for tests/test_zoo.py.
"""

from __future__ import annotations

import argparse
import faulthandler
import subprocess
import sys
import tempfile
from pathlib import Path
from zlib import crc32

from tests.zoo import stored_verdicts as stored
from tests.zoo.entry import FAMILIES, Entry, entries_of
from tests.zoo.judge import BACKENDS, Verdict, judged
from tests.zoo.page import renew, table_of
from tests.zoo.recording import record


def main() -> None:
    arguments = _arguments()
    if arguments.one:
        _judge_here(arguments)
        return
    with tempfile.TemporaryDirectory() as temporary:
        for family in arguments.families or FAMILIES:
            _in_processes(family, arguments, Path(arguments.folder or temporary))
    families = {family: stored.read(family) for family in FAMILIES}
    print(table_of(families))
    if arguments.page:
        renew(Path(arguments.page), families)
    sys.exit(any(each.problem for family in families.values() for each in family.ordered))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo")
    parser.add_argument("families", nargs="*", default=[], metavar="FAMILY")
    parser.add_argument("--only", default="", help="models whose label contains this text")
    parser.add_argument("--one-in", type=int, default=1, help="a sample of so many models")
    parser.add_argument("--again", action="store_true", help="models that have a verdict, too")
    parser.add_argument("--page", help="write the page of the documentation to this path")
    parser.add_argument("--folder", help="keep the exported files in this folder")
    parser.add_argument("--record", action="store_true", help="keep graphs for the tests")
    parser.add_argument("--backends", nargs="+", default=BACKENDS, metavar="BACKEND")
    parser.add_argument("--seconds", type=int, default=180, help="limit for one model")
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


def _in_processes(family: str, arguments: argparse.Namespace, folder: Path) -> None:
    """Run a family's models, in a new process after one that died or took too long."""
    interpreters = dict(each.split("=", 1) for each in arguments.python)
    command = [interpreters.get(family, sys.executable), "-m", "tests.zoo", family, "--one"]
    command += ["--folder", str(folder / family.replace(" ", "_")), "--only", arguments.only]
    command += ["--seconds", str(arguments.seconds), "--one-in", str(arguments.one_in)]
    command += ["--backends", *arguments.backends]
    command += ["--record"] if arguments.record else []
    again = ["--again"] if arguments.again or arguments.families else []
    reached = -1
    while code := subprocess.run([*command, *again], check=False).returncode:
        print(f"{family}: the process ended with code {code}", file=sys.stderr)
        if len(stored.read(family).verdicts) <= reached:
            return
        reached, again = len(stored.read(family).verdicts), []


def _judge_here(arguments: argparse.Namespace) -> None:
    (family,) = arguments.families
    entries = entries_of(family)
    chosen = [
        each
        for each in entries
        if arguments.only in each.label and crc32(each.label.encode()) % arguments.one_in == 0
    ]
    found = stored.read(family)
    found.models = len(entries)
    found.keep([each for each in entries if not (arguments.again and each in chosen)])
    for entry in chosen:
        if entry.key not in found.verdicts:
            _judge(family, entry, found, arguments)


def _judge(family: str, entry: Entry, found: stored.Family, arguments: argparse.Namespace) -> None:
    path = Path(arguments.folder) / f"{entry.stem}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    # What stays if the process does not get to the end.
    limit = f"its process ended, or it took more than {arguments.seconds} s"
    found.add(Verdict(entry.name, entry.exporter, problem=limit))
    stored.write(family, found)
    faulthandler.dump_traceback_later(arguments.seconds, exit=True)
    verdict, calls = judged(entry, path, arguments.backends)
    faulthandler.cancel_dump_traceback_later()
    found.add(verdict)
    found.date_today()
    stored.write(family, found)
    said = verdict.problem or verdict.not_exported or verdict.not_in_onnxruntime or "ok"
    print(f"{family}: {entry.label}: {said}", file=sys.stderr, flush=True)
    differs = entry.onnxruntime_differs or entry.standard_differs
    if arguments.record and said == "ok" and not differs:
        record(family, entry, path, calls)


if __name__ == "__main__":
    main()
