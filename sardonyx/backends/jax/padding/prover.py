"""Padding for JAX: proofs of steps, and arrays that are padded and cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sardonyx.backends.jax.padding.lent import Lent
from sardonyx.backends.jax.padding.masks import RuntimeArgs
from sardonyx.backends.jax.padding.proof import Proof
from sardonyx.backends.jax.padding.rules import RULES
from sardonyx.backends.padding.axes import Cut, Layout, Slot
from sardonyx.backends.padding.protocols import Call, PaddedStep


class JaxPadding:
    """Pads arrays; those on the host without JAX, which would compile once per size."""

    def __init__(self) -> None:
        self._lent = Lent()

    def prover(self, template: Sequence[bool], traces: dict[Any, Any]) -> JaxProver:
        return JaxProver(RULES, template, traces=traces)

    def pad(self, array: Any, shape: Sequence[int]) -> Any:
        if array.shape == tuple(shape):
            return array
        padded = self._lent.padded(array)
        if padded is not None and padded.shape == tuple(shape):
            return padded
        if not _is_on_host(array):
            sizes = zip(array.shape, shape, strict=True)
            return jnp.pad(array, [(0, after - before) for before, after in sizes])
        result = np.zeros(shape, array.dtype)
        result[tuple(map(slice, array.shape))] = np.asarray(array)
        return result

    def unpad(self, array: Any, cut: Cut, *, is_native: bool) -> Any:
        if cut.split == cut.true:
            return array
        is_on_host = _is_on_host(array)
        whole: Any = np.asarray(array) if is_on_host else array
        if cut.split != tuple([size for size in array.shape if size != 1]):
            return whole.reshape(cut.split)[tuple(map(slice, cut.true))].reshape(cut.shape)
        corner = whole[tuple(map(slice, cut.shape))]
        if is_native and is_on_host and isinstance(array, jax.Array):
            (device,) = array.devices()
            corner = jax.device_put(corner, device, may_alias=False)
        return self._lent(corner, array)


def _is_on_host(array: Any) -> bool:
    return isinstance(array, np.ndarray) or all(d.platform == "cpu" for d in array.devices())


@dataclass(eq=False, slots=True)
class JaxProver(Proof):
    """A proof that goes on step by step."""

    # Traces of padded calls, and of calls with the true sizes, by key and operand types.
    traces: dict[Any, Any] = field(default_factory=dict)
    own_traces: dict[Any, Any] = field(default_factory=dict)
    _values: RuntimeArgs | None = None

    @property
    def position(self) -> tuple[Any, ...]:
        mark = self.mark()
        return mark.decisions, *mark.arguments.items()

    @property
    def runtime_args(self) -> Sequence[Any]:
        return self.values.leaves

    def step(
        self, true: Call, padded: Call, layouts: Sequence[Layout], slots: Mapping[int, Slot]
    ) -> tuple[Sequence[Layout], PaddedStep | None]:
        before = self.mark().arguments
        traces = _trace(true, self.own_traces), _trace(padded, self.traces)
        results, run = self.walk(*traces, layouts)
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
