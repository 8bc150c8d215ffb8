"""What is taken of the GPU's memory, given back, and said when there is no more."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.errors import BackendUnavailable, LimitExceeded
from tests.support.onnx_builders import model, node, value, weight

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

MIB = 2**20
WIDTH = 2**16  # of float32: a row is a quarter of a MiB


def test_the_cap_cannot_be_set_once_jax_has_started(jax_backend: JaxBackend) -> None:
    assert jax_backend.device in jax.devices()
    with pytest.raises(BackendUnavailable, match="before anything else uses JAX"):
        sardonyx.load("examples/encoder.onnx", backend="jax", memory_fraction=0.125)


def test_what_jax_holds_is_told(jax_backend: JaxBackend) -> None:
    memory = sardonyx.load("examples/encoder.onnx", backend=jax_backend).memory(x=(1, 8, 48))
    assert 0 < memory.peak <= memory.limit


# -- CuPy: what is given back ---------------------------------------------------------------------


@pytest.fixture
def pool(cupy_backend: CupyBackend) -> Any:
    import cupy  # noqa: PLC0415  (only where there is a device)

    gc.collect()
    cupy_backend.release()
    return cupy.get_default_memory_pool()


@contextmanager
def at_most(pool: Any, more: int) -> Iterator[None]:
    """Let the pool take only so many bytes more than it has."""
    gc.collect()
    pool.free_all_blocks()
    limit = pool.get_limit()
    pool.set_limit(pool.total_bytes() + more)
    try:
        yield
    finally:
        pool.set_limit(limit)


def elementwise() -> onnx.ModelProto:
    """A fused kernel with a weight, and a sort, which is a call of CuPy's own."""
    nodes = [
        node("Mul", ["x", "w"], ["scaled"]),
        node("TopK", ["scaled", "k"], ["sorted", "places"]),
        node("Exp", ["sorted"], ["y"]),
    ]
    weights = [weight("w", np.ones(WIDTH, np.float32)), weight("k", np.array([WIDTH]))]
    return model(nodes, [value("x", ["n", WIDTH])], ["y"], weights)


