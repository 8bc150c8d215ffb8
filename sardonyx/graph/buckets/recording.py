"""What is kept for calls of one signature where their arrays are padded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sardonyx.graph.buckets.given import Given
from sardonyx.graph.buckets.programs import Buckets, Fit
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.programs.program import Program
from sardonyx.graph.programs.replay import NewKey, Recording
from sardonyx.graph.values.kinds import digest
from sardonyx.graph.values.params import Weights


def bucketed(
    plain: Recording,
    buckets: Buckets,
    values: Sequence[Any],
    infos: Sequence[ValueInfo],
    weights: Weights,
) -> Recording:
    """The recording for calls with inputs like these; the plain one where none is padded."""
    given = Given.of(values, infos)
    given = replace(given, changed=buckets.sizes.padded(given.sizes))
    if plain.inline or not given.changed:
        return plain
    padded = PaddedRecording(plain.compiler, False, buckets=buckets, given=given.kind)
    padded.fit(given.arrays, weights)
    return padded


@dataclass(eq=False, slots=True)
class PaddedRecording(Recording):
    """A recording for calls of one signature, whose arrays are padded.

    Where that cannot be, because the graph is another one for just these sizes, it is its own.
    """

    buckets: Buckets = field(kw_only=True)
    # The arrays of a call, but not their data.
    given: Given = field(kw_only=True)
    # The arrays whose values decide which program runs, and where they have led to.
    read: set[int] = field(default_factory=set)
    fits: dict[Any, Fit | None] = field(default_factory=dict)

    def run(self, inputs: Sequence[Any], weights: Weights, new_key: NewKey) -> Sequence[Any] | None:
        fit = self.fit(inputs, weights)
        if fit is None:
            return Recording.run(self, inputs, weights, new_key)
        if fit.program.draws:
            inputs = [*inputs, new_key()]
        return self.buckets.run(fit, inputs, weights)

    def fit(self, inputs: Sequence[Any], weights: Weights) -> Fit | None:
        """The program for these arrays; which one it is may depend on the values of some."""
        key = self._key_of(inputs)
        if key in self.fits:
            return self.fits[key]
        with self.buckets.lock:
            fit, read = self.buckets.fit(replace(self.given, arrays=inputs), weights)
        self.read |= read
        if len(self.fits) >= MOST_FITS:
            self.fits.clear()
        self.fits[self._key_of(inputs)] = fit
        return fit

    def shown(self, inputs: Sequence[Any], weights: Weights) -> Program | None:
        """What these arrays run; None where it is a program of their own."""
        fit = self.fit(inputs, weights)
        return None if fit is None else fit.program.shown

    def _key_of(self, inputs: Sequence[Any]) -> Any:
        if not self.read:
            return ()
        backend = self.compiler.backend
        values = (inputs[i] for i in sorted(self.read))
        return tuple(digest(backend.fetch(v) if backend.owns(v) else v) for v in values)


# For how many values of its arrays a call of one signature keeps programs.
MOST_FITS = 64
