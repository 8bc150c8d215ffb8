"""Convolution and attention by cuDNN: the same results as without it, exact where CuPy is."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx.backends.executable import Spec
from sardonyx.backends.numpy import HOST
from tests.gpu.cudnn_plans import BFLOAT16, FLOATS, HALF, NARROW, fused, on_host, plans, trusted

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("with_cudnn")]


def drawn(seed: int) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    rng = np.random.default_rng(seed)
    rank, groups = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    inner, filters = int(rng.integers(2, 5)), groups * int(rng.integers(1, 4))
    kernel, dilations = rng.integers(1, 4, rank), rng.integers(1, 3, rank)
    kernel[0] = max(kernel[0], 2)
    pads = rng.integers(0, 3, (rank, 2))
    sizes = (kernel - 1) * dilations + 1 + rng.integers(0, 6, rank)
    options = {
        "strides": tuple(rng.integers(1, 4, rank).tolist()),
        "pads": tuple(map(tuple, pads.tolist())),
        "dilations": tuple(dilations.tolist()),
        "groups": groups,
    }
    return (2, groups * inner, *sizes.tolist()), (filters, inner, *kernel.tolist()), options


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_convolutions(cupy_backend: CupyBackend, seed: int, dtype: np.dtype[Any]) -> None:
    shape, kernel, options = drawn(seed)
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, shape).astype(dtype)
    weight = rng.integers(-3, 4, kernel).astype(dtype)

    def convolved(xp: Any, x: Any, weight: Any) -> Any:
        return [xp.maximum(xp.convolution(xp.maximum(x, -1), weight, **options) - 1, 0)]

    found, reasons = fused(cupy_backend, convolved, x, weight)
    np.testing.assert_array_equal(found.astype(np.float64), on_host(convolved, x, weight))
    assert (reasons, trusted(cupy_backend)) == ([], [True])
    # The same, step by step.
    (plain,) = convolved(cupy_backend, cupy_backend.put(x), cupy_backend.put(weight))
    np.testing.assert_array_equal(cupy_backend.fetch(plain), found)
    assert len(plans(cupy_backend)) == 1


def test_float32_is_not_rounded_to_tf32(cupy_backend: CupyBackend) -> None:
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(s).astype(np.float32) for s in ((1, 64, 9, 9), (8, 64, 3, 3)))
    options: dict[str, Any] = {"strides": (1, 1), "pads": ((1, 1), (1, 1)), "dilations": (1, 1)}

    def convolved(xp: Any, x: Any, weight: Any) -> Any:
        return [xp.convolution(x, weight, groups=1, **options)]

    found, _ = fused(cupy_backend, convolved, x, weight)
    assert trusted(cupy_backend) == [True]
    scale = on_host(convolved, np.abs(x), np.abs(weight))
    assert np.max(np.abs(found - on_host(convolved, x, weight)) / scale) < 2e-6


@pytest.mark.parametrize("where", ["x", "weight"])
def test_infinities_meet_the_padding(cupy_backend: CupyBackend, where: str) -> None:
    values = {"x": np.ones((1, 2, 5), np.float32), "weight": np.ones((3, 2, 3), np.float32)}
    values[where][0, 0, 0] = np.inf
    options: dict[str, Any] = {"strides": (1,), "pads": ((1, 1),), "dilations": (1,), "groups": 1}

    def convolved(xp: Any, x: Any, weight: Any) -> Any:
        return [xp.convolution(x, weight, **options)]

    found, _ = fused(cupy_backend, convolved, *values.values())
    np.testing.assert_array_equal(found, on_host(convolved, *values.values()))


def test_views_that_are_not_aligned(cupy_backend: CupyBackend) -> None:
    rng = np.random.default_rng(0)
    whole = rng.integers(-3, 4, (5, 2, 9)).astype(np.float16)
    weight = rng.integers(-3, 4, (3, 2, 3)).astype(np.float16)
    options: dict[str, Any] = {"strides": (1,), "pads": ((0, 0),), "dilations": (1,), "groups": 1}
    on_device = cupy_backend.put(whole)
    views = [
        (on_device[1:4], whole[1:4]),
        (on_device[::2], whole[::2]),
        (on_device[..., 1:], whole[..., 1:]),
        (on_device[..., ::-1], whole[..., ::-1]),
    ]
    for view, same in views:
        found = cupy_backend.convolution(view, cupy_backend.put(weight), **options)
        wide: list[Any] = [same.astype(np.float64), weight.astype(np.float64)]
        np.testing.assert_array_equal(cupy_backend.fetch(found), HOST.convolution(*wide, **options))


@pytest.mark.parametrize(
    ("shape", "weight", "groups"),
    [((1, 4, 6), (4, 1, 3), 4), ((1, 4, 6), (4, 4, 1), 1), ((0, 4, 6), (4, 4, 3), 1)],
    ids=["by channel", "one element", "empty"],
)
def test_what_is_better_left_to_others(
    cupy_backend: CupyBackend, shape: Any, weight: Any, groups: int
) -> None:
    def convolved(xp: Any, x: Any, weight: Any) -> Any:
        options: dict[str, Any] = {"strides": (1,), "pads": ((0, 0),), "dilations": (1,)}
        return [xp.convolution(x, weight, groups=groups, **options)]

    x, w = np.ones(shape, np.float32), np.ones(weight, np.float32)
    found, reasons = fused(cupy_backend, convolved, x, w)
    np.testing.assert_array_equal(found, on_host(convolved, x, w))
    assert (reasons, plans(cupy_backend)) == ([], {})


# -- attention ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize(
    ("heads", "shared", "bias"),
    [
        ((2, 4), (2, 4), None),
        ((2, 4), (2, 2), (2, 1, 5, 7)),
        ((2, 4), (2, 1), (5, 7)),
        ((2, 4), (2, 4), (1, 1, 1, 7)),
        ((4,), (4,), (4, 5, 7)),
        ((4,), (2,), (7,)),
    ],
)
def test_attention(
    cupy_backend: CupyBackend, heads: Any, shared: Any, bias: Any, dtype: np.dtype[Any]
) -> None:
    rng = np.random.default_rng(0)
    shapes = [
        (*heads, 5, 16),
        (*shared, 7, 16),
        (*shared, 7, 24),
        *([] if bias is None else [bias]),
    ]
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]

    def attended(xp: Any, q: Any, *others: Any) -> Any:
        return [xp.attention(q, *others, scale=0.25)]

    found, reasons = fused(cupy_backend, attended, *arrays)
    assert (found.dtype, reasons, trusted(cupy_backend)) == (dtype, [], [True])
    unit = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(
        found.astype(np.float64), on_host(attended, *arrays), rtol=4 * unit, atol=4 * unit
    )


@pytest.mark.parametrize("size", [12, 136])
def test_heads_that_cudnn_does_not_take(cupy_backend: CupyBackend, size: int) -> None:
    q = np.random.default_rng(0).standard_normal((1, 2, 3, size)).astype(HALF)

    def attended(xp: Any, q: Any) -> Any:
        return [xp.attention(q, q, q, scale=0.1)]

    found, reasons = fused(cupy_backend, attended, q)
    np.testing.assert_allclose(found.astype(np.float64), on_host(attended, q), 0.01, 0.01)
    assert (reasons, plans(cupy_backend)) == ([], {})


def test_many_queries_and_large_scores(cupy_backend: CupyBackend) -> None:
    """Scores of 16 bits round so much that the plain result is no measure for cuDNN's."""
    rng = np.random.default_rng(0)
    q, k, v = (4 * rng.standard_normal((1, 2, 100, 8)).astype(BFLOAT16) for _ in range(3))
    bias = rng.standard_normal((100, 100)).astype(BFLOAT16)
    q, k, v = (array.astype(BFLOAT16) for array in (q, k, v))

    def attended(xp: Any, *arrays: Any) -> Any:
        return [xp.attention(*arrays, scale=1.0)]

    found, reasons = fused(cupy_backend, attended, q, k, v, bias)
    assert (reasons, trusted(cupy_backend)) == ([], [True])
    expected = on_host(attended, q, k, v, bias)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("has_bias", [False, True])
