"""Several products of one array with weights of few bits, and the normalization before them."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Swish
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.microsoft.matmul_nbits import MatMulNBits
from sardonyx.ops.normalization import RMSNormalization
from sardonyx.ops.options import require_one_of


@op(domain="com.microsoft")
def MatMulNBitsQkv(
    xp: Backend,
    A: Array,
    skip: Array | None,
    norm_scale: Array,
    q_B: Array,
    q_scales: Array,
    q_bias: Array | None,
    k_B: Array,
    k_scales: Array,
    k_bias: Array | None,
    v_B: Array,
    v_scales: Array,
    v_bias: Array | None = None,
    *,
    K: int,
    Nq: int,
    Nkv: int,
    bits: int = 4,
    block_size: int,
    accuracy_level: int = 0,
    epsilon: float = 1e-6,
) -> tuple[Array, Array, Array, Array]:
    """Return queries, keys and values, and the sum that was normalized."""
    total = _sum(A, skip)
    x = RMSNormalization(xp, total, norm_scale, epsilon=epsilon)

    def project(B: Array, scales: Array, bias: Array | None, N: int) -> Array:
        each = (x, B, scales, None, None, bias)
        return MatMulNBits(xp, *each, K=K, N=N, bits=bits, block_size=block_size)

    q = project(q_B, q_scales, q_bias, Nq)
    k = project(k_B, k_scales, k_bias, Nkv)
    return q, k, project(v_B, v_scales, v_bias, Nkv), total


@op(domain="com.microsoft")
def MatMulNBitsMlp(
    xp: Backend,
    A: Array,
    skip: Array | None,
    norm_scale: Array | None,
    gate_B: Array,
    gate_scales: Array,
    gate_bias: Array | None,
    up_B: Array,
    up_scales: Array,
    up_bias: Array | None = None,
    *,
    K: int,
    N: int,
    bits: int = 4,
    block_size: int,
    activation: str,
    accuracy_level: int = 0,
    epsilon: float = 1e-5,
) -> tuple[Array, Array]:
    """Return the product of the gate and what it gates, and the sum that was normalized."""
    require_one_of("activation", activation, ("silu",))
    if skip is not None and norm_scale is None:
        raise ValueError("skip is an input, so norm_scale must be one too")
    x = total = _sum(A, skip)
    if norm_scale is not None:
        x = RMSNormalization(xp, total, norm_scale, epsilon=epsilon)

    def project(B: Array, scales: Array, bias: Array | None) -> Array:
        each = (x, B, scales, None, None, bias)
        return MatMulNBits(xp, *each, K=K, N=N, bits=bits, block_size=block_size)

    gate = Swish(xp, project(gate_B, gate_scales, gate_bias))
    return gate * project(up_B, up_scales, up_bias), total


def _sum(A: Array, skip: Array | None) -> Array:
    if skip is None:
        return A
    require_shape("skip", skip, A.shape)
    return A + skip
