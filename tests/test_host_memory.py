"""What running a model takes of the host's memory: its weights once, and little more."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.host_memory import ALIGNMENT, SMALLEST, SMALLEST_MAP, aligned, zero_bytes
from sardonyx.backends.mapped_files import mapping_of, read_by_rows
from sardonyx.graph.values.mmap import drop_pages
from tests.support.onnx_builders import model, node, value, weight

SIDE, COUNT = 2048, 16
FILE = SIDE * SIDE * COUNT * 4

PEAK = """
import sys, numpy as np, sardonyx
from benchmarks.worker import peak_bytes

# What the library, XLA and oneDNN take for themselves is not the weights'.
small, large = (sardonyx.load(path, backend="jax") for path in sys.argv[1:])
first, x = (np.ones((3, model.inputs[0].shape[1]), np.float32) for model in (small, large))
small(first)
before = peak_bytes()
y = large(x)
print(peak_bytes() - before, float(np.asarray(y)[0, 0]))
"""


def chain(folder: Path, side: int, *, inside: bool = False) -> Path:
    """Products with matrices one after the other; each is the identity times two."""
    matrices = [weight(f"w{i}", 2 * np.eye(side, dtype=np.float32)) for i in range(COUNT)]
    nodes = [node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(COUNT)]
    proto = model(nodes, [value("x0", ["n", side])], [f"x{COUNT}"], matrices)
    path = folder / f"chain-{side}.onnx"
    apart = {"save_as_external_data": True, "location": f"{side}.data", "size_threshold": 0}
    onnx.save(proto, path, **({} if inside else apart))
    return path


counts_maps = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="others count mapped files otherwise"
)


@pytest.mark.slow
@counts_maps
@pytest.mark.parametrize(
    ("packs", "inside"),
    [
        pytest.param(True, False, id="packed by oneDNN"),
        pytest.param(False, False, id="packed for XLA", marks=pytest.mark.slow),
        pytest.param(True, True, id="packed by oneDNN from inside the file"),
        pytest.param(False, True, id="packed for XLA from inside it", marks=pytest.mark.slow),
    ],
)
def test_weights_are_held_once(packs: bool, inside: bool, tmp_path: Path) -> None:
    # The smaller one is large enough for oneDNN, so that its library is there before it counts.
    paths = [str(chain(tmp_path, side, inside=inside)) for side in (128, SIDE)]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *paths],
        env={**os.environ, "SARDONYX_ONEDNN": "1" if packs else "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    grown, result = map(float, done.stdout.split())
    assert result == 2**COUNT
    assert grown < 1.2 * FILE


def test_what_is_let_go_can_be_read_again(tmp_path: Path) -> None:
    content = np.arange(2**16, dtype=np.float32)
    content.tofile(tmp_path / "data")
    mapped = np.memmap(tmp_path / "data", np.float32, "r")
    for part in (mapped, mapped[1000:], mapped[3:5], mapped[:0], mapped[::2], content):
        expected = np.array(part)
        drop_pages(part)
        np.testing.assert_array_equal(part, expected)
    assert mapping_of(mapped) is not None
    assert mapping_of(content) is None


def test_pages_without_a_file_are_not_let_go() -> None:
    pages = zero_bytes(2 * SMALLEST_MAP + 1)
    pages[:] = 7
    drop_pages(pages)
    assert pages.min() == 7
    assert mapping_of(pages) is None
    assert pages.ctypes.data % ALIGNMENT == 0


@counts_maps
@pytest.mark.parametrize("order", ["C", "F"])
def test_pages_of_any_view_are_let_go(order: Any, tmp_path: Path) -> None:
    whole = np.arange(2**18, dtype=np.float32).reshape(2**9, -1)
    whole.tofile(tmp_path / "data")
    mapped = np.memmap(tmp_path / "data", np.float32, "r", shape=whole.shape)
    view = mapped if order == "C" else mapped.T
    np.testing.assert_array_equal(mapped, whole)
    before = resident(tmp_path / "data")
    drop_pages(view)
    assert before >= whole.nbytes > resident(tmp_path / "data")


def resident(path: Path) -> int:
    """Bytes of a mapped file that are in this process's memory."""
    maps = Path("/proc/self/smaps").read_text().split("\n")
    start = next(i for i, line in enumerate(maps) if line.endswith(str(path)))
    size = next(line for line in maps[start:] if line.startswith("Rss:"))
    return int(size.split()[1]) * 1024


