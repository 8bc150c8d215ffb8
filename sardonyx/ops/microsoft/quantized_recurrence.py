"""The LSTM whose products quantize their floats at each call."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Floats, Ints, Strings, op
from sardonyx.ops.dtypes import FLOAT32, UINT8
from sardonyx.ops.microsoft.quantized_products import DynamicQuantizeMatMul
from sardonyx.ops.quantization import centred_product, quantized
from sardonyx.ops.recurrence import Network
from sardonyx.ops.recurrent import lstm_cell


@op(domain="com.microsoft")
def DynamicQuantizeLSTM(
    xp: Backend,
    X: Array,
    W: Array,
    R: Array,
    B: Array | None,
    sequence_lens: Array | None,
    initial_h: Array | None,
    initial_c: Array | None,
    P: Array | None,
    W_scale: Array,
    W_zero_point: Array,
    R_scale: Array,
    R_zero_point: Array,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strings = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[Array, Array, Array]:
    """Quantize all inputs at once, and at each step the states of each direction.

    The weights have a row for each input, not for each gate as the standard's.
    """
    if W.ndim != 3 or R.ndim != 3:
        raise ValueError(f"W has shape {W.shape} and R {R.shape}, but both must have three axes")
    columns = (R.shape[0], R.shape[2])
    gates = [
        _by_gate(xp, name, value, columns)
        for name, value in (
            ("W_scale", W_scale),
            ("W_zero_point", W_zero_point),
            ("R_scale", R_scale),
            ("R_zero_point", R_zero_point),
        )
    ]
    w_scale, w_zero = (xp.reshape(value, (-1,)) for value in gates[:2])
    r_scale, r_zero = (xp.expand_dims(value, axis=1) for value in gates[2:])

    def project(rows: Array, weights: Array) -> Array:
        return DynamicQuantizeMatMul(xp, rows, weights, w_scale, w_zero)

    net = Network.of(
        xp,
        X,
        xp.matrix_transpose(W),
        xp.matrix_transpose(R),
        B,
        4,
        4,
        project,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
    )

    def recur(h: Array) -> Array:
        states, scale, zero = _to_bytes(xp, h)
        total = centred_product(xp, states, zero, net.R, r_zero)
        return xp.astype(total, xp.dtype(FLOAT32)) * (scale * r_scale)

    states = (sequence_lens, initial_h, initial_c)
    cell = lstm_cell(net, P, activations, input_forget, recur)
    Y, Y_h, Y_c = net.run(cell, *states)
    return Y, Y_h, Y_c


def _by_gate(xp: Backend, name: str, value: Array, columns: Ints) -> Array:
    """Return one number per direction and gate for that, or for one per direction."""
    if value.shape not in ((columns[0],), columns):
        raise ValueError(
            f"{name} has shape {value.shape}, but must have {columns[:1]} or {columns}"
        )
    value = xp.expand_dims(value, axis=1) if value.ndim == 1 else value
    return xp.broadcast_to(value, columns)


def _to_bytes(xp: Backend, h: Array) -> tuple[Array, Array, Array]:
    """Quantize the states of each direction, with scales and zero points that cover them and 0."""
    zero = xp.zeros((h.shape[0], 1, 1), dtype=h.dtype)
    low = xp.minimum(xp.min(h, axis=(1, 2), keepdims=True), zero) if h.size else zero
    high = xp.maximum(xp.max(h, axis=(1, 2), keepdims=True), zero) if h.size else zero
    scale = xp.quotient(high - low, 255.0)
    scale = xp.where(xp.equal(high, low), xp.ones_like(scale), scale)
    zero_point = xp.round(xp.quotient(-low, scale))
    states = quantized(xp, xp.quotient(h, scale), zero_point, UINT8)
    return states, scale, zero_point
