"""`load(threads=...)`: how many threads work on a call."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import sardonyx
from sardonyx import InvalidInput
from sardonyx.backends import blas_threads
from sardonyx.backends.jax.onednn import loaded
from sardonyx.graph.programs import compiler
from tests.support.background import wait_for_background
from tests.support.kernels import NEEDS_ONEDNN
from tests.support.onnx_builders import model, node, value, weight
from tests.support.raises import refused

ENCODER = Path(__file__).parents[1] / "examples" / "encoder.onnx"
X = np.random.default_rng(0).normal(size=(2, 8, 48)).astype(np.float32)

# Prints for each graph which part of the processor time was spent in other threads than the busiest
# one, in the call where that was least, and the processor time over the wall time.
MEASURED = """
import os, sys, time
import numpy as np
import sardonyx
from tests.support.background import wait_for_background
from tests.support.onnx_builders import model, node, value, weight

backend, compile = sys.argv[1:]
rng = np.random.default_rng(0)

def array(*shape):
    return rng.normal(size=shape).astype(np.float32) / 30

product = model(
    [node("MatMul", ["x", "w"], ["a"]), node("Exp", ["a"], ["b"]),
     node("Transpose", ["b"], ["t"]), node("MatMul", ["b", "t"], ["y"])],
    [value("x", [768, 1024])], ["y"], [weight("w", array(1024, 1024))])
convolution = model(
    [node("Conv", ["x", "w"], ["a"], pads=[1] * 4), node("Relu", ["a"], ["y"])],
    [value("x", [4, 64, 56, 56])], ["y"], [weight("w", array(64, 64, 3, 3))])

def seconds():
    tasks = [f"/proc/self/task/{task}/schedstat" for task in os.listdir("/proc/self/task")]
    return {task: int(open(task).read().split()[0]) / 1e9 for task in tasks}

for graph, shape in ((product, (768, 1024)), (convolution, (4, 64, 56, 56))):
    loaded, x = sardonyx.load(graph, backend=backend, compile=compile, threads=1), array(*shape)
    for _ in range(4):
        loaded(x)
        wait_for_background()
    time.sleep(0.2)
    shares, wall, processor = [], time.perf_counter(), time.process_time()
    for _ in range(4):
        before = seconds()
        loaded(x)
        taken = [after - before.get(task, 0) for task, after in seconds().items()]
        shares.append(1 - max(taken) / sum(taken))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(min(shares), processor / wall)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's times of threads")
@pytest.mark.parametrize(
    ("backend", "mode", "onednn"),
    [
        ("numpy", "now", "1"),
        ("jax", "now", "1"),
        ("jax", "background", "1"),
        ("jax", "never", "1"),
        ("jax", "now", "0"),
    ],
    ids=["numpy", "jax", "jax on kernels", "jax step by step", "jax without oneDNN"],
)
def test_one_thread_is_one(backend: str, mode: str, onednn: str) -> None:
    run = [sys.executable, "-c", MEASURED, backend, mode]
    environment = {**os.environ, "SARDONYX_ONEDNN": onednn}
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        elsewhere, processors = map(float, line.split())
        # The caller itself works between runs of the pool, and XLA runs one call in this thread and
        # the next in that; a second thread would take half of each call.
        assert elsewhere < 0.25, done.stdout
        assert processors < 1.1, done.stdout


@NEEDS_ONEDNN
def test_calls_of_kernels_alone_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, run = [], loaded.run

    def noted(*arguments: Any) -> None:
        limits.append(list(blas_threads._LIMITS._limits))
        run(*arguments)

    monkeypatch.setattr(loaded, "run", noted)
    monkeypatch.setattr(compiler, "MOST_BESIDE_KERNELS", 1e3)
    filters = np.random.default_rng(1).normal(size=(2, 32, 32, 3, 3)).astype(np.float32)
    weights = [weight("w1", filters[0]), weight("w2", filters[1])]
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1] * 4),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w2"], ["y"], pads=[1] * 4),
    ]
    convolutions = model(nodes, [value("x", [1, 32, 48, 48])], ["y"], weights)
    limited = sardonyx.load(convolutions, backend="jax", threads=1, compile="background")
    x = np.random.default_rng(0).normal(size=(1, 32, 48, 48)).astype(np.float32)
    expected = sardonyx.load(convolutions, backend="numpy")(x)
    for _ in range(8):
        limits.clear()
        assert_allclose(limited(x), expected, rtol=1e-3, atol=1e-2)
        wait_for_background()
    assert (limited.stats().written_out, limited.stats().compiles) == (1, 0)
    assert limits == [[1]]
    assert "written out" in str(sardonyx.profile(limited, [x]))
    assert not blas_threads._LIMITS._limits


