"""oneDNN's products against NumPy's in float64, in all the ways in which they can be called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import NOTHING, Activation, Epilogue, Function
from sardonyx.backends.jax import onednn
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.onednn import build, loaded
from sardonyx.backends.numpy import HOST
from sardonyx.ops.fused_products import convolution_and_more, product_and_more
from tests.support import onnx_builders as builders
from tests.support.kernels import NEEDS_ONEDNN, has_avx512

pytestmark = NEEDS_ONEDNN

RELU = Activation("relu")
ACTIVATIONS = [
    RELU,
    Activation("leaky_relu", 0.1),
    Activation("clip", -0.5, 6.0),
    Activation("gelu"),
    Activation("gelu_tanh"),
    Activation("swish", 1.0),
    Activation("tanh"),
    Activation("sigmoid"),
    Activation("hard_swish", 1 / 6, 0.5),
    Activation("hard_sigmoid", 0.2, 0.5),
    Activation("elu", 1.5),
]
EPILOGUES = [
    NOTHING,
    Epilogue(has_bias=True),
    Epilogue(True, RELU),
    Epilogue(False, RELU, "before"),
    Epilogue(True, Activation("swish", 1.0), "after"),
    Epilogue(True, None, "before"),
    # These run after the kernel where the results are few, and in it where they are many.
    Epilogue(True, Activation("gelu")),
    Epilogue(False, Activation("elu", 1.5), "before"),
]


def spec_of(shape: Sequence[int], dtype: Any = np.float32) -> Spec:
    return Spec(tuple(shape), jnp.dtype(dtype))


@dataclass(frozen=True)
class Window:
    """The shapes of a convolution."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    stride: int = 1
    pads: tuple[int, int] = (0, 0)
    dilation: int = 1
    groups: int = 1

    def specs(self, dtype: Any) -> tuple[Spec, Spec]:
        return spec_of(self.x, dtype), spec_of(self.weight, dtype)

    @property
    def layout(self) -> ConvolutionLayout:
        options, rank = (self.stride, self.pads, self.dilation), len(self.x) - 2
        return ConvolutionLayout(*((option,) * rank for option in options), self.groups)


# Several filters for each channel: other processors have no fast kernel of oneDNN for it.
FOR_AVX512 = Window((1, 24, 28, 28), (48, 1, 5, 5), 1, (2, 2), 1, 24)
WINDOWS = [
    Window((1, 3, 32, 30), (16, 3, 7, 7), 2, (3, 3)),
    Window((1, 64, 28, 28), (64, 64, 3, 3), 1, (1, 1)),
    Window((1, 256, 7, 7), (256, 256, 3, 3), 1, (1, 1)),
    Window((3, 32, 9, 9), (48, 32, 3, 3), 2, (0, 1)),
    Window((8, 16, 12, 12), (32, 16, 3, 3), 1, (1, 1)),
    Window((1, 512, 7, 7), (1024, 512, 1, 1)),
    Window((2, 1024, 4, 4), (512, 1024, 1, 1)),
    Window((2, 64, 14, 14), (100, 64, 1, 1)),
    Window((1, 64, 14, 14), (128, 64, 1, 1), 2),
    Window((1, 96, 28, 28), (96, 1, 3, 3), 2, (1, 1), 1, 96),
    FOR_AVX512,
    Window((1, 32, 20, 20), (64, 8, 3, 3), 1, (1, 1), 1, 4),
    Window((1, 16, 20, 20), (16, 16, 3, 3), 1, (2, 2), 2),
    Window((1, 3, 32, 32), (64, 3, 8, 8), 8),
    Window((2, 40, 60), (80, 40, 3), 1, (1, 1)),
    Window((2, 16, 7), (16, 16, 3), 3),
    Window((1, 8, 9, 10, 11), (16, 8, 3, 3, 3), 1, (1, 1)),
    Window((1, 1, 5, 5), (1, 1, 3, 3)),
    Window((1, 32, 1000), (32, 32, 3), 1, (4, 4), 4),
    Window((1, 16, 100, 100), (32, 16, 3, 3), 1, (1, 1)),
]
MATRICES = [(1, 96, 200), (1, 512, 3000), (7, 300, 257), (16, 128, 64), (40, 64, 48), (1, 1, 1)]
MATRICES += [(65, 64, 48), (197, 192, 576)]


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, np.float32)


