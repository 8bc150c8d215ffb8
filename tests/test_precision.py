"""How exactly float32 is multiplied, where a model is loaded with a precision."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.errors import InvalidInput
from tests.support.onnx_builders import BOOL, INT64, graph, model, node, value, weight

pytestmark = pytest.mark.sampled(3)

RNG = np.random.default_rng(0)
PRODUCT = model([node("MatMul", ["a", "b"], ["y"])], ["a", "b"], ["y"])
WINDOWS = model([node("Conv", ["a", "b"], ["y"])], [value("a"), value("b")], ["y"])
CASES = [
    (PRODUCT, (16, 64), (64, 8)),
    (PRODUCT, (3, 16, 64), (3, 64, 8)),
    (WINDOWS, (1, 4, 9, 9), (8, 4, 3, 3)),
]
IDS = ["matrices", "batches", "convolution"]


def operands(shape: tuple[int, ...], other: tuple[int, ...]) -> list[Any]:
    return [RNG.normal(size=each).astype(np.float32) for each in (shape, other)]


def rounded(array: Any) -> Any:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize(("proto", "a", "b"), CASES, ids=IDS)
def test_factors_are_rounded_to_bfloat16_and_sums_are_not(proto: Any, a: Any, b: Any) -> None:
    x, w = operands(a, b)
    exact = sardonyx.load(proto, backend="numpy")
    found = sardonyx.load(proto, backend="jax", precision="bfloat16")(x, w)
    np.testing.assert_allclose(found, exact(rounded(x), rounded(w)), rtol=1e-5, atol=1e-5)
    assert np.abs(found - exact(x, w)).max() > 1e-3


@pytest.mark.parametrize(("proto", "a", "b"), CASES[::2], ids=IDS[::2])
def test_weights_are_rounded_like_inputs(proto: Any, a: Any, b: Any) -> None:
    x, w = operands(a, b)
    bound = onnx.ModelProto.FromString(proto.SerializeToString())
    bound.graph.initializer.append(weight("b", w))
    found = sardonyx.load(bound, backend="jax", precision="bfloat16")(x)
    expected = sardonyx.load(proto, backend="jax", precision="bfloat16")(x, w)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["highest", "tensorfloat32", "default"])
@pytest.mark.parametrize(("proto", "a", "b"), CASES, ids=IDS)
def test_float32_is_exact_on_the_cpu(proto: Any, a: Any, b: Any, precision: str) -> None:
    x, w = operands(a, b)
    found = sardonyx.load(proto, backend="jax", device="cpu", precision=precision)(x, w)
    expected = sardonyx.load(proto, backend="numpy")(x, w)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("proto", "a", "b"), CASES, ids=IDS)
@pytest.mark.sampled(3)
def test_derivatives_go_through(proto: Any, a: Any, b: Any) -> None:
    loaded = sardonyx.load(proto, backend="jax", precision="bfloat16")
    x, w = map(jnp.asarray, operands(a, b))
    slopes = jax.grad(lambda x, w: (loaded(x, w) ** 2).sum(), argnums=(0, 1))(x, w)
    assert all(slope.dtype == jnp.float32 and jnp.isfinite(slope).all() for slope in slopes)


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_other_types_are_left_alone(dtype: Any) -> None:
    kind = {np.float64: 11, np.int32: 6}[dtype]
    proto = model(
        [node("MatMul", ["a", "b"], ["y"])],
        [value("a", None, kind), value("b", None, kind)],
        [value("y", None, kind)],
    )
    x, w = (np.arange(6, dtype=dtype).reshape(s) + 0.123456789 for s in ((2, 3), (3, 2)))
    x, w = x.astype(dtype), w.astype(dtype)
    found = sardonyx.load(proto, backend="jax", precision="bfloat16")(x, w)
    np.testing.assert_allclose(found, x @ w, rtol=1e-12)


def test_a_precision_that_is_none() -> None:
    with pytest.raises(InvalidInput, match="no precision 'low'"):
        sardonyx.load(PRODUCT, precision="low")


ENTRIES: dict[str, Any] = {
    "load": sardonyx.load,
    "to_jax": sardonyx.to_jax,
    "shard": lambda proto, **options: sardonyx.shard(
        proto, jax.make_mesh((1,), ("data",)), **options
    ),
    "export": lambda proto, **options: sardonyx.export(
        proto, {"a": (2, 3), "b": (3, 2)}, ("cpu",), **options
    ),
    "record": lambda proto, **options: sardonyx.record(
        lambda a: a @ a, {"a": ("float32", [2, 2])}, **options
    ),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_takes_the_same_words(entry: str) -> None:
    proto = model(
        [node("MatMul", ["a", "b"], ["y"])],
        [value("a", shape=[2, 3]), value("b", shape=[3, 2])],
        [value("y", shape=[2, 2])],
    )
    for word in (
        "highest",
        "float32",
        "high",
        "bfloat16_3x",
        "tensorfloat32",
        "default",
        "bfloat16",
    ):
        ENTRIES[entry](proto, precision=word)
    for wrong in ("exact", "", 3, np.float32, "HIGHEST", ["high"]):
        with pytest.raises(InvalidInput, match=r"There is no precision .*: pass one of 'highest'"):
            ENTRIES[entry](proto, precision=wrong)


# -- the programs of other platforms, as JAX lowers them ------------------------------------------

STEP = graph(
    [node("MatMul", ["h", "b"], ["h_after"]), node("Identity", ["go"], ["go_after"])],
    [value("i", [], INT64), value("go", [], BOOL), value("h", [16, 16])],
    [value("go_after", [], BOOL), value("h_after", [16, 16])],
)
# The products of each operator: whatever it has of matrices and windows of float32.
OPERATORS = {
    "MatMul": (node("MatMul", ["a", "b"], ["y"]), [(16, 16), (16, 16)]),
    "MatMul of stacks": (node("MatMul", ["a", "b"], ["y"]), [(3, 16, 16), (3, 16, 16)]),
    "Gemm": (node("Gemm", ["a", "b"], ["y"], transB=1), [(16, 16), (16, 16)]),
    "Einsum": (node("Einsum", ["a", "b"], ["y"], equation="bij,kj->bik"), [(2, 16, 16), (4, 16)]),
    "Conv": (node("Conv", ["a", "b"], ["y"]), [(1, 4, 9, 9), (8, 4, 3, 3)]),
    "ConvTranspose": (node("ConvTranspose", ["a", "b"], ["y"]), [(1, 4, 9, 9), (4, 8, 3, 3)]),
    "Attention": (
        node("Attention", ["a", "b", "b"], ["y"]),
        [(1, 2, 16, 16), (1, 2, 16, 16)],
    ),
    "LSTM": (
        node("LSTM", ["a", "b", "b"], ["y"], hidden_size=16),
        [(5, 2, 16), (1, 64, 16)],
    ),
    "Loop": (node("Loop", ["n", "", "a"], ["y"], body=STEP), [(16, 16), (16, 16)]),
}
LEVELS = {
    "highest": "HIGHEST",
    "float32": "HIGHEST",
    "high": "HIGH",
    "tensorfloat32": {"tpu": "HIGH", "cuda": "DEFAULT"},
    "bfloat16_3x": "HIGH",
    "default": "DEFAULT",
    "bfloat16": "DEFAULT",
}
# A product of the program's text, with its precisions and the types of its factors.
PRODUCTS = re.compile(
    r"stablehlo\.(?:dot_general|convolution)\b.*?\(tensor<(.*?)>, tensor<(.*?)>\)"
)


def lowered(name: str, precision: str | None, platform: str, dtype: Any = np.float32) -> list[str]:
    """The lines of the products in a program for a platform that need not be here."""
    operator, shapes = OPERATORS[name]
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [value(each, shape, kind) for each, shape in zip("ab", shapes, strict=True)]
    count = [weight("n", np.int64(100))] if name == "Loop" else []
    proto = model([operator], inputs, [value("y", None, kind)], count, opset=24)
    fn, params = sardonyx.to_jax(proto, precision=precision)
    specs = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    lowering = jax.jit(fn).trace(params, *specs).lower(lowering_platforms=(platform,))
    return [line for line in lowering.as_text().splitlines() if PRODUCTS.search(line)]


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
@pytest.mark.parametrize("precision", LEVELS)
@pytest.mark.parametrize("name", OPERATORS)
def test_each_product_of_other_platforms_has_the_precision(
    name: str, precision: str, platform: str
) -> None:
    lines = lowered(name, precision, platform)
    assert lines
    level: Any = LEVELS[precision]
    wanted = level if isinstance(level, str) else level[platform]
    for line in lines:
        found = re.findall(r"\b(HIGHEST|HIGH|DEFAULT)\b", line)
        assert found == [wanted] * 2, line


@pytest.mark.parametrize("name", ["MatMul", "Gemm", "Conv", "ConvTranspose", "Attention"])
@pytest.mark.parametrize("precision", ["highest", "default"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["half", "bfloat16"])
def test_narrow_types_are_multiplied_as_they_are(name: str, precision: str, dtype: Any) -> None:
    lines = lowered(name, precision, "tpu", dtype)
    assert lines
    short = {"float16": "f16", "bfloat16": "bf16"}[np.dtype(dtype).name]
    for line in lines:
        match = PRODUCTS.search(line)
        assert match
        assert all(each.endswith(f"x{short}") for each in match.groups()), line


def test_functions_without_a_precision_follow_jax() -> None:
    with jax.default_matmul_precision("high"):
        lines = lowered("MatMul", None, "tpu")
    assert all("HIGH, HIGH" in line for line in lines)
    with jax.default_matmul_precision("high"):
        lines = lowered("MatMul", "default", "tpu")
    assert all("DEFAULT, DEFAULT" in line for line in lines)


def test_words_for_one_level_share_a_cache(tmp_path: Path) -> None:
    files = []
    for word in ("high", "bfloat16_3x", "tensorfloat32", "default"):
        loaded = sardonyx.load(PRODUCT, backend="jax", precision=word, cache=tmp_path)
        loaded.compile({"a": (16, 16), "b": (16, 16)})
        files.append({path.name for path in tmp_path.rglob("*")})
    assert files[0] == files[1]
    assert len(set(map(frozenset, files))) == 3
