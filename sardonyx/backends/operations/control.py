"""Choices and loops over functions of arrays, and derivatives of such functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from sardonyx.backends.operations.array_library import Library
from sardonyx.backends.standard import Array


class Control(Library):
    """Control flow by values on the device."""

    # Whether it has `gradients`.
    differentiates: ClassVar[bool] = False

    def cond(
        self, predicate: Array, when_true: Callable[[], Any], when_false: Callable[[], Any]
    ) -> Any:
        """The result of one of two functions of no arguments, chosen by a scalar."""
        return when_true() if bool(predicate) else when_false()

    def loop(
        self,
        condition: Callable[..., Array],
        body: Callable[..., tuple[Array, ...]],
        carry: tuple[Array, ...],
    ) -> tuple[Array, ...]:
        """`carry = body(*carry)` for as long as `condition(*carry)`, a boolean scalar, holds."""
        while bool(condition(*carry)):
            carry = body(*carry)
        return carry

    def scan(
        self,
        step: Callable[[Any, Any], tuple[Any, Any]],
        carry: tuple[Array, ...],
        inputs: tuple[Array, ...],
        length: int,
        *,
        reverse: bool = False,
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """`carry, outputs = step(carry, slices)` for each slice of the inputs along axis 0.

        The last carry, and the outputs stacked along axis 0, in the inputs' order.
        """
        if not length:
            # One step on zeros tells the shapes of the outputs, of which there are none.
            blank = tuple(self.zeros(x.shape[1:], dtype=x.dtype) for x in inputs)
            _, outputs = step(carry, blank)
            return carry, tuple(self.zeros((0, *y.shape), dtype=y.dtype) for y in outputs)
        outputs_by_step = []
        for i in reversed(range(length)) if reverse else range(length):
            carry, outputs = step(carry, tuple(x[i, ...] for x in inputs))
            outputs_by_step.append(outputs)
        ordered = outputs_by_step[::-1] if reverse else outputs_by_step
        return carry, tuple(self.stack(ys, axis=0) for ys in zip(*ordered, strict=True))

    def gradients(
        self, function: Callable[..., Sequence[Array]], arrays: Sequence[Array], count: int
    ) -> tuple[Array, ...]:
        """The derivatives of the sum of the function's first result by the first `count` arrays."""
        raise NotImplementedError