def others_of(product: onednn.Product, epilogue: Epilogue, channels: int) -> list[Any]:
    bias = [drawn(channels)] if epilogue.has_bias else []
    addend = [drawn(*product.result.shape)] if epilogue.addend else []
    return bias + addend


def convolved(window: Window, epilogue: Epilogue, *arrays: Any, dtype: Any = np.float64) -> Any:
    """By NumPy, in the plain form."""
    wide = [np.asarray(a, dtype) for a in arrays]
    with HOST.scope(), np.errstate(all="ignore"):
        return convolution_and_more(HOST, *wide, epilogue=epilogue, **window.layout._asdict())


def multiplied(epilogue: Epilogue, *arrays: Any, dtype: Any = np.float64) -> Any:
    wide = [np.asarray(a, dtype) for a in arrays]
    with HOST.scope(), np.errstate(all="ignore"):
        return product_and_more(HOST, *wide, epilogue=epilogue, is_transposed=False)


def convolution(window: Window, epilogue: Epilogue = NOTHING, dtype: Any = np.float32) -> Any:
    product = onednn.convolution(*window.specs(dtype), window.layout, epilogue=epilogue)
    if product is None and window == FOR_AVX512 and not has_avx512():
        pytest.skip("oneDNN has a fast kernel for this on processors with AVX-512 alone")
    assert product is not None
    return product


def matrix_product(
    x: Sequence[int], weight: Sequence[int], dtype: Any = np.float32, **more: Any
) -> onednn.Product:
    product = onednn.matrix_product(spec_of(x, dtype), spec_of(weight, dtype), **more)
    if product is None and dtype != np.float32 and not has_avx512():
        pytest.skip("oneDNN has fast kernels for narrow floats on processors with AVX-512 alone")
    assert product is not None
    return product


def assert_close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    finite = expected[np.isfinite(expected)]
    scale = max(np.max(np.abs(finite), initial=0), 1)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


def assert_convolves(window: Window, epilogue: Epilogue) -> None:
    """The kernel gives what NumPy does."""
    product = convolution(window, epilogue)
    x, weight = drawn(*window.x), drawn(*window.weight)
    others = others_of(product, epilogue, window.weight[0])
    found = jax.jit(product.run)(x, product.form.pack(weight), *others)
    assert_close(found, convolved(window, epilogue, x, weight, *others))


def test_it_is_there() -> None:
    assert onednn.status().startswith("oneDNN's kernels are used")


@pytest.mark.sampled(8)
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_convolution(window: Window, epilogue: Epilogue) -> None:
    assert_convolves(window, epilogue)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@pytest.mark.parametrize("sizes", MATRICES, ids=str)
@pytest.mark.sampled(4)
def test_matrix_product(
    sizes: tuple[int, int, int], epilogue: Epilogue, is_transposed: bool
) -> None:
    rows, inner, columns = sizes
    matrix = drawn(inner, columns)
    weight = matrix.T.copy() if is_transposed else matrix
    x = drawn(rows, inner)
    product = matrix_product(x.shape, weight.shape, is_transposed=is_transposed, epilogue=epilogue)
    others = others_of(product, epilogue, columns)
    found = jax.jit(product.run)(x, product.form.pack(weight), *others)
    assert_close(found, multiplied(epilogue, x, matrix, *others))


def test_kernels_find_the_elements_of_any_array() -> None:
    whole = drawn(6, 8)
    fixed = whole.view()
    fixed.flags.writeable = False
    for x in (whole, fixed, whole[2:, 3:].T, whole.view(np.recarray), np.empty(0, np.float32)):
        assert loaded.address(x) == x.ctypes.data
    assert loaded.address(None) is None


def test_rows_of_an_array_of_any_rank() -> None:
    matrix = drawn(32, 48)
    for shape in [(32,), (4, 32), (2, 3, 5, 32)]:
        product = matrix_product(shape, matrix.shape)
        x = drawn(*shape)
        assert_close(product.run(x, product.form.pack(matrix)), multiplied(NOTHING, x, matrix))


