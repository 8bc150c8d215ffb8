"""`sardonyx compile`: programs for calls of some shapes, in a file that lies beside the model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from sardonyx.api import load
from sardonyx.backends.cache_file import CacheFile
from sardonyx.errors import InvalidInput
from sardonyx.targets.call_shapes import completed_shapes

Shapes = dict[str, tuple[int, ...]]

SUFFIX = ".sardonyx-cache"
# The name of an input can have any character but "=", and the sizes follow the last one.
_SHAPE = re.compile(r"(?P<name>.+)=(?P<sizes>(?:\d{1,18}(?:,\d{1,18})*)?)", re.ASCII | re.DOTALL)


def compile_ahead(
    path: str,
    calls: Iterable[Sequence[str]],
    output: str | None,
    *,
    backend: str | None,
    device: str | None,
    precision: str,
) -> str:
    """Compile a model for calls of these shapes, each a list of "INPUT=SIZES"; return a report."""
    signatures = parsed_calls(calls)
    with TemporaryDirectory() as folder:
        model = load(path, backend=backend, device=device, precision=precision, cache=folder)
        recordings = model._plain.recordings
        if recordings is None:
            raise InvalidInput(
                f"The backend '{model.backend}' does not compile, so nothing can be cached: leave "
                "out --backend, or pass --backend jax or cupy."
            )
        model.compile(*(completed_shapes(model.inputs, each) for each in signatures))
        file = place_of(path, output)
        recordings.save(file)
    return report(file, len(signatures), model.stats().compile_seconds)


def place_of(path: str, output: str | None) -> Path:
    """Return where a model's programs are written: beside the model, unless the user says."""
    return Path(path).with_suffix(SUFFIX) if output is None else Path(output)


def report(file: Path, calls: int, seconds: float) -> str:
    """Return what a file has for so many calls."""
    endings = Counter(name.rpartition(".")[2] for name in CacheFile(file).names())
    programs, kernels = endings["xla"], endings["cubin"]
    # One more notes that the model was checked.
    recorded = max(0, endings["kept"] - 1)
    size = file.stat().st_size
    made = _counted(kernels, "kernel") if kernels else _counted(programs, "program")
    text = f"{file}: {made} for {_counted(recorded, 'call')}, "
    text += f"{size:,} bytes, compiled in {seconds:.1f} seconds"
    if recorded < calls:
        text += f"\n{_counted(calls - recorded, 'call')} will be traced again by each process"
    return text


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def parsed_calls(calls: Iterable[Sequence[str]]) -> list[Shapes]:
    """Return the shapes of each call; without any, one call that needs none."""
    return [dict(map(parsed_shape, call)) for call in calls] or [{}]


def parsed_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the input and the shape of "x=1,3,224,224"; a number has the shape of "x=".

    >>> parsed_shape("x=1,3")
    ('x', (1, 3))
    """
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"The shape {text!r} is not INPUT=SIZES: write it as in --shape x=1,3,224,224."
        )
    sizes = match["sizes"]
    return match["name"], tuple(map(int, sizes.split(","))) if sizes else ()
