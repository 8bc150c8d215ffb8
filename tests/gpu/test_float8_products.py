"""Products of floats of 8 bits by cuBLASLt on CuPy."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from onnx.helper import np_dtype_to_tensor_dtype
from onnx.numpy_helper import from_array

import sardonyx
from tests.gpu.test_cupy_faults import said_by
from tests.gpu.test_library_products import device_counts
from tests.support.onnx_builders import model, node, value

if TYPE_CHECKING:
    from sardonyx.backends.cupy.backend import CupyBackend

pytestmark = pytest.mark.gpu

cupy = pytest.importorskip("cupy", reason="no CuPy; pip install 'sardonyx[cuda]'")

E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
HALF, BFLOAT16, FLOAT32 = np.dtype("float16"), np.dtype(ml_dtypes.bfloat16), np.dtype("float32")
PAIRS = [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)]
# The tensor cores of the H100 add up about 14 bits of each term.
LEAST_EXACT = 2.0**-12


@pytest.fixture
def xp(device: CupyBackend, caplog: pytest.LogCaptureFixture) -> Any:
    from sardonyx.backends.cupy.float8_trial import float8_kinds_of  # noqa: PLC0415

    if not float8_kinds_of(device.device):
        pytest.skip("this GPU does not multiply floats of 8 bits")
    yield device
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING], "something was refused"


def drawn(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def assert_near(found: Any, a: Any, b: Any, more: Any = None) -> None:
    """Compare with float64; the error grows with the size of the terms."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    expected, size = a @ b, np.abs(a) @ np.abs(b)
    expected = expected if more is None else more(expected)
    assert found.shape == expected.shape
    unit = float(ml_dtypes.finfo(found.dtype).eps)
    difference = np.abs(found.astype(np.float64) - expected)
    assert np.all(difference <= LEAST_EXACT * size + 2 * unit * np.abs(expected))


@pytest.mark.parametrize("to", [FLOAT32, HALF, BFLOAT16], ids=str)
@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 4), (4, 5)), ((16, 32), (32, 16)), ((1, 1), (1, 1)), ((2, 3, 17), (17, 33)),
     ((2, 3, 17), (2, 17, 33)), ((2, 1, 3, 16), (5, 16, 16))],
)  # fmt: skip
def test_products(xp: CupyBackend, pair: Any, left: Any, right: Any, to: np.dtype[Any]) -> None:
    a, b = drawn(left, pair[0], 0), drawn(right, pair[1], 1)
    x, columns = xp.put(a), xp.columns_of_float8(xp.put(b))
    scale = xp.put(np.asarray(0.75, np.float32))
    for scales, factor in (((None, None), 1), ((scale, None), 0.75), ((scale, scale), 0.5625)):
        found = xp.float8_matmul(x, columns, *scales, dtype=to)[..., : right[-1]]
        assert found.dtype == to
        assert_near(cupy.asnumpy(found), a.astype("d") * factor, b)


def test_views_at_any_address(xp: CupyBackend) -> None:
    a, b = drawn((33, 64), E4M3, 0), drawn((64, 32), E5M2, 1)
    x = xp.put(np.concatenate([a, a], axis=1))[1:, 3:67][::2]
    left = np.concatenate([a, a], axis=1)[1:, 3:67][::2]
    columns = xp.columns_of_float8(xp.put(b[:, ::-1].copy())[:, ::-1])
    found = xp.float8_matmul(x, columns, None, None, dtype=FLOAT32)
    assert_near(cupy.asnumpy(found), left, b)


