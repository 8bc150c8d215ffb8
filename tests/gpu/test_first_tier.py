"""CuPy runs what XLA has not compiled yet, and everything else is as with NumPy on the CPU.

JAX needs no CUDA here: arrays of its CPU enter and leave by copies through the host. On a machine
with a GPU, JAX runs there, and the last tests share arrays as calls do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

import sardonyx
from sardonyx import backends
from sardonyx.backends.executable import Spec
from sardonyx.backends.interpreter import Overtaken
from sardonyx.backends.jax import first_tier
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.on_cpu import JaxOnCpu
from sardonyx.graph.programs import interpretation
from tests.support.onnx_builders import graph as subgraph
from tests.support.onnx_builders import model, node, value
from tests.test_background_compile import doubled
from tests.test_changing_sizes import DECODER, normal
from tests.test_exporter_models import FOLDER
from tests.test_first_calls import drawn

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")
counts = pytest.importorskip("emulated_cuda.counts", reason="the emulated device is not in here")
log = pytest.importorskip("emulated_cuda.log", reason="the emulated device is not in here")

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
PATIENCE_OF_TESTS = 120.0
NETWORKS = [
    "cnn_dynamo",
    "encoder_dynamo",
    "masks_dynamo",
    "mlp_dynamo",
    "separable_dynamo",
    "sklearn_linear_float64",
]


@pytest.fixture(autouse=True)
def _device(cupy_backend: CupyBackend) -> None:
    """These tests need a device."""


@pytest.fixture
def tiers(cupy_backend: CupyBackend, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Let CuPy interpret for JAX's CPU; the list holds each tier that runs."""
    from sardonyx.backends.cupy.interpreter import CupyTier  # noqa: PLC0415

    created: list[Any] = []

    def on_cupy(
        backend: JaxBackend, is_overtaken: Callable[[], bool], *, is_final: bool
    ) -> CupyTier:
        take = lambda array: backend.put(cupy.asnumpy(array))  # noqa: E731
        created.append(CupyTier(cupy_backend.device, take, is_overtaken))
        return created[-1]

    # As where JAX has a GPU, no other backend stands for its own.
    monkeypatch.setattr(JaxOnCpu, "has_only_cpus", lambda: False)
    backends._shared.cache_clear()
    monkeypatch.setattr(JaxBackend, "first_tier", on_cupy)
    # As on CUDA: the kernels of a CPU are not in the program, and host steps upload.
    for name in ("fuses", "reads_host_memory"):
        monkeypatch.setattr(JaxBackend, name, False)
    yield created
    backends._shared.cache_clear()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_OF_TESTS
    while not condition():
        assert time.monotonic() < end, "the background compiled nothing"
        time.sleep(0.01)


X = np.ones((2, 3), np.float32)
DOUBLED = np.array([[4, 9, 16]] * 2, np.float32)


# -- the same results -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_results_differ_by_rounding_only(tiers: list[Any], name: str) -> None:
    path = Path(FOLDER / f"{name}.onnx")
    stepped = sardonyx.load(path, backend="jax", compile="never")
    inputs = drawn(stepped)
    expected = sardonyx.load(path, backend="jax", compile="now").run(None, inputs)
    for _ in range(2):
        for one, other in zip(stepped.run(None, inputs), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)
    stats = stepped.stats()
    assert (stats.compiles, dict(stats.uninterpreted)) == (0, {})
    assert stats.interpreted > 0
    assert tiers


def test_jax_arrays_enter_and_leave(tiers: list[Any]) -> None:
    loaded = sardonyx.load(doubled(), backend="jax", compile="never")
    result = loaded(jax.numpy.asarray(X))
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(result, DOUBLED)


def test_a_loop_with_a_random_draw_is_the_same(tiers: list[Any]) -> None:
    """The trip count is an input, so that the loop runs on the device."""
    body = subgraph(
        [
            node("RandomNormalLike", ["h"], ["r"]),
            node("Add", ["h", "r"], ["h2"]),
            node("Identity", ["c"], ["c2"]),
        ],
        [value("i", [], INT64), value("c", [], onnx.TensorProto.BOOL), value("h", [3])],
        [value("c2", [], onnx.TensorProto.BOOL), value("h2", [3])],
    )
    proto = model(
        [node("Loop", ["n", "", "x"], ["y"], body=body)],
        [value("n", [], INT64), value("x", [3])],
        ["y"],
    )
    x, n = np.zeros(3, np.float32), np.array(20)
    expected = sardonyx.load(proto, backend="jax", compile="now").bind(key=7)(n=n, x=x)
    stepped = sardonyx.load(proto, backend="jax", compile="never")
    np.testing.assert_allclose(stepped.bind(key=7)(n=n, x=x), expected, rtol=1e-6, atol=1e-6)
    assert stepped.stats().interpreted == 1


