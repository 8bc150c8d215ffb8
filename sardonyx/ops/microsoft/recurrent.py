"""AttnLSTM: an LSTM that attends to a memory, and reads its attention at the next step."""

from __future__ import annotations

import math

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops import activation
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Floats, Strings, op
from sardonyx.ops.precision import wide
from sardonyx.ops.recurrence import Network
from sardonyx.ops.recurrent import lstm_cell


@op(domain="com.microsoft")
def AttnLSTM(
    xp: Backend,
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    P: Array | None = None,
    QW: Array | None = None,
    MW: Array | None = None,
    V: Array | None = None,
    M: Array | None = None,
    memory_seq_lens: Array | None = None,
    AW: Array | None = None,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strings = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[Array, Array, Array]:
    """Run the LSTM on each input and the attention of the step before; it starts with zeros."""
    if QW is None or MW is None or V is None or M is None:
        raise ValueError("one of QW, MW, V and M is missing, but attention needs all of them")
    features = X.shape[-1]
    net = Network.of(
        xp,
        X,
        W[..., :features],
        R,
        B,
        gates=4,
        hoisted=4,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        clip=clip,
        direction=direction,
        hidden_size=hidden_size,
    )
    attention = _Attention(net, X.shape[1], QW, MW, V, M, memory_seq_lens, AW)
    size = attention.size
    require_shape("W", W, (*W.shape[:2], features + size))
    to_gates = xp.matrix_transpose(wide(xp, W[..., features:]))
    lstm = lstm_cell(net, P, activations, input_forget)

    def cell(x: Array, h: Array, c: Array, attended: Array) -> tuple[Array, Array, Array]:
        h, c = lstm(x + xp.matmul(attended, to_gates), h, c)
        return h, c, attention.of(h)

    blank = xp.zeros((len(net.backwards), X.shape[1], size), dtype=net.projected.dtype)
    Y, Y_h, Y_c, _ = net.run(cell, sequence_lens, initial_h, initial_c, others=(blank,))
    return Y, Y_h, Y_c


class _Attention:
    """Bahdanau's attention of all directions; their axis is the first, and the batch's is next."""

    def __init__(
        self,
        net: Network,
        batch: int,
        QW: Array,
        MW: Array,
        V: Array,
        M: Array,
        memory_seq_lens: Array | None,
        AW: Array | None,
    ) -> None:
        xp, count = net.xp, len(net.backwards)
        if M.ndim != 3 or QW.ndim != 3:
            raise ValueError(
                f"M has shape {M.shape} and QW has shape {QW.shape}, but both must have 3 axes"
            )
        steps, depth, width = M.shape[1], M.shape[2], QW.shape[2]
        require_shape("M", M, (batch, steps, depth))
        require_shape("QW", QW, (count, net.hidden, width))
        require_shape("MW", MW, (count, depth, width))
        require_shape("V", V, (count, width))
        if AW is not None:
            require_shape("AW", AW, (count, net.hidden + depth, AW.shape[-1]))
        QW, MW, V, M = (wide(xp, x) for x in (QW, MW, V, M))
        self._xp = xp
        self._to_query = QW
        self._weights = xp.reshape(V, (count, 1, width, 1))
        self._memory = xp.expand_dims(M, axis=0)
        self._keys = xp.matmul(self._memory, xp.expand_dims(MW, axis=1))
        self._is_hidden = None
        if memory_seq_lens is not None:
            require_shape("memory_seq_lens", memory_seq_lens, (batch,))
            xp.require(memory_seq_lens, Within("memory_seq_lens", 1, steps))
            places = xp.arange(steps, dtype=memory_seq_lens.dtype)
            self._is_hidden = places >= xp.expand_dims(memory_seq_lens, axis=1)
        self._layer = None if AW is None else wide(xp, AW)
        self.size = depth if AW is None else AW.shape[-1]

    def of(self, h: Array) -> Array:
        """Return what the hidden states attend to."""
        xp = self._xp
        query = xp.expand_dims(xp.matmul(h, self._to_query), axis=2)
        scores = xp.matmul(xp.tanh(self._keys + query), self._weights)[..., 0]
        if self._is_hidden is not None:
            scores = xp.where(self._is_hidden, -math.inf, scores)
        shares = activation.Softmax(xp, scores)
        context = xp.matmul(xp.expand_dims(shares, axis=2), self._memory)[:, :, 0, :]
        if self._layer is None:
            return context
        return xp.matmul(xp.concat([h, context], axis=-1), self._layer)
