"""Traces of a model for a few sizes, from which the recordings of others are derived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sardonyx.backends.base import Backend
from sardonyx.graph.buckets.call_arrays import CallArrays
from sardonyx.graph.buckets.derived import Derivation, Sample
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.segment_collector import SegmentCollector
from sardonyx.graph.programs.program import Program
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.values.params import Constants, Weights

# Maximum number of traces of each kind that are kept; the oldest is forgotten.
MAX_TRACES = 8

# Returns the program that shows these stages.
Shown: TypeAlias = Callable[[Sequence[Stage]], Program]
# Traces the model for inputs like these.
TraceFor: TypeAlias = Callable[[SegmentCollector, Sequence[Any]], Shown]


@dataclass(eq=False, slots=True)
class SampledTraces:
    """The last of these traces. One thread at a time uses them."""

    backend: Backend
    constants: Constants
    trace: TraceFor
    rewrites: bool
    samples: dict[Any, Sample] = field(default_factory=dict)
    # The version of the weights that tracing read.
    version: int = -1

    def derivation(
        self,
        call: CallArrays,
        corners: Sequence[SizeVector],
        inner: SizeVector,
        weights: Weights,
    ) -> Derivation | None:
        """Return what derives recordings between these sizes of the call's bucket, if it can.

        Formulas are checked for the inner sizes, too, or for sizes near them if they lie outside:
        formulas hold between traces, and not beyond.
        """
        columns = list(zip(*corners, strict=True))
        between = tuple(
            max(min(column), min(size, max(column)))
            for size, column in zip(inner, columns, strict=True)
        )
        sizes = dict.fromkeys((*corners, between))
        samples = [self.sample(call, each, weights) for each in sizes]
        return Derivation.of(samples, self.constants)

    def sample(self, call: CallArrays, sizes: SizeVector, weights: Weights) -> Sample:
        """Return the trace for these sizes of the call's bucket; raise if the model refuses."""
        if self.version != weights.static_version:
            self.samples.clear()
            self.version = weights.static_version
        named = dict(zip(call.bucket, sizes, strict=True))
        key = tuple(named), tuple(call.specs(named))
        if key not in self.samples:
            recorder = SegmentCollector(self.backend, weights, call.padded, self.rewrites)
            recorder.registers.embeds_arrays = False
            self.trace(recorder, call.inputs(named))
            recorder.registers.frame.clear()  # It holds arrays of the call.
            self.samples[key] = Sample.of(sizes, recorder, self.constants)
            if len(self.samples) > MAX_TRACES:
                del self.samples[next(iter(self.samples))]
        return self.samples[key]
