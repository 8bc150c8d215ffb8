"""The loop over time that recurrent networks share, and the activations of their cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array, Operand
from sardonyx.ops.activation import Elu, HardSigmoid, LeakyRelu, Relu, Sigmoid, Softplus, Softsign
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Floats, Strings
from sardonyx.ops.elementwise import Tanh
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import wide

_BACKWARDS: Mapping[str, tuple[bool, ...]] = {
    "forward": (False,),
    "reverse": (True,),
    "bidirectional": (False, True),
}


@dataclass(frozen=True, slots=True)
class Network:
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
    # The activations' scales in the order of their names, and the bound of what enters them.
    alphas: Floats
    betas: Floats
    clip: float | None

    @classmethod
    def of(
        cls,
        xp: Backend,
        X: Array,
        W: Array,
        R: Array,
        B: Array | None,
        gates: int,
        hoisted: int,
        multiply: Callable[[Array, Array], Array] | None = None,
        *,
        activation_alpha: Floats | None = None,
        activation_beta: Floats | None = None,
        clip: float | None = None,
        direction: str = "forward",
        hidden_size: int | None = None,
        layout: int = 0,
    ) -> Network:
        """Build the network; the cell adds the recurrent biases of gates that are not `hoisted`.

        `multiply` takes the place of the product of inputs and `W`, if its elements are no floats.
        """
        require_one_of("direction", direction, _BACKWARDS)
        require_one_of("layout", layout, (0, 1))
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip}, but must be positive")
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
        multiply = multiply or xp.matmul
        products = multiply(xp.reshape(X, (steps * batch, features)), columns)
        projected = xp.moveaxis(xp.reshape(products, (steps, batch, count, rows)), 1, 2)
        inner_bias: Operand = 0.0
        if B is not None:
            require_shape("B", B, (count, 2 * rows))
            outer = rows + hidden * hoisted
            B = xp.expand_dims(wide(xp, B), axis=1)
            inner_bias = B[..., outer:]
            past = xp.pad(B[..., rows:outer], [(0, 0), (0, 0), (0, 2 * rows - outer)], 0)
            projected = projected + (B[..., :rows] + past)
        R = xp.matrix_transpose(R)
        scales = (activation_alpha or (), activation_beta or ())
        inputs = (projected, R, inner_bias)
        return cls(xp, backwards, hidden, bool(layout), dtype, *inputs, *scales, clip)

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
        others: Sequence[Array] = (),
    ) -> tuple[Array, ...]:
        """Return all hidden states, and the last of each kind of state.

        The `others` are initial states of further kinds, of which the last axis has any size.
        """
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

        states = (*(self._initial(state) for state in initial), *others)
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

    def activations(self, count: int, names: Strings) -> list[Callable[[Array], Array]]:
        """Return the `count` activations of a cell, each of which covers all directions."""
        if len(names) != count * len(self.backwards):
            raise ValueError(
                f"there are {len(names)} activations, but {len(self.backwards)} directions need "
                f"{count} each"
            )
        scales = iter(self.alphas), iter(self.betas)
        each = [_activation(name, *scales) for name in names]
        return [partial(self._activated, each[i::count]) for i in range(count)]

    def _activated(self, each: Sequence[_Activation], x: Array) -> Array:
        xp = self.xp
        if self.clip is not None:
            x = xp.minimum(xp.maximum(x, -self.clip), self.clip)
        if each[0] == each[-1]:
            return each[0](xp, x)
        return xp.concat([f(xp, x[i : i + 1, ...]) for i, f in enumerate(each)], axis=0)


# The attributes of all networks: `direction`, `layout` and their like.
NetworkAttributes: TypeAlias = Annotated[Any, Network.of]


@dataclass(frozen=True, slots=True)
class _Activation:
    function: Callable[..., Array]
    scales: Mapping[str, float]

    def __call__(self, xp: Backend, x: Array) -> Array:
        return self.function(xp, x, **self.scales)


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> _Activation:
    """Build an activation; it takes its scales from the lists, else its operator's defaults."""
    if name.lower() not in _ACTIVATIONS:
        require_one_of("an activation", name, _ACTIVATIONS)
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