def test_what_is_refused_is_a_product_of_float32(
    device: CupyBackend, caplog: pytest.LogCaptureFixture
) -> None:
    from sardonyx.backends.cupy.bits import Bits  # noqa: PLC0415
    from sardonyx.backends.cupy.cublas import CublasError  # noqa: PLC0415
    from sardonyx.backends.cupy.refusals import note  # noqa: PLC0415

    a, b = drawn((7, 16), E5M2, 0), drawn((16, 16), E4M3, 1)
    x, columns = device.put(a), device.columns_of_float8(device.put(b))
    right = Bits(columns.bits.T, E4M3)
    note(CublasError("cublasLtMatmul", 15), x, right, E4M3, HALF, True, False)
    assert "cublasLtMatmul returned NOT_SUPPORTED" in caplog.text
    scale = device.put(np.asarray(3, np.float32))
    with device_counts().counted() as cost:
        found = device.float8_matmul(x, columns, scale, None, dtype=HALF)
    assert found.dtype == HALF
    assert cost.kernels > 0, "the library multiplied what it had refused"
    assert_near(cupy.asnumpy(found), a.astype("d") * 3, b)


# -- models ---------------------------------------------------------------------------------------


def called(proto: Any, backend: CupyBackend, **feeds: Any) -> tuple[Any, Any]:
    """Return the result of a call by a graph, and its cost, if the device counts."""
    loaded = sardonyx.load(proto, backend=backend)
    placed = {name: backend.put(x) for name, x in feeds.items()}
    first, *others = (backend.fetch(loaded(**placed)) for _ in range(4))
    for other in others:
        np.testing.assert_array_equal(first.view(np.uint8), other.view(np.uint8))
    assert not loaded.stats().unfused
    cost = None
    try:
        counts = device_counts()
    except pytest.skip.Exception:
        return first, cost
    with counts.counted() as cost:
        loaded(**placed)
    return first, cost


def number(dtype: Any) -> int:
    return np_dtype_to_tensor_dtype(np.dtype(dtype))


def gemm(a: Any, b: Any, to: Any, *, fixes: bool, inputs: str = "", **attributes: Any) -> Any:
    """A GemmFloat8, whose right side, bias and scales are initializers."""
    known = {"a": np.float32([0.5]), "b": np.float32([2]), "y": np.float32([3])}
    tensors = [from_array(known[name], f"s{name}") for name in "aby" if name in inputs]
    names = ["A", "B", "C" if "c" in inputs else ""]
    names += [f"s{name}" if name in inputs else "" for name in "aby"]
    if "c" in inputs:
        columns = b.shape[0] if attributes.get("transB") else b.shape[1]
        tensors.append(from_array(drawn((columns,), FLOAT32, 5), "C"))
    ends = [value("A", a.shape, number(a.dtype))]
    if fixes:
        tensors.append(from_array(b, "B"))
    else:
        ends.append(value("B", b.shape, number(b.dtype)))
    operator = node(
        "GemmFloat8", names, ["Y"], domain="com.microsoft", dtype=number(to), **attributes
    )
    return model([operator], ends, [value("Y", None, number(to))], tensors, opset=20)


@pytest.mark.parametrize("fixes", [False, True])
@pytest.mark.parametrize("inputs", ["", "ab", "c", "abc", "aby"])
@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 1)])
def test_gemm(xp: CupyBackend, fixes: bool, inputs: str, transposed: tuple[int, int]) -> None:
    a, b = drawn((20, 48), E4M3, 0), drawn((48, 32), E5M2, 1)
    left, right = (x.T.copy() if t else x for x, t in zip((a, b), transposed, strict=True))
    for to in (FLOAT32, HALF, BFLOAT16):
        attributes: dict[str, Any] = {"transA": transposed[0], "transB": transposed[1]}
        if "c" in inputs:
            attributes |= {"beta": 0.5, "activation": "RELU", "alpha": 0.5}
        proto = gemm(left, right, to, fixes=fixes, inputs=inputs, **attributes)
        feeds = {"A": left} if fixes else {"A": left, "B": right}
        found, cost = called(proto, xp, **feeds)
        assert found.dtype == to
        factor = (1 if "b" not in inputs else 3 if "y" in inputs else 1) * attributes.get(
            "alpha", 1
        )
        more = None
        if "c" in inputs:
            bias = 0.5 * drawn((32,), FLOAT32, 5).astype("d")

            def more(y: Any, bias: Any = bias) -> Any:
                return np.maximum(y + bias, 0)

        assert_near(found, a.astype("d") * factor, b, more)
        if cost is not None and fixes and not transposed[0]:
            assert cost.library_calls == 1
            assert cost.kernels == (1 if inputs in {"c", "abc", "aby"} else 0)