@counts_maps
def test_rows_of_a_large_table_are_read_alone(tmp_path: Path) -> None:
    """Nothing of the file is in memory before: it has never been written to or read."""
    shape, rows = (2**14, 2**10), [5, 2**13, 2**14 - 1]
    path = tmp_path / "table"
    with path.open("wb") as file:
        file.truncate(4 * shape[0] * shape[1])
    apart = onnx.TensorProto(
        name="table",
        data_type=onnx.TensorProto.FLOAT,
        dims=shape,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    apart.external_data.add(key="location", value=path.name)
    proto = model(
        [node("Gather", ["table", "x"], ["y"])],
        [value("x", [3], onnx.TensorProto.INT64)],
        ["y"],
        [apart],
    )
    onnx.save(proto, tmp_path / "model.onnx")
    found = sardonyx.load(tmp_path / "model.onnx", backend="numpy")(np.array(rows))
    assert found.shape == (3, shape[1])
    assert not found.any()
    assert 0 < in_memory(path) <= 6


def in_memory(path: Path) -> int:
    """Pages of a file that the system holds, whichever process has read them."""
    mapped = np.memmap(path, np.uint8, "r")
    found = np.zeros(-(-mapped.size // mmap.PAGESIZE), np.uint8)
    address, size = ctypes.c_void_p(mapped.ctypes.data), ctypes.c_size_t(mapped.size)
    assert ctypes.CDLL(None).mincore(address, size, ctypes.c_void_p(found.ctypes.data)) == 0
    return int((found & 1).sum())


def test_looking_rows_up_leaves_the_advice_as_it_was(tmp_path: Path) -> None:
    np.arange(2**16, dtype=np.float32).tofile(tmp_path / "data")
    mapped = np.memmap(tmp_path / "data", np.float32, "r", shape=(2**10, 2**6))
    for table, rows in ((mapped, 3), (mapped, 2**9), (np.ones((64, 2)), 1), (mapped[:0], 0)):
        with read_by_rows(table, rows):
            np.testing.assert_array_equal(table[:3], np.array(table[:3]))
    with pytest.raises(KeyError), read_by_rows(mapped, 1):
        raise KeyError
    if sys.platform.startswith("linux"):
        assert "rr" not in flags(tmp_path / "data")
        with read_by_rows(mapped, 1):
            assert "rr" in flags(tmp_path / "data")


def flags(path: Path) -> list[str]:
    """The flags of the memory that a file is mapped to; each is two letters."""
    maps = Path("/proc/self/smaps").read_text().split("\n")
    start = next(i for i, line in enumerate(maps) if line.endswith(str(path)))
    return next(line for line in maps[start:] if line.startswith("VmFlags:")).split()


def test_the_heap_is_given_back_unless_it_is_kept() -> None:
    script = """
from sardonyx.backends.host_memory import give_back_freed, keep_freed
blocks = [bytes(100_000) for _ in range(1000)]
last = bytes(100_000)
del blocks
print(give_back_freed(), keep_freed(), give_back_freed())
"""
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)
    is_glibc = platform.libc_ver()[0] == "glibc"
    assert done.stdout.split() == ([b"True", b"True", b"False"] if is_glibc else [b"False"] * 3)


RETAINED = """
import resource, sys
import numpy as np, sardonyx
from tests.support.onnx_builders import model, node

names = [f"y{i}" for i in range(11)]
nodes = [node("Concat", ["x"] * (i + 2), [name], axis=0) for i, name in enumerate(names)]
proto = model(nodes, ["x"], names)
loaded = sardonyx.load(proto, backend="jax", device="cpu", compile="now")
x = np.ones(2**18, np.float32)
faults = []
for _ in range(30):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    loaded.run(None, {"x": x})
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
# The heap settles during the first calls, and is trimmed now and then.
print(sorted(faults[10:])[10])
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an option of the GNU C library")
@pytest.mark.parametrize(
    "tunables", ["", "glibc.malloc.trim_threshold=1048576:glibc.malloc.mmap_threshold=131072"]
)
def test_results_are_written_to_pages_of_the_last_call(tunables: str) -> None:
    """Unless the user tells the C library otherwise.

    The results are 77 MB; by itself the library never retains more than 64.
    """
    environment = {**os.environ, "GLIBC_TUNABLES": tunables, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", RETAINED],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    assert (int(done.stdout) > 1000) == bool(tunables)


def test_only_what_lies_badly_is_copied() -> None:
    lies_well = aligned(np.empty(2 * SMALLEST + 1, np.uint8)[1:])
    assert aligned(lies_well) is lies_well
    small = np.empty(8, np.uint8)[1:]
    assert aligned(small) is small
    for lies_badly in (lies_well[1:], lies_well.reshape(2, -1).T):
        copy = aligned(lies_badly)
        assert copy.ctypes.data % ALIGNMENT == 0
        np.testing.assert_array_equal(copy, lies_badly)


KEPT = """
import sys, resource, numpy as np, sardonyx
sardonyx.load(sys.argv[1], backend="numpy", retain_freed_memory=sys.argv[2] == "kept")
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
counted = []
for _ in range(4):
    before = faults()
    np.ones(10_000_000, np.float32)
    counted.append(faults() - before)
print(min(counted))
"""


@pytest.mark.slow
def test_memory_that_is_kept_is_not_asked_for_again(tmp_path: Path) -> None:
    run = [sys.executable, "-c", KEPT, str(chain(tmp_path, 8))]
    # Otherwise the system's pages may be large and few.
    plainly = {**os.environ, "NUMPY_MADVISE_HUGEPAGE": "0"}
    faults = [
        int(subprocess.run([*run, how], stdout=subprocess.PIPE, env=plainly, check=True).stdout)
        for how in ("given back", "kept")
    ]
    given_back, kept = faults
    assert given_back > 5_000
    # Other C libraries than GNU's cannot be told, and nothing breaks there.
    can_be_told = platform.libc_ver()[0] == "glibc"
    assert (kept < given_back / 10) == can_be_told
