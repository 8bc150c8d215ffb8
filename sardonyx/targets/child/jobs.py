"""Does one job: compiles what it names, and returns the record."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax

from sardonyx.errors import SardonyxError
from sardonyx.printable import printable
from sardonyx.targets.child import caches, models, sharded
from sardonyx.targets.child.compiling import compilation, devices_of, stand_in
from sardonyx.targets.jobs import LOADED, SHARDED, CacheJob, FunctionJob, Job
from sardonyx.targets.records import (
    FAILED,
    OUTCOMES,
    REFUSED,
    Compilation,
    HostSteps,
    Record,
    worst,
)

Say = Callable[[str], None]


def record_of(job: Job, say: Say) -> Record:
    """Return the record of a job; `say` gets the title of each program before it is compiled."""
    start = time.perf_counter()
    programs: list[Compilation] = []
    host: list[HostSteps] = []
    notes: list[str] = []
    outcome, reason = "", ""
    try:
        if isinstance(job, FunctionJob):
            programs.append(_function(job, say))
        elif isinstance(job, CacheJob):
            caches.write_cache(job, say, programs.append, notes.append)
        elif job.form == SHARDED:
            sharded.compile_model(job, say, programs.append, notes.append)
        elif job.form == LOADED:
            models.compile_loaded(job, say, programs.append, host.append, notes.append)
        else:
            models.compile_pure(job, say, programs.append)
    except SardonyxError as error:
        outcome, reason = REFUSED, str(error)
    except Exception as error:
        outcome, reason = FAILED, printable(f"{type(error).__name__}: {error}", 1500)
    notes += [f"{p.title}: {p.reason}" for p in programs if p.is_unread]
    worse = [p for p in programs if OUTCOMES.index(p.outcome) > 0]
    outcome = worst([*filter(None, [outcome]), *(p.outcome for p in programs)])
    if worse and not reason:
        reason = worse[0].reason
    seconds = time.perf_counter() - start
    return Record(
        str(job.target), outcome, reason, seconds, tuple(programs), tuple(host), tuple(notes)
    )


def _function(job: FunctionJob, say: Say) -> Compilation:
    title = getattr(job.function, "__qualname__", type(job.function).__name__)
    say(title)
    device = devices_of(job.target)[0]
    arguments: Any = jax.tree.map(
        lambda each: stand_in(each, device), job.arguments, is_leaf=_has_shape
    )
    with jax.enable_x64(True) if job.wide else nullcontext():
        return compilation(
            title,
            job.function,
            arguments,
            job.target,
            donated=job.donated,
            keeps_text=job.keeps_text,
        )


def _has_shape(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")
