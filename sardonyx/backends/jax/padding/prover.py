"""Padding for JAX: proofs of steps, and arrays made larger and smaller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sardonyx.backends.jax.padding.masks import Told
from sardonyx.backends.jax.padding.proof import Proof
from sardonyx.backends.jax.padding.rules import RULES
from sardonyx.backends.padding.axes import Layout, Place, has_padding
from sardonyx.backends.padding.protocols import Act, Call


class JaxPadding:
    """What lies in the host's memory is padded there: for each size JAX would compile anew."""

    def prover(self, template: Sequence[bool], traces: dict[Any, Any]) -> JaxProver:
        return JaxProver(Proof(RULES, template), traces)

    def enlarged(self, array: Any, shape: Sequence[int]) -> Any:
        if array.shape == tuple(shape):
            return array
        widths = [(0, after - before) for before, after in zip(array.shape, shape, strict=True)]
        if not _is_on_host(array):
            return jnp.pad(array, widths)
        result = np.zeros(shape, array.dtype)
        result[tuple(map(slice, array.shape))] = np.asarray(array)
        return result

    def reduced(self, array: Any, layout: Layout) -> Any:
        if not has_padding(layout):
            return array
        digits = [part for axis in layout for part in axis.parts]
        whole = np.asarray(array) if _is_on_host(array) else array
        split = whole.reshape([part.padded for part in digits])
        true = split[tuple(slice(part.true) for part in digits)]
        return true.reshape([axis.true for axis in layout])


def _is_on_host(array: Any) -> bool:
    return isinstance(array, np.ndarray) or all(d.platform == "cpu" for d in array.devices())


@dataclass(eq=False, slots=True)
class JaxProver:
    proof: Proof
    # Of padded calls, and of those for the true sizes, by what tells them apart.
    traces: dict[Any, Any]
    own_traces: dict[Any, Any] = field(default_factory=dict)
    _values: Told | None = None

    @property
    def decisions(self) -> Sequence[bool]:
        return self.proof.decisions

    @property
    def told(self) -> Sequence[Any]:
        return self.proof.told.leaves

    def constant(self, true: Any, padded: Any) -> tuple[Layout, Place | None]:
        return self.proof.constant(true, padded)

    def step(
        self, true: Call, padded: Call, layouts: Sequence[Layout], places: Mapping[int, Place]
    ) -> tuple[Sequence[Layout], Act | None]:
        before = self.proof.mark()[1:]
        traces = _trace(true, self.own_traces), _trace(padded, self.traces)
        made, run = self.proof.walk(*traces, layouts)
        if not places and self.proof.mark()[1:] == before:
            return made, None

        def act(leaves: Sequence[Any], arguments: Sequence[Any]) -> Sequence[Any]:
            self._values = self._values or self.proof.told
            told, own = self._values.of(leaves), iter(arguments)
            values = [told[places[i]] if i in places else next(own) for i in range(len(layouts))]
            return run(told, *values)

        return made, act


def _trace(call: Call, known: dict[Any, Any]) -> Any:
    key = None if call.key is None else (call.key, tuple(call.specs))
    if key is not None and key in known:
        return known[key]
    stand_in: Callable[..., Any] = jax.ShapeDtypeStruct
    traced = jax.make_jaxpr(call.function)(*(stand_in(*spec) for spec in call.specs))
    if key is not None:
        known[key] = traced
    return traced
