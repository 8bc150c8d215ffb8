"""Attention that goes to cuDNN by default on JAX: that it does, and what it computes."""

from __future__ import annotations

import pytest

from sardonyx.backends.jax.accelerators import cudnn_choice
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.xla_cuda.layouts import capability_of
from tests.gpu.cudnn_attention_times import ATTENTIONS, Attention, difference, run

pytestmark = pytest.mark.gpu

# Several times the distance of numbers near 1.
APART = {"float16": 5e-3, "bfloat16": 4e-2}


@pytest.fixture
def with_cudnn(jax_backend: JaxBackend) -> JaxBackend:
    """JAX on a GPU, and with a cuDNN, that are among those by default."""
    assert jax_backend.device is not None
    capability = capability_of(jax_backend.device)
    if capability not in cudnn_choice.CAPABILITIES:
        pytest.skip(f"by default cuDNN is not used on GPUs of compute capability {capability}")
    if (reason := cudnn_choice.reason_against(cudnn_choice.version())) is not None:
        pytest.skip(reason)
    return jax_backend


@pytest.mark.sampled(1)
@pytest.mark.parametrize("attention", ATTENTIONS, ids=str)
def test_it_goes_to_cudnn_and_agrees(with_cudnn: JaxBackend, attention: Attention) -> None:
    found, plain = run(attention, "", with_cudnn), run(attention, "0", with_cudnn)
    assert (found.workarounds, found.calls) == ({}, 1)
    assert (plain.workarounds, plain.calls) == ({}, 0)
    assert difference(found, plain) <= APART[attention.dtype]


def test_small_attention_does_not(with_cudnn: JaxBackend) -> None:
    found = run(Attention(1, 12, 12, 512, 64, False), "", with_cudnn)
    assert (found.workarounds, found.calls) == ({}, 0)


def test_small_attention_does_where_it_is_asked_for(with_cudnn: JaxBackend) -> None:
    attention = Attention(1, 12, 12, 512, 64, False)
    found, plain = run(attention, "1", with_cudnn), run(attention, "0", with_cudnn)
    assert (found.workarounds, found.calls) == ({}, 1)
    assert difference(found, plain) <= APART[attention.dtype]