def test_writing_to_an_input_or_a_result_changes_nothing_else(tiers: list[Any]) -> None:
    proto = model(
        [node("Flatten", ["x"], ["y"], axis=0), node("Neg", ["x"], ["z"])], ["x"], ["y", "z"]
    )
    loaded = sardonyx.load(proto, backend="jax", compile="never")
    x = X.copy()
    y, z = loaded(x)
    x[...] = 5
    np.testing.assert_array_equal(y, X.reshape(1, 6))
    np.testing.assert_array_equal(z, -X)


# -- the compiled program takes over --------------------------------------------------------------


def test_the_compiled_program_takes_over(tiers: list[Any]) -> None:
    loaded = sardonyx.load(doubled(), backend="jax", compile="background")
    for _ in range(2):
        np.testing.assert_array_equal(loaded(X), DOUBLED)
    wait_for(lambda: loaded.stats().compiles == 1)

    def has_taken_over() -> bool:
        before = loaded.stats().interpreted
        np.testing.assert_array_equal(loaded(X), DOUBLED)
        return loaded.stats().interpreted == before

    # A program is counted a moment before calls find it.
    wait_for(has_taken_over)
    assert has_taken_over()


def test_it_takes_over_in_the_middle_of_a_run(
    tiers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpretation, "PATIENCE", 0)
    submitted = threading.Event()

    def at_once(job: Callable[[], None]) -> None:
        job()
        submitted.set()

    monkeypatch.setattr(interpretation.COMPILES, "submit", at_once)
    loaded = sardonyx.load(doubled(), backend="jax", compile="background")
    np.testing.assert_array_equal(loaded(X), DOUBLED)
    assert submitted.is_set()
    assert (loaded.stats().compiles, loaded.stats().interpreted) == (1, 0)
    assert not loaded.stats().uninterpreted


def test_the_pool_is_empty_once_the_program_is_compiled(tiers: list[Any]) -> None:
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()
    loaded = sardonyx.load(doubled(), backend="jax", compile="never")
    large = np.ones((10_000, 3), np.float32)
    loaded(large)
    assert pool.total_bytes() > before
    loaded.compile({"x": large.shape})
    assert pool.total_bytes() == before


@pytest.mark.parametrize("compile_when", ["background", "never"])
def test_a_cache_that_grows_at_each_call(tiers: list[Any], compile_when: str) -> None:
    """Sizes that change are derived and padded meanwhile, as without CuPy."""
    loaded = sardonyx.load(parser.parse_model(DECODER), backend="jax", compile=compile_when)
    plain = sardonyx.load(parser.parse_model(DECODER), backend="numpy", buckets=None)
    ours = theirs = [normal(1, 5, 8), normal(1, 5, 8)]
    for i in range(96):
        x = normal(1, 1, 8) + np.float32(i / 100)
        y, *ours = loaded(x, *ours)
        expected, *theirs = plain(x, *theirs)
        np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-4)
        assert [cache.shape for cache in ours] == [cache.shape for cache in theirs]
    stats = loaded.stats()
    assert tiers
    assert dict(stats.uninterpreted) == {}
    assert stats.traces + stats.compiles < 24


# -- donation -------------------------------------------------------------------------------------


def test_donated_arrays_are_deleted(tiers: list[Any]) -> None:
    loaded = sardonyx.load(doubled(), backend="jax", compile="never").bind(donate="x")
    x = jax.numpy.asarray(X)
    np.testing.assert_array_equal(loaded(x), DOUBLED)
    assert x.is_deleted()


def test_results_can_be_donated_to_the_compiled_program(tiers: list[Any]) -> None:
    proto = model([node("Add", ["x", "x"], ["y"])], [value("x", ["n"])], ["y"])
    loaded = sardonyx.load(proto, backend="jax", compile="never")
    x = loaded(jax.numpy.ones(3, np.float32))
    loaded.compile({"x": (3,)})
    step = sardonyx.load(proto, backend="jax", compile="now").bind(donate="x")
    np.testing.assert_array_equal(step(x), np.full(3, 4))


# -- what CuPy refuses waits for the compiled program ---------------------------------------------


