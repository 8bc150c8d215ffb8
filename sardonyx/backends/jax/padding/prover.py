"""Proofs for JAX that padded steps return the results of their true sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from sardonyx.backends.jax.padding.known import Known
from sardonyx.backends.jax.padding.masks import RuntimeArgs
from sardonyx.backends.jax.padding.proof import Proof
from sardonyx.backends.padding.axes import Layout, Slot
from sardonyx.backends.padding.protocols import Call, PaddedStep


@dataclass(eq=False, slots=True)
class JaxProver(Proof):
    """A proof that goes on step by step."""

    # Traces of calls with the true sizes, and of padded ones, by key and operand types.
    true_traces: dict[Any, Any] = field(default_factory=dict)
    padded_traces: dict[Any, Any] = field(default_factory=dict)
    _values: RuntimeArgs | None = None

    @property
    def position(self) -> tuple[Any, ...]:
        mark = self.mark()
        return mark.decisions, *mark.arguments.items()

    @property
    def runtime_args(self) -> Sequence[Any]:
        return self.values.leaves

    def step(
        self,
        true: Call,
        padded: Call,
        layouts: Sequence[Layout],
        slots: Mapping[int, Slot],
        constants: Mapping[int, Sequence[Any]] | None = None,
    ) -> tuple[Sequence[Layout], PaddedStep | None]:
        before = self.mark().arguments
        traces = _trace(true, self.true_traces), _trace(padded, self.padded_traces)
        known = {i: Known.of(pair, vary=i in slots) for i, pair in (constants or {}).items()}
        results, run = self.walk(*traces, layouts, known)
        if not slots and self.mark().arguments == before:
            return results, None

        def padded_step(leaves: Sequence[Any], arguments: Sequence[Any]) -> Sequence[Any]:
            self._values = self._values or self.values
            values, rest = self._values.of(leaves), iter(arguments)
            operands = [values[slots[i]] if i in slots else next(rest) for i in range(len(layouts))]
            return run(values, *operands)

        return results, padded_step


def _trace(call: Call, cache: dict[Any, Any]) -> Any:
    """The jaxpr of a call, from the cache if the call has a key."""
    key = None if call.key is None else (call.key, tuple(call.specs))
    if key is not None and key in cache:
        return cache[key]
    operands = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in call.specs]
    traced = jax.make_jaxpr(call.function)(*operands)
    if key is not None:
        cache[key] = traced
    return traced
