"""Calls of libraries, uploads and streams of threads in CUDA graphs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import parser

import sardonyx
from tests.gpu.bound_segments import (
    WEIGHT,
    Bound,
    assert_right,
    drawn,
    several_kernels,
)
from tests.gpu.streams_of_threads import output_of

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")
transforms = pytest.importorskip("sardonyx.backends.cupy.transforms")


LSTM = """<ir_version: 10, opset_import: ["": 22]>
g (float[6, 2, 3] x, float[1, 16, 3] w, float[1, 16, 4] r) => (float[6, 1, 2, 4] y) {
    y = LSTM<hidden_size=4>(x, w, r) }"""


@pytest.mark.parametrize("steps", [6, 21])
def test_a_step_of_many_calls(device: CupyBackend, steps: int) -> None:
    text = LSTM.replace("[6,", f"[{steps},")
    model = sardonyx.load(parser.parse_model(text), backend=device)
    host = sardonyx.load(parser.parse_model(text), backend="numpy")
    for seed in range(5):
        shapes = (steps, 2, 3), (1, 16, 3), (1, 16, 4)
        inputs = [drawn(seed + i, shape) for i, shape in enumerate(shapes)]
        found = model(*map(device.put, inputs))
        np.testing.assert_allclose(found.get(), host(*inputs), rtol=1e-4, atol=1e-6)
    assert (model.stats().unfused, model.stats().uncaptured) == ({}, {})


# -- uploads --------------------------------------------------------------------------------------


def table(xp: Any, x: Any) -> Any:
    return x + xp.put(np.arange(4, dtype=np.float32))


def scalar(xp: Any, x: Any) -> Any:
    """Upload -0.0, whose sign CuPy would lose."""
    return xp.copysign(x, xp.asarray(np.float32(-0.0)))


def overwritten(xp: Any, x: Any) -> Any:
    """Write to an upload of the step's own, as each replay does."""
    total = xp.put(np.ones((3, 4), np.float32))
    total += x
    return total


def of_four_bits(xp: Any, x: Any) -> Any:
    from ml_dtypes import int4  # noqa: PLC0415

    return x * xp.put(np.array([1, 2, -3, 4], int4)).astype("float32")


def joined(xp: Any, x: Any) -> Any:
    """Join more arrays than CuPy joins without uploading their addresses."""
    stacked = xp.stack([x + i for i in range(70)], axis=1)
    flat = xp.concat([stacked[:, i] for i in range(70)] + [x], axis=0)
    return stacked[:, 69] + flat[3:6] + flat[-3:]


def joined_bytes(xp: Any, x: Any) -> Any:
    from ml_dtypes import float8_e5m2  # noqa: PLC0415

    narrow = xp.astype(xp.astype(x > 0, np.dtype("float32")), np.dtype(float8_e5m2))
    parts = xp.concat([narrow * i for i in range(20)], axis=1)
    return xp.astype(parts[:, 4 * 7 : 4 * 8], np.dtype("float32"))


UPLOADS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "table": (table, lambda x: x + np.arange(4)),
    "scalar": (scalar, lambda x: -np.abs(x)),
    "overwritten": (overwritten, lambda x: x + 1),
    "joined": (joined, lambda x: 3 * x + 70),
    "joined bytes": (joined_bytes, lambda x: 7.0 * (x > 0)),
    "narrow": (of_four_bits, lambda x: x * [1, 2, -3, 4]),
}


@pytest.mark.parametrize("name", UPLOADS)
def test_uploads_are_constants_of_a_graph(device: CupyBackend, name: str) -> None:
    step, wanted = UPLOADS[name]

    class Uploading(type(device)):  # type: ignore[misc]  # known only where CuPy is
        def sort(self, x: Any, **options: Any) -> Any:
            return step(self, x)

    def function(xp: Any, x: Any, weight: Any) -> Any:
        return [xp.sort(x * 2, axis=0) * weight]

    bound = Bound(Uploading(), function, drawn(0), WEIGHT, inputs=1)
    for seed in range(6):
        (found,) = bound.run(cupy.asarray(drawn(seed)), bound.placed[1])
        want = wanted(drawn(seed).astype(np.float64) * 2) * WEIGHT
        np.testing.assert_allclose(found.get(), want, rtol=1e-5)
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.full((3, 4), np.nan, np.float32)
    assert (len(bound.graphs), bound.captures.refused, bound.unfused) == (1, {}, [])


