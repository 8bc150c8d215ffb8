"""Traces of a model for a few sizes, from which the recordings of others are derived."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sardonyx.backends.base import Backend
from sardonyx.graph.buckets.call_arrays import CallArrays
from sardonyx.graph.buckets.derived import Derivation, Merged, Sample
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.patience import Patience
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
    # How long the last trace took.
    seconds: float = 0.0

    def derivation(
        self,
        call: CallArrays,
        corners: Sequence[SizeVector],
        inner: SizeVector,
        weights: Weights,
        patience: Patience | None = None,
    ) -> Derivation | None:
        """Return what derives recordings between these sizes of the call's bucket, if it can.

        Formulas are checked for the inner sizes, too, or for sizes near them if they lie outside:
        formulas hold between traces, and not beyond. Raise `OutOfPatience` if it takes too long;
        the traces so far are kept.
        """
        columns = list(zip(*corners, strict=True))
        between = tuple(
            max(min(column), min(size, max(column)))
            for size, column in zip(inner, columns, strict=True)
        )
        sizes = list(dict.fromkeys((*corners, between)))
        samples = self._samples(call, sizes[:2], weights, patience)
        # The first two are furthest apart: where they differ, the others need no trace. Formulas of
        # several sizes need more traces.
        if len(inner) == 1 and len(sizes) > 2 and Merged.of(samples, self.constants) is None:
            return None
        samples += self._samples(call, sizes[2:], weights, patience)
        return Derivation.of(samples, self.constants)

    def _samples(
        self,
        call: CallArrays,
        sizes: Sequence[SizeVector],
        weights: Weights,
        patience: Patience | None,
    ) -> list[Sample]:
        if patience is not None:
            self._begin(weights)
            for each in sizes:
                if self._key(call, each) not in self.samples:
                    patience.begin(self.seconds)
                    self.sample(call, each, weights)
            patience.begin(self.seconds)
        return [self.sample(call, each, weights) for each in sizes]

    def sample(self, call: CallArrays, sizes: SizeVector, weights: Weights) -> Sample:
        """Return the trace for these sizes of the call's bucket; raise if the model refuses."""
        self._begin(weights)
        key = self._key(call, sizes)
        if key not in self.samples:
            start, named = time.perf_counter(), self._named(call, sizes)
            recorder = SegmentCollector(
                self.backend, weights, call.padded, self.rewrites, single_rows=1 in sizes
            )
            recorder.registers.embeds_arrays = False
            self.trace(recorder, call.inputs(named))
            recorder.registers.frame.clear()  # It holds arrays of the call.
            self.samples[key] = Sample.of(sizes, recorder, self.constants)
            if len(self.samples) > MAX_TRACES:
                del self.samples[next(iter(self.samples))]
            self.seconds = time.perf_counter() - start
        return self.samples[key]

    def _begin(self, weights: Weights) -> None:
        if self.version != weights.static_version:
            self.samples.clear()
            self.version = weights.static_version

    def _key(self, call: CallArrays, sizes: SizeVector) -> Any:
        named = self._named(call, sizes)
        return tuple(named), tuple(call.specs(named))

    def _named(self, call: CallArrays, sizes: SizeVector) -> dict[str, int]:
        return dict(zip(call.bucket, sizes, strict=True))
