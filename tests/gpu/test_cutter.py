"""CuPy pads and cuts JAX's arrays on CUDA, where XLA would compile a program for each size.

JAX needs no CUDA here: arrays of CuPy with nothing but DLPack stand for its own. On a machine with
a GPU the last tests count what XLA compiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx.backends.jax import first_tier
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.padding.arrays import JaxPadding
from sardonyx.backends.padding.axes import Cut
from tests.gpu.producers import WithDlpack
from tests.test_changing_sizes import DECODER, GRAPHS, model, normal

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend
    from sardonyx.backends.cupy.cutter import CupyCutter

pytestmark = pytest.mark.gpu
cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")

DTYPES = ["float32", "float16", "bool", "complex64", "int64", "uint8", ml_dtypes.bfloat16]
COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def cutter(cupy_backend: CupyBackend) -> CupyCutter:
    from sardonyx.backends.cupy.cutter import CupyCutter  # noqa: PLC0415

    return CupyCutter(cupy_backend.device, lambda arrays: [array.copy() for array in arrays])


def counted(shape: tuple[int, ...], dtype: Any = "float32") -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape)).reshape(shape) % 5 + 1).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("true", [(2, 3, 4), (0, 3, 4), (1, 1, 1), (4, 8, 4)])
def test_padding_is_zeros_and_comes_off_again(
    cutter: CupyCutter, dtype: Any, true: tuple[int, ...]
) -> None:
    wide = 4, 8, 4
    array = counted(true, dtype)
    padded = cutter.pad(WithDlpack(cupy.asarray(array)), wide)
    expected = np.zeros(wide, dtype)
    expected[tuple(map(slice, true))] = array
    np.testing.assert_array_equal(padded.get(), expected)
    (cut,) = cutter.cut([WithDlpack(padded)], [Cut(wide, true, true)]) or []
    assert cut.flags.c_contiguous
    np.testing.assert_array_equal(cut.get(), array)


def test_joined_axes_are_split_and_cut(cutter: CupyCutter) -> None:
    """Rows of a batch of 2 in 4, and of 3 in 8, one after the other."""
    whole = counted((32, 2))
    (found,) = cutter.cut([cupy.asarray(whole)], [Cut((4, 8, 2), (2, 3, 2), (6, 2))]) or []
    np.testing.assert_array_equal(found.get(), whole.reshape(4, 8, 2)[:2, :3].reshape(6, 2))


def test_types_that_cupy_lacks_are_left_to_xla(cutter: CupyCutter) -> None:
    from sardonyx.backends.cupy.bits import Bits  # noqa: PLC0415

    array = Bits.of(counted((2, 3), ml_dtypes.float8_e4m3fn))
    assert cutter.pad(array, (4, 4)) is None
    assert cutter.cut([array], [Cut((2, 3), (2, 2), (2, 2))]) is None


def test_what_cupy_has_no_memory_for_is_left_to_xla(cutter: CupyCutter) -> None:
    x = cupy.ones((2**12, 3), np.float32)
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    limit = pool.get_limit()
    pool.set_limit(pool.total_bytes() + 2**10)
    try:
        assert cutter.pad(x, (2**12, 2**4)) is None
        assert cutter.cut([x], [Cut((2**12, 3), (2**12, 2), (2**12, 2))]) is None
    finally:
        pool.set_limit(limit)


def test_the_producer_is_awaited_on_a_stream_of_its_own(cutter: CupyCutter) -> None:
    passed = [WithDlpack(cupy.asarray(counted((2, 3)))) for _ in range(2)]
    cutter.cut(passed, [Cut((2, 3), (2, 2), (2, 2))] * 2)
    streams = {stream for each in passed for stream in each.streams}
    assert len(streams) == 1
    assert streams.isdisjoint({None, 0, 1, 2})


def test_jax_asks_it_for_arrays_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole arrays, small ones and those of the host do not get there."""
    asked: list[Any] = []

    class Cutter:
        def pad(self, array: Any, shape: Any) -> Any:
            asked.append(shape)
            return None

        def cut(self, arrays: Any, cuts: Any) -> Any:
            asked.append(len(arrays))
            return [cut.applied(array) + 0 for array, cut in zip(arrays, cuts, strict=True)]

    cutter: Any = Cutter()
    padding = JaxPadding(cutter=lambda: cutter)
    monkeypatch.setattr("sardonyx.backends.jax.padding.arrays._is_on_host", lambda array: False)
    n = 2**18
    x = jax.numpy.arange(2.0 * n, dtype=np.float32).reshape(2, n)
    np.testing.assert_array_equal(padding.pad(x, (4, n))[2:], 0)
    cut, whole = Cut((2, n), (2, 9), (2, 9)), Cut(x.shape, x.shape, x.shape)
    wide = Cut((2, n), (2, n // 2), (2, n // 2))
    one, same, two = padding.unpad([x, x, x], [cut, whole, wide], is_native=True)
    assert same is x
    assert padding.pad(two, x.shape) is x
    np.testing.assert_array_equal(one, x[:, :9])
    assert asked == [(4, n), 2]
    (host,) = padding.unpad([x], [cut], is_native=False)
    assert isinstance(host, np.ndarray)
    small = jax.numpy.ones((2, 4))
    (native,) = padding.unpad([small], [Cut((2, 4), (2, 3), (2, 3))], is_native=True)
    assert isinstance(native, jax.Array)
    assert asked == [(4, n), 2]


# -- JAX on CUDA ----------------------------------------------------------------------------------


@pytest.fixture
def compiled(jax_backend: JaxBackend) -> Iterator[list[str]]:
    """A list that grows with each program that XLA compiles, whoever asked for it."""
    names: list[str] = []

    def note(event: str, _seconds: float, **_more: Any) -> None:
        if event == COMPILED:
            names.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield names
    jax.monitoring.unregister_event_duration_listener(note)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_jax_gets_arrays_that_it_can_donate(jax_backend: JaxBackend, dtype: Any) -> None:
    cutter = first_tier.cutter(jax.devices("cuda")[0])
    assert cutter is not None
    with jax_backend.scope():
        x = jax_backend.put(counted((2, 3), dtype))
        padded = cutter.pad(x, (4, 8))
        assert isinstance(padded, jax.Array)
        assert padded.devices() == x.devices()
        (cut,) = cutter.cut([padded], [Cut((4, 8), (2, 3), (2, 3))]) or []
        np.testing.assert_array_equal(cut, x)
        kept = jax.jit(lambda x: x | x if x.dtype == bool else x * 1, donate_argnums=0)(cut)
        np.testing.assert_array_equal(kept, x)


def test_new_sizes_compile_nothing_on_cuda(jax_backend: JaxBackend, compiled: list[str]) -> None:
    loaded = sardonyx.load(parser.parse_model(DECODER), backend=jax_backend)
    plain = sardonyx.load(parser.parse_model(DECODER), backend="numpy")
    theirs = [normal(1, 5, 8), normal(1, 5, 8)]
    ours = list(map(jax_backend.put, theirs))
    counts = []
    for i in range(128):
        x = normal(1, 1, 8) + np.float32(i / 100)
        y, *ours = loaded(jax_backend.put(x), *ours)
        assert isinstance(y, jax.Array)
        expected, *theirs = plain(x, *theirs)
        np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-4)
        counts.append(len(compiled))
    assert counts[-1] == counts[70], "sizes of a bucket that is there compile nothing"


def test_numpys_arrays_compile_nothing_on_cuda(
    jax_backend: JaxBackend, compiled: list[str]
) -> None:
    loaded = sardonyx.load(model(GRAPHS["attention"]), backend=jax_backend)
    for size in (33, 34, 36, 48, 64):
        loaded(normal(2, size, 6))
    compiled.clear()
    for size in range(33, 65):
        assert isinstance(loaded(normal(2, size, 6)), np.ndarray)
    assert not compiled