def waiting() -> onnx.ModelProto:
    """A program whose second segment depends on what the host reads."""
    nodes = [
        node("Mul", ["x", "w"], ["scaled"]),
        node("NonZero", ["scaled"], ["places"]),
        node("Cast", ["places"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    weights = [weight("w", np.ones(WIDTH, np.float32))]
    return model(nodes, [value("x", ["n", WIDTH])], ["y"], weights)


PROTOS: dict[str, Callable[[], onnx.ModelProto]] = {"fused": elementwise, "read": waiting}


def rows(count: int) -> np.ndarray[Any, Any]:
    return np.ones((count, WIDTH), np.float32)


def test_release_gives_all_memory_back(cupy_backend: CupyBackend, pool: Any) -> None:
    before = pool.total_bytes()
    loaded = sardonyx.load(elementwise(), backend=cupy_backend)
    for _ in range(3):
        loaded(rows(4))
    assert pool.total_bytes() > before + 4 * MIB
    loaded.release()
    assert pool.total_bytes() == before
    assert loaded(rows(4)).shape == (4, WIDTH)


def test_a_model_that_is_gone_holds_no_memory(cupy_backend: CupyBackend, pool: Any) -> None:
    before = pool.used_bytes()
    loaded = sardonyx.load(elementwise(), backend=cupy_backend)
    for _ in range(3):
        loaded(rows(4))
    assert pool.used_bytes() > before
    del loaded
    gc.collect()
    assert pool.used_bytes() == before


def test_a_weight_that_is_replaced_is_freed(cupy_backend: CupyBackend, pool: Any) -> None:
    loaded = sardonyx.load(elementwise(), backend=cupy_backend)
    for _ in range(3):
        loaded(rows(1))
    gc.collect()
    before = pool.used_bytes()
    for factor in range(5):
        loaded.params["w"] = np.full(WIDTH, factor, np.float32)
        loaded(rows(1))
        gc.collect()
        # Less, because a graph goes with the weight that it reads.
        assert pool.used_bytes() <= before


@pytest.mark.parametrize("donate", [(), "x"], ids=["kept", "donated"])
def test_a_call_holds_no_input_when_it_has_returned(
    cupy_backend: CupyBackend, pool: Any, donate: Any
) -> None:
    step = sardonyx.load(elementwise(), backend=cupy_backend).bind(donate=donate)
    for _ in range(3):
        result = step(cupy_backend.put(rows(4)))
        result = None
    gc.collect()
    before = pool.used_bytes()
    result = step(cupy_backend.put(rows(4)))
    gc.collect()
    assert pool.used_bytes() == before + result.nbytes


# -- CuPy: when there is no more ------------------------------------------------------------------


@pytest.mark.parametrize("name", PROTOS)
@pytest.mark.parametrize("calls_before", [0, 1, 2], ids=["recorded", "fused", "replayed"])
def test_running_out_of_memory_names_the_node_and_passes(
    cupy_backend: CupyBackend, pool: Any, name: str, calls_before: int
) -> None:
    used = pool.used_bytes()
    loaded = sardonyx.load(PROTOS[name](), backend=cupy_backend)
    for _ in range(calls_before):
        loaded(cupy_backend.put(rows(16)))
    x = cupy_backend.put(rows(16))  # 4 MiB
    with at_most(pool, 5 * MIB):
        for _ in range(3):
            with pytest.raises(LimitExceeded, match=r"The node .*out of memory") as caught:
                loaded(x)
        assert "[16, 65536]" in str(caught.value)
        del caught
        small = loaded(cupy_backend.put(rows(1)))
        assert small.shape[-1] == WIDTH
    assert loaded(x).size == x.size * (2 if name == "read" else 1)
    del x, small
    # A call that went well may have left a graph, which has memory of its own.
    loaded.release()
    gc.collect()
    assert pool.used_bytes() == used, "the calls that failed hold memory"


def test_an_input_that_finds_no_memory_is_named(cupy_backend: CupyBackend, pool: Any) -> None:
    loaded = sardonyx.load(elementwise(), backend=cupy_backend)
    with (
        at_most(pool, 2 * MIB),
        pytest.raises(LimitExceeded, match=r"The input 'x'.*out of memory"),
    ):
        loaded(rows(16))
    assert loaded(rows(1)).shape == (1, WIDTH)


def test_weights_that_find_no_memory_are_placed_later(cupy_backend: CupyBackend, pool: Any) -> None:
    content = np.ones((64, WIDTH), np.float32)  # 16 MiB
    proto = model([node("Add", ["x", "w"], ["y"])], ["x"], ["y"], [weight("w", content)])
    loaded = sardonyx.load(proto, backend=cupy_backend)
    x = np.ones(1, np.float32)
    with at_most(pool, 8 * MIB):
        for _ in range(2):
            with pytest.raises(LimitExceeded, match="out of memory"):
                loaded(x)
    assert loaded(x)[0, 0] == 2


def test_a_view_of_a_weight_that_finds_no_memory(cupy_backend: CupyBackend, pool: Any) -> None:
    content = np.ones((64, WIDTH), np.float32)  # 16 MiB, which leave as a copy
    proto = model(
        [node("Transpose", ["w"], ["t"]), node("Neg", ["x"], ["y"])],
        ["x"],
        ["t", "y"],
        [weight("w", content)],
    )
    loaded = sardonyx.load(proto, backend=cupy_backend)
    x = cupy_backend.put(np.ones(1, np.float32))
    assert loaded(x)[0].shape == (WIDTH, 64)
    with at_most(pool, 8 * MIB), pytest.raises(LimitExceeded, match="out of memory"):
        loaded(x)
    assert loaded(x)[0].shape == (WIDTH, 64)


def test_threads_that_run_out_of_memory_pass_too(cupy_backend: CupyBackend, pool: Any) -> None:
    loaded = sardonyx.load(elementwise(), backend=cupy_backend)
    for _ in range(2):
        loaded(rows(1))

    def run(thread: int) -> int:
        refused = 0
        for turn in range(6):
            count = 1 if (thread + turn) % 2 else 32
            try:
                assert loaded(rows(count)).shape == (count, WIDTH)
            except LimitExceeded:
                refused += count == 32
        return refused

    with at_most(pool, 12 * MIB), ThreadPoolExecutor(3) as threads:
        assert sum(threads.map(run, range(3))) == 9
    assert loaded(rows(32)).shape == (32, WIDTH)


SMALL_DEVICE = """
import cupy, gc, numpy as np, sys, sardonyx
from sardonyx.errors import LimitExceeded
from tests.gpu.test_memory import PROTOS, rows
if sys.argv[1] == "no pool":
    cupy.cuda.set_allocator(None)
free = lambda: cupy.cuda.runtime.memGetInfo()[0]
for proto in PROTOS.values():
    loaded = sardonyx.load(proto(), backend="cupy")
    loaded(rows(1))
    for count in (64, 1, 64, 1):
        try:
            print(count, loaded(rows(count)).shape[-1])
        except LimitExceeded as error:
            print("out of memory" if "out of memory" in str(error) else error)
    loaded.release()
    print(free() >= 30 * 2**20)
"""


@pytest.mark.parametrize("allocator", ["the pool", "no pool"])
def test_a_small_device(cupy_backend: CupyBackend, allocator: str) -> None:
    counts = pytest.importorskip("emulated_cuda.counts", reason="no emulated device")
    if not counts.available():
        pytest.skip("only the emulated device can be small")
    finished = subprocess.run(
        [sys.executable, "-c", SMALL_DEVICE, allocator],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "EMULATED_CUDA_MEMORY": str(32 * MIB)},
    )
    assert finished.returncode == 0, finished.stderr
    once = ["out of memory", f"1 {WIDTH}", "out of memory", f"1 {WIDTH}", "True"]
    assert finished.stdout.splitlines() == once * len(PROTOS)
