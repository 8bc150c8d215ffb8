"""The results as tables of a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.results import Results, lines, notes, peers_of, plot_of, title_of

BEGIN, END = "<!-- results: python -m benchmarks.networks --page -->", "<!-- end of results -->"


def fill(path: Path, results: Results) -> None:
    """Put the results in the place of those between the page's two marks."""
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"{path} has no place for results: mark it by {BEGIN} and {END}.")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(
        "\n".join([before + BEGIN, "", *markdown(results, path.parent), "", END + after])
    )


def markdown(results: Results, folder: Path) -> Iterator[str]:
    """Yield the machine, a table and plot for each measure, and what could not run."""
    yield "Measured with " + ", ".join(f"{k} {v}" for k, v in results.machine.items()) + "."
    for measure in dict.fromkeys(record.measure for record in results.records):
        section = [r for r in results.records if r.measure == measure]
        peers = peers_of(section)
        yield from ("", f"### {measure[0].upper()}{measure[1:]}", "")
        yield _row(["", "batch", *map(title_of, peers)])
        yield _row(["---", *["---:"] * (len(peers) + 1)])
        yield from map(_row, lines(section, peers))
        if (folder / plot_of(measure)).exists():
            yield from ("", f"![{measure}]({plot_of(measure)})")
    if reasons := notes(results.records):
        yield from ("", "Not run, with the reason:", "", *(f"- {reason}" for reason in reasons))


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
