"""Products of the first tier's arrays by oneDNN, instead of by NumPy's BLAS and its threads."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.interpreter import Interpreter
from sardonyx.backends.jax.onednn import HostKernels, loaded, stacks
from sardonyx.backends.jax.onednn.stacks import multiplied
from tests.support.kernels import NEEDS_ONEDNN
from tests.test_onednn import drawn

pytestmark = NEEDS_ONEDNN


@pytest.fixture
def small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded.shared_library() is not None
    monkeypatch.setattr(stacks, "FEWEST_PAIRS", 0)


def unaligned(rows: int, columns: int) -> Any:
    data = b"." + drawn(rows, columns).tobytes()
    return np.frombuffer(data, np.uint8)[1:].view(np.float32).reshape(rows, columns)


# Fewer pairs than threads are cut, by rows or by columns.
PAIRS = {
    "scores of attention": (drawn(2, 12, 40, 64), drawn(2, 40, 12, 64).transpose(0, 2, 3, 1)),
    "values of attention": (drawn(2, 12, 40, 40), drawn(2, 40, 12, 64).swapaxes(1, 2)),
    "a vector": (drawn(1, 300), drawn(300, 500)),
    "a vector and a transposed matrix": (drawn(1, 300), drawn(500, 300).T),
    "a column": (drawn(500, 300), drawn(300, 1)),
    "one matrix for all": (drawn(2, 3, 9, 64), drawn(64, 20)),
    "one matrix for all of a turned stack": (drawn(3, 2, 9, 64).swapaxes(0, 1), drawn(64, 20)),
    "one left matrix for all": (drawn(40, 33), drawn(3, 2, 33, 50)),
    "axes of one": (drawn(5, 1, 40, 33), drawn(1, 7, 33, 50)),
    "a part of each row": (drawn(3, 40, 70)[:, :, 5:38], drawn(3, 60, 50)[:, 9:42]),
    "every second element": (drawn(40, 66)[:, ::2], drawn(3, 33, 50)),
    "backwards": (drawn(3, 40, 33)[::-1, ::-1], drawn(3, 33, 50)[:, :, ::-1]),
    "repeated elements": (np.broadcast_to(drawn(40, 1), (40, 33)), drawn(33, 90)),
    "repeated matrices": (np.broadcast_to(drawn(40, 33), (3, 40, 33)), drawn(3, 33, 50)),
    "unaligned": (unaligned(40, 50), drawn(50, 60)),
    "an inner axis of one": (drawn(40, 1), drawn(1, 90)),
    "large": (drawn(700, 300), drawn(300, 500)),
    "long": (drawn(30, 300), drawn(300, 5000)),
}


@pytest.mark.usefixtures("small_ones_too")
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", PAIRS)
def test_the_product_is_that_of_numpy(name: str, threads: int) -> None:
    a, b = PAIRS[name]
    expected = a.astype(np.float64) @ b.astype(np.float64)
    y = multiplied(a, b, threads=threads)
    assert (y.shape, y.dtype) == (expected.shape, np.float32)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.usefixtures("small_ones_too")
def test_infinities_and_nan_are_those_of_numpy() -> None:
    zeros, infinite = np.zeros((70, 70), np.float32), np.full((70, 70), np.inf, np.float32)
    assert np.isnan(multiplied(zeros, infinite)).all()
    assert np.isnan(multiplied(np.full_like(zeros, np.nan), zeros)).all()
    assert (multiplied(np.abs(drawn(70, 70)) + 1, infinite) == np.inf).all()


@pytest.mark.usefixtures("small_ones_too")
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (drawn(300), drawn(300, 300)),
        (drawn(9, 300).astype(np.float64), drawn(300, 300).astype(np.float64)),
        (drawn(9, 300).astype(np.float16), drawn(300, 300).astype(np.float16)),
        (drawn(9, 300).astype(">f4"), drawn(300, 300)),
        (drawn(9, 0), drawn(0, 300)),
        (drawn(0, 300), drawn(300, 300)),
        (drawn(0, 9, 300), drawn(300, 300)),
        (drawn(9, 300), drawn(0, 300, 300)),
    ],
)
def test_other_products_are_left_to_numpy(a: Any, b: Any) -> None:
    expected = Interpreter(lambda: False).matmul(a, b)
    assert multiplied(a, b) is None
    y = Interpreter(lambda: False, HostKernels()).matmul(a, b)
    assert y.dtype == expected.dtype
    np.testing.assert_array_equal(y, expected)


def test_sizes_that_do_not_fit_are_refused_as_by_numpy() -> None:
    xp = Interpreter(lambda: False, HostKernels())
    for a, b in [((1, 300), (301, 300)), ((2, 300, 300), (3, 300, 300))]:
        with pytest.raises(ValueError, match=r"mismatch|broadcast"):
            xp.matmul(drawn(*a), drawn(*b))


@pytest.mark.slow
def test_no_kernels_are_loaded_for_these_products_alone() -> None:
    script = (
        "import numpy as np\n"
        "from sardonyx.backends.jax.onednn import loaded\n"
        "from sardonyx.backends.jax.onednn.stacks import multiplied\n"
        "x = np.ones((300, 300), np.float32)\n"
        "assert multiplied(x, x) is None\n"
        "loaded.shared_library()\n"
        "assert (multiplied(x, x) == 300).all()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system lists no threads")
@pytest.mark.parametrize("threads", [2, 3])
def test_there_are_no_more_threads_than_calls_ask_for(threads: int) -> None:
    """Calls follow each other faster than threads wake."""
    script = (
        "import os\n"
        "import numpy as np\n"
        "from sardonyx.backends.jax.onednn import loaded\n"
        "from sardonyx.backends.jax.onednn.stacks import multiplied\n"
        "loaded.shared_library()\n"
        "a, b = np.ones((6, 90, 90), np.float32), np.ones((90, 90), np.float32)\n"
        f"multiplied(a[:1], b, threads={threads})\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "for _ in range(300):\n"
        f"    assert (multiplied(a, b, threads={threads}) == 90).all()\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, timeout=300, capture_output=True, text=True
    )
    assert int(done.stdout) <= threads - 1