FOREST = """<ir_version: 8, opset_import: ["": 15, "ai.onnx.ml": 3]>
g (float[n, 2] x) => (float[n, 1] z) {
    a = Exp(x)
    y = ai.onnx.ml.TreeEnsembleRegressor<n_targets=1,
        nodes_treeids=[0,0,0,0,0], nodes_nodeids=[0,1,2,3,4], nodes_featureids=[0,1,0,0,0],
        nodes_values=[1.0, 0.5, 0.0, 0.0, 0.0], nodes_hitrates=[1.0, 1.0, 1.0, 1.0, 1.0],
        nodes_modes=["BRANCH_LEQ","BRANCH_LEQ","LEAF","LEAF","LEAF"],
        nodes_truenodeids=[1,3,0,0,0], nodes_falsenodeids=[2,4,0,0,0],
        nodes_missing_value_tracks_true=[0,0,0,0,0],
        target_treeids=[0,0,0], target_nodeids=[2,3,4], target_ids=[0,0,0],
        target_weights=[10.0, 20.0, 30.0]>(a)
    z = Exp(y)
}"""


def test_a_forest_with_its_tables(device: CupyBackend) -> None:
    model = sardonyx.load(parser.parse_model(FOREST), backend=device)
    host = sardonyx.load(parser.parse_model(FOREST), backend="numpy")
    for seed in range(5):
        x = drawn(seed, (50, 2))
        np.testing.assert_allclose(model(device.put(x)).get(), host(x), rtol=1e-4)
    assert model.stats().uncaptured == {}


# -- Fourier transforms ---------------------------------------------------------------------------


def transforming(device: CupyBackend, shape: tuple[int, ...]) -> Bound:
    """Bind a segment with a step of three transforms, of two lengths and in both directions."""

    class Transforming(type(device)):  # type: ignore[misc]  # known only where CuPy is
        def sort(self, x: Any, **options: Any) -> Any:
            there = self.fft(x.astype(np.complex64), axis=0)
            return (self.fft(there, axis=1) + 2 * self.fft(there, axis=0, inverse=True)).real

    def function(xp: Any, x: Any) -> Any:
        return [xp.sort(xp.exp(x), axis=0) - 1]

    return Bound(Transforming(), function, drawn(0, shape))


def assert_transformed(found: Any, x: Any) -> None:
    wide = np.exp(x.astype(np.float64))
    want = np.fft.fft2(wide).real + 2 * wide - 1
    np.testing.assert_allclose(found[0].get(), want, rtol=1e-4, atol=1e-4)


def test_fourier_transforms_are_captured(device: CupyBackend) -> None:
    bound = transforming(device, (6, 5))
    for seed in range(5):
        x = drawn(seed, (6, 5))
        assert_transformed(bound.run(cupy.asarray(x)), x)
    assert (len(bound.graphs), bound.captures.refused, bound.unfused) == (1, {}, [])


def test_a_graph_holds_the_plans_of_its_transforms(device: CupyBackend) -> None:
    bound = transforming(device, (6, 5))
    for _ in range(2):
        bound.run(*bound.placed)
    transforms.PLANS.release()
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    for seed in range(3):
        x = drawn(seed, (6, 5))
        assert_transformed(bound.run(cupy.asarray(x)), x)
    assert len(bound.graphs) == 1


def test_a_model_frees_the_plans_of_its_transforms(device: CupyBackend) -> None:
    gc.collect()
    device.release()
    used = cupy.get_default_memory_pool().used_bytes()
    bound = transforming(device, (64, 50))
    for _ in range(3):
        bound.run(*bound.placed)
    del bound
    gc.collect()
    device.release()
    assert cupy.get_default_memory_pool().used_bytes() == used


def test_no_plan_is_created_in_a_capture(device: CupyBackend) -> None:
    bound = transforming(device, (6, 5))
    bound.run(*bound.placed)
    transforms.PLANS.release()
    for seed in range(3):
        x = drawn(seed, (6, 5))
        assert_transformed(bound.run(cupy.asarray(x)), x)
    reason = "the plan of a Fourier transform has made way for others"
    assert bound.captures.refused == {reason: 1}


