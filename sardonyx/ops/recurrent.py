"""Recurrent networks: RNN, GRU and LSTM as three cells of one loop over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Strings, op
from sardonyx.ops.legacy_attributes import outputs_sequence
from sardonyx.ops.recurrence import Network, NetworkAttributes


@outputs_sequence
@op
def RNN(
    xp: Backend,
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activations: Strings = ("Tanh", "Tanh"),
    **attributes: NetworkAttributes,
) -> tuple[Array, ...]:
    net = Network.of(xp, X, W, R, B, gates=1, hoisted=1, **attributes)
    (f,) = net.activations(1, activations[: len(net.backwards)])

    def cell(x: Array, h: Array) -> tuple[Array]:
        return (f(x + xp.matmul(h, net.R)),)

    return net.run(cell, sequence_lens, initial_h)


@outputs_sequence
@op
def GRU(
    xp: Backend,
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activations: Strings = (),
    linear_before_reset: int = 0,
    **attributes: NetworkAttributes,
) -> tuple[Array, ...]:
    hoisted = 2 if linear_before_reset else 3
    net = Network.of(xp, X, W, R, B, gates=3, hoisted=hoisted, **attributes)
    f, g = net.activations(2, activations or ("Sigmoid", "Tanh") * len(net.backwards))
    to_gates, to_new = net.R[..., : 2 * net.hidden], net.R[..., 2 * net.hidden :]

    def cell(x: Array, h: Array) -> tuple[Array]:
        z, r = net.split(f(x[..., : 2 * net.hidden] + xp.matmul(h, to_gates)))
        if linear_before_reset:
            past = r * (xp.matmul(h, to_new) + net.inner_bias)
        else:
            past = xp.matmul(r * h, to_new)
        return ((1 - z) * g(x[..., 2 * net.hidden :] + past) + z * h,)

    return net.run(cell, sequence_lens, initial_h)


@GRU.before(3)
def gru_that_goes_foward(
    xp: Backend,
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    direction: str = "foward",
    output_sequence: int = 0,
    **others: Annotated[Any, GRU],
) -> tuple[Array, ...]:
    """Accept the misspelt default direction of the first schema."""
    direction = "forward" if direction == "foward" else direction
    return GRU(xp, X, W, R, B, sequence_lens, initial_h, direction=direction, **others)


@outputs_sequence
@op
def LSTM(
    xp: Backend,
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    P: Array | None = None,
    *,
    activations: Strings = (),
    input_forget: int = 0,
    **attributes: NetworkAttributes,
) -> tuple[Array, ...]:
    net = Network.of(xp, X, W, R, B, gates=4, hoisted=4, **attributes)
    states = (sequence_lens, initial_h, initial_c)
    return net.run(lstm_cell(net, P, activations, input_forget), *states)


def lstm_cell(
    net: Network,
    P: Array | None,
    activations: Strings,
    input_forget: int,
    recur: Callable[[Array], Array] | None = None,
) -> Callable[[Array, Array, Array], tuple[Array, Array]]:
    """Return the function from an input and both states to the new states.

    `recur` returns what the hidden state adds to all gates: by default its product with R.
    """
    f, g, out = net.activations(3, activations or ("Sigmoid", "Tanh", "Tanh") * len(net.backwards))
    Pi, Po, Pf = net.peepholes(P)

    def cell(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        added = net.xp.matmul(h, net.R) if recur is None else recur(h)
        i, o, past, new = net.split(x + added)
        i = f(_peeping(i, Pi, c))
        forget = 1 - i if input_forget else f(_peeping(past, Pf, c))
        c = forget * c + i * g(new)
        return f(_peeping(o, Po, c)) * out(c), c

    return cell


def _peeping(gate: Array, weight: Array | None, c: Array) -> Array:
    return gate if weight is None else gate + weight * c


@op
def ReverseSequence(
    xp: Backend, input: Array, sequence_lens: Array, *, batch_axis: int = 1, time_axis: int = 0
) -> Array:
    """Reverse each sequence; elements beyond its end stay in place."""
    if {batch_axis, time_axis} != {0, 1} or input.ndim < 2:
        raise ValueError(
            f"time_axis {time_axis} and batch_axis {batch_axis} must be the first two axes of "
            f"input, which has shape {input.shape}"
        )
    require_shape("sequence_lens", sequence_lens, (input.shape[batch_axis],))
    rows, columns = (xp.arange(size, dtype=sequence_lens.dtype) for size in input.shape[:2])
    longest = input.shape[time_axis]
    xp.require(sequence_lens, Within("sequence_lens", 0, longest))
    sequence_lens = xp.minimum(sequence_lens, longest)
    places = [xp.reshape(rows, (-1, 1)), xp.reshape(columns, (1, -1))]
    step, lengths = places[time_axis], xp.reshape(sequence_lens, places[batch_axis].shape)
    places[time_axis] = xp.where(step < lengths, lengths - 1 - step, step)
    return xp.gather(input, places)
