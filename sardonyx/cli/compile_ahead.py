"""`sardonyx compile`: programs for calls of some shapes, in a file that lies beside the model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from sardonyx.api import load
from sardonyx.backends.cache_file import CacheFile
from sardonyx.errors import InvalidInput
from sardonyx.graph.model.model import Model

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
    signatures = [dict(map(parsed_shape, call)) for call in calls] or [{}]
    with TemporaryDirectory() as folder:
        model = load(path, backend=backend, device=device, precision=precision, cache=folder)
        recordings = model._plain.recordings
        if recordings is None:
            raise InvalidInput(
                f"The backend '{model.backend}' does not compile, so nothing can be cached: leave "
                "out --backend, or pass --backend jax or cupy."
            )
        model.compile(*(_completed(model, signature) for signature in signatures))
        target = Path(path).with_suffix(SUFFIX) if output is None else Path(output)
        recordings.save(target)
    return _report(target, len(signatures), model.stats().compile_seconds)


def _report(target: Path, calls: int, seconds: float) -> str:
    endings = Counter(name.rpartition(".")[2] for name in CacheFile(target).names())
    programs, kernels = endings["xla"], endings["cubin"]
    # One more notes that the model was checked.
    recorded = max(0, endings["kept"] - 1)
    size = target.stat().st_size
    made = _counted(kernels, "kernel") if kernels else _counted(programs, "program")
    report = f"{target}: {made} for {_counted(recorded, 'call')}, "
    report += f"{size:,} bytes, compiled in {seconds:.1f} seconds"
    if recorded < calls:
        report += f"\n{_counted(calls - recorded, 'call')} will be traced again by each process"
    return report


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


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


def _completed(model: Model, signature: Shapes) -> Shapes:
    """Return the shapes of all inputs; those that are left out need shapes of fixed sizes."""
    shapes = dict(signature)
    for info in model.inputs:
        if info.dtype in (None, np.dtype(object)):
            raise InvalidInput(
                f"The input {info} is no array of numbers, so a shape is not enough: load the "
                "model with a folder as cache=, and call it once."
            )
        if info.name not in shapes:
            sizes = [size for size in info.shape or () if isinstance(size, int)]
            if info.shape is None or len(sizes) < len(info.shape):
                raise InvalidInput(
                    f"The sizes of the input {info} are not all fixed: pass them as in "
                    f"--shape {info.name}=1,3,224,224."
                )
            shapes[info.name] = tuple(sizes)
    return shapes
