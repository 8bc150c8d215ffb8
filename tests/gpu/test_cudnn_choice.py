"""Which of cuDNN's plans computes a convolution: a right one, and the fastest of those."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from sardonyx.backends.fused_epilogue import NOTHING, Activation, Epilogue
from sardonyx.ops.fused_products import convolution_and_more
from tests.gpu.cudnn_plans import FLOATS, HALF, fused, on_host, plans, unexpected

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("with_cudnn")]

RELU = Activation("relu")
BIAS_RELU = Epilogue(has_bias=True, activation=RELU)
BIAS_ADD_RELU = Epilogue(has_bias=True, activation=RELU, addend="before")


@pytest.fixture
def measured(cupy_backend: CupyBackend, monkeypatch: pytest.MonkeyPatch) -> CupyBackend:
    """The backend as it is for everybody, with more time than the tests can spend."""
    from sardonyx.backends.cupy.cudnn import choosing  # noqa: PLC0415

    monkeypatch.setattr(cupy_backend, "measures_convolutions", True)
    monkeypatch.setattr(choosing.TIME_LEFT, "seconds", 600.0)
    monkeypatch.setattr(choosing, "LONGEST_CHOICE", 600.0)
    return cupy_backend


def convolution(size: int, epilogue: Epilogue) -> Any:
    """A convolution with windows of this size on two axes, as a function and its operands."""
    rng = np.random.default_rng(size)
    width = size // 2
    layout = {
        "strides": (1, 1),
        "pads": ((width, width), (width, width)),
        "dilations": (1, 1),
        "groups": 1,
    }
    shapes = [(2, 8, 6, 6), (8, 8, size, size)]
    shapes += [(8,)] * epilogue.has_bias + [(2, 8, 6, 6)] * (epilogue.addend is not None)

    def convolved(xp: Any, *arrays: Any) -> Any:
        return [convolution_and_more(xp, *arrays, epilogue=epilogue, **layout)]

    return convolved, [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]


def chosen(backend: CupyBackend, epilogue: Epilogue) -> list[Any]:
    from sardonyx.backends.cupy.cudnn.plans import Plan  # noqa: PLC0415

    found = plans(backend).items()
    return [plan for key, plan in found if key.epilogue == epilogue and isinstance(plan, Plan)]


def with_times(monkeypatch: pytest.MonkeyPatch, seconds: Any, otherwise: Any = 1e9) -> list[Any]:
    """Say how long each plan takes, and what takes its place; return the plans that were asked."""
    from sardonyx.backends.cupy.cudnn import choosing  # noqa: PLC0415

    asked: list[Any] = []

    def time_of(plans: Any, plan: Any, arrays: Any) -> Any:
        asked.append(plan)
        return seconds(plan)

    monkeypatch.setattr(choosing, "time_of", time_of)
    monkeypatch.setattr(choosing, "seconds_of", lambda work: otherwise)
    return asked


def with_runs(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Change what plans compute: the function gets each one, its arrays and the true run."""
    from sardonyx.backends.cupy.cudnn.plans import Plans  # noqa: PLC0415

    run = Plans.run

    def changed(self: Plans, plan: Any, arrays: Any, workspace: Any) -> None:
        change(plan, arrays, lambda: run(self, plan, arrays, workspace))

    monkeypatch.setattr(Plans, "run", changed)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("epilogue", [NOTHING, BIAS_RELU, BIAS_ADD_RELU], ids=str)
def test_results_are_right_whatever_is_faster(
    measured: CupyBackend, epilogue: Epilogue, size: int, dtype: np.dtype[Any]
) -> None:
    convolved, arrays = convolution(size, epilogue)
    arrays = [array.astype(dtype) for array in arrays]
    found, _ = fused(measured, convolved, *arrays)
    np.testing.assert_array_equal(found.astype(np.float64), on_host(convolved, *arrays))
    (plain,) = convolved(measured, *map(measured.put, arrays))
    np.testing.assert_array_equal(measured.fetch(plain), found)