def test_every_activation_is_tried() -> None:
    assert [a.function for a in ACTIVATIONS] == list(get_args(Function))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_activation_of_what_is_finite_and_of_what_is_not(activation: Activation) -> None:
    epilogue = Epilogue(True, activation)
    product = matrix_product((64, 300), (300, 600), epilogue=epilogue)
    x, matrix, bias = drawn(64, 300), drawn(300, 600) / 10, drawn(600)
    packed = product.form.pack(matrix)
    assert_close(product.run(x, packed, bias), multiplied(epilogue, x, matrix, bias))
    bias[:3] = np.nan, np.inf, -np.inf
    x[5, 7], x[6, 8] = np.nan, np.inf
    assert_close(product.run(x, packed, bias), multiplied(epilogue, x, matrix, bias))


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@pytest.mark.parametrize("window", WINDOWS[:9], ids=str)
def test_a_nan_is_never_taken_for_a_number(window: Window, epilogue: Epilogue) -> None:
    product = convolution(window, epilogue)
    x, weight = drawn(*window.x), drawn(*window.weight)
    x[0, 0, 0, 0], x[-1, -1, -1, -1], x[0, -1, 2, 2] = np.nan, np.inf, -np.inf
    others = others_of(product, epilogue, window.weight[0])
    found = product.run(x, product.form.pack(weight), *others)
    assert_close(found, convolved(window, epilogue, x, weight, *others))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_convolution(data: st.DataObject) -> None:
    draw = data.draw
    axes, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 1, 2, 5]))
    inputs = groups * draw(st.integers(1, 20))
    outputs = groups * draw(st.integers(1, 20))
    dilation, pads = draw(st.integers(1, 2)), draw(st.tuples(*[st.integers(0, 4)] * 2))
    kernel = draw(st.tuples(*[st.integers(1, 4)] * axes))
    sizes = [max((k - 1) * dilation + 1, draw(st.integers(1, 9))) for k in kernel]
    window = Window(
        (draw(st.integers(1, 3)), inputs, *sizes),
        (outputs, inputs // groups, *kernel),
        draw(st.integers(1, 3)),
        pads,
        dilation,
        groups,
    )
    epilogue = draw(st.sampled_from(EPILOGUES))
    product = onednn.convolution(*window.specs(np.float32), window.layout, epilogue=epilogue)
    if product is None:
        return
    x, weight = drawn(*window.x), drawn(*window.weight)
    others = others_of(product, epilogue, outputs)
    found = product.run(x, product.form.pack(weight), *others)
    assert_close(found, convolved(window, epilogue, x, weight, *others))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("window", WINDOWS[1:4], ids=str)
@pytest.mark.sampled(3)
def test_narrow_floats_are_exact_to_their_last_bit_or_left_alone(
    window: Window, dtype: str
) -> None:
    epilogue = Epilogue(True, RELU, "before")
    product = onednn.convolution(*window.specs(dtype), window.layout, epilogue=epilogue)
    if product is None:
        return
    x, weight = jnp.asarray(drawn(*window.x), dtype), jnp.asarray(drawn(*window.weight), dtype)
    others = [jnp.asarray(a, dtype) for a in others_of(product, epilogue, window.weight[0])]
    found = product.run(x, product.form.pack(weight), *others)
    assert found.dtype == dtype
    tolerance = float(jnp.finfo(dtype).eps)
    expected = convolved(window, epilogue, x, weight, *others)
    assert_close(np.asarray(found, np.float64), expected, tolerance)
    wrong = product.run(x.at[0, 0, 0, 0].set(jnp.nan), product.form.pack(weight), *others)
    assert jnp.isnan(wrong).any()


def test_between_convolutions_nothing_is_rearranged() -> None:
    product = convolution(WINDOWS[1], Epilogue(True, RELU, "before"))
    x, packed, bias = drawn(*WINDOWS[1].x), product.form.pack(drawn(*WINDOWS[1].weight)), drawn(64)

    def network(x: Any, packed: Any, bias: Any) -> Any:
        y = product.run(x, packed, bias, x)
        y = product.run(y * 2 + 1, packed, bias, y)
        return product.run(jnp.tanh(y), packed, bias, y)

    text = jax.jit(network).lower(x, packed, bias).compile().as_text()
    assert text.count(" transpose(") == 0
    assert text.count(" copy(") == 2  # Of the input and of the output.


@pytest.mark.usefixtures("threads")
def test_calls_from_many_threads_at_once() -> None:
    product = convolution(WINDOWS[2], EPILOGUES[2])
    weight, bias = drawn(*WINDOWS[2].weight), drawn(256)
    packed = product.form.pack(weight)

    @jax.jit
    def several(x: Any) -> Any:
        return sum(product.run(x * factor, packed, bias) for factor in (1, 2, 3, 4))

    xs = [drawn(*WINDOWS[2].x, seed=seed) for seed in range(16)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda x: np.asarray(several(x)), xs))
    for x, y in zip(xs, found, strict=True):
        each = (convolved(WINDOWS[2], EPILOGUES[2], x * n, weight, bias) for n in (1, 2, 3, 4))
        assert_close(y, sum(each))


