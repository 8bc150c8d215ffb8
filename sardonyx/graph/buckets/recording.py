"""The recording for calls of one signature whose arrays are padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sardonyx.graph.buckets.call_arrays import CallArrays
from sardonyx.graph.buckets.programs import Buckets, PaddedCallPlan
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.programs.program import Program
from sardonyx.graph.programs.replay import NewKey, Recording
from sardonyx.graph.values.kinds import digest
from sardonyx.graph.values.params import Weights

# Maximum number of plans per signature.
MAX_PLANS = 64


def bucketed(
    plain: Recording,
    buckets: Buckets,
    values: Sequence[Any],
    infos: Sequence[ValueInfo],
    weights: Weights,
) -> Recording:
    """Return the recording for calls with inputs like these: `plain` if nothing is padded."""
    call = CallArrays.of(values, infos)
    call = replace(call, bucket=buckets.sizes.padded(call.sizes))
    if plain.inline or not call.bucket:
        return plain
    padded = PaddedRecording(plain.compiler, False, buckets=buckets, signature=call.without_data)
    padded.plan(call.arrays, weights)
    return padded


@dataclass(eq=False, slots=True)
class PaddedRecording(Recording):
    """A recording for calls of one signature whose arrays are padded.

    Calls run a program of their own if the graph takes another form for exactly their sizes.
    """

    buckets: Buckets = field(kw_only=True)
    signature: CallArrays = field(kw_only=True)
    # The numbers of arrays whose values decide which program runs, and the plans by these values.
    read: set[int] = field(default_factory=set)
    plans: dict[Any, PaddedCallPlan | None] = field(default_factory=dict)

    def run(self, inputs: Sequence[Any], weights: Weights, new_key: NewKey) -> Sequence[Any] | None:
        plan = self.plan(inputs, weights)
        if plan is None:
            return Recording.run(self, inputs, weights, new_key)
        if plan.program.draws:
            inputs = [*inputs, new_key()]
        return self.buckets.run(plan, inputs, weights)

    def plan(self, inputs: Sequence[Any], weights: Weights) -> PaddedCallPlan | None:
        """Return how a call with these arrays runs; None for a program of its own."""
        key = self._key_of(inputs)
        if key in self.plans:
            return self.plans[key]
        with self.buckets.lock:
            plan, read = self.buckets.plan(replace(self.signature, arrays=inputs), weights)
        self.read |= read
        if len(self.plans) >= MAX_PLANS:
            self.plans.clear()
        self.plans[self._key_of(inputs)] = plan
        return plan

    def shown(self, inputs: Sequence[Any], weights: Weights) -> Program | None:
        """Return the padded program for these arrays; None if they run a program of their own."""
        plan = self.plan(inputs, weights)
        return None if plan is None else plan.program.shown

    def _key_of(self, inputs: Sequence[Any]) -> Any:
        backend = self.compiler.backend
        values = [inputs[i] for i in sorted(self.read)]
        return tuple(digest(backend.fetch(v) if backend.owns(v) else v) for v in values)
