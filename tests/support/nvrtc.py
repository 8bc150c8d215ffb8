"""`python -m tests.support.nvrtc`: compiles generated kernels with NVIDIA's own compiler.

No GPU and no driver are needed, only the extra `nvrtc`. The kernels are those of the exporters'
models, of the zoo's graphs and of ONNX's suite, which run on NumPy meanwhile. `--one-in N` takes
fewer graphs of the last two.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import tempfile
import unittest
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import sardonyx
from sardonyx.backends.fusion.kernel_source import KernelSource
from tests.support import official
from tests.support.cuda_sources import SourcesBackend
from tests.test_exporter_models import FOLDER, NAMES, recorded_calls
from tests.zoo.recording import recorded_graphs, restored

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
# As CuPy compiles them: see backends/cupy/compiled_kernels.py.
OPTIONS = ("-fmad=false", "--std=c++17")


class Outcome(NamedTuple):
    """What the compiler said of one source; `failure` is empty where it compiled."""

    name: str
    architecture: str
    failure: str
    warnings: str


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.nvrtc", description=__doc__)
    parser.add_argument("--one-in", type=int, default=1, metavar="N")
    parser.add_argument("--architectures", nargs="+", default=ARCHITECTURES, metavar="SM")
    arguments = parser.parse_args()
    sources = generated(arguments.one_in)
    jobs = [(each, sm) for each in sources.values() for sm in arguments.architectures]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = list(pool.map(_compiled, jobs))
    for each in outcomes:
        if each.failure or each.warnings:
            print(f"{each.name}, {each.architecture}: {each.failure or each.warnings}")
    failed = sum(bool(each.failure) for each in outcomes)
    warned = sum(bool(each.warnings) for each in outcomes)
    print(f"{len(sources)} kernels for {', '.join(arguments.architectures)}: {warned} warnings")
    print(f"{len(outcomes) - failed} passed, {failed} failed")
    sys.exit(bool(failed or warned))


def generated(one_in: int) -> dict[str, KernelSource]:
    """Return the kernels of all graphs by their text, each once."""
    backend = SourcesBackend()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _run_exporters_models(backend)
        _run_zoo(backend, one_in, Path(folder) / "model.onnx")
        _run_official_suite(backend, one_in, folder)
    return {each.source: each for each in backend.library.sources}


def _run_exporters_models(backend: SourcesBackend) -> None:
    for name in NAMES:
        model = sardonyx.load(FOLDER / f"{name}.onnx", backend=backend)
        for feeds, _ in recorded_calls(name):
            _run_twice(model, feeds)


def _run_zoo(backend: SourcesBackend, one_in: int, path: Path) -> None:
    for recorded in some(recorded_graphs(), one_in):
        graph = restored(recorded)
        path.write_bytes(graph.content)
        model = sardonyx.load(path, backend=backend)
        for call in graph.calls:
            _run_twice(model, call.feeds)


def _run_official_suite(backend: SourcesBackend, one_in: int, folder: str) -> None:
    os.environ["ONNX_MODELS"] = folder
    for case in official.cases():
        if crc32(case.name.encode()) % one_in == 0 and case.name not in official.EXCLUDED:
            with suppress(unittest.SkipTest):
                official.run(case, backend)


def some(paths: Sequence[Path], one_in: int) -> Iterator[Path]:
    return (path for path in paths if crc32(path.name.encode()) % one_in == 0)


def _run_twice(model: sardonyx.Model, feeds: Any) -> None:
    """The first call records the segments, the second fuses them."""
    for _ in range(2):
        model.run(None, dict(feeds))


def _compiled(job: tuple[KernelSource, str]) -> Outcome:
    source, architecture = job
    failure, log = _compile(source.source, f"--gpu-architecture={architecture}")
    return Outcome(source.name, architecture, failure and f"{failure}\n{log}", log.strip("\0\n"))


def _compile(source: str, *options: str) -> tuple[str, str]:
    """Return why NVRTC refuses a source, or "", and its log."""
    library, program = _nvrtc(), ctypes.c_void_p()
    given = [option.encode() for option in (*OPTIONS, f"-I{_folder() / 'include'}", *options)]
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    try:
        code = library.nvrtcCompileProgram(
            program, len(given), (ctypes.c_char_p * len(given))(*given)
        )
        size = ctypes.c_size_t()
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    failure = library.nvrtcGetErrorString(code).decode() if code else ""
    return failure, log.value.decode(errors="replace")


@cache
def _nvrtc() -> Any:
    (path,) = (_folder() / "lib").glob("libnvrtc.so.*")
    return ctypes.CDLL(str(path))


def _folder() -> Path:
    """Where the wheels of CUDA 13 put their libraries and headers."""
    for folder in sys.path:
        if (found := Path(folder) / "nvidia" / "cu13").is_dir():
            return found
    raise SystemExit("NVRTC is not installed: pip install '.[nvrtc]'")


if __name__ == "__main__":
    main()
