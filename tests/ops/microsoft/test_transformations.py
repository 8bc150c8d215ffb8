"""Operators of onnxruntime under JAX: gradients, batches, padded sizes, exports and donation."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.ops import OPS
from tests.ops.microsoft.small_node import MICROSOFT, Small
from tests.ops.microsoft.small_nodes import ABSENT, BY_NAME, NODES
from tests.support.poisoned_padding import PoisonedJax

# Why an operator has no gradient to compare.
WITHOUT = {
    "numbers are integers, booleans or texts": """
        BifurcationDetector DequantizeLinear DequantizeWithOrder IsAllFinite MatMulInteger16
        MatMulIntegerToFloat MulInteger MurmurHash3 NGramHashMapping NhwcMaxPool QGemm QLinearAdd
        QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu
        QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere QOrderedGelu
        QOrderedLayerNormalization QOrderedMatMul QAttention QEmbedLayerNormalization Range
        ReduceSumInteger Tokenizer VarlenNGramHashMapping""",
    "the result goes in steps": """
        DynamicQuantizeLSTM DynamicQuantizeMatMul DynamicTimeWarping QuantizeLinear
        QuantizeWithOrder""",
    "the result's shape depends on data": "RemovePadding Unique",
    "onnxruntime's schema has only floats of 16 bits": """
        MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight PagedAttention
        GemmaRotaryEmbedding""",
    "the result is drawn": "BitmaskBiasDropout BitmaskDropout BiasDropout",
    **ABSENT,
    "it rounds in float8": "GemmFloat8",
}
# These compute in float32, whatever their inputs are, so that a difference needs a longer step.
IN_FLOAT32 = {
    *(
        "DecoderMaskedSelfAttention",
        "GatedDeltaNet",
        "MatMulFpQ4",
        "MatMulNBitsMlp",
        "MatMulNBitsQkv",
        "MoE",
        "QMoE",
    ),
    "SkipSimplifiedLayerNormalization",
}
UNCOMPARED = {name for names in WITHOUT.values() for name in names.split()}
DIFFERENTIABLE = [each for each in NODES if each.op not in UNCOMPARED]


def test_every_operator_is_here_or_has_no_gradient() -> None:
    names = {name for domain, name in OPS if domain in (MICROSOFT, f"{MICROSOFT}.nchwc")}
    assert {each.op for each in DIFFERENTIABLE} | UNCOMPARED == names
    absent = {name for several in ABSENT.values() for name in several.split()}
    assert BY_NAME.keys() == names - absent


def name_of(each: Small) -> str:
    return each.op


def total(results: Any) -> Any:
    """A number that depends on each float among the results."""
    summed = 0.0
    for result in results:
        if jax.numpy.issubdtype(result.dtype, jax.numpy.floating):
            factors = np.cos(np.arange(result.size) + 1.0).reshape(result.shape)
            summed = summed + (result * factors.astype(result.dtype)).sum()
    return summed


def widened(array: Any) -> Any:
    array = np.asarray(array)
    return array.astype(np.float64) if array.dtype == np.float32 else array


def wide(each: Small) -> Small:
    """The node with all floats in float64, for NumPy."""
    inputs = [None if v is None else widened(v) for v in each.inputs]
    return Small(each.op, inputs, each.attributes, each.outputs, each.domain, each.weights)


def function_of(each: Small) -> Any:
    fn, params = sardonyx.to_jax(each.model())

    def call(feeds: Any) -> Any:
        found = fn(params, **feeds)
        return [found] if each.outputs == 1 else list(found)

    return call


@pytest.mark.sampled(24)
@pytest.mark.parametrize("each", DIFFERENTIABLE, ids=name_of)
def test_gradient(each: Small) -> None:
    fixed = {n: v for n, v in each.feeds.items() if v.dtype != np.float32}
    points = {n: v for n, v in each.feeds.items() if v.dtype == np.float32}
    call = function_of(each)
    slopes = jax.jit(jax.grad(lambda at: total(call({**fixed, **at}))))(points)
    is_wide = each.op not in IN_FLOAT32
    as_oracle = wide if is_wide else (lambda one: one)
    oracle = sardonyx.load(as_oracle(each).model(), backend="numpy", strict=False)
    step, tolerance = (1e-5, 2e-3) if is_wide else (2.0**-9, 3e-2)
    for name, slope in slopes.items():
        assert np.isfinite(slope).all()
        direction = np.sin(np.arange(slope.size) * 2.0 + 1.0).reshape(slope.shape)
        ends = []
        for sign in (1, -1):
            moved = {n: widened(v) if is_wide else v for n, v in points.items()}
            moved[name] = (moved[name] + sign * step * direction).astype(moved[name].dtype)
            ends.append(float(total(oracle.run(None, {**fixed, **moved}))))
        along = float((np.asarray(slope, np.float64) * direction).sum())
        numeric = (ends[0] - ends[1]) / (2 * step)
        size = float(np.abs(slope * direction).sum())
        assert abs(along - numeric) <= tolerance * max(size, 0.1), name


@pytest.mark.sampled(48)
@pytest.mark.parametrize("each", DIFFERENTIABLE, ids=name_of)
def test_vmap(each: Small) -> None:
    """A batch of calls is what the calls are one by one."""
    call = function_of(each)
    fixed = {n: v for n, v in each.feeds.items() if v.dtype != np.float32}
    points = {n: v for n, v in each.feeds.items() if v.dtype == np.float32}
    scaled = [{n: v * factor for n, v in points.items()} for factor in (1, 0.5, -0.75)]
    stacked = {n: np.stack([one[n] for one in scaled]) for n in points}
    together = jax.vmap(lambda at: call({**fixed, **at}))(stacked)
    for i, one in enumerate(scaled):
        for found, expected in zip(together, call({**fixed, **one}), strict=True):
            close(found[i], expected)


def close(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind in "biu":
        # A value halfway between two integers may be rounded to either.
        units = int(expected.dtype.itemsize == 1)
        np.testing.assert_allclose(found.astype(int), expected.astype(int), rtol=0, atol=units)
        return
    size = max(float(np.abs(expected).max(initial=0.0)), 1.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * size)


# -- sizes that change ----------------------------------------------------------------------------

# The axes of each input that may have any size, by the name of the size.
FREE: dict[str, dict[int, dict[int, str]]] = {
    "Attention": {0: {0: "batch", 1: "length"}},
    "BiasGelu": {0: {0: "batch"}},
    "BiasSoftmax": {0: {0: "batch", 1: "length"}, 1: {1: "length"}},
    "BiasSplitGelu": {0: {0: "batch", 1: "length"}},
    "BranchwiseRMSNorm": {0: {0: "batch", 1: "length"}},
    "CausalConvWithState": {0: {0: "batch", 2: "length"}},
    "DynamicQuantizeMatMul": {0: {0: "batch"}},
    "EmbedLayerNormalization": {i: {0: "batch", 1: "length"} for i in (0, 1, 7)},
    "FastGelu": {0: {0: "batch"}},
    "FusedConv": {0: {0: "batch", 2: "length"}},
    "FusedGemm": {0: {0: "batch"}},
    "FusedMatMul": {0: {0: "batch", 1: "length"}},
    "GatedRMSNorm": {0: {0: "batch", 1: "length"}, 2: {0: "batch", 1: "length"}},
    "GatherBlockQuantized": {1: {0: "batch"}},
    "Gelu": {0: {0: "batch"}},
    "GemmFastGelu": {0: {0: "batch", 1: "length"}},
    "GroupNorm": {0: {0: "batch", 1: "length"}},
    "GroupQueryAttention": {i: {0: "batch"} for i in (0, 1, 2, 5)},
    "LinearAttention": {i: {0: "batch", 1: "length"} for i in (0, 1, 2)},
    "MatMulIntegerToFloat": {0: {0: "batch"}},
    "MatMulNBits": {0: {0: "batch"}},
    "MoE": {0: {0: "batch"}, 1: {0: "batch"}},
    "MultiHeadAttention": {
        **{i: {0: "batch", 1: "length"} for i in (0, 1, 2)},
        **{i: {0: "batch", 2: "past"} for i in (6, 7)},
    },
    "NhwcConv": {0: {0: "batch", 1: "length"}},
    "QAttention": {0: {0: "batch", 1: "length"}},
    "QGemm": {0: {0: "batch"}},
    "QLinearAdd": {0: {0: "batch"}, 3: {0: "batch"}},
    "QLinearConv": {0: {0: "batch", 2: "length"}},
    "QLinearGlobalAveragePool": {0: {0: "batch", 2: "length"}},
    "QLinearSigmoid": {0: {0: "batch"}},
    "QLinearSoftmax": {0: {0: "batch", 1: "length"}},
    "QMoE": {0: {0: "batch"}, 1: {0: "batch"}},
    "QuantizeLinear": {0: {0: "batch", 1: "length"}},
    "QuickGelu": {0: {0: "batch"}},
    "RotaryEmbedding": {i: {0: "batch", 1: "length"} for i in (0, 1)},
    "SkipGroupNorm": {i: {0: "batch", 1: "length"} for i in (0, 3)},
    "SkipLayerNormalization": {0: {0: "batch", 1: "length"}, 1: {0: "length"}},
    "SkipSimplifiedLayerNormalization": {0: {0: "batch", 1: "length"}, 1: {0: "length"}},
    "UnfoldTensor": {0: {0: "batch", 1: "length"}},
    "WordConvEmbedding": {0: {0: "batch", 1: "length"}},
}
SIZES = ({"batch": 3, "length": 5, "past": 3}, {"batch": 2, "length": 6, "past": 7})


def of_sizes(op: str, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Inputs of these sizes: parts of the small ones, or repetitions of them."""
    feeds = dict(BY_NAME[op].feeds)
    if op == "GroupQueryAttention":
        feeds["x5"] = np.full(2, 3, np.int32)
    for index, axes in FREE[op].items():
        for axis, name in axes.items():
            array = feeds[f"x{index}"]
            places = np.arange(sizes[name]) % array.shape[axis]
            feeds[f"x{index}"] = np.take(array, places, axis)
    return feeds


