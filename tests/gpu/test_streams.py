"""Calls on CuPy run on the caller's stream, and streams wait for each other where they must."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import sardonyx
from tests.gpu.producers import WithInterface
from tests.gpu.streams_of_threads import output_of
from tests.support.onnx_builders import model, node, weight
from tests.test_exporter_models import FOLDER, recorded_calls

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")
counts = pytest.importorskip("emulated_cuda.counts", reason="the emulated device is not in here")
log = pytest.importorskip("emulated_cuda.log", reason="the emulated device is not in here")

NETWORKS = [
    "cnn_dynamo",
    "encoder_torchscript",
    "masks_dynamo",
    "sklearn_linear_float64",
]
W = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture(autouse=True)
def _device(cupy_backend: CupyBackend) -> None:
    """These tests need a device."""


@pytest.fixture
def recorder() -> Any:
    if not counts.available():
        pytest.skip("only the emulated device has a log")
    return log.logged


def new_stream() -> Any:
    return cupy.cuda.Stream(non_blocking=True)


def product() -> Any:
    return model([node("MatMul", ["x", "w"], ["y"])], ["x"], ["y"], [weight("w", W)])


def works(entries: list[Any], stream: Any, *, before: int | None = None) -> list[int]:
    return [i for i, e in enumerate(entries[:before]) if e.kind == log.WORK and e.stream == stream]


# -- which stream ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("from_host", [False, True], ids=["from the device", "from the host"])
def test_every_call_runs_on_the_callers_stream(
    cupy_backend: CupyBackend, recorder: Any, name: str, from_host: bool
) -> None:
    loaded = sardonyx.load(FOLDER / f"{name}.onnx", backend=cupy_backend)
    feeds, expected = recorded_calls(name)[0]
    with new_stream() as stream:
        own = feeds if from_host else {k: cupy_backend.put(v) for k, v in feeds.items()}
        for _ in range(2):  # recorded, then fused; both upload weights or constants
            with recorder() as entries:
                loaded(**own)
            assert not log.streams_of_work(entries) & {0, 1, 2}
        with recorder() as entries:
            loaded(**own)
        assert log.streams_of_work(entries) == {stream.ptr}
        for found, wanted in zip(loaded.run(list(expected), feeds), expected.values(), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("stream", [1, 2, "own"])
def test_the_stream_of_an_interface_is_waited_for(
    cupy_backend: CupyBackend, recorder: Any, stream: int | str
) -> None:
    loaded = sardonyx.load(product(), backend=cupy_backend)
    x, producers = cupy.ones((2, 4), "f"), new_stream()
    number = producers.ptr if stream == "own" else stream
    cupy.cuda.Device().synchronize()
    with new_stream() as callers:
        for _ in range(2):
            loaded(WithInterface(x, stream=number))
        with counts.counted() as cost, recorder() as entries:
            loaded(WithInterface(x, stream=number))
    assert cost.synchronizations == 0, "the host waited in place of the stream"
    (record,) = [e for e in entries if e.kind == log.RECORD]
    (wait,) = [e for e in entries if e.kind == log.WAIT]
    assert (record.stream, wait.stream) == (number, callers.ptr)
    assert record.event == wait.event
    assert entries.index(wait) < works(entries, callers.ptr)[0]


def test_no_stream_means_no_wait(cupy_backend: CupyBackend, recorder: Any) -> None:
    x = cupy.ones((2, 4), "f")
    with new_stream() as callers, recorder() as entries:
        cupy_backend.adopt(WithInterface(x))
        cupy_backend.adopt(WithInterface(x, stream=callers.ptr))
    assert entries == []


# -- weights, which all streams read --------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_are_there_before_any_stream_reads_them(
    cupy_backend: CupyBackend, recorder: Any, name: str
) -> None:
    loaded = sardonyx.load(FOLDER / f"{name}.onnx", backend=cupy_backend)
    feeds, _ = recorded_calls(name)[0]
    streams = [new_stream() for _ in range(3)]
    with recorder() as entries:
        for stream in streams:
            with stream:
                loaded(**{k: cupy_backend.put(v) for k, v in feeds.items()})
    shared = log.streams_of_work(entries) - {stream.ptr for stream in streams}
    assert shared, "no stream but the callers' uploaded anything"
    for stream in streams:
        for later in works(entries, stream.ptr):
            for own in shared:
                for earlier in works(entries, own, before=later):
                    assert log.is_ordered(entries, earlier, later)


def test_new_weights_do_not_overwrite_those_that_a_stream_still_reads(
    cupy_backend: CupyBackend, recorder: Any
) -> None:
    loaded = sardonyx.load(product(), backend=cupy_backend)
    readers = new_stream()
    x = cupy.ones((2, 4), "f")
    with readers:
        loaded(x)
    before = loaded.params["w"].data.ptr
    with recorder() as entries:
        with readers:
            loaded(x)
        loaded.release()
        # The memory of the old weight is used again, as the pool of its stream has nothing else.
        again = sardonyx.load(product(), backend=cupy_backend)
        again.params["w"] = W + 1
    (uploaded,) = log.streams_of_work(entries) - {readers.ptr}
    read = works(entries, readers.ptr)[-1]
    written = works(entries, uploaded)[-1]
    assert read < written
    assert log.is_ordered(entries, read, written), f"{before:#x} is read while it is written"


def test_a_weight_from_the_caller_is_there_before_another_stream_reads_it(
    cupy_backend: CupyBackend, recorder: Any
) -> None:
    loaded = sardonyx.load(product(), backend=cupy_backend)
    first, second = new_stream(), new_stream()
    x = cupy.ones((2, 4), "f")
    with second:
        loaded(x)
    with recorder() as entries:
        with first:
            loaded.params["w"] = cupy.asarray(W) * 2
        with second:
            y = loaded(x)
    np.testing.assert_array_equal(y.get(), np.ones((2, 4)) @ W * 2)
    made, read = works(entries, first.ptr)[-1], works(entries, second.ptr)[0]
    assert log.is_ordered(entries, made, read)


def test_uploading_many_weights_waits_only_for_their_stream(
    cupy_backend: CupyBackend, recorder: Any
) -> None:
    loaded = sardonyx.load(FOLDER / "cnn_dynamo.onnx", backend=cupy_backend)
    gc.collect()
    # What other tests have left is freed by the first, and waited for by the second.
    for _ in range(2):
        cupy_backend.release()
    with recorder() as entries:
        for name in loaded.params:
            assert loaded.params[name] is not None
    assert log.DEVICE_AWAITED not in {entry.kind for entry in entries}


def test_weights_wait_for_a_capture_of_another_thread(cupy_backend: CupyBackend) -> None:
    loaded = sardonyx.load(product(), backend=cupy_backend)
    x = np.ones((2, 4), np.float32)
    loaded(x)
    begun, refused = threading.Event(), []
    stream = new_stream()

    def capture() -> None:
        stream.begin_capture()
        begun.set()
        time.sleep(0.2)
        try:
            stream.end_capture()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            refused.append(error)

    thread = threading.Thread(target=capture)
    for factor in (2, 3):
        loaded.params["w"] = W * factor
        loaded(x)
        gc.collect()  # the former weight is free now
    thread.start()
    begun.wait()
    loaded.params["w"] = W * 4
    thread.join()
    np.testing.assert_array_equal(loaded(x), x @ W * 4)
    assert len(refused) == 1, "nothing waited for the device during the capture"


# -- threads --------------------------------------------------------------------------------------


def test_threads_with_streams_of_their_own_get_their_own_results(
    cupy_backend: CupyBackend,
) -> None:
    models = [sardonyx.load(FOLDER / f"{name}.onnx", backend=cupy_backend) for name in NETWORKS]

    def run(thread: int) -> None:
        for turn in range(8):
            which = (thread + turn) % len(NETWORKS)
            calls = recorded_calls(NETWORKS[which])
            feeds, expected = calls[turn % len(calls)]
            with new_stream() as stream:
                placed = {k: cupy_backend.put(v) for k, v in feeds.items()}
                results = models[which].run(list(expected), placed)
                found = [cupy.asnumpy(result) for result in results]
                stream.synchronize()
            for one, wanted in zip(found, expected.values(), strict=True):
                np.testing.assert_allclose(one, wanted, rtol=2e-4, atol=2e-5)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run, thread) for thread in range(4)]:
            done.result()


def test_threads_that_replace_and_release_weights_do_not_wait_forever(
    cupy_backend: CupyBackend,
) -> None:
    loaded = sardonyx.load(product(), backend=cupy_backend)
    x = np.ones((2, 4), np.float32)

    def run(thread: int) -> None:
        for turn in range(20):
            if thread == 0:
                loaded.params["w"] = W * (turn % 3)
            elif thread == 1 and turn % 5 == 0:
                loaded.release()
            else:
                ratio = loaded(x) / np.maximum(x @ W, 1)
                assert np.ptp(ratio) == 0, "a call mixed two weights"
                assert ratio.flat[0] in (0, 1, 2)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run, thread) for thread in range(4)]:
            done.result(timeout=120)


PER_THREAD = """
import threading, cupy, numpy as np, sardonyx
from emulated_cuda import counts, log
from tests.gpu.test_streams import W, product
loaded = sardonyx.load(product(), backend="cupy")
x = np.ones((2, 4), np.float32)
def run():
    for _ in range(3):
        y = loaded(cupy.asarray(x))
        assert (y.get() == x @ W).all()
threads = [threading.Thread(target=run) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if counts.available():
    own = cupy.asarray(x)
    with log.logged() as entries:
        loaded(own)
    print(log.streams_of_work(entries))
"""


def test_default_streams_of_threads(cupy_backend: CupyBackend) -> None:
    assert output_of(PER_THREAD) == ("{2}" if counts.available() else "")