def test_guarded_queries_without_weights_get_zeros(
    cupy_backend: CupyBackend, has_bias: bool, dtype: np.dtype[Any]
) -> None:
    """The second query sees no key, and the third is NaN."""
    q, k = np.ones((1, 1, 4, 8), dtype), np.ones((1, 1, 2, 8), dtype)
    q[..., 2, :] = np.nan
    bias = np.array([[[[0, 1], [-np.inf, -np.inf], [0, 0], [0, -np.inf]]]], dtype)
    arrays = (q, k, k, bias) if has_bias else (q, k, k)

    def attended(xp: Any, *arrays: Any) -> Any:
        return [xp.attention(*arrays, scale=1.0, is_guarded=True)]

    found, reasons = fused(cupy_backend, attended, *arrays)
    expected = np.ones((4, 8))
    expected[[1, 2] if has_bias else [2]] = 0
    np.testing.assert_array_equal(found[0, 0].astype(np.float64), expected)
    assert (reasons, trusted(cupy_backend)) == ([], [True])
    with cupy_backend.scope():
        (plain,) = attended(cupy_backend, *map(cupy_backend.put, arrays))
    np.testing.assert_array_equal(cupy_backend.fetch(plain), found)


WRITTEN_OUT = """<ir_version: 8, opset_import: ["" : 21]>
g (float16[1,4,6,16] q, float16[1,4,6,16] k, float16[1,4,6,16] v, float16[1,1,6,6] mask) =>
    (float16[1,4,6,16] y) {
    quarter = Constant<value_float=0.25>()
    scale = Cast<to=10>(quarter)
    t = Transpose<perm=[0,1,3,2]>(k)
    product = MatMul(q, t)
    scaled = Mul(product, scale)
    scores = Add(scaled, mask)
    weights = Softmax<axis=-1>(scores)
    y = MatMul(weights, v)
}"""


