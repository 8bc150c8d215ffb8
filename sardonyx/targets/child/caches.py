"""Files from which `load` starts on a device that is not here."""

from __future__ import annotations

from collections.abc import Callable
from tempfile import TemporaryDirectory

from sardonyx.api import load
from sardonyx.graph.model.model import Model
from sardonyx.targets.call_shapes import completed_shapes
from sardonyx.targets.child.backend import TargetBackend
from sardonyx.targets.child.models import Titles
from sardonyx.targets.jobs import CacheJob
from sardonyx.targets.records import COMPILED, Compilation


def write_cache(
    job: CacheJob,
    say: Callable[[str], None],
    note: Callable[[Compilation], None],
    remark: Callable[[str], None],
) -> None:
    """Compile a model for calls of these shapes; write the file unless a program fails."""
    titles, outcomes = Titles(), list[str]()

    def title() -> str:
        text = titles.next()
        say(text)
        return text

    def noted(compilation: Compilation) -> None:
        outcomes.append(compilation.outcome)
        note(compilation)

    backend = TargetBackend(job.target, noted, title)
    with TemporaryDirectory() as folder:
        options = {"compile": "now", **job.options}
        model = load(job.source, backend=backend, cache=folder, **options)
        assert isinstance(model, Model)
        for call in job.calls:
            for future in model.compile(completed_shapes(model.inputs, call)):
                program = future.result()
                if any(stage.reads or stage.measures for stage in program.stages):
                    remark("What follows values that a call computes is compiled by that call.")
        recordings = model._plain.recordings
        if recordings is not None and set(outcomes) <= {COMPILED}:
            recordings.save(job.output)