def test_the_fastest_plan_is_kept(measured: CupyBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = with_times(monkeypatch, lambda plan: 1 / (1 + plan.index))
    convolved, arrays = convolution(3, BIAS_RELU)
    found, reasons = fused(measured, convolved, *arrays)
    np.testing.assert_array_equal(found, on_host(convolved, *arrays))
    (plan,) = chosen(measured, BIAS_RELU)
    assert reasons == []
    assert plan.index == max(each.index for each in asked if each.graph is plan.graph)
    # The graph runs this plan and no other.
    assert plan.graph.get_workspace_size() == plan.workspace
    if len({each.index for each in asked}) == 1:
        pytest.skip("cuDNN has one plan alone")


def test_each_plan_is_measured_once(measured: CupyBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """By all threads, graphs and calls of the process together."""
    asked = with_times(monkeypatch, lambda plan: 1.0)
    convolved, arrays = convolution(3, BIAS_RELU)
    expected, wrong = on_host(convolved, *arrays), []

    def call() -> None:
        with measured.scope():
            placed = list(map(measured.put, arrays))
            for _ in range(3):
                found = measured.fetch(convolved(measured, *placed)[0])
                if not np.array_equal(found, expected):
                    wrong.append(found)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fused(measured, convolved, *arrays)
    assert wrong == []
    assert asked
    assert set(Counter(asked).values()) == {1}
    names = [plan.name for plan in asked if plan.graph is asked[-1].graph]
    assert len(names) == len(set(names))


def test_nothing_is_measured_during_a_capture(
    measured: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cupy  # noqa: PLC0415

    asked = with_times(monkeypatch, lambda plan: 1.0)
    convolved, arrays = convolution(3, BIAS_RELU)
    measured.uses_cudnn = False
    # All that the form without cuDNN needs is compiled and allocated before.
    placed = list(map(measured.put, arrays))
    cupy.cuda.runtime.deviceSynchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        convolved(measured, *placed)
    del measured.uses_cudnn
    with stream:
        stream.synchronize()
        stream.begin_capture(cupy.cuda.runtime.streamCaptureModeRelaxed)
        (result,) = convolved(measured, *placed)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    np.testing.assert_array_equal(measured.fetch(result), on_host(convolved, *arrays))
    assert (asked, plans(measured)) == ([], {})


@pytest.mark.parametrize("size", [1, 3])
def test_a_device_without_a_clock(
    measured: CupyBackend, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    from sardonyx.backends.cupy.cudnn import choosing  # noqa: PLC0415

    monkeypatch.setattr(choosing, "shortest_time", lambda work: 1 / 0)
    convolved, arrays = convolution(size, BIAS_RELU)
    found, reasons = fused(measured, convolved, *arrays)
    np.testing.assert_array_equal(found, on_host(convolved, *arrays))
    # Windows of one element are a product of matrices.
    assert (len(chosen(measured, BIAS_RELU)), reasons) == (size // 3, [])


@pytest.mark.parametrize("size", [1, 3])
def test_time_that_is_spent(
    measured: CupyBackend, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    from sardonyx.backends.cupy.cudnn import choosing  # noqa: PLC0415

    asked = with_times(monkeypatch, lambda plan: 1.0)
    monkeypatch.setattr(choosing.TIME_LEFT, "seconds", 0.0)
    convolved, arrays = convolution(size, BIAS_RELU)
    found, reasons = fused(measured, convolved, *arrays)
    np.testing.assert_array_equal(found, on_host(convolved, *arrays))
    assert (len(chosen(measured, BIAS_RELU)), reasons, asked) == (size // 3, [], [])


def test_measuring_takes_time_from_what_is_left(
    measured: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sardonyx.backends.cupy.cudnn import choosing  # noqa: PLC0415

    monkeypatch.setattr(choosing, "LONGEST_CHOICE", 0.0)
    asked = with_times(monkeypatch, lambda plan: 1.0)
    convolved, arrays = convolution(3, BIAS_RELU)
    fused(measured, convolved, *arrays)
    assert choosing.TIME_LEFT.seconds < 600
    # The first one, and the one that took too long.
    assert max(Counter(id(plan.graph) for plan in asked).values()) <= 2


@pytest.mark.parametrize("size", [1, 3])
def test_what_is_faster_without_cudnn(
    measured: CupyBackend, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """This is no fault of cuDNN's, and so there is nothing to say in the stats."""
    with_times(monkeypatch, lambda plan: 2.0, otherwise=1.0)
    convolved, arrays = convolution(size, BIAS_RELU)
    found, reasons = fused(measured, convolved, *arrays)
    np.testing.assert_array_equal(found, on_host(convolved, *arrays))
    assert (chosen(measured, BIAS_RELU), reasons) == ([], [])


@pytest.mark.parametrize("size", [1, 3])
def test_columns_may_not_take_much_memory(
    measured: CupyBackend, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The images are the columns for windows of one element."""
    from sardonyx.backends.cupy.cudnn import convolution_epilogues  # noqa: PLC0415

    monkeypatch.setattr(convolution_epilogues, "LARGEST_COLUMNS", 1000)
    with_times(monkeypatch, lambda plan: 2.0, otherwise=1.0)
    convolved, arrays = convolution(size, BIAS_RELU)
    found, reasons = fused(measured, convolved, *arrays)
    np.testing.assert_array_equal(found, on_host(convolved, *arrays))
    assert (len(chosen(measured, BIAS_RELU)), reasons) == (size // 3, [])


def fails(plan: Any, arrays: Any, run: Any) -> None:
    raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")


def does_nothing(plan: Any, arrays: Any, run: Any) -> None:
    pass


def rounds_to_tf32(plan: Any, arrays: Any, run: Any) -> None:
    run()
    arrays[3][...] = arrays[3] * (1 + 2.0**-11)


@pytest.mark.parametrize("change", [fails, does_nothing, rounds_to_tf32])
def test_a_wrong_plan_is_followed_by_the_next(
    measured: CupyBackend, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    """Whatever its place: here each plan but the last one of its graph is wrong."""

    def but_the_last(plan: Any, arrays: Any, run: Any) -> None:
        is_last = plan.index + 1 == len(names_of(plan.graph))
        run() if is_last else change(plan, arrays, run)

    with_runs(monkeypatch, but_the_last)
    with_times(monkeypatch, lambda plan: 1.0)
    convolved, arrays = convolution(3, BIAS_RELU)
    found, _ = fused(measured, convolved, *arrays)
    np.testing.assert_array_equal(found, on_host(convolved, *arrays))
    for plan in chosen(measured, BIAS_RELU):
        assert plan.index + 1 == len(names_of(plan.graph))


def names_of(graph: Any) -> set[str]:
    """The plans of a graph; two ways of cuDNN to guess the best ones may name the same."""
    return {graph.get_plan_name_at_index(i) for i in range(graph.get_execution_plan_count())}


def test_results_of_16_bits_may_be_rounded_more_than_once(
    measured: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_runs(monkeypatch, rounds_to_tf32)
    with_times(monkeypatch, lambda plan: 1.0)
    convolved, arrays = convolution(3, BIAS_RELU)
    _, reasons = fused(measured, convolved, *(array.astype(HALF) for array in arrays))
    assert (len(chosen(measured, BIAS_RELU)), unexpected(reasons)) == (not reasons, [])


def test_the_time_is_that_of_the_device(device: CupyBackend) -> None:
    import cupy  # noqa: PLC0415

    from sardonyx.backends.cupy.kernel_times import RUNS, shortest_time  # noqa: PLC0415

    counter = cupy.zeros((), np.int32)

    def work() -> None:
        cupy.add(counter, 1, out=counter)

    assert 0 <= shortest_time(work) < 60
    assert int(counter) == RUNS
