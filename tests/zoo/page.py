"""The page of the zoo: for each family and exporter how many models agree, and by how much."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.zoo.judge import Verdict

# What stands before it in the page is written by hand.
MARK = "<!-- Written by `python -m tests.zoo --page`: -->\n"


def renew(page: Path, verdicts: Mapping[str, Sequence[Verdict]]) -> None:
    """Write the table and every model by name into the page, below the mark."""
    prose = page.read_text().partition(MARK)[0]
    parts = [prose, MARK, "\n", table_of(verdicts)]
    for family, models in verdicts.items():
        parts.append(f"\n## {family.capitalize()}\n\n")
        parts += [f"- {_sentence(each)}\n" for each in models]
    page.write_text("".join(parts))


def table_of(verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    """Return a line for each family and exporter."""
    lines = [
        "| family | exporter | models | as onnxruntime | as the source | worst error | on |",
        "|---|---|---|---|---|---|---|",
    ]
    everything: list[Verdict] = []
    for family, models in verdicts.items():
        by_exporter: dict[str, list[Verdict]] = defaultdict(list)
        for each in models:
            by_exporter[each.exporter].append(each)
        lines += [_row(family, name, group) for name, group in by_exporter.items()]
        everything += models
    return "\n".join([*lines, _row("all", "", everything)]) + "\n"


def _row(family: str, exporter: str, models: Sequence[Verdict]) -> str:
    exported = [each for each in models if not each.not_exported]
    there = [each for each in exported if not each.not_in_onnxruntime]
    sourced = [each for each in exported if each.worst_of_source is not None]
    agree = sum(not each.problem for each in there)
    with_source = sum(not each.problem for each in sourced)
    worst = max((each.worst for each in there if not each.problem), default=0.0)
    cells = (
        family,
        exporter,
        str(len(exported)),
        f"{agree} of {len(there)}",
        f"{with_source} of {len(sourced)}",
        f"{worst:.1g}",
        ", ".join(sorted({name for each in exported for name in each.backends})),
    )
    return f"| {' | '.join(cells)} |"


def _sentence(each: Verdict) -> str:
    name = f"`{each.name}`, {each.exporter}"
    if each.not_exported:
        return f"{name}: not exported ({each.not_exported})"
    if each.problem:
        return f"{name}: **{each.problem}**"
    if each.not_in_onnxruntime:
        return f"{name}: not run by onnxruntime ({each.not_in_onnxruntime})"
    return f"{name}: {each.worst:.1g}, {len(each.operators)} operators"