def test_types_that_cupy_lacks_are_computed_by_it(tiers: list[Any]) -> None:
    float8 = onnx.TensorProto.FLOAT8E4M3FN
    casts = [node("Cast", ["x"], ["e"], to=float8), node("Cast", ["e"], ["y"], to=FLOAT)]
    loaded = sardonyx.load(model(casts, ["x"], ["y"], opset=19), backend="jax", compile="never")
    np.testing.assert_array_equal(loaded(X * 1.01), X)
    stats = loaded.stats()
    assert (stats.compiles, stats.interpreted) == (0, 1)


def test_running_out_of_memory_waits(tiers: list[Any], cupy_backend: CupyBackend) -> None:
    loaded = sardonyx.load(doubled(), backend="jax", compile="background")
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    limit = pool.get_limit()
    pool.set_limit(pool.total_bytes() + 2**20)
    try:
        large = np.ones((2**20, 3), np.float32)
        np.testing.assert_array_equal(loaded(large)[:2], DOUBLED)
    finally:
        pool.set_limit(limit)
    stats = loaded.stats()
    assert (stats.compiles, stats.interpreted) == (1, 0)
    (reason,) = stats.uninterpreted
    assert reason.startswith("OutOfMemoryError")
    loaded(X)
    assert loaded.stats().interpreted == 1, "another signature runs on CuPy again"


def test_a_tier_that_cannot_be_created_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(backend: JaxBackend, is_overtaken: Any, *, is_final: bool) -> Any:
        raise ImportError("libnvrtc is missing")

    monkeypatch.setattr(JaxBackend, "first_tier", fail)
    loaded = sardonyx.load(doubled(), backend=JaxBackend(), compile="background")
    np.testing.assert_array_equal(loaded(X), DOUBLED)
    assert dict(loaded.stats().uninterpreted) == {"ImportError: libnvrtc is missing": 1}


def test_results_of_other_types_wait(cupy_backend: CupyBackend) -> None:
    from sardonyx.backends.cupy.interpreter import CupyTier  # noqa: PLC0415

    tier = CupyTier(cupy_backend.device, cupy.asnumpy, lambda: False)
    for spec in (Spec((3,), np.dtype(np.float64)), Spec((2,), np.dtype(np.float32))):
        with pytest.raises(Overtaken):
            tier.run(lambda xp, x: [x], [np.ones(3, np.float32)], [spec])


@pytest.mark.parametrize("reason", [None, "CuPy is not installed"])
def test_calls_wait_by_default_only_where_nothing_runs_meanwhile(
    monkeypatch: pytest.MonkeyPatch, reason: str | None
) -> None:
    monkeypatch.setattr(JaxBackend, "_is_on_cpu", False)
    monkeypatch.setattr(JaxBackend, "reason_to_wait", reason)
    assert JaxBackend().waits_by_default is (reason is not None)


class Device:
    platform, device_kind, local_hardware_id = "gpu", "an accelerator", 0

    def __init__(self, version: str, index: int = 0) -> None:
        self.client = self
        self.platform_version = version
        self.local_hardware_id = index


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (Device("cuda 13000"), None),
        (Device("rocm 60000"), "only XLA computes on an accelerator"),
        (Device("cuda 13000", 99), "CuPy does not run here: there is no CUDA device 99"),
    ],
    ids=["CUDA", "ROCm", "another device"],
)
def test_which_devices_have_a_first_tier(device: Any, reason: str | None) -> None:
    found = first_tier.reason_to_wait(device)
    assert found == reason if reason is None else found is not None and reason in found


def test_where_xlas_memory_is_limited_cupy_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(first_tier.LIMIT, "0.5")
    device: Any = Device("cuda 13000")
    assert "limited" in (first_tier.reason_to_wait(device) or "")


def test_the_reason_is_in_the_stats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JaxBackend, "reason_to_wait", "CuPy is not installed")
    loaded = sardonyx.load(doubled(), backend=JaxBackend(), compile="background")
    np.testing.assert_array_equal(loaded(X), DOUBLED)
    stats = loaded.stats()
    assert dict(stats.uninterpreted) == {"CuPy is not installed": 1}
    assert (stats.compiles, stats.interpreted) == (1, 0)


# -- memory and streams ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bool", "complex64", "int64", ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_arrays_are_shared_with_the_other_library(
    cupy_backend: CupyBackend, dtype: Any, shape: tuple[int, ...]
) -> None:
    """Arrays of CuPy stand for those of JAX on CUDA; they enter through DLPack too."""
    from sardonyx.backends.cupy.interpreter import CupyTier  # noqa: PLC0415
    from tests.gpu.producers import WithDlpack  # noqa: PLC0415

    source = cupy.asarray(np.ones(shape, dtype))
    entered, left = [], []

    def replay(xp: Any, x: Any) -> list[Any]:
        entered.append(x)
        return [x.T]

    def take(array: Any) -> Any:
        left.append(array)
        return array.copy()

    tier = CupyTier(cupy_backend.device, take, lambda: False)
    passed = WithDlpack(source)
    (result,) = tier.run(replay, [passed], [Spec(shape[::-1], np.dtype(dtype))])
    assert entered[0].data.ptr == source.data.ptr
    assert left[0].flags.c_contiguous
    assert len(passed.streams) == 1
    assert passed.streams[0] not in (None, 0, 1, 2)
    np.testing.assert_array_equal(result.get(), source.get().T)