def test_two_operands_of_e5m2_stay_products_of_float32(xp: CupyBackend) -> None:
    a, b = drawn((16, 32), E5M2, 0), drawn((32, 16), E5M2, 1)
    found, cost = called(gemm(a, b, FLOAT32, fixes=True), xp, A=a)
    assert_near(found, a, b)
    assert cost is None or (cost.kernels, cost.library_calls) == (2, 1)


def dequantized(a: Any, b: Any, operator: Any, to: Any = FLOAT32) -> Any:
    scales = [from_array(np.asarray(s, to), f"s{name}") for name, s in (("a", 0.25), ("b", 2))]
    zero = from_array(np.zeros((), b.dtype), "z")
    nodes = [
        node("DequantizeLinear", ["A", "sa"], ["x"]),
        node("DequantizeLinear", ["B", "sb", "z"], ["w"]),
        operator,
    ]
    tensors = [*scales, zero, from_array(b, "B"), from_array(drawn((32,), to, 7), "C")]
    ends = [value("A", a.shape, number(a.dtype))], [value("Y", None, number(to))]
    return model(nodes, *ends, tensors, opset=23)


@pytest.mark.parametrize("to", [FLOAT32, HALF], ids=str)
def test_dequantized_factors_are_multiplied_as_float8_if_asked_for(
    xp: CupyBackend, to: np.dtype[Any]
) -> None:
    from sardonyx.backends.cupy.backend import CupyBackend  # noqa: PLC0415

    class Counting(CupyBackend):
        multiplies_dequantized_float8 = True

        def float8_product(self, *arguments: Any, **options: Any) -> Any:
            products.append(arguments)
            return super().float8_product(*arguments, **options)

    products: list[Any] = []
    asked = Counting()
    a, b = drawn((3, 20, 64), E4M3, 0), drawn((64, 32), E4M3, 1)
    bias = drawn((32,), to, 7).astype("d")
    cases = [
        (a, b, node("MatMul", ["x", "w"], ["Y"]), None, True),
        (a[0], b, node("Gemm", ["x", "w", "C"], ["Y"]), lambda y: y + bias, True),
        (
            a[0],
            b.T.copy(),
            node("Gemm", ["x", "w", "C"], ["Y"], transB=1),
            lambda y: y + bias,
            True,
        ),
        # These are computed as without the option.
        (a[0], b, node("Gemm", ["x", "w"], ["Y"], alpha=2.0), lambda y: 2 * y, False),
    ]
    for left, right, operator, more, is_float8 in cases:
        proto = dequantized(left, right, operator, to)
        expected = right.T if "transB" in str(operator) else right
        products.clear()
        found, _ = called(proto, asked, A=left)
        assert found.dtype == to
        assert bool(products) == is_float8
        assert_near(found, left.astype("d") / 2, expected, more)
        plain, _ = called(proto, xp, A=left)
        assert_near(plain, left.astype("d") / 2, expected, more)


OLDER = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=__import__("sys").stdout)
logging.getLogger("sardonyx.cupy").setLevel(logging.INFO)
import numpy as np, sardonyx
from tests.gpu.test_float8_products import E4M3, drawn, gemm, FLOAT32, assert_near
from sardonyx.backends.cupy.backend import CupyBackend
a, b = drawn((16, 32), E4M3, 0), drawn((32, 16), E4M3, 1)
model = sardonyx.load(gemm(a, b, FLOAT32, fixes=True), backend=CupyBackend())
for _ in range(3):
    assert_near(np.asarray(model(a)), a, b)
print("multiplied")
"""


def test_older_devices_multiply_float32() -> None:
    device_counts()
    said = said_by(OLDER, EMULATED_CUDA_CAPABILITY="80")
    assert said[-1] == "multiplied"
    assert any("has no products of floats of 8 bits" in line for line in said)
