"""What XLA's compilers for TPUs and GPUs make of softmax and attention; nothing is run."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.executable import Spec
from sardonyx.backends.jax.accelerators import attention
from sardonyx.targets.jobs import FunctionJob
from sardonyx.targets.names import named
from sardonyx.targets.records import Facts
from sardonyx.targets.worker import Worker
from tests.aot import attention_functions as functions

pytestmark = pytest.mark.aot

F32, F16, BF16 = np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
TARGET = pytest.mark.parametrize("target", ["v5e", "h100"])
# Bytes beside those of a program that users of JAX write by hand.
AT_MOST = 1.1


def compiled(worker: Worker, target: str, function: Any, *specs: Spec) -> Facts:
    record = worker.run(FunctionJob(function, specs, named(target)))
    assert record.is_compiled, record.reason
    (program,) = record.programs
    assert program.facts is not None
    return program.facts


def arrays(dtype: np.dtype[Any], *, of_jax: bool = False) -> list[Spec]:
    return [Spec((8, 512, 12, 64) if of_jax else (8, 12, 512, 64), dtype)] * 3


@TARGET
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(target_worker: Worker, target: str, dtype: Any, name: str) -> None:
    x = Spec((4096, 1024), dtype)
    facts = compiled(target_worker, target, getattr(functions, name), x)
    of_jax = compiled(target_worker, target, getattr(functions, f"{name}_of_jax"), x)
    assert facts.accessed <= AT_MOST * of_jax.accessed
    if target == "h100":
        assert facts.kernels == 1


@TARGET
@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_attention(target_worker: Worker, target: str, dtype: Any) -> None:
    facts = compiled(target_worker, target, functions.attention, *arrays(dtype))
    inputs = arrays(dtype, of_jax=True)
    of_jax = compiled(target_worker, target, functions.attention_of_jax, *inputs)
    assert facts.accessed <= AT_MOST * of_jax.accessed
    if target == "h100":
        assert facts.kernels == 3
    else:
        # The kernel that XLA:TPU writes for a softmax between two products.
        assert facts.custom_calls["tpu_custom_call"] == 1


@TARGET
def test_causal_attention(target_worker: Worker, target: str) -> None:
    facts = compiled(target_worker, target, functions.causal, *arrays(BF16))
    inputs = arrays(BF16, of_jax=True)
    of_jax = compiled(target_worker, target, functions.causal_of_jax, *inputs)
    assert facts.accessed <= AT_MOST * of_jax.accessed
    assert not facts.wide_values


@TARGET
@pytest.mark.parametrize("name", ["biased", "attention_of_exporters"])
def test_attention_with_a_bias(target_worker: Worker, target: str, name: str) -> None:
    bias = Spec((8, 1, 1, 512), BF16)
    facts = compiled(target_worker, target, getattr(functions, name), *arrays(BF16), bias)
    inputs = arrays(BF16, of_jax=True)
    of_jax = compiled(target_worker, target, functions.attention_of_jax, *inputs, bias)
    assert facts.accessed <= AT_MOST * of_jax.accessed


@pytest.mark.parametrize("name", ["biased", "attention_of_exporters"])
def test_a_mask_over_several_blocks_of_the_kernel_keeps_it(
    target_worker: Worker, name: str
) -> None:
    bias, q = Spec((1, 1, 1, 2048), F32), Spec((1, 12, 2048, 64), F32)
    facts = compiled(target_worker, "v5e", getattr(functions, name), q, q, q, bias)
    of_jax = Spec((1, 2048, 12, 64), F32)
    inputs = of_jax, of_jax, of_jax, bias
    by_hand = compiled(target_worker, "v5e", functions.attention_of_jax, *inputs)
    assert facts.custom_calls["tpu_custom_call"] == 1
    assert facts.accessed <= AT_MOST * by_hand.accessed


@TARGET
def test_gradients_compile(target_worker: Worker, target: str) -> None:
    compiled(target_worker, target, functions.gradients, *[Spec((1, 2, 128, 64), BF16)] * 3)


# Of one head in bfloat16; the tests below have eight.
SCORES = 2 * functions.LONG**2


LONG_TYPES = [BF16, *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in (F32, F16))]


@TARGET
@pytest.mark.parametrize("dtype", LONG_TYPES, ids=str)
def test_long_attention_never_holds_all_scores(
    target_worker: Worker, target: str, dtype: Any
) -> None:
    q, k = (Spec((1, heads, functions.LONG, 64), dtype) for heads in (8, 2))
    facts = compiled(target_worker, target, functions.causal, q, k, k)
    assert facts.temporaries < SCORES / 8


@TARGET
@pytest.mark.slow
def test_nor_do_its_gradients(target_worker: Worker, target: str) -> None:
    q, k = (Spec((1, heads, functions.LONG, 64), BF16) for heads in (8, 2))
    facts = compiled(target_worker, target, functions.gradients, q, k, k)
    assert facts.temporaries < SCORES / 8


@TARGET
@pytest.mark.slow
def test_nor_do_the_operators_of_microsoft(target_worker: Worker, target: str) -> None:
    q = Spec((1, 8, functions.LONG, 64), BF16)
    facts = compiled(target_worker, target, functions.causal_of_microsoft, q, q, q)
    assert facts.temporaries < SCORES / 8
    q, k = (Spec((1, functions.LONG, 64 * heads), BF16) for heads in (8, 2))
    lengths = Spec((1,), np.dtype(np.int32))
    facts = compiled(target_worker, target, functions.prompt, q, k, k, lengths)
    assert facts.temporaries < SCORES / 8


@TARGET
def test_decoding_with_a_long_cache(target_worker: Worker, target: str) -> None:
    q, k = (Spec((1, 1, 64 * heads), BF16) for heads in (8, 2))
    cache, lengths = Spec((1, 2, functions.LONG, 64), BF16), Spec((1,), np.dtype(np.int32))
    facts = compiled(target_worker, target, functions.decoded, q, k, k, cache, cache, lengths)
    assert facts.temporaries < 2**20


def test_scores_of_a_few_queries_need_no_blocks() -> None:
    """They are smaller than the keys, which devices may divide by positions."""
    keys = jax.ShapeDtypeStruct((512, 64, 4096, 128), jnp.bfloat16)
    for queries, is_divided in ((1, False), (16, False), (1024, True)):
        q = jax.ShapeDtypeStruct((512, 64, queries, 128), jnp.bfloat16)
        assert attention.is_long(q, keys) == is_divided
