from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops.attention import Attention, FlexAttention, RotaryEmbedding
from tests.ops.oracle import assert_same, onnxruntime_run, run

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NARROW = pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
WITH_NARROW = pytest.mark.parametrize(
    "backend", [HOST, JaxBackend()], ids=lambda backend: backend.name
)


def drawn(*shape: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def attended(
    xp: Backend, inputs: dict[str, Any], opset: int = 99, **attributes: Any
) -> tuple[np.ndarray, ...]:
    """All four results of Attention, with inputs by their names."""
    names = [parameter.name for parameter in Attention.at(opset).inputs]
    given = [inputs.get(name) for name in names]
    result: tuple[np.ndarray, ...] = run(xp, Attention, *given, opset=opset, **attributes)
    return result


def expected(
    inputs: dict[str, Any],
    *,
    is_causal: int = 0,
    left_window_size: int = -1,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
) -> list[np.ndarray]:
    """Y and the four kinds of scores, query by query in float64, from inputs of four axes."""
    q, k, v = (inputs[name].astype(np.float64) for name in "QKV")
    past = 0
    if "past_key" in inputs:
        past = inputs["past_key"].shape[2]
        k = np.concatenate([inputs["past_key"], k], axis=2)
        v = np.concatenate([inputs["past_value"], v], axis=2)
    shape = (*q.shape[:3], k.shape[2])
    nonpad = inputs.get("nonpad_kv_seqlen")
    mask = np.zeros(shape)
    if "attn_mask" in inputs:
        given = inputs["attn_mask"]
        bias = np.where(given, 0.0, -np.inf) if given.dtype == bool else given.astype(np.float64)
        missing = shape[3] - bias.shape[-1]
        filling = np.full((*bias.shape[:-1], missing), -np.inf)
        mask = mask + np.concatenate([bias, filling], axis=-1)
    results = [np.zeros((*shape[:3], v.shape[3])), *(np.zeros(shape) for _ in range(4))]
    for b, h, i in np.ndindex(*shape[:3]):
        shared = h * k.shape[1] // shape[1]
        raw = k[b, shared] @ q[b, h, i] * (q.shape[3] ** -0.5 if scale is None else scale)
        capped = softcap * np.tanh(raw / softcap) if softcap else raw
        biased = capped + mask[b, h, i]
        position = i + (past if nonpad is None else nonpad[b] - shape[2])
        for j in range(shape[3]):
            hidden = nonpad is not None and j >= nonpad[b]
            hidden |= bool(is_causal) and j > position
            hidden |= left_window_size >= 0 and j < position - left_window_size
            hidden |= right_window_size >= 0 and j > position + right_window_size
            if hidden:
                biased[j] = -np.inf
        weights = np.zeros(shape[3])
        if biased.max() > -np.inf:
            weights = np.exp(biased - biased.max())
            weights /= weights.sum()
        for result, found in zip(
            results, [weights @ v[b, shared], raw, capped, biased, weights], strict=True
        ):
            result[b, h, i] = found
    return results


def packed(x: np.ndarray) -> np.ndarray:
    """(batch, heads, sequence, size) as three axes."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


PLAIN = {"Q": drawn(2, 4, 3, 5), "K": drawn(2, 2, 6, 5), "V": drawn(2, 2, 6, 7)}
PAST = {"past_key": drawn(2, 2, 4, 5, seed=1), "past_value": drawn(2, 2, 4, 7, seed=1)}
FLAGS = np.random.default_rng(0).random((2, 4, 3, 10)) < 0.5
FLAGS[1, :, 1] = False
SHIFTS = np.where(FLAGS, drawn(2, 4, 3, 10), -np.inf)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": (PLAIN, {"scale": 0.3}),
    "negative scale": (PLAIN, {"scale": -0.3}),
    "past": (PLAIN | PAST, {"is_causal": 1, "softcap": 0.7}),
    "flags": (PLAIN | PAST | {"attn_mask": FLAGS}, {}),
    "flags, causal": (PLAIN | PAST | {"attn_mask": FLAGS}, {"is_causal": 1, "softcap": 2.0}),
    "one row of flags, causal": (PLAIN | PAST | {"attn_mask": FLAGS[0, 0, :1]}, {"is_causal": 1}),
    "shifts": (PLAIN | PAST | {"attn_mask": SHIFTS[1:]}, {"softcap": 0.5}),
    "shifts by head": (PLAIN | PAST | {"attn_mask": SHIFTS[0]}, {"is_causal": 1}),
    "numbers": (PLAIN | {"attn_mask": np.arange(6, dtype=np.int32)}, {}),
    "short mask": (PLAIN | {"attn_mask": FLAGS[..., :4]}, {}),
    "short shifts": (PLAIN | {"attn_mask": SHIFTS[0, 0, :, :1]}, {"is_causal": 1}),
    "padded": (PLAIN | {"nonpad_kv_seqlen": np.asarray([6, 2])}, {}),
    "padded, causal": (PLAIN | {"nonpad_kv_seqlen": np.asarray([4, 1])}, {"is_causal": 1}),
    "nothing there": (PLAIN | {"nonpad_kv_seqlen": np.asarray([0, 6])}, {"is_causal": 1}),
    "window": (PLAIN | PAST, {"left_window_size": 2, "right_window_size": 1}),
    "window, causal": (PLAIN, {"left_window_size": 0, "right_window_size": 5, "is_causal": 1}),
    "window, padded": (
        PLAIN | {"nonpad_kv_seqlen": np.asarray([4, 2]), "attn_mask": SHIFTS[0, 0, :, :6]},
        {"left_window_size": 1},
    ),
    "boundless window": (PLAIN, {"left_window_size": 2**63 - 1, "right_window_size": 2**63 - 1}),
}


@pytest.mark.parametrize(("inputs", "attributes"), CASES.values(), ids=CASES)
@pytest.mark.sampled(3)
def test_each_query_looks_at_the_keys_it_may_see(
    xp: Backend, inputs: dict[str, Any], attributes: dict[str, Any]
) -> None:
    y, _, _, biased, weights = expected(inputs, **attributes)
    found, key, value, score = attended(xp, inputs, qk_matmul_output_mode=2, **attributes)
    assert_same(found, y, ulps=64)
    assert_same(score, biased, ulps=64)
    assert key.shape == (2, 2, biased.shape[3], 5)
    assert value.shape == (2, 2, biased.shape[3], 7)
    flat = inputs | {name: packed(inputs[name]) for name in "QKV"}
    options = attributes | {"q_num_heads": 4, "kv_num_heads": 2, "qk_matmul_output_mode": 3}
    found, _, _, score = attended(xp, flat, **options)
    assert_same(found, packed(y), ulps=64)
    assert_same(score, weights, ulps=64)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_the_scores_are_shown_at_each_stage(xp: Backend, mode: int) -> None:
    inputs, attributes = CASES["flags, causal"]
    _, *stages = expected(inputs, **attributes)
    *_, score = attended(xp, inputs, qk_matmul_output_mode=mode, **attributes)
    assert_same(score, stages[mode], ulps=64)


def test_before_opset_24_a_mask_of_one_key_is_that_of_all(xp: Backend) -> None:
    shifts = PLAIN | {"attn_mask": drawn(3, 1)}
    y, *_ = expected(PLAIN | {"attn_mask": np.broadcast_to(drawn(3, 1), (3, 6))}, is_causal=1)
    assert_same(attended(xp, shifts, opset=23, is_causal=1)[0], y, ulps=64)
    y, *_ = expected(shifts, is_causal=1)
    assert_same(attended(xp, shifts, opset=24, is_causal=1)[0], y, ulps=64)
    with pytest.raises(ValueError, match="does not fit 6 keys"):
        attended(xp, PLAIN | {"attn_mask": drawn(3, 4)}, opset=23)


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("is_causal", [0, 1])
def test_attention_is_that_of_onnxruntime(xp: Backend, opset: int, is_causal: int) -> None:
    inputs = {name: value.astype(np.float32) for name, value in (PLAIN | PAST).items()}
    inputs["attn_mask"] = FLAGS
    options: dict[str, Any] = {"is_causal": is_causal, "softcap": 1.5, "qk_matmul_output_mode": 1}
    ordered = [inputs[name] for name in (*"QKV", "attn_mask", "past_key", "past_value")]
    wanted = onnxruntime_run("Attention", *ordered, opset=opset, outputs=4, **options)
    for one, other in zip(attended(xp, inputs, opset, **options), wanted, strict=True):
        assert_same(one, other, ulps=64)


def test_what_is_masked_does_not_come_back(xp: Backend) -> None:
    poisoned = {name: x.copy() for name, x in PLAIN.items()}
    poisoned["K"][:, :, 4:] = np.nan
    poisoned["K"][:, :, 3] = np.inf
    seen = {name: poisoned[name][:, :, :3] for name in "KV"} | {"Q": PLAIN["Q"]}
    y, *_ = expected(seen)
    for mask in (np.arange(6) < 3, np.where(np.arange(6) < 3, 0.0, -np.inf)):
        assert_same(attended(xp, poisoned | {"attn_mask": mask})[0], y, ulps=64)


def test_no_keys_at_all_give_zeros(xp: Backend) -> None:
    none = PLAIN | {name: PLAIN[name][:, :, :0] for name in "KV"}
    y, *_, scores = attended(xp, none, is_causal=1)
    assert_same(y, np.zeros((2, 4, 3, 7)))
    assert scores.shape == (2, 4, 3, 0)


@WITH_NARROW
@NARROW
@pytest.mark.parametrize("keys", [4, 700])
@pytest.mark.sampled(2)
def test_narrow_floats_lose_little(backend: Backend, dtype: Any, keys: int) -> None:
    inputs = {
        "Q": drawn(1, 2, 5, 8, dtype=dtype),
        "K": drawn(1, 1, keys, 8, dtype=dtype),
        "V": drawn(1, 1, keys, 3, dtype=dtype) + np.asarray(2, dtype=dtype),
    }
    y, *_, weights = expected(inputs, is_causal=0)
    eps = float(ml_dtypes.finfo(dtype).eps)
    for precision in (None, np.dtype(np.float32), np.dtype(np.float64), dtype):
        options = {"softmax_precision": precision, "qk_matmul_output_mode": 3}
        found, *_, score = attended(backend, inputs, **options)
        assert found.dtype == score.dtype == dtype
        np.testing.assert_allclose(score.astype(float), weights, rtol=16 * eps, atol=eps / 16)
        np.testing.assert_allclose(found.astype(float), y, rtol=4 * eps)


@WITH_NARROW
def test_values_may_have_a_type_of_their_own(backend: Backend) -> None:
    y, *_ = expected(PLAIN)
    for dtype in (np.float16, BFLOAT16, np.float32):
        inputs = {name: PLAIN[name].astype(dtype) for name in "QK"} | {"V": PLAIN["V"]}
        found, _, value, _ = attended(backend, inputs)
        assert (found.dtype, value.dtype) == (dtype, np.float64)
        np.testing.assert_allclose(found.astype(float), y, rtol=0.1, atol=0.02)


# -- with functions of the scores and of the weights ----------------------------------------------


def flexed(
    score_mod: Callable[[Any], Any] | None, prob_mod: Callable[[Any], Any] | None
) -> tuple[np.ndarray, np.ndarray]:
    q, k, v = (PLAIN[name] for name in "QKV")
    k, v = np.repeat(k, 2, axis=1), np.repeat(v, 2, axis=1)
    scores = q @ k.swapaxes(2, 3) * 0.25
    scores = score_mod(scores) if score_mod else scores
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    weights = prob_mod(weights) if prob_mod else weights
    return weights @ v, weights


@pytest.mark.parametrize("score_mod", [None, lambda x: x * x - 1.0])
@pytest.mark.parametrize("prob_mod", [None, lambda x: x * 0.5])
def test_FlexAttention(xp: Backend, score_mod: Any, prob_mod: Any) -> None:
    wanted, _ = flexed(score_mod, prob_mod)
    bodies = {
        name: function and (lambda x, function=function: (function(x),))
        for name, function in (("score_mod", score_mod), ("prob_mod", prob_mod))
    }
    found = run(xp, FlexAttention, *(PLAIN[name] for name in "QKV"), scale=0.25, **bodies)
    assert_same(found, wanted, ulps=64)


@WITH_NARROW
@NARROW
def test_FlexAttention_hands_floats_of_32_bits_to_its_functions(
    backend: Backend, dtype: Any
) -> None:
    seen = []

    def watched(x: Any) -> tuple[Any]:
        seen.append(np.dtype(x.dtype))
        return (x,)

    inputs = [PLAIN[name].astype(dtype) for name in "QKV"]
    found = run(backend, FlexAttention, *inputs, scale=0.25, score_mod=watched, prob_mod=watched)
    assert set(seen) == {np.dtype(np.float32)}
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(float), flexed(None, None)[0], rtol=0.1, atol=0.03)
    seen.clear()
    narrow: dict[str, Any] = {"score_mod": watched, "softmax_precision": dtype}
    run(backend, FlexAttention, *(PLAIN[name] for name in "QKV"), **narrow)
    assert set(seen) == {dtype}


# -- rotary embedding -----------------------------------------------------------------------------


def rotated(x: np.ndarray, angles: np.ndarray, *, interleaved: int) -> np.ndarray:
    """As multiplication of complex numbers; `x` has (batch, heads, sequence, size)."""
    half = angles.shape[-1]
    first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (
        slice(0, half), slice(half, 2 * half)
    )  # fmt: skip
    turned = (x[..., first] + 1j * x[..., second]) * np.exp(1j * angles)[:, None]
    y = x.copy()
    y[..., first], y[..., second] = turned.real, turned.imag
    return y


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("part", [0, 4])
@pytest.mark.parametrize("by_id", [True, False])
def test_RotaryEmbedding_turns_pairs(xp: Backend, interleaved: int, part: int, by_id: bool) -> None:
    x, table = drawn(2, 3, 4, 8), drawn(10, (part or 8) // 2)
    ids = np.asarray([[0, 1, 2, 3], [9, 9, 0, 5]])
    inputs = [np.cos(table), np.sin(table), ids]
    if not by_id:
        inputs = [np.cos(table[ids]), np.sin(table[ids])]
    options = {"interleaved": interleaved, "rotary_embedding_dim": part}
    wanted = rotated(x, table[ids], interleaved=interleaved)
    assert_same(run(xp, RotaryEmbedding, x, *inputs, **options), wanted, ulps=8)
    found = run(xp, RotaryEmbedding, packed(x), *inputs, num_heads=3, **options)
    assert_same(found, packed(wanted), ulps=8)


@WITH_NARROW
@NARROW
def test_narrow_floats_are_turned_in_float32(backend: Backend, dtype: Any) -> None:
    x, angles = drawn(1, 2, 30, 8, dtype=dtype), drawn(1, 30, 4)
    cos, sin = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
    wide = [value.astype(np.float64) for value in (x, cos, sin)]
    wanted = run(HOST, RotaryEmbedding, *wide).astype(dtype)
    assert_same(run(backend, RotaryEmbedding, x, cos, sin), wanted, ulps=1)


X, CACHE = drawn(2, 4, 3, 6), drawn(2, 3, 3)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ([X, CACHE, CACHE], {"rotary_embedding_dim": 5}, "cannot be rotated in pairs"),
        ([X, CACHE, CACHE], {"rotary_embedding_dim": 8}, "cannot be rotated in pairs"),
        ([X, CACHE, CACHE], {"rotary_embedding_dim": -2}, "cannot be rotated in pairs"),
        ([X, CACHE, CACHE], {"rotary_embedding_dim": 4}, "does not fit angles"),
        ([X[0], CACHE, CACHE], {}, "need the attribute num_heads"),
        ([X[0], CACHE, CACHE], {"num_heads": 0}, "does not divide"),
        ([X[0], CACHE, CACHE], {"num_heads": 4}, "does not divide"),
        ([X[0, 0], CACHE, CACHE], {"num_heads": 2}, "has 2 axes"),
        ([X, CACHE[0], CACHE[0]], {}, "does not fit angles"),
        ([X, CACHE[0], CACHE[0], np.zeros((2, 4), dtype=np.int64)], {}, "do not fit"),
    ],
)
def test_RotaryEmbedding_refuses(xp: Backend, inputs: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(xp, RotaryEmbedding, *inputs, **attributes)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ({"V": drawn(2, 2, 5, 7)}, {}, "do not fit"),
        ({"K": drawn(2, 2, 6, 4)}, {}, "queries have size 5, but keys 4"),
        ({"K": drawn(2, 3, 6, 5), "V": drawn(2, 3, 6, 7)}, {}, "cannot share 3"),
        ({"K": drawn(2, 0, 6, 5), "V": drawn(2, 0, 6, 7)}, {}, "cannot share 0"),
        ({"Q": drawn(2, 3, 20)}, {}, "need the attribute q_num_heads"),
        ({"Q": drawn(2, 3, 20)}, {"q_num_heads": 3}, "does not divide"),
        ({"Q": drawn(2, 3, 20)}, {"q_num_heads": 0}, "does not divide"),
        ({"Q": drawn(2, 3)}, {}, "has 2 axes"),
        ({}, {"q_num_heads": 3}, "has 4 heads"),
        ({"past_key": PAST["past_key"]}, {}, "one of them is missing"),
        (PAST | {"past_key": drawn(2, 2, 4, 6)}, {}, "does not go on"),
        (PAST | {"nonpad_kv_seqlen": np.asarray([1, 2])}, {}, "cannot be used together"),
        ({"nonpad_kv_seqlen": np.asarray([1])}, {}, "nonpad_kv_seqlen has shape"),
        ({"attn_mask": drawn(3, 7)}, {}, "attn_mask of shape"),
        ({"attn_mask": drawn(2, 6)}, {}, "attn_mask of shape"),
        ({"attn_mask": drawn(1, 2, 4, 3, 6)}, {}, "attn_mask of shape"),
        ({}, {"qk_matmul_output_mode": 4}, "not 0, 1, 2 or 3"),
        ({}, {"softcap": -1.0}, "softcap is -1.0"),
        ({}, {"left_window_size": -2}, "must be -1 or more"),
        ({}, {"right_window_size": -3, "is_causal": 1}, "must be -1 or more"),
        ({}, {"softmax_precision": np.dtype(np.int32)}, "must be a float"),
    ],
)
def test_Attention_refuses(xp: Backend, inputs: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attended(xp, PLAIN | inputs, **attributes)


def test_FlexAttention_refuses(xp: Backend) -> None:
    inputs = [PLAIN[name] for name in "QKV"]
    with pytest.raises(ValueError, match="but need four"):
        run(xp, FlexAttention, inputs[0][0], *inputs[1:])
    with pytest.raises(ValueError, match="score_mod makes"):
        run(xp, FlexAttention, *inputs, score_mod=lambda x: (x[..., :1],))
