"""Recurrent networks: RNN, GRU and LSTM as three cells of one loop over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array, Operand
from sardonyx.ops.activation import Elu, HardSigmoid, LeakyRelu, Relu, Sigmoid, Softplus, Softsign
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Floats, Strings, op
from sardonyx.ops.elementwise import Tanh
from sardonyx.ops.legacy_attributes import outputs_sequence
from sardonyx.ops.precision import wide


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
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strings = ("Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Array, ...]:
    net = _Network.of(xp, X, W, R, B, direction, hidden_size, layout, gates=1)
    names = activations[: len(net.backwards)]
    (f,) = net.gates(1, names, activation_alpha, activation_beta, clip)

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
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strings = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Array, ...]:
    net = _Network.of(
        xp,
        X,
        W,
        R,
        B,
        direction,
        hidden_size,
        layout,
        gates=3,
        hoisted=2 if linear_before_reset else 3,
    )
    names = activations or ("Sigmoid", "Tanh") * len(net.backwards)
    f, g = net.gates(2, names, activation_alpha, activation_beta, clip)
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
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strings = (),
    clip: float | None = None,
    direction: str = "foward",
    hidden_size: int | None = None,
    output_sequence: int = 0,
) -> tuple[Array, ...]:
    """Accept the misspelt default direction of the first schema."""
    return GRU(
        xp,
        X,
        W,
        R,
        B,
        sequence_lens,
        initial_h,
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        activations=activations,
        clip=clip,
        direction="forward" if direction == "foward" else direction,
        hidden_size=hidden_size,
    )


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
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: Strings = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Array, ...]:
    net = _Network.of(xp, X, W, R, B, direction, hidden_size, layout, gates=4)
    names = activations or ("Sigmoid", "Tanh", "Tanh") * len(net.backwards)
    f, g, out = net.gates(3, names, activation_alpha, activation_beta, clip)
    Pi, Po, Pf = net.peepholes(P)

    def cell(x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        i, o, past, new = net.split(x + xp.matmul(h, net.R))
        i = f(_peeping(i, Pi, c))
        forget = 1 - i if input_forget else f(_peeping(past, Pf, c))
        c = forget * c + i * g(new)
        return f(_peeping(o, Po, c)) * out(c), c

    return net.run(cell, sequence_lens, initial_h, initial_c)


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


# -- the loop over time ---------------------------------------------------------------------------

_BACKWARDS: Mapping[str, tuple[bool, ...]] = {
    "forward": (False,),
    "reverse": (True,),
    "bidirectional": (False, True),
}


@dataclass(frozen=True, slots=True)
class _Network:
    """The arrays that the cells of one node read; its directions have an axis of their own."""

    xp: Backend
    # For each direction, whether it reads the sequences backwards.
    backwards: tuple[bool, ...]
    hidden: int
    batch_first: bool
    dtype: Any
    # The gates' share from inputs and biases: (step, direction, batch, gates * hidden).
    projected: Array
    R: Array
    inner_bias: Operand

    @classmethod
    def of(
        cls,
        xp: Backend,
        X: Array,
        W: Array,
        R: Array,
        B: Array | None,
        direction: str,
        hidden_size: int | None,
        layout: int,
        *,
        gates: int,
        hoisted: int | None = None,
    ) -> _Network:
        """Build the network; the cell adds the recurrent biases of gates that are not `hoisted`."""
        if direction not in _BACKWARDS:
            raise ValueError(f"direction {direction!r} is not one of {', '.join(_BACKWARDS)}")
        if layout not in (0, 1):
            raise ValueError(f"layout is {layout}, but must be 0 or 1")
        if X.ndim != 3 or R.ndim != 3 or not R.shape[-1]:
            raise ValueError(
                f"X of shape {X.shape} and R of shape {R.shape} must have 3 axes, and R at least "
                "one unit"
            )
        backwards, hidden = _BACKWARDS[direction], R.shape[-1]
        if hidden_size not in (None, hidden):
            raise ValueError(f"hidden_size is {hidden_size}, but R has {hidden} units")
        count, rows = len(backwards), gates * hidden
        require_shape("W", W, (count, rows, X.shape[2]))
        require_shape("R", R, (count, rows, hidden))
        dtype = X.dtype
        # Rounding errors accumulate over steps: narrow floats are computed in float32.
        X, W, R = (wide(xp, x) for x in (xp.moveaxis(X, 0, 1) if layout else X, W, R))
        # One product for all steps and directions; the loop computes only what needs the state.
        columns = xp.matrix_transpose(xp.reshape(W, (count * rows, W.shape[2])))
        steps, batch, features = X.shape
        products = xp.matmul(xp.reshape(X, (steps * batch, features)), columns)
        projected = xp.moveaxis(xp.reshape(products, (steps, batch, count, rows)), 1, 2)
        inner_bias: Operand = 0.0
        if B is not None:
            require_shape("B", B, (count, 2 * rows))
            outer = rows + hidden * (gates if hoisted is None else hoisted)
            B = xp.expand_dims(wide(xp, B), axis=1)
            inner_bias = B[..., outer:]
            past = xp.pad(B[..., rows:outer], [(0, 0), (0, 0), (0, 2 * rows - outer)], 0)
            projected = projected + (B[..., :rows] + past)
        R = xp.matrix_transpose(R)
        return cls(xp, backwards, hidden, bool(layout), dtype, projected, R, inner_bias)

    def split(self, x: Array) -> list[Array]:
        """Split the last axis into gates."""
        size = self.hidden
        return [x[..., i * size : (i + 1) * size] for i in range(x.shape[-1] // size)]

    def peepholes(self, P: Array | None) -> Sequence[Array | None]:
        """Return the peephole weights of the input, output and forget gates."""
        if P is None:
            return (None, None, None)
        require_shape("P", P, (len(self.backwards), 3 * self.hidden))
        return self.split(self.xp.expand_dims(wide(self.xp, P), axis=1))

    def run(
        self,
        cell: Callable[..., tuple[Array, ...]],
        sequence_lens: Array | None,
        *initial: Array | None,
    ) -> tuple[Array, ...]:
        """Return all hidden states, and the last of each kind of state."""
        xp = self.xp
        sequences = [self._in_own_time(self.projected)]
        if sequence_lens is not None:
            sequences.append(self._in_own_time(self._within(sequence_lens)))

        def step(states: Any, slices: Any) -> Any:
            x, *within = slices
            new = cell(x, *states)
            if within:
                new = tuple(xp.where(within[0], *pair) for pair in zip(new, states, strict=True))
            return new, new[:1]

        states = tuple(self._initial(state) for state in initial)
        last, (Y,) = xp.scan(step, states, tuple(sequences), self.projected.shape[0])
        if sequence_lens is not None:
            Y = xp.where(sequences[1], Y, xp.zeros_like(Y))
        Y = self._in_own_time(Y)
        if self.batch_first:
            Y = xp.permute_dims(Y, (2, 0, 1, 3))
            last = tuple(xp.moveaxis(state, 0, 1) for state in last)
        return tuple(xp.astype(result, self.dtype) for result in (Y, *last))

    def _in_own_time(self, x: Array) -> Array:
        """Reorder the first axis, time, to the order in which each direction reads it."""
        xp = self.xp
        if not any(self.backwards):
            return x
        if all(self.backwards):
            return xp.flip(x, axis=0)
        return xp.concat([x[:, :1, ...], xp.flip(x[:, 1:, ...], axis=0)], axis=1)

    def _within(self, sequence_lens: Array) -> Array:
        """Return whether each step is within its sequence."""
        xp, (steps, count, batch, _) = self.xp, self.projected.shape
        require_shape("sequence_lens", sequence_lens, (batch,))
        xp.require(sequence_lens, Within("sequence_lens", 0, steps))
        places = xp.reshape(xp.arange(steps, dtype=sequence_lens.dtype), (-1, 1, 1, 1))
        within = places < xp.reshape(sequence_lens, (-1, 1))
        return xp.broadcast_to(within, (steps, count, batch, 1))

    def _initial(self, state: Array | None) -> Array:
        xp, (_, count, batch, _) = self.xp, self.projected.shape
        shape = (count, batch, self.hidden)
        if state is None:
            return xp.zeros(shape, dtype=self.projected.dtype)
        expected = (batch, count, self.hidden) if self.batch_first else shape
        require_shape("the initial state", state, expected)
        state = wide(xp, state)
        return xp.moveaxis(state, 0, 1) if self.batch_first else state

    # -- activations ------------------------------------------------------------------------------

    def gates(
        self,
        count: int,
        names: Strings,
        alphas: Floats | None,
        betas: Floats | None,
        clip: float | None,
    ) -> list[Callable[[Array], Array]]:
        """Return the `count` activations of a cell, each of which covers all directions."""
        if len(names) != count * len(self.backwards):
            raise ValueError(
                f"there are {len(names)} activations, but {len(self.backwards)} directions need "
                f"{count} each"
            )
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip}, but must be positive")
        rest = iter(alphas or ()), iter(betas or ())
        each = [_activation(name, *rest) for name in names]
        return [partial(self._activated, each[i::count], clip) for i in range(count)]

    def _activated(self, each: Sequence[_Activation], clip: float | None, x: Array) -> Array:
        xp = self.xp
        if clip is not None:
            x = xp.minimum(xp.maximum(x, -clip), clip)
        if each[0] == each[-1]:
            return each[0](xp, x)
        return xp.concat([f(xp, x[i : i + 1, ...]) for i, f in enumerate(each)], axis=0)


@dataclass(frozen=True, slots=True)
class _Activation:
    function: Callable[..., Array]
    scales: Mapping[str, float]

    def __call__(self, xp: Backend, x: Array) -> Array:
        return self.function(xp, x, **self.scales)


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> _Activation:
    """Build an activation; it takes its scales from the lists, else its operator's defaults."""
    if name.lower() not in _ACTIVATIONS:
        raise ValueError(f"activation {name!r} is not one of {', '.join(_ACTIVATIONS)}")
    function, names = _ACTIVATIONS[name.lower()]
    lists = {"alpha": alphas, "beta": betas}
    scales = {scale: next(lists[scale], None) for scale in names}
    return _Activation(function, {s: value for s, value in scales.items() if value is not None})


def _affine(xp: Backend, x: Array, *, alpha: float = 1.0, beta: float = 0.0) -> Array:
    return alpha * x + beta


def _scaled_tanh(xp: Backend, x: Array, *, alpha: float = 1.0, beta: float = 1.0) -> Array:
    return alpha * xp.tanh(beta * x)


def _thresholded_relu(xp: Backend, x: Array, *, alpha: float = 1.0) -> Array:
    """Return `x` where it is at least `alpha`; the operator of that name excludes equality."""
    return xp.where(x >= alpha, x, xp.zeros_like(x))


_ACTIVATIONS: Mapping[str, tuple[Callable[..., Array], Strings]] = {
    "relu": (Relu, ()),
    "tanh": (Tanh, ()),
    "sigmoid": (Sigmoid, ()),
    "affine": (_affine, ("alpha", "beta")),
    "leakyrelu": (LeakyRelu, ("alpha",)),
    "thresholdedrelu": (_thresholded_relu, ("alpha",)),
    "scaledtanh": (_scaled_tanh, ("alpha", "beta")),
    "hardsigmoid": (HardSigmoid, ("alpha", "beta")),
    "elu": (Elu, ("alpha",)),
    "softsign": (Softsign, ()),
    "softplus": (Softplus, ()),
}
