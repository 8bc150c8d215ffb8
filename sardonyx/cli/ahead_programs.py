"""Programs for calls of some shapes, compiled ahead into a file that lies beside the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from sardonyx.api import load
from sardonyx.backends.cache_file import CacheFile
from sardonyx.cli.shapes import Shapes
from sardonyx.errors import InvalidInput
from sardonyx.printable import printable
from sardonyx.targets.call_shapes import completed_shapes

SUFFIX = ".sardonyx-cache"


def compile_ahead(
    path: str,
    calls: Sequence[Shapes],
    output: str | None,
    *,
    backend: str | None,
    device: str | None,
    precision: str,
) -> str:
    """Compile a model for calls of these shapes; return a report."""
    signatures = list(calls) or [{}]
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
    text = f"{printable(str(file))}: {made} for {_counted(recorded, 'call')}, "
    text += f"{size:,} bytes, compiled in {seconds:.1f} seconds"
    if recorded < calls:
        text += f"\n{_counted(calls - recorded, 'call')} will be traced again by each process"
    return text


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