def test_a_run_is_on_a_stream_of_its_own_and_ends_before_it_returns(
    cupy_backend: CupyBackend,
) -> None:
    if not counts.available():
        pytest.skip("only the emulated device has a log")
    from sardonyx.backends.cupy.interpreter import CupyTier  # noqa: PLC0415

    tier = CupyTier(cupy_backend.device, lambda array: array, lambda: False)
    spec = Spec((3,), np.dtype(np.float32))
    threads: list[set[int]] = []
    for fails in (False, True):
        with log.logged() as entries:
            try:
                tier.run(
                    lambda xp, x, fails=fails: [x + x, 1 / 0] if fails else [x + x],
                    [np.ones(3, np.float32)],
                    [spec],
                )
            except ZeroDivisionError:
                assert fails
        (stream,) = log.streams_of_work(entries)
        assert stream not in (0, 1, 2)
        assert entries[-1].kind == log.STREAM_AWAITED
        assert entries[-1].stream == stream
        threads.append({stream})
    assert threads[0] == threads[1]


def test_threads_run_at_the_same_time(tiers: list[Any]) -> None:
    loaded = sardonyx.load(doubled(), backend="jax", compile="never")
    wrong: list[Any] = []

    def run(factor: int) -> None:
        for _ in range(5):
            found = loaded(X * factor)
            expected = (X * factor + np.array([1, 2, 3], np.float32)) ** 2
            if not np.array_equal(found, expected):
                wrong.append(found)

    threads = [threading.Thread(target=run, args=(factor,)) for factor in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_copy_for_jax_shares_no_memory() -> None:
    """XLA ends the process if it is to donate memory of another library."""
    source = np.arange(4096, dtype=np.float32)
    copy = first_tier.copy_of(source)
    source[...] = 0
    np.testing.assert_array_equal(copy, np.arange(4096))
    donated = jax.jit(lambda x: x + 1, donate_argnums=0)(copy)
    np.testing.assert_array_equal(donated, np.arange(1, 4097))


def test_foreign_arrays_are_copied_before_jax_donates_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JaxBackend, "interprets", False)
    copied = []
    monkeypatch.setattr(JaxBackend, "to_donate", lambda self, array: copied.append(1) or array)

    class Foreign:
        def __init__(self, array: np.ndarray[Any, Any]) -> None:
            self.array, self.shape, self.dtype = array, array.shape, array.dtype

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return self.array

    loaded = sardonyx.load(doubled(), backend=JaxBackend(), compile="now")
    loaded(Foreign(X))
    assert not copied
    loaded.bind(donate="x")(Foreign(X))
    assert copied


# -- JAX on CUDA ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_beside_jax_on_cuda(jax_backend: JaxBackend, name: str) -> None:
    loaded = sardonyx.load(FOLDER / f"{name}.onnx", backend=jax_backend, compile="background")
    inputs = drawn(loaded)
    expected = sardonyx.load(FOLDER / f"{name}.onnx", backend=jax_backend, compile="now").run(
        None, inputs
    )
    placed = {name: jax_backend.put(array) for name, array in inputs.items()}
    for _ in range(5):
        for one, other in zip(loaded.run(None, placed), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)
    stats = loaded.stats()
    assert stats.interpreted > 0, stats.uninterpreted
    wait_for(lambda: loaded.stats().compiles > 0)
    for one, other in zip(loaded.run(None, placed), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)


def test_a_donated_cache_beside_jax_on_cuda(jax_backend: JaxBackend) -> None:
    """Results of CuPy are donated to the compiled program, once that has taken over."""
    proto = model([node("Add", ["x", "x"], ["y"])], [value("x", ["n"])], ["y"])
    loaded = sardonyx.load(proto, backend=jax_backend, compile="background")
    step = loaded.bind(donate="x")
    x = jax_backend.put(np.ones(3, np.float32))
    for _ in range(3):
        x = step(x)
    wait_for(lambda: loaded.stats().compiles > 0)
    np.testing.assert_array_equal(step(x), np.full(3, 16))
