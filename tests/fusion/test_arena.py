"""The planned block of a program's arrays: none overlap, and none leave it. No GPU is needed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.backends.fusion.arena import ALIGNMENT, Layout, Lifetime, layout
from sardonyx.backends.fusion.arenas import MOST_IDLE, Arena, Arenas
from sardonyx.backends.fusion.kernel_source import KernelSource
from sardonyx.backends.fusion.program import Program, fused
from sardonyx.backends.fusion.steps import Launch
from sardonyx.backends.numpy import HOST


def lifetimes() -> st.SearchStrategy[list[Lifetime]]:
    places = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted)
    sizes = st.integers(1, 5000) | st.sampled_from([ALIGNMENT, 4 * ALIGNMENT])
    return st.lists(st.builds(lambda size, place: Lifetime(size, *place), sizes, places))


def assert_sound(arrays: Sequence[Lifetime], found: Layout) -> None:
    assert len(found.offsets) == len(arrays)
    ends = [start + one.size for start, one in zip(found.offsets, arrays, strict=True)]
    assert all(start % ALIGNMENT == 0 for start in found.offsets)
    assert all(end <= found.size for end in ends)
    for i, one in enumerate(arrays):
        for j in range(i):
            if one.first <= arrays[j].last and arrays[j].first <= one.last:
                assert ends[i] <= found.offsets[j] or ends[j] <= found.offsets[i]


@given(lifetimes())
def test_no_two_arrays_overlap_that_are_needed_at_one_time(arrays: list[Lifetime]) -> None:
    found = layout(arrays)
    assert_sound(arrays, found)
    assert found.size <= sum(-(-one.size // ALIGNMENT) * ALIGNMENT for one in arrays)


def test_a_chain_needs_two_places() -> None:
    chain = [Lifetime(1000, i, i + 1) for i in range(50)]
    assert layout(chain).size == 2 * 1024


def test_an_array_takes_the_place_of_several_before_it() -> None:
    arrays = [Lifetime(256, 0, 1), Lifetime(256, 0, 1), Lifetime(512, 2, 3), Lifetime(256, 1, 2)]
    assert layout(arrays).size == 768


def test_nothing_needs_nothing() -> None:
    assert layout([]) == Layout((), 0)


def test_the_place_of_an_array_whose_size_is_no_multiple() -> None:
    assert layout([Lifetime(1, 0, 1), Lifetime(257, 0, 1)]).size == 3 * ALIGNMENT


# -- programs -------------------------------------------------------------------------------------


class Recorder:
    """A library of NumPy arrays whose kernels write numbers that depend on all they read."""

    writes_into = frozenset({"matmul"})
    spec = staticmethod(HOST.spec)
    put = staticmethod(HOST.put)
    permute_dims = staticmethod(np.permute_dims)
    reshape = staticmethod(np.reshape)

    def __init__(self) -> None:
        self.has_arena = True
        self.launches = 0

    def shield(self, value: Any) -> Any:
        return value.copy()

    def contiguous(self, array: Any, alignment: int) -> Any:
        return array

    def blank(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return np.full(shape, 99, dtype)

    def placed(self, block: Any, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        if not self.has_arena:
            return self.blank(shape, dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        return block[offset : offset + size].view(dtype).reshape(shape)

    def apart(self, array: Any, block: Any) -> Any:
        return array.copy() if np.shares_memory(array, block) else array

    def current_stream(self) -> Hashable:
        return 1

    def launcher(self, source: KernelSource) -> Launch:
        count = len(source.reads)

        def launch(arrays: Sequence[Any]) -> None:
            number = self.number(arrays[:count])
            for i, array in enumerate(arrays[count:]):
                array[...] = number + i

        return launch

    def matmul(self, a: Any, b: Any, *, out: Any = None) -> Any:
        result = np.empty((*a.shape[:-1], b.shape[-1]), a.dtype) if out is None else out
        number = self.number([a, b])
        result[...] = number
        return result

    def sort(self, x: Any, **_: Any) -> Any:
        """A call that returns its operand itself."""
        return x

    def number(self, arrays: Sequence[Any]) -> int:
        self.launches += 1
        total = sum(int(array.sum()) * (i + 2) for i, array in enumerate(arrays))
        return (self.launches * 31 + total) % 1009


def random_program(seed: int) -> tuple[Program, Recorder, list[Any]]:
    rng = np.random.default_rng(seed)
    choices = rng.integers(0, 10**6, (25, 3)).tolist()

    def step(xp: Any, kind: int, a: Any, b: Any) -> Any:
        return [
            lambda: xp.exp(a) + b,
            lambda: xp.matmul(a, b),
            lambda: xp.matmul(xp.permute_dims(a, (1, 0)), b[::-1]),
            lambda: xp.sort(a),
            lambda: a / xp.sum(b, axis=1, keepdims=True),
            lambda: xp.reshape(xp.reshape(a, (-1,)), (8, 8)),
        ][kind]()

    def function(xp: Any, *arrays: Any) -> Any:
        values = list(arrays)
        for kind, first, second in choices:
            values.append(
                step(xp, kind % 6, values[first % len(values)], values[second % len(values)])
            )
        return [values[i] for i in (-1, -2, -9)]

    arrays = [np.zeros((8, 8), np.float32), np.ones((8, 8), np.float32)]
    library = Recorder()
    return fused(function, arrays, library), library, arrays


@pytest.mark.parametrize("seed", range(30))
def test_an_arena_changes_no_result(seed: int) -> None:
    program, library, arrays = random_program(seed)
    found = []
    for has_arena in (False, True):
        library.has_arena, library.launches = has_arena, 0
        arena = program.new_arena()
        found.append(program.results_of(program.run(arrays, arena)))
        # What lies there later is not seen in results.
        arena.block[...] = 77
    np.testing.assert_array_equal(*found)


def test_random_programs_have_arenas() -> None:
    sizes = [len(random_program(seed)[0].placement.lifetimes) for seed in range(30)]
    assert sum(size > 3 for size in sizes) > 10


@pytest.mark.parametrize("seed", range(30))
def test_results_do_not_lie_in_the_arena(seed: int) -> None:
    program, _, arrays = random_program(seed)
    arena = program.new_arena()
    values = program.run(arrays, arena)
    for result in program.results_of(values):
        assert not np.shares_memory(result, arena.block)


def views_of(xp: Any, x: Any) -> Any:
    y = xp.exp(x)
    return [xp.matmul(y, y), xp.permute_dims(y, (1, 0))[1:]]


def test_what_a_result_is_a_view_of_leaves_with_it() -> None:
    program = fused(views_of, [np.zeros((8, 8), np.float32)], Recorder())
    assert program.placement.lifetimes == {}


def test_a_view_keeps_its_base() -> None:
    def function(xp: Any, x: Any) -> Any:
        y = xp.exp(x)
        turned = xp.permute_dims(y, (1, 0))
        z = xp.matmul(y, y)
        return [xp.matmul(xp.matmul(z, z), turned)]

    program = fused(function, [np.zeros((8, 8), np.float32)], Recorder())
    lasts = sorted((one.first, one.last) for one in program.placement.lifetimes.values())
    assert lasts[0][1] == max(last for _, last in lasts)


SQUARE = np.zeros((8, 8), np.float32)


def taken_over(function: Any, *arrays: Any) -> int:
    """How many results of kernels lie where an operand of theirs was."""
    program = fused(function, arrays or [SQUARE], Recorder())
    arena, placement = program.new_arena(), program.placement
    assert arena.block.nbytes == placement.layout.size
    return len(placement.places)


def test_an_elementwise_kernel_writes_over_what_it_alone_still_reads() -> None:
    def function(xp: Any, x: Any) -> Any:
        for _ in range(3):
            x = xp.tanh(xp.matmul(x, x))
        return [xp.matmul(x, x)]

    assert taken_over(function) == 3


def test_a_chain_of_kernels_has_one_place() -> None:
    def function(xp: Any, x: Any) -> Any:
        y = xp.matmul(x, x)
        for _ in range(400):
            y = y * 1.5 + 1
        return [xp.matmul(y, y)]

    program = fused(function, [SQUARE], Recorder())
    assert len(program.kernels) > 3
    assert program.placement.layout.size == SQUARE.nbytes


NOT_TAKEN_OVER: dict[str, Any] = {
    "read elsewhere": lambda xp, x, y: y + xp.permute_dims(y, (1, 0)),
    "read backwards": lambda xp, x, y: xp.exp(y)[::-1] * 2,
    "read later": lambda xp, x, y: xp.matmul(xp.exp(y), y),
    "a row of reductions": lambda xp, x, y: y / xp.sum(y * y, axis=1, keepdims=True),
    "another type": lambda xp, x, y: xp.astype(xp.astype(y, np.dtype(np.int32)), y.dtype),
    "an argument": lambda xp, x, y: xp.matmul(xp.exp(x), y),
    "a view of it": lambda xp, x, y: xp.exp(y[:, ::-1]),
}


@pytest.mark.parametrize("name", NOT_TAKEN_OVER)
def test_no_other_kernel_does(name: str) -> None:
    def function(xp: Any, x: Any) -> Any:
        y = xp.matmul(x, x)
        z = NOT_TAKEN_OVER[name](xp, x, y)
        bits = xp.bitcast(z, np.dtype(np.int32)) if name == "another type" else z
        return [xp.matmul(bits, bits)]

    assert taken_over(function) == 0


def test_two_results_of_a_kernel_take_no_place() -> None:
    def function(xp: Any, x: Any) -> Any:
        y = xp.matmul(x, x)
        a = xp.exp(y)
        return [xp.matmul(a, xp.sin(a))]

    program = fused(function, [SQUARE], Recorder())
    sizes = [len(kernel.stores) for kernel in program.kernels]
    assert sizes == [2]
    assert program.placement.places == {}


# -- arenas ---------------------------------------------------------------------------------------


class Stream:
    """The current stream of a test, which it sets."""

    now: Hashable = 1


@pytest.fixture
def arenas() -> tuple[Arenas, Stream]:
    stream = Stream()
    return Arenas(lambda: Arena(object(), (), stream.now), lambda: stream.now), stream


def test_an_arena_serves_the_next_call_of_its_stream(arenas: tuple[Arenas, Stream]) -> None:
    lent, stream = arenas
    first = lent.take()
    second = lent.take()
    assert second is not first
    lent.give_back(first)
    stream.now = 2
    assert lent.take() is not first
    stream.now = 1
    assert lent.take() is first


def test_idle_arenas_are_few(arenas: tuple[Arenas, Stream]) -> None:
    lent, _ = arenas
    taken = [lent.take() for _ in range(MOST_IDLE + 3)]
    for arena in taken:
        lent.give_back(arena)
    again = [lent.take() for _ in range(MOST_IDLE + 1)]
    assert sum(one in taken for one in again) == MOST_IDLE
    assert taken[-1] in again


def test_an_arena_without_a_stream_serves_one_call(arenas: tuple[Arenas, Stream]) -> None:
    lent, stream = arenas
    stream.now = None
    first = lent.take()
    lent.give_back(first)
    assert lent.take() is not first


def test_released_arenas_are_gone(arenas: tuple[Arenas, Stream]) -> None:
    lent, _ = arenas
    first = lent.take()
    lent.give_back(first)
    lent.release()
    assert lent.take() is not first


def test_threads_never_share_an_arena(arenas: tuple[Arenas, Stream]) -> None:
    lent, _ = arenas
    start, in_use, shared = Barrier(4), set[int](), []

    def work() -> None:
        start.wait()
        for _ in range(500):
            arena = lent.take()
            if id(arena) in in_use:
                shared.append(arena)
            in_use.add(id(arena))
            in_use.discard(id(arena))
            lent.give_back(arena)

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared == []
