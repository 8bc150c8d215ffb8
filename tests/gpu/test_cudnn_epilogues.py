"""Convolutions with padding, a bias, an added array and ReLU in one call of cuDNN."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper, parser

import sardonyx
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import NOTHING, Activation, Epilogue
from sardonyx.ops.fused_products import convolution_and_more
from tests.gpu.cudnn_plans import FLOATS, HALF, fused, on_host, plans, unexpected

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("with_cudnn")]

RELU = Activation("relu")
EPILOGUES = {
    "bias": Epilogue(has_bias=True),
    "relu": Epilogue(activation=RELU),
    "bias relu": Epilogue(has_bias=True, activation=RELU),
    "bias add relu": Epilogue(has_bias=True, activation=RELU, addend="before"),
    "add": Epilogue(addend="before"),
    "nothing": NOTHING,
}


def trusted_plans(backend: CupyBackend) -> list[Any]:
    from sardonyx.backends.cupy.cudnn.plans import Plan  # noqa: PLC0415

    found = plans(backend).items()
    return [key for key, plan in found if isinstance(plan, Plan) and plan.is_trusted]


def drawn(seed: int, epilogue: Epilogue) -> tuple[list[np.ndarray[Any, Any]], dict[str, Any]]:
    """The operands of a convolution of 1 to 3 axes, and its layout."""
    rng = np.random.default_rng(seed)
    rank, groups = 1 + seed % 3, int(rng.integers(1, 3))
    inner, filters = int(rng.integers(2, 4)), groups * int(rng.integers(2, 4))
    kernel, dilations = rng.integers(1, 4, rank), rng.integers(1, 3, rank)
    before = rng.integers(0, 3, rank)
    # Every other one has as much padding before as after.
    after = before if seed % 2 else rng.integers(0, 3, rank)
    sizes = (kernel - 1) * dilations + 1 + rng.integers(0, 6, rank)
    layout = {
        "strides": tuple(rng.integers(1, 4, rank).tolist()),
        "pads": tuple(zip(before.tolist(), after.tolist(), strict=True)),
        "dilations": tuple(dilations.tolist()),
        "groups": groups,
    }
    shapes = [(2, groups * inner, *sizes.tolist()), (filters, inner, *kernel.tolist())]
    arrays = [rng.integers(-3, 4, shape).astype(np.float64) for shape in shapes]
    if epilogue.has_bias:
        arrays.append(rng.integers(-9, 10, filters).astype(np.float64))
    if epilogue.addend:
        blank = on_host(lambda xp, x, w: [xp.convolution(x, w, **layout)], *arrays[:2])
        arrays.append(rng.integers(-9, 10, blank.shape).astype(np.float64))
    return arrays, layout


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("seed", range(3))
def test_epilogues(cupy_backend: CupyBackend, seed: int, name: str, dtype: np.dtype[Any]) -> None:
    epilogue = EPILOGUES[name]
    arrays, layout = drawn(seed, epilogue)

    def convolved(xp: Any, *arrays: Any) -> Any:
        return [convolution_and_more(xp, *arrays, epilogue=epilogue, **layout)]

    arrays = [array.astype(dtype) for array in arrays]
    found, reasons = fused(cupy_backend, convolved, *arrays)
    np.testing.assert_array_equal(found.astype(np.float64), on_host(convolved, *arrays))
    assert unexpected(reasons) == []
    in_one = [key for key in trusted_plans(cupy_backend) if key.epilogue == epilogue]
    is_even = all(before == after for before, after in layout["pads"])
    if not reasons and (epilogue != NOTHING or (is_even and any(map(any, layout["pads"])))):
        assert len(in_one) == 1
        assert any(in_one[0].padding) <= is_even
    # The same, step by step.
    (plain,) = convolved(cupy_backend, *map(cupy_backend.put, arrays))
    np.testing.assert_array_equal(cupy_backend.fetch(plain), found)


@pytest.mark.parametrize(
    "epilogue",
    [
        Epilogue(has_bias=True, activation=Activation("swish", 1.0)),
        Epilogue(has_bias=True, activation=RELU, addend="after"),
    ],
    ids=["swish", "after"],
)
def test_other_epilogues_follow_the_call(cupy_backend: CupyBackend, epilogue: Epilogue) -> None:
    """The padding is cuDNN's all the same."""
    rng = np.random.default_rng(0)
    shapes = [(1, 2, 5, 5), (4, 2, 3, 3), (4,)] + [(1, 4, 5, 5)] * bool(epilogue.addend)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    layout = {"strides": (1, 1), "pads": ((1, 1), (1, 1)), "dilations": (1, 1), "groups": 1}

    def convolved(xp: Any, *arrays: Any) -> Any:
        return [convolution_and_more(xp, *arrays, epilogue=epilogue, **layout)]

    found, reasons = fused(cupy_backend, convolved, *arrays)
    np.testing.assert_allclose(found, on_host(convolved, *arrays), rtol=1e-5, atol=1e-5)
    assert reasons == []
    (key,) = (key for key in trusted_plans(cupy_backend) if any(key.padding))
    assert key.epilogue == NOTHING