@pytest.mark.parametrize(("inner", "limits"), [(16, []), (128, [1])])
def test_small_products_are_limited_if_blas_has_threads_for_them(
    inner: int, limits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    added, add = [], blas_threads._LIMITS.add

    def noted(limit: int) -> None:
        added.append(limit)
        add(limit)

    monkeypatch.setattr(blas_threads._LIMITS, "add", noted)
    matrix = np.ones((inner, inner), np.float32)
    product = model(
        [node("MatMul", ["x", "w"], ["y"])], [value("x", [4, inner])], ["y"], [weight("w", matrix)]
    )
    limited = sardonyx.load(product, backend="jax", threads=1, compile="background")
    x = np.ones((4, inner), np.float32)
    for _ in range(6):
        added.clear()
        assert_allclose(limited(x), inner * np.ones_like(x))
        wait_for_background()
    assert limited.stats().written_out == 1
    assert added == limits


@pytest.fixture(params=["jax", "numpy"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.slow
def test_models_of_several_numbers_in_one_process(backend: str) -> None:
    expected = sardonyx.load(ENCODER, backend=backend)(X)
    models = [sardonyx.load(ENCODER, backend=backend, threads=n) for n in (1, 2, 3, 1)]
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda each: each(X), models * 8):
            assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    for copied in (pickle.loads(pickle.dumps(models[0])), pickle.loads(pickle.dumps(models[1]))):
        assert_allclose(copied(X), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_arrays_of_jax_stay_on_the_callers_device() -> None:
    limited, plain = (sardonyx.load(ENCODER, backend="jax", threads=n) for n in (1, None))
    x = jnp.asarray(X)
    y = limited(x)
    assert y.devices() == x.devices()
    assert_allclose(y + 0 * x, plain(x), rtol=1e-3, atol=1e-5)
    assert_allclose(jax.jit(limited)(x), plain(x), rtol=1e-3, atol=1e-5)
    assert_allclose(jax.vmap(lambda a: limited(a[None])[0])(x), plain(x), rtol=1e-3, atol=1e-5)
    slopes = [jax.grad(lambda x, m=m: (m(x) ** 2).sum())(x) for m in (limited, plain)]  # type: ignore[misc]
    assert_allclose(*slopes, rtol=1e-3, atol=1e-4)
    name = "blocks.0.before.weight"
    assert_allclose(limited.params[name] + x[0, 0], plain.params[name] + x[0, 0])


def test_keys_and_inputs_to_donate() -> None:
    noise = model(
        [node("RandomNormalLike", ["x"], ["n"]), node("Add", ["x", "n"], ["y"])],
        [value("x", [3])],
        ["y"],
    )
    x = jnp.ones(3)
    limited, plain = (sardonyx.load(noise, backend="jax", threads=n) for n in (1, None))
    for key in (7, jax.random.key(7), np.array([1, 2], np.uint32)):
        assert_allclose(limited.bind(key=key)(x), plain.bind(key=key)(x), rtol=1e-6)
    limited.bind(donate="x")(x)
    assert_allclose(x, 1)


def test_limits_of_numpys_products_end_with_their_calls() -> None:
    """In a process whose other packages bring no BLAS of their own."""
    code = (
        "import threadpoolctl, numpy\n"
        "from sardonyx.backends.blas_threads import AtMost\n"
        "blas = lambda: [i['num_threads'] for i in threadpoolctl.threadpool_info()]\n"
        "before = blas()\n"
        "with AtMost(1), AtMost(2):\n"
        "    assert set(blas()) == {1}, blas()\n"
        "assert blas() == before, blas()\n"
        "try:\n"
        "    with AtMost(1): raise ValueError\n"
        "except ValueError:\n"
        "    assert blas() == before, blas()\n"
        "else: raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_first_limits_may_come_from_several_threads_at_once() -> None:
    code = (
        "import threading, threadpoolctl, numpy\n"
        "from sardonyx.backends.blas_threads import AtMost\n"
        "blas = lambda: [i['num_threads'] for i in threadpoolctl.threadpool_info()]\n"
        "before, errors, start = blas(), [], threading.Barrier(8)\n"
        "threading.excepthook = errors.append\n"
        "def limited():\n"
        "    start.wait()\n"
        "    with AtMost(1): pass\n"
        "threads = [threading.Thread(target=limited) for _ in range(8)]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()\n"
        "assert not errors, errors\n"
        "assert blas() == before, blas()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_limit_holds_in_each_thread_that_asks_for_one() -> None:
    code = (
        "import threadpoolctl, numpy\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from sardonyx.backends.blas_threads import AtMost\n"
        "blas = lambda: {i['num_threads'] for i in threadpoolctl.threadpool_info()}\n"
        "def limited():\n"
        "    with AtMost(1): return blas()\n"
        "assert limited() == {1}\n"
        "with ThreadPoolExecutor(2) as pool:\n"
        "    others = [pool.submit(limited).result() for _ in range(4)]\n"
        "assert others == [{1}] * 4, others\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_a_forked_process_has_no_limits_of_its_parents_calls() -> None:
    code = (
        "import os, threadpoolctl, numpy\n"
        "from sardonyx.backends.blas_threads import AtMost\n"
        "blas = lambda: [i['num_threads'] for i in threadpoolctl.threadpool_info()]\n"
        "before = blas()\n"
        "with AtMost(1):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        with AtMost(1): pass\n"
        "        os._exit(blas() != before)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_a_cache_tells_numbers_of_threads_apart(tmp_path: Path) -> None:
    def traces(threads: int | None) -> int:
        loaded = sardonyx.load(ENCODER, backend="jax", compile="now", cache=tmp_path,
                               threads=threads)  # fmt: skip
        loaded(X)
        return loaded.stats().traces

    assert [traces(n) for n in (1, 1, 2, None, 1)] == [1, 0, 1, 1, 0]


def test_buckets_and_checks_with_a_limit() -> None:
    weights = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [None, 4])], ["y"],
                  [weight("w", weights)])  # fmt: skip
    x = np.ones((3, 4), np.float32)
    options: Any
    for options in ({"buckets": {("x", 0): [4]}}, {"checked": True}, {"precision": "bfloat16"}):
        loaded = sardonyx.load(proto, backend="jax", threads=1, **options)
        assert_allclose(loaded(x), x @ weights, atol=2e-2)
        assert_allclose(loaded(jnp.asarray(x)), x @ weights, atol=2e-2)


@pytest.mark.parametrize("threads", [0, -1, True, 1.0, "2", 1025, 10**30, [1]], ids=repr)
def test_what_is_no_number_of_threads_is_refused(threads: Any, backend: str) -> None:
    with refused(InvalidInput, "1 to 1,024 threads"):
        sardonyx.load(ENCODER, backend=backend, threads=threads)


@pytest.mark.slow
def test_where_threads_cannot_be_limited_they_are_refused() -> None:
    with refused(InvalidInput, "jit=False", "leave out"):
        sardonyx.load(ENCODER, backend="jax", jit=False, threads=1)
    content = sardonyx.export(ENCODER, platforms=["cpu"]).to_bytes()
    with refused(InvalidInput, "'threads'", "leave it out"):
        sardonyx.load(content, threads=1)


@pytest.fixture(autouse=True)
def _variables_stay() -> Iterator[None]:
    before = os.environ.get("PJRT_NPROC")
    yield
    assert os.environ.get("PJRT_NPROC") == before
