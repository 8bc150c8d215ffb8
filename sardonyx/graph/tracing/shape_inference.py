"""Shapes and dtypes of results, which the backend infers once for all equal calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import BadData
from sardonyx.backends.executable import Spec
from sardonyx.backends.shape_arrays import shape_array
from sardonyx.backends.shape_backend import SHAPES
from sardonyx.graph.loading.custom_ops import Own
from sardonyx.graph.tracing.known_calls import KnownCalls
from sardonyx.graph.tracing.op_call import OpCall, observed
from sardonyx.graph.tracing.steps import Call, Embedded
from sardonyx.graph.tracing.subgraphs import BodyCall
from sardonyx.graph.values.kinds import digest
from sardonyx.ops.definition import NeedsHost
from sardonyx.ops.on_backend import OnBackend

KnownValue: TypeAlias = "np.ndarray[Any, Any] | None"


class Inference(NamedTuple):
    """What a call returns for operands like these."""

    specs: Sequence[Spec]
    # For each result the number of the argument that it is, if it is one.
    same: Sequence[int | None]
    # The numbers of the arguments whose data must meet a condition.
    checked: Sequence[int]


class Inferred:
    """The inferences so far: most networks repeat their layers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._inferences: dict[Any, Inference] = {}
        self.calls = KnownCalls()

    def of(
        self, call: Call, operands: Sequence[Spec | Embedded], values: Sequence[KnownValue]
    ) -> Inference:
        """Infer the results of a call.

        `values` holds the values that tracing knows, which must meet the conditions of the call.
        """
        if call.key is None:
            return self._infer(call, operands, values)
        key = call.key, *(o if isinstance(o, Spec) else digest(o.value) for o in operands)
        inference = self._inferences.get(key)
        if inference is None or _checks_other_values(inference, operands, values):
            inference = self._inferences[key] = self._infer(call, operands, values)
        return inference

    def clear(self) -> None:
        """Forget all inferences and calls."""
        self._inferences.clear()
        self.calls.clear()

    def _infer(
        self, call: Call, operands: Sequence[Spec | Embedded], values: Sequence[KnownValue]
    ) -> Inference:
        inference = None
        if self._backend.follows_numpy and is_for_any_backend(call):
            inference = by_shapes(call, operands, values)
        return inference or self._by_backend(call, operands, values)

    def _by_backend(
        self, call: Call, operands: Sequence[Spec | Embedded], values: Sequence[KnownValue]
    ) -> Inference:
        """Let the library trace the call, which takes about a millisecond.

        A library that cannot trace runs it on zeros. So it gets no user's function, and no
        subgraphs, whose loops may never end there.
        """
        if not (self._backend.compiled or (is_for_any_backend(call) and isinstance(call, OpCall))):
            raise NotImplementedError("only a run with data tells the shapes of the results")
        outline = self._backend.outline()
        same: list[int | None] = []
        checked: list[int] = []

        def function(*arrays: Any) -> Sequence[Any]:
            passed = iter(arrays)
            operand_arrays = [
                next(passed) if isinstance(o, Spec) else outline.asarray(o.value) for o in operands
            ]
            results, same[:], checked[:] = observed(call, outline, operand_arrays, values)
            return results

        specs = self._backend.infer(function, *(o for o in operands if isinstance(o, Spec)))
        return Inference(specs, same, checked)


def by_shapes(
    call: Call, operands: Sequence[Spec | Embedded], values: Sequence[KnownValue]
) -> Inference | None:
    """Infer the results of a call without the library; None if there is no rule for it."""
    if isinstance(call, BodyCall):
        call = call.without_run()
    arrays = [shape_array(*o) if isinstance(o, Spec) else SHAPES.asarray(o.value) for o in operands]
    try:
        with SHAPES.scope():
            results, same, checked = observed(call, SHAPES, arrays, values)
    except (BadData, NeedsHost):  # The library would say the same.
        raise
    except Exception:  # The library has a rule, or says what is wrong.
        return None
    specs = [Spec(result.shape, result.dtype) for result in results]
    return None if any(spec.dtype == object for spec in specs) else Inference(specs, same, checked)


def is_for_any_backend(call: Call) -> bool:
    """Whether its function is an op of the package, the same for all backends."""
    call = call.call if isinstance(call, BodyCall) else call
    return isinstance(call, OpCall) and not isinstance(call.function, (Own, OnBackend))


def _checks_other_values(
    inference: Inference, operands: Sequence[Spec | Embedded], values: Sequence[KnownValue]
) -> bool:
    """Whether conditions concern known values that are not part of the key."""
    return any(isinstance(operands[i], Spec) and values[i] is not None for i in inference.checked)