def free_model(op: str) -> onnx.ModelProto:
    each = BY_NAME[op]
    if op == "GroupQueryAttention":
        each = Small(op, each.inputs, each.attributes, each.outputs, weights=frozenset({6}))
    shapes = {
        f"x{i}": [axes.get(axis, size) for axis, size in enumerate(each.feeds[f"x{i}"].shape)]
        for i, axes in FREE[op].items()
    }
    fixed = {name: v.shape for name, v in each.feeds.items() if name not in shapes}
    return each.model(None, **fixed, **shapes)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("op", FREE)
def test_padding_changes_no_result(op: str) -> None:
    """What fills a padded batch is NaN and the largest integers; a result with them shows it."""
    buckets = {"batch": [4], "length": [8], "past": [8]}
    proto = free_model(op)
    names = {name for axes in FREE[op].values() for name in axes.values()}
    padded = sardonyx.load(
        proto,
        backend=PoisonedJax(),
        buckets={name: buckets[name] for name in names},
        compile="now",
    )
    plain = sardonyx.load(proto, backend="numpy")
    for sizes in SIZES:
        feeds = of_sizes(op, sizes)
        for found, expected in zip(padded.run(None, feeds), plain.run(None, feeds), strict=True):
            close(found, expected)
    assert padded.stats().compiles == 1


# To find all sizes that a scan serves takes half a minute.
EXPORTED = sorted(FREE.keys() - {"LinearAttention"})


@pytest.mark.sampled(24)
@pytest.mark.parametrize("op", [*EXPORTED, pytest.param("LinearAttention", marks=pytest.mark.slow)])
def test_one_export_serves_all_sizes(op: str) -> None:
    proto = free_model(op)
    exported = sardonyx.load(sardonyx.export(proto).to_bytes())
    plain = sardonyx.load(proto, backend="numpy")
    for sizes in SIZES:
        feeds = of_sizes(op, sizes)
        for found, expected in zip(exported.run(None, feeds), plain.run(None, feeds), strict=True):
            close(found, expected)


def test_a_donated_cache_gives_its_buffer() -> None:
    op = "DecoderMaskedSelfAttention"
    loaded = sardonyx.load(BY_NAME[op].model(), backend="jax")
    feeds = BY_NAME[op].feeds
    expected = loaded.run(None, feeds)
    donated = {n: jax.numpy.array(v) for n, v in feeds.items()}
    results = loaded.bind(donate=["x4"])(**donated)
    assert donated["x4"].is_deleted()
    for found, wanted in zip(results, expected, strict=True):
        close(found, wanted)
