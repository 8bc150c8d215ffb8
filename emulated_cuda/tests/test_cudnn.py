"""cuDNN's graphs, built and run by NVIDIA's Python frontend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import pytest

from emulated_cuda.counts import counted

cudnn = pytest.importorskip(
    "cudnn", reason="python -m emulated_cuda run --cudnn pytest emulated_cuda/tests"
)
X, W, Y, BIAS, EPSILON = 1, 2, 3, 4, 5


@pytest.fixture
def handle() -> Any:
    return cudnn.create_handle()


def tensor(graph: Any, number: int, array: Any) -> Any:
    return graph.tensor(
        dim=list(array.shape),
        stride=[step // array.itemsize for step in array.strides],
        data_type=cudnn.data_type.FLOAT,
        uid=number,
    )


def new_graph(handle: Any) -> Any:
    kind = cudnn.data_type.FLOAT
    return cudnn.pygraph(
        io_data_type=kind, intermediate_data_type=kind, compute_data_type=kind, handle=handle
    )


def write_to(result: Any, array: Any) -> None:
    result.set_output(True).set_uid(Y).set_dim(list(array.shape))
    result.set_stride([step // array.itemsize for step in array.strides])


def build(graph: Any, excluded: list[Any]) -> None:
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.deselect_numeric_notes(excluded)
    graph.check_support()
    graph.build_plans()


def convolution(graph: Any, x: Any, w: Any, **options: Any) -> Any:
    form = {"pre_padding": [0, 0], "post_padding": [0, 0], "stride": [1, 1], "dilation": [1, 1]}
    return graph.conv_fprop(
        image=tensor(graph, X, x), weight=tensor(graph, W, w), **{**form, **options}
    )


def numbers(*shape: int, seed: int = 0) -> Any:
    return cupy.asarray(np.random.default_rng(seed).integers(-3, 4, shape).astype("f"))


def expected_convolution(x: Any, w: Any) -> np.ndarray[Any, Any]:
    windows = np.lib.stride_tricks.sliding_window_view(cupy.asnumpy(x), w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,mcij->nmhw", windows, cupy.asnumpy(w))


def runner(graph: Any, handle: Any, arrays: dict[int, Any]) -> Callable[[], None]:
    pointers = {number: array.data.ptr for number, array in arrays.items()}
    workspace = cupy.empty(graph.get_workspace_size(), "b")
    return lambda: graph.execute(pointers, workspace.data.ptr, handle=handle)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_convolution_and_what_follows_it(handle: Any, order: str) -> None:
    x, w, bias = numbers(2, 3, 6, 5), numbers(4, 3, 3, 2, seed=1), numbers(1, 4, 1, 1, seed=2)
    x, w = (cupy.asarray(array, order=order) for array in (x, w))
    y = cupy.empty((2, 4, 4, 4), "f")
    graph = new_graph(handle)
    product = convolution(graph, x, w)
    write_to(graph.relu(graph.add(product, tensor(graph, BIAS, bias))), y)
    build(graph, [])
    runner(graph, handle, {X: x, W: w, Y: y, BIAS: bias})()
    expected = np.maximum(expected_convolution(x, w) + cupy.asnumpy(bias), 0)
    np.testing.assert_array_equal(cupy.asnumpy(y), expected)


def test_relu_of_infinities(handle: Any) -> None:
    """The frontend limits ReLU to finite numbers; a maximum with a number of the host does not."""
    x = cupy.asarray(np.array([-np.inf, np.inf, np.nan, -1, 2, 0], "f").reshape(1, 1, 2, 3))
    w, y = cupy.ones((1, 1, 1, 1), "f"), cupy.empty((1, 1, 2, 3), "f")
    zero, ones = np.zeros((), "f"), [1, 1, 1, 1]
    graph = new_graph(handle)
    options = {"data_type": cudnn.data_type.FLOAT, "is_pass_by_value": True}
    least = graph.tensor(dim=ones, stride=ones, uid=BIAS, **options)
    write_to(graph.max(convolution(graph, x, w), least), y)
    build(graph, [])
    pointers = {X: x.data.ptr, W: w.data.ptr, Y: y.data.ptr, BIAS: zero.ctypes.data}
    graph.execute(pointers, cupy.empty(graph.get_workspace_size(), "b").data.ptr, handle=handle)
    np.testing.assert_array_equal(cupy.asnumpy(y).ravel(), [0, np.inf, np.nan, 0, 2, 0])


@pytest.mark.parametrize("is_centred", [False, True])
def test_normalization(handle: Any, is_centred: bool) -> None:
    x, w, bias = numbers(3, 7, 1, 1), numbers(1, 7, 1, 1, seed=1), numbers(1, 7, 1, 1, seed=2)
    y, epsilon, ones = cupy.empty((3, 7, 1, 1), "f"), np.full((), 0.5, "f"), [1, 1, 1, 1]
    graph = new_graph(handle)
    options = {"data_type": cudnn.data_type.FLOAT, "is_pass_by_value": True}
    normalize = graph.layernorm if is_centred else graph.rmsnorm
    result, *_ = normalize(
        norm_forward_phase=cudnn.norm_forward_phase.INFERENCE,
        input=tensor(graph, X, x),
        scale=tensor(graph, W, w),
        bias=tensor(graph, BIAS, bias),
        epsilon=graph.tensor(dim=ones, stride=ones, uid=EPSILON, **options),
    )
    write_to(result, y)
    build(graph, [])
    pointers = {X: x.data.ptr, W: w.data.ptr, Y: y.data.ptr, BIAS: bias.data.ptr}
    pointers[EPSILON] = epsilon.ctypes.data
    graph.execute(pointers, cupy.empty(graph.get_workspace_size(), "b").data.ptr, handle=handle)
    wide = cupy.asnumpy(x).astype("d")
    wide -= wide.mean(axis=1, keepdims=True) if is_centred else 0
    expected = wide / np.sqrt(np.square(wide).mean(axis=1, keepdims=True) + 0.5)
    expected = expected * cupy.asnumpy(w) + cupy.asnumpy(bias)
    np.testing.assert_allclose(cupy.asnumpy(y), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("is_exact", [False, True])
def test_the_first_engine_for_float32_rounds_to_tf32(handle: Any, is_exact: bool) -> None:
    x, w = cupy.full((1, 1, 2, 2), 1 + 2**-20, "f"), cupy.ones((1, 1, 1, 1), "f")
    y = cupy.empty_like(x)
    graph = new_graph(handle)
    write_to(convolution(graph, x, w), y)
    build(graph, [cudnn.numerical_note.TENSOR_CORE] if is_exact else [])
    runner(graph, handle, {X: x, W: w, Y: y})()
    assert float(y[0, 0, 0, 0]) == (1 + 2**-20 if is_exact else 1)


def test_a_pointer_that_is_not_aligned_is_an_error(handle: Any) -> None:
    x, w, y = numbers(1, 1, 4, 4), numbers(1, 1, 2, 2), cupy.empty((1, 1, 3, 3), "f")
    graph = new_graph(handle)
    write_to(convolution(graph, x, w), y)
    build(graph, [])
    arrays = {X: numbers(17)[1:], W: w, Y: y}
    with pytest.raises(Exception, match="not aligned"):
        runner(graph, handle, arrays)()


def test_convolutions_of_one_axis_have_no_plan(handle: Any) -> None:
    x, w, y = numbers(1, 1, 4), numbers(1, 1, 2), cupy.empty((1, 1, 3), "f")
    graph = new_graph(handle)
    one = {"pre_padding": [0], "post_padding": [0], "stride": [1], "dilation": [1]}
    write_to(convolution(graph, x, w, **one), y)
    with pytest.raises(RuntimeError, match="4 or 5 axes"):
        build(graph, [])


def test_runs_are_captured_by_graphs_and_counted(handle: Any) -> None:
    x, w, y = numbers(1, 2, 4, 4), numbers(1, 2, 2, 2), cupy.zeros((1, 1, 3, 3), "f")
    graph = new_graph(handle)
    write_to(convolution(graph, x, w), y)
    build(graph, [])
    run = runner(graph, handle, {X: x, W: w, Y: y})
    with cupy.cuda.Stream(non_blocking=True) as stream:
        cudnn.set_stream(handle=handle, stream=stream.ptr)
        stream.begin_capture()
        run()
        captured = stream.end_capture()
        assert not y.any()
        with counted() as counts:
            captured.launch(stream)
        assert counts.library_calls == 1
    np.testing.assert_array_equal(cupy.asnumpy(y), expected_convolution(x, w))