@pytest.mark.parametrize(
    ("window", "dtype"),
    [
        (WINDOWS[1], np.float64),
        (WINDOWS[1], np.int32),
        (replace(WINDOWS[1], pads=(-1, 1)), np.float32),
        (replace(WINDOWS[1], x=(0, 64, 28, 28)), np.float32),
        (Window((1, 0, 4, 4), (8, 0, 3, 3)), np.float32),
        (Window((1, 4, 2, 2), (8, 4, 3, 3)), np.float32),
        (Window((1, 4, 3, 3), (4, 4, 3, 3), 1, (3, 3)), np.float32),
        (Window((1, 2, 3, 3, 3, 3), (2, 2, 1, 1, 1, 1)), np.float32),
    ],
    ids=str,
)
def test_what_it_does_not_do_is_left_to_xla(window: Window, dtype: Any) -> None:
    assert onednn.convolution(*window.specs(dtype), window.layout) is None


def test_empty_matrices_are_left_to_xla() -> None:
    for rows, inner, columns in [(0, 3, 4), (3, 0, 4), (3, 4, 0)]:
        specs = spec_of((rows, inner)), spec_of((inner, columns))
        assert onednn.matrix_product(*specs) is None


SAYS_STATUS = "from sardonyx.backends.jax import onednn; print(onednn.status())"


def started(cache: Path, **environment: str) -> subprocess.Popen[str]:
    known = {**os.environ, "XDG_CACHE_HOME": str(cache), "JAX_PLATFORMS": "cpu", **environment}
    return subprocess.Popen(
        [sys.executable, "-c", SAYS_STATUS], env=known, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_two_processes_may_compile_at_once(tmp_path: Path) -> None:
    for process in [started(tmp_path), started(tmp_path)]:
        said, _ = process.communicate(timeout=300)
        assert said.startswith("oneDNN's kernels are used")
    (folder,) = (tmp_path / "sardonyx" / "onednn").iterdir()
    assert [path.name for path in folder.iterdir()] == ["libsardonyx_onednn.so"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"PATH": "", "CXX": ""}, "no C++ compiler"),
        ({"CXX": "false"}, "cannot compile its kernels"),
        ({"XDG_CACHE_HOME": "/proc/none"}, "the cache folder cannot be written"),
        ({"SARDONYX_ONEDNN": "0"}, "it is switched off by SARDONYX_ONEDNN=0"),
    ],
)
def test_why_it_is_not_used_is_said(
    tmp_path: Path, environment: dict[str, str], reason: str
) -> None:
    said, _ = started(tmp_path, **environment).communicate(timeout=60)
    assert said.startswith("XLA's own kernels are used, not oneDNN's: ")
    assert reason in said