def relu_of(xp: Any, x: Any, weight: Any, bias: Any) -> Any:
    layout = {"strides": (1,), "pads": ((1, 1),), "dilations": (1,), "groups": 1}
    epilogue = Epilogue(has_bias=True, activation=RELU)
    return [convolution_and_more(xp, x, weight, bias, epilogue=epilogue, **layout)]


@pytest.mark.parametrize("name", ["relu", "add"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_zeros_are_a_bias_for_kernels_that_need_one(
    cupy_backend: CupyBackend, monkeypatch: pytest.MonkeyPatch, name: str, dtype: np.dtype[Any]
) -> None:
    """They are negative, so that -0.0 stays what it is."""
    from sardonyx.backends.cupy.cudnn.convolution import ConvolutionKey  # noqa: PLC0415

    build, epilogue = ConvolutionKey.build, EPILOGUES[name]

    def refused(self: ConvolutionKey, cudnn: Any, handle: Any) -> Any:
        if not self.has_bias:
            raise ValueError("No valid engine configs")
        return build(self, cudnn, handle)

    monkeypatch.setattr(ConvolutionKey, "build", refused)
    arrays, layout = drawn(1, epilogue)
    arrays = [array.astype(dtype) for array in arrays]
    if name == "add":
        # The product is -0.0 wherever no term is anything else.
        arrays[0][...], arrays[1][...] = 1, -0.0
        layout["pads"] = ((0, 0),) * (arrays[0].ndim - 2)
        blank = on_host(lambda xp, x, w: [xp.convolution(x, w, **layout)], *arrays[:2])
        arrays[2] = np.full(blank.shape, -0.0, dtype)

    def convolved(xp: Any, *arrays: Any) -> Any:
        return [convolution_and_more(xp, *arrays, epilogue=epilogue, **layout)]

    found, reasons = fused(cupy_backend, convolved, *arrays)
    assert unexpected(reasons) == []
    np.testing.assert_array_equal(found.astype(np.float64), on_host(convolved, *arrays))
    if not reasons:
        assert [key.adds_zeros for key in trusted_plans(cupy_backend)] == [True]


SPECIALS = [np.nan, np.inf, -np.inf, 1.0, -1.0, 0.0]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_and_infinities(cupy_backend: CupyBackend, dtype: np.dtype[Any]) -> None:
    x, weight = np.ones((1, 2, 5)).astype(dtype), np.ones((6, 2, 3)).astype(dtype)
    bias = np.array(SPECIALS).astype(dtype)
    found, reasons = fused(cupy_backend, relu_of, x, weight, bias)
    np.testing.assert_array_equal(found.astype(np.float64), on_host(relu_of, x, weight, bias))
    assert reasons == []
    assert [key.epilogue.activation for key in trusted_plans(cupy_backend)].count(RELU) == 1


def test_a_relu_that_drops_nan_is_not_used(
    cupy_backend: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cupy  # noqa: PLC0415

    from sardonyx.backends.cupy.cudnn.plans import Plans  # noqa: PLC0415

    run = Plans.run

    def without_nan(self: Plans, plan: Any, arrays: Any, workspace: Any) -> None:
        run(self, plan, arrays, workspace)
        if 4 in arrays:
            arrays[3][...] = cupy.nan_to_num(arrays[3], posinf=cupy.inf, neginf=-cupy.inf)

    monkeypatch.setattr(Plans, "run", without_nan)
    x, weight = np.ones((1, 2, 5), np.float32), np.ones((6, 2, 3), np.float32)
    bias = np.array(SPECIALS, np.float32)
    found, (reason,) = fused(cupy_backend, relu_of, x, weight, bias)
    np.testing.assert_array_equal(found, on_host(relu_of, x, weight, bias))
    assert "a convolution with a bias and ReLU and padding of float32" in reason
    assert "first result" in reason
    # The convolution and its padding alone are computed by cuDNN.
    assert [(key.padding, key.epilogue) for key in trusted_plans(cupy_backend)] == [
        ((0, 1), NOTHING)
    ]


@pytest.mark.parametrize("name", ["bias", "add"])
def test_a_maximum_keeps_nan_where_the_first_kernels_do_not(
    cupy_backend: CupyBackend, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The maximum with -inf changes nothing, but has kernels of its own."""
    import cupy  # noqa: PLC0415

    from sardonyx.backends.cupy.cudnn.plans import Plans  # noqa: PLC0415

    run, epilogue = Plans.run, EPILOGUES[name]

    def without_nan(self: Plans, plan: Any, arrays: Any, workspace: Any) -> None:
        run(self, plan, arrays, workspace)
        if 6 not in arrays:
            arrays[3][...] = cupy.fmax(arrays[3], -cupy.inf)

    monkeypatch.setattr(Plans, "run", without_nan)
    arrays, layout = drawn(1, epilogue)
    arrays = [array.astype(HALF) for array in arrays]
    arrays[-1].reshape(-1)[:3] = [np.nan, np.inf, -np.inf]

    def convolved(xp: Any, *arrays: Any) -> Any:
        return [convolution_and_more(xp, *arrays, epilogue=epilogue, **layout)]

    found, reasons = fused(cupy_backend, convolved, *arrays)
    np.testing.assert_array_equal(found.astype(np.float64), on_host(convolved, *arrays))
    assert unexpected(reasons) == []
    if not reasons:
        (key,) = (key for key in trusted_plans(cupy_backend) if key.epilogue == epilogue)
        assert key.takes_maximum


def test_a_model_says_why_epilogues_stay_apart(
    cupy_backend: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sardonyx.backends.cupy.cudnn.convolution import ConvolutionKey  # noqa: PLC0415

    build = ConvolutionKey.build

    def refused(self: ConvolutionKey, cudnn: Any, handle: Any) -> Any:
        if self.epilogue != NOTHING:
            raise ValueError("no engine")
        return build(self, cudnn, handle)

    monkeypatch.setattr(ConvolutionKey, "build", refused)
    model, feeds = block()
    expected = model_on_numpy(model, feeds)
    loaded = sardonyx.load(model, backend=cupy_backend)
    for _ in range(3):
        found = loaded(**feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert any("ReLU" in reason and "no engine" in reason for reason in loaded.stats().unfused)


def block(dtype: Any = np.float32) -> tuple[Any, dict[str, np.ndarray[Any, Any]]]:
    """Two convolutions, the second one with the input added, as residual networks have them."""
    rng = np.random.default_rng(0)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    name = {1: "float", 10: "float16"}[kind]
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 21]> g ({name}[1,4,8,8] x) => ({name}[1,4,8,8] y) {{'
        "a = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(a) c = Conv<pads=[1,1,1,1]>(r, v, b)"
        "s = Add(c, x) y = Relu(s) }"
    )
    for each, shape in {"w": (4, 4, 3, 3), "v": (4, 4, 3, 3), "b": (4,)}.items():
        value = (rng.standard_normal(shape) / 4).astype(dtype)
        tensor = helper.make_tensor(each, kind, shape, value.tobytes(), raw=True)
        model.graph.initializer.append(tensor)
    return model, {"x": rng.standard_normal((1, 4, 8, 8)).astype(dtype)}


def model_on_numpy(model: Any, feeds: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return np.asarray(sardonyx.load(model, backend="numpy")(**feeds))


@pytest.mark.parametrize("dtype", [np.float32, HALF], ids=str)
def test_a_residual_block_needs_no_kernel(cupy_backend: CupyBackend, dtype: Any) -> None:
    counts = pytest.importorskip("emulated_cuda.counts")
    model, feeds = block(dtype)
    loaded = sardonyx.load(model, backend=cupy_backend)
    inputs = {name: cupy_backend.put(array) for name, array in feeds.items()}
    for _ in range(4):
        found = loaded(**inputs)
    error = 1e-5 if dtype == np.float32 else 1e-2
    np.testing.assert_allclose(
        cupy_backend.fetch(found), model_on_numpy(model, feeds), rtol=error, atol=error
    )
    assert loaded.stats().unfused == {}
    if counts.available():
        with counts.counted() as cost:
            loaded(**inputs)
        assert (cost.kernels, cost.library_calls) == (0, 2)


def test_weights_that_are_not_finite_keep_their_padding(cupy_backend: CupyBackend) -> None:
    """An infinite weight times a zero of the padding is NaN."""
    model, feeds = block()
    w = np.ones((4, 4, 3, 3), np.float32)
    w[0, 0, 0, 0] = np.inf
    model.graph.initializer[0].raw_data = w.tobytes()
    loaded = sardonyx.load(model, backend=cupy_backend)
    for _ in range(3):
        found = loaded(**feeds)
    np.testing.assert_allclose(found, model_on_numpy(model, feeds), rtol=1e-5, atol=1e-5)
    assert all(
        not any(key.padding)
        for key in plans(cupy_backend)
        if key.weight == (4, 4, 3, 3) and key.epilogue.addend is None
    )


def test_each_convolution_has_one_plan(cupy_backend: CupyBackend) -> None:
    """In float16 ReLU needs no other form: its limit is an infinity there."""
    x, weight = np.ones((1, 2, 5), HALF), np.ones((6, 2, 3), HALF)
    fused(cupy_backend, relu_of, x, weight, np.ones(6, HALF))
    assert [key.takes_maximum for key in plans(cupy_backend)] == [False]


def test_nothing_is_tried_out_during_a_capture(
    cupy_backend: CupyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    import cupy  # noqa: PLC0415

    from sardonyx.backends.cupy.cudnn import calls, choosing  # noqa: PLC0415
    from sardonyx.backends.cupy.cudnn import plans as module  # noqa: PLC0415

    x, weight = np.ones((1, 2, 5), np.float32), np.ones((6, 2, 3), np.float32)
    bias = np.ones(6, np.float32)
    placed = [cupy_backend.put(array) for array in (x, weight, bias)]
    expected = on_host(relu_of, x, weight, bias)
    (found,) = relu_of(cupy_backend, *placed)
    np.testing.assert_array_equal(cupy_backend.fetch(found), expected)
    for plan in plans(cupy_backend).values():
        if isinstance(plan, module.Plan):
            plan.is_trusted = False
    for each in (calls, choosing, module):
        monkeypatch.setattr(each, "is_capturing", lambda: True)
    (found,) = relu_of(cupy_backend, *placed)
    np.testing.assert_array_equal(cupy_backend.fetch(found), expected)
    assert trusted_plans(cupy_backend) == []
    cupy.cuda.runtime.deviceSynchronize()


def test_threads_try_out_the_same_plan(cupy_backend: CupyBackend) -> None:
    x, weight = np.ones((1, 2, 5), np.float32), np.ones((6, 2, 3), np.float32)
    arrays = (x, weight, np.array(SPECIALS, np.float32))
    expected = on_host(relu_of, *arrays)
    wrong: list[Any] = []

    def call() -> None:
        with cupy_backend.scope():
            placed = [cupy_backend.put(array) for array in arrays]
            for _ in range(5):
                found = cupy_backend.fetch(relu_of(cupy_backend, *placed)[0])
                if not np.array_equal(found, expected, equal_nan=True):
                    wrong.append(found)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_cudnn_is_not_asked_for() -> None:
    from sardonyx.backends.cupy.cudnn.convolution import key_with_epilogue  # noqa: PLC0415

    def key(*shapes: Any, epilogue: Any = EPILOGUES["bias relu"], dtype: Any = "f4") -> Any:
        specs = [Spec(shape, np.dtype(np.float32)) for shape in shapes]
        specs[-1] = Spec(shapes[-1], np.dtype(dtype))
        layout = {"strides": (1,), "pads": ((1, 1),), "dilations": (1,), "groups": 1}
        return key_with_epilogue(*specs[:2], specs[2:], epilogue, **layout)

    x, w = (1, 2, 6), (4, 2, 3)
    assert key(x, w, (4,)) is not None
    assert key(x, w, (4,), dtype="f2") is None
    assert key(x, w, (1,)) is None
    assert key(x, w, (1, 4, 1), epilogue=EPILOGUES["add"]) is None
    assert key(x, (4, 2, 9), (4,)) is None
    assert key((0, 2, 6), w, (4,)) is None