def test_few_plans_are_kept(device: CupyBackend) -> None:
    for length in range(2, 5 + transforms.MOST_PLANS):
        x = drawn(length, (length,)) + 0j
        np.testing.assert_allclose(
            device.fft(cupy.asarray(x), axis=0).get(), np.fft.fft(x), rtol=1e-4, atol=1e-5
        )
    assert len(transforms.PLANS) == transforms.MOST_PLANS


def test_transforms_on_two_streams_share_no_memory(device: CupyBackend) -> None:
    transforms.PLANS.release()
    bound = transforming(device, (6, 5))
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    for seed in range(6):
        with streams[seed % 2]:
            x = drawn(seed, (6, 5))
            assert_transformed(bound.run(cupy.asarray(x)), x)
    # Lengths 5 and 6 on each.
    assert len(transforms.PLANS) == 4
    assert len(bound.graphs) == 2


@pytest.mark.parametrize("own_streams", [False, True])
def test_threads_that_transform(device: CupyBackend, own_streams: bool) -> None:
    start, wrong = Barrier(4), []

    def work(number: int) -> None:
        x = drawn(number, (40, 30)).astype(np.complex64)
        stream = cupy.cuda.Stream(non_blocking=True) if own_streams else cupy.cuda.Stream.null
        with device.scope(), stream:
            array = cupy.asarray(x)
            start.wait()
            results = [device.fft(array, axis=1).get() for _ in range(20)]
        wrong.extend(r for r in results if not np.allclose(r, np.fft.fft(x), rtol=1e-3, atol=1e-3))

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("shape", [(0, 4), (4, 1), (1,)])
@pytest.mark.parametrize("inverse", [False, True])
def test_transforms_of_small_arrays(
    device: CupyBackend, shape: tuple[int, ...], inverse: bool
) -> None:
    x = drawn(0, shape).astype(np.complex128)
    found = device.fft(cupy.asarray(x), axis=-1, inverse=inverse)
    np.testing.assert_allclose(found.get(), (np.fft.ifft if inverse else np.fft.fft)(x))


# -- default streams of threads -------------------------------------------------------------------


def test_each_threads_default_stream_has_a_graph(device: CupyBackend) -> None:
    bound = Bound(device, several_kernels, drawn(0), WEIGHT, inputs=1)
    start, found = Barrier(3), []

    def work(number: int) -> None:
        with device.scope(), cupy.cuda.Stream.ptds:
            start.wait()
            for seed in range(number, number + 8):
                x = drawn(seed)
                found.append((bound.run(cupy.asarray(x), bound.placed[1])[0].get(), x))
            # While the other threads, and so their streams, are there.
            start.wait()

    threads = [Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result, x in found:
        assert_right(cupy.asarray(result), x)
    assert len(found) == 24
    assert len(bound.graphs) == 3
    assert bound.captures.refused == {}


def test_a_capture_of_the_threads_own_stream_holds_the_kernels(device: CupyBackend) -> None:
    bound = Bound(device, several_kernels, drawn(0), WEIGHT, inputs=1)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        bound.run(*bound.placed)
        stream.begin_capture()
        bound.run(*bound.placed)
        stream.end_capture()
    assert bound.graphs == []


PER_THREAD = """
import numpy as np
from threading import Thread
from onnx import parser
import sardonyx

model = sardonyx.load(parser.parse_model('''<ir_version: 10, opset_import: ["": 22]>
g (float[3, 4] x) => (float[3, 4] y) {
    a = Exp(x) b = Softmax<axis=0>(a) c = Softmax<axis=1>(b) y = Softmax<axis=0>(c) }'''),
    backend="cupy")

def work(seed):
    import cupy
    x = np.random.default_rng(seed).normal(size=(3, 4)).astype("f")
    first = model(cupy.asarray(x)).get()
    for _ in range(4):
        assert np.allclose(model(cupy.asarray(x)).get(), first, rtol=1e-5)
    found.append(seed)

for round in range(3):  # Threads whose numbers may be those of earlier ones.
    found = []
    threads = [Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert sorted(found) == [0, 1, 2]
assert model.stats().uncaptured == {}, model.stats().uncaptured
"""


def test_a_process_with_default_streams_of_threads(cupy_backend: CupyBackend) -> None:
    assert output_of(PER_THREAD) == ""