@pytest.mark.slow
def test_a_library_is_loaded_if_it_is_whole_and_nobody_else_wrote_it(tmp_path: Path) -> None:
    """Without a compiler, so that what is not loaded is not made again either."""
    kernels = build._cache_folder() / onednn.identity()
    folder = tmp_path / "sardonyx" / "onednn" / onednn.identity()
    shutil.copytree(kernels, folder)
    library = folder / build.LIBRARY
    whole = library.read_bytes()

    def said() -> str:
        return started(tmp_path, PATH="", CXX="").communicate(timeout=60)[0]

    assert said().startswith("oneDNN's kernels are used")
    folder.chmod(0o777)
    assert "can be written by others" in said()
    folder.chmod(0o700)
    library.chmod(0o666)
    assert "no C++ compiler" in said()
    library.write_bytes(whole)
    library.chmod(0o600)
    assert said().startswith("oneDNN's kernels are used")
    library.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    assert "no C++ compiler" in said()
    library.symlink_to(kernels / build.LIBRARY)
    assert "no C++ compiler" in said()


def test_without_the_package_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PACKAGE", "there-is-no-such-package")
    with pytest.raises(build.BuildError, match=r"pip install 'sardonyx\[onednn\]'"):
        build.built()


# -- in a model -----------------------------------------------------------------------------------


def network() -> bytes:
    """Two convolutions, the second with a sum, and a product: all that a kernel can take over."""
    weights = {"w": (64, 16, 3, 3), "v": (64, 64, 1, 1), "b": (64,), "m": (64, 10), "c": (10,)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a1"], ["a2"]),
        helper.make_node("Conv", ["a2", "v"], ["a3"]),
        helper.make_node("Add", ["a3", "a2"], ["a4"]),
        helper.make_node("Relu", ["a4"], ["a5"]),
        helper.make_node("GlobalAveragePool", ["a5"], ["a6"]),
        helper.make_node("Flatten", ["a6"], ["a7"]),
        helper.make_node("Gemm", ["a7", "m", "c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(drawn(*shape), name) for name, shape in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def test_a_model_runs_on_it_and_its_weights_stay_replaceable() -> None:
    by_kernels = sardonyx.load(network(), backend="jax")
    by_numpy = sardonyx.load(network(), backend="numpy")
    x = drawn(2, 16, 12, 12)
    titles = [step.title for stage in by_kernels.trace(x).stages for step in stage.steps]
    assert titles.count("PackedWeight") == 3
    for _ in range(2):
        assert_close(by_kernels(x), np.asarray(by_numpy(x)))
        for model in (by_kernels, by_numpy):
            model.params["w"] = drawn(64, 16, 3, 3, seed=1)


def test_a_kernel_gets_its_vectors_one_by_one() -> None:
    """XLA would compile a function for each that it must cut out of a pack: 15 ms of compiling."""
    matrices = {f"m{i}": drawn(64, 64, seed=i) / 8 for i in range(5)}
    vectors = {f"{kind}{i}": drawn(64, seed=i) for kind in "bs" for i in range(5)}
    nodes = []
    for i in range(5):
        nodes.append(builders.node("Gemm", [f"x{i}", f"m{i}", f"b{i}"], [f"p{i}"]))
        nodes.append(builders.node("Sin", [f"p{i}"], [f"q{i}"]))
        nodes.append(builders.node("Mul", [f"q{i}", f"s{i}"], [f"x{i + 1}"]))
    weights = [builders.weight(name, array) for name, array in (matrices | vectors).items()]
    proto = builders.model(nodes, [builders.value("x0", [16, 64])], ["x5"], weights)
    model, x = sardonyx.load(proto, backend="jax"), drawn(16, 64)
    (stage,) = model.trace(x).stages
    (pack,) = stage.binding.packs
    names = [stage.binding.weights[register] for register in pack.registers]
    assert sorted(names) == [f"s{i}" for i in range(5)]
    assert_close(model(x), sardonyx.load(proto, backend="numpy")(x))


@pytest.mark.slow
def test_a_model_within_a_transformation_has_the_plain_form() -> None:
    model = sardonyx.load(network(), backend="jax")
    x = jnp.asarray(drawn(2, 16, 12, 12))
    assert_close(jax.jit(model)(x), np.asarray(model(x)))
    slope = jax.grad(lambda x: jnp.sum(model(x)))(x)
    assert slope.shape == x.shape
    batches = jax.vmap(model)(jnp.stack([x, 2 * x]))
    assert_close(batches[0], np.asarray(model(x)))