def test_attention_that_a_model_writes_out(cupy_backend: CupyBackend) -> None:
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((1, 4, 6, 16)).astype(HALF) for name in "qkv"}
    feeds["mask"] = np.triu(np.full((1, 1, 6, 6), -np.inf, HALF), 1)
    model = sardonyx.load(parser.parse_model(WRITTEN_OUT), backend=cupy_backend)
    for _ in range(3):
        found = model(**feeds)
    assert (trusted(cupy_backend), model.stats().unfused) == ([True], {})
    arrays = [feeds[name] for name in ("q", "k", "v", "mask")]
    expected = on_host(lambda xp, *arrays: [xp.attention(*arrays, scale=0.25)], *arrays)
    np.testing.assert_allclose(np.asarray(found).astype(np.float64), expected, atol=4e-3)


# -- plans that fail ------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {
    "strides": (1,),
    "pads": ((1, 1),),
    "dilations": (1,),
    "groups": 1,
}


def convolution_of_one_axis(xp: Any, x: Any, weight: Any) -> Any:
    return [xp.convolution(x, weight, **OPTIONS)]


def test_a_plan_whose_first_result_is_wrong_is_dropped(
    cupy_backend: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the plan gets the weight in place of the input, which has the same shape."""
    from sardonyx.backends.cupy.cudnn.plans import Plans, Refusal  # noqa: PLC0415

    run = Plans.run

    def mixed_up(self: Plans, plan: Any, arrays: Any, workspace: Any) -> None:
        run(self, plan, {1: arrays[2], 2: arrays[1], 3: arrays[3]}, workspace)

    monkeypatch.setattr(Plans, "run", mixed_up)
    rng = np.random.default_rng(0)
    x, weight = (rng.integers(-3, 4, (4, 4, 3)).astype(np.float32) for _ in range(2))

    def convolved(xp: Any, x: Any, weight: Any) -> Any:
        return [xp.convolution(x, weight, **OPTIONS | {"pads": ((0, 0),)})]

    found, _ = fused(cupy_backend, convolved, x, weight)
    np.testing.assert_array_equal(found, on_host(convolved, x, weight))
    (plan,) = plans(cupy_backend).values()
    assert isinstance(plan, Refusal)
    assert "first result" in plan.reason


def test_plans_may_not_take_much_memory(cupy_backend: CupyBackend, monkeypatch: Any) -> None:
    from sardonyx.backends.cupy.cudnn import plans as module  # noqa: PLC0415

    monkeypatch.setattr(module, "LARGEST_WORKSPACE", 1)
    x, weight = np.ones((1, 2, 6), np.float32), np.ones((3, 2, 3), np.float32)
    found, reasons = fused(cupy_backend, convolution_of_one_axis, x, weight)
    np.testing.assert_array_equal(found, on_host(convolution_of_one_axis, x, weight))
    # A GPU may have a plan that needs none; the emulated device has not.
    (plan,) = plans(cupy_backend).values()
    if isinstance(plan, module.Plan):
        assert (plan.workspace <= 1, reasons) == (True, [])
    else:
        assert ["a convolution of float32" in reason for reason in reasons] == [True]


def test_reasons_are_in_the_stats(cupy_backend: CupyBackend, monkeypatch: Any) -> None:
    """Without any engine left, there is no plan."""
    import cudnn  # noqa: PLC0415

    from sardonyx.backends.cupy.cudnn import plans as module  # noqa: PLC0415

    monkeypatch.setattr(module, "excluded_notes", lambda *_, **__: 1 / 0)
    model = sardonyx.load(
        parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 21]> g (float[1,2,6] x, float[3,2,3] w) => '
            "(float[1,3,6] y) { c = Conv<pads=[1,1]>(x, w) y = Relu(c) }"
        ),
        backend=cupy_backend,
    )
    x, w = np.ones((1, 2, 6), np.float32), np.ones((3, 2, 3), np.float32)
    for _ in range(3):
        result = model(x=x, w=w)
    np.testing.assert_array_equal(result, np.maximum(on_host(convolution_of_one_axis, x, w), 0))
    (reason,) = model.stats().unfused
    assert "a convolution of float32" in reason
    assert "ZeroDivisionError" in reason
    assert cudnn.backend_version() > 0


def test_a_backend_without_cudnn(cupy_backend: CupyBackend) -> None:
    without = cupy_backend._changed(uses_cudnn=False)
    x, weight = np.ones((1, 2, 6), np.float32), np.ones((3, 2, 3), np.float32)
    found, _ = fused(without, convolution_of_one_axis, x, weight)
    np.testing.assert_array_equal(found, on_host(convolution_of_one_axis, x, weight))
    assert plans(cupy_backend) == {}


# -- streams, graphs and threads ------------------------------------------------------------------


def test_runs_are_on_the_current_stream_and_in_cuda_graphs(cupy_backend: CupyBackend) -> None:
    import cupy  # noqa: PLC0415

    rng = np.random.default_rng(0)
    x, weight = (rng.integers(-3, 4, (4, 4, 3)).astype(np.float32) for _ in range(2))
    on_device, filters = cupy_backend.put(x), cupy_backend.put(weight)
    cupy_backend.convolution(on_device, filters, **OPTIONS)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        result = cupy_backend.convolution(on_device, filters, **OPTIONS)
        graph = stream.end_capture()
    on_device[...] = cupy_backend.put(2 * x)
    cupy.cuda.runtime.deviceSynchronize()
    graph.launch(stream)
    stream.synchronize()
    expected = on_host(convolution_of_one_axis, 2 * x, weight)
    np.testing.assert_array_equal(cupy_backend.fetch(result), expected)


def test_no_plan_is_built_during_a_capture(cupy_backend: CupyBackend) -> None:
    import cupy  # noqa: PLC0415

    from sardonyx.backends.cupy.cudnn.convolution import convolution_key  # noqa: PLC0415
    from sardonyx.backends.cupy.cudnn.plans import Refusal, plans_of  # noqa: PLC0415

    spec = Spec((1, 2, 6), np.dtype(np.float32))
    key = convolution_key(spec, spec, strides=(1,), dilations=(1,), groups=1)
    assert key is not None
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        found = plans_of(cupy_backend.device).find(key)
        stream.end_capture()
    assert isinstance(found, Refusal)
    assert plans(cupy_backend) == {}


def test_threads(cupy_backend: CupyBackend) -> None:
    rng = np.random.default_rng(0)
    x, weight = (rng.integers(-3, 4, (4, 4, 3)).astype(np.float32) for _ in range(2))
    expected = on_host(convolution_of_one_axis, x, weight)
    wrong: list[Any] = []

    def call() -> None:
        with cupy_backend.scope():
            arrays = cupy_backend.put(x), cupy_backend.put(weight)
            for _ in range(20):
                found = cupy_backend.fetch(cupy_backend.convolution(*arrays, **OPTIONS))
                if not np.array_equal(found, expected):
                    wrong.append(found)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert trusted(cupy_backend) == [True]
