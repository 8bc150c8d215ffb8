"""The page of the zoo: for each family and exporter how many models agree, and by how much."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path

from tests.zoo.judge import Verdict
from tests.zoo.stored_verdicts import Family

# What stands before it in the page is written by hand.
MARK = "<!-- Written by `python -m tests.zoo --page`: -->\n"


def renew(page: Path, families: Mapping[str, Family]) -> None:
    """Write the table, and each model that is not compared as all others, below the mark."""
    prose = page.read_text().partition(MARK)[0]
    parts = [prose, MARK, "\n", table_of(families), "\n", _runs(families)]
    for family, found in families.items():
        if sentences := _apart(found.ordered):
            parts.append(f"\n## {family.capitalize()}\n\n{sentences}")
    page.write_text("".join(parts))


def table_of(families: Mapping[str, Family]) -> str:
    """Return a line for each family and exporter."""
    lines = [
        "| family | exporter | exported | as onnxruntime | as the source "
        "| worst error | of few bits | on |",
        "|---|---|---|---|---|---|---|---|",
    ]
    everything: list[Verdict] = []
    for family, found in families.items():
        by_exporter: dict[str, list[Verdict]] = defaultdict(list)
        for each in found.ordered:
            by_exporter[each.exporter].append(each)
        lines += [_row(family, name, group) for name, group in by_exporter.items()]
        everything += found.ordered
    return "\n".join([*lines, _row("all", "", everything)]) + "\n"


def _row(family: str, exporter: str, models: Sequence[Verdict]) -> str:
    exported = [each for each in models if not each.not_exported]
    comparable = [each for each in exported if not each.standard_differs]
    there = [e for e in comparable if not (e.not_in_onnxruntime or e.onnxruntime_differs)]
    sourced = [each for each in comparable if each.worst_of_source is not None]
    agree = sum(not each.problem for each in there)
    with_source = sum(each.is_as_source for each in sourced)
    counts = Counter(name for each in exported for name in each.backends)
    cells = (
        family,
        exporter,
        f"{len(exported)} of {len(models)}",
        f"{agree} of {len(there)}",
        f"{with_source} of {len(sourced)}",
        _worst(there, coarse=False),
        _worst(there, coarse=True),
        ", ".join(f"{name} {count}" for name, count in sorted(counts.items())),
    )
    return f"| {' | '.join(cells)} |"


def _worst(models: Sequence[Verdict], *, coarse: bool) -> str:
    errors = [each.worst for each in models if each.coarse == coarse and not each.problem]
    return f"{max(errors):.1g}" if errors else ""


def _runs(families: Mapping[str, Family]) -> str:
    """Say when each family ran with what, and which has not run as a whole."""
    lines = ["| family | models | run | with |", "|---|---|---|---|"]
    for family, found in families.items():
        versions = ", ".join(f"{name} {number}" for name, number in found.versions.items())
        whole = str(found.models)
        if len(found.verdicts) < found.models or not found.models:
            whole = f"**{len(found.verdicts)} of {found.models or '?'}**"
        lines.append(f"| {family} | {whole} | {found.date or '**never**'} | {versions} |")
    return "\n".join(lines) + "\n"


def _apart(models: Sequence[Verdict]) -> str:
    """List the models with something to be said, those of which the same is said in one line."""
    alike: dict[str, list[str]] = defaultdict(list)
    for each in models:
        if said := _said(each):
            alike[f"{each.exporter}: {said}"].append(f"`{each.name}`")
    return "".join(f"- {', '.join(names)}, {said}\n" for said, names in alike.items())


def _without_values(message: str) -> str:
    """Leave out the part of torch's message that names values of its graph."""
    return message.partition("  [Caused by")[0]


def _said(each: Verdict) -> str:
    """Return what is to be said of a model; nothing if it is compared as most are."""
    beside = "" if each.worst_of_source is None else "; as the source"
    there = each.not_in_onnxruntime
    by = each.worst_of_source or 0.0
    away = f"by {by:.1g} of the largest" if isfinite(by) else "in types, shapes or strings"
    cases = (
        (each.not_exported, f"not exported ({_without_values(each.not_exported)})"),
        (each.problem, f"**{each.problem}**"),
        (
            each.standard_differs,
            f"neither as onnxruntime nor as the source ({each.standard_differs})",
        ),
        (each.not_here, f"run neither by onnxruntime ({there}) nor here ({each.not_here})"),
        (there, f"not run by onnxruntime ({there}){beside}"),
        (each.onnxruntime_differs, f"not as onnxruntime ({each.onnxruntime_differs}){beside}"),
        (beside and not each.is_as_source, f"the file parts from its source {away}, in both"),
    )
    return next((said for applies, said in cases if applies), "")
