"""The entries of calls that differ from earlier ones in sizes only, which nothing is traced for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sardonyx.graph.buckets.automatic_calls import AutomaticCalls
from sardonyx.graph.buckets.derived_calls import DerivedCalls
from sardonyx.graph.buckets.recording import PaddedRecording
from sardonyx.graph.buckets.relatives import Likeness, Relatives
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.model.entries import Entries, Entry, without_stages
from sardonyx.graph.model.served_calls import ServedCalls
from sardonyx.graph.model.signature_texts import signature_text
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.values.params import Weights
from sardonyx.logs import Log

_LOG = Log("buckets")


@dataclass(frozen=True, eq=False, slots=True)
class ResizedEntries:
    """Makes the entry of such a call from that of an earlier one."""

    entries: Entries
    infos: Sequence[ValueInfo]
    compiler: Compiler

    def of_bucket(self, key: Any, weights: Weights, served: ServedCalls | None) -> Entry | None:
        """Return the entry of a padded call, with the plan for the sizes of this one."""
        alike = self.entries.alike(key, weights.static_version)
        if alike is None:
            return None
        entry, relatives, sizes = alike
        assert isinstance(entry.recording, PaddedRecording)
        resized = entry.recording.for_sizes(sizes)
        if isinstance(served, AutomaticCalls) and self.compiler.interprets:
            resized = served.unless_slow(resized, relatives, sizes.shapes, weights)
        if resized is None:
            return None
        _LOG.debug("A bucket serves %s.", partial(signature_text, key, self.infos))
        return self.entries.keep(key, entry.with_recording(resized))

    def of_function(self, key: Any, weights: Weights, served: ServedCalls | None) -> Entry | None:
        """Return the entry of a call that the function of all sizes runs, as it ran others."""
        alike = self.entries.alike_by_function(key, weights.static_version)
        if alike is None:
            return None
        like, sizes = alike
        entry = like.with_recording(without_stages(like.recording))
        assert like.likeness is not None
        call = entry.recording, like.likeness, sizes, weights
        if isinstance(served, AutomaticCalls):
            publish = partial(self.entries.publish, key, like.likeness.relatives, entry)
            is_served = served.serve_again(*call, publish)
        else:
            is_served = isinstance(served, DerivedCalls) and served.serve_again(*call)
        if not is_served:
            return None
        text = partial(signature_text, key, self.infos)
        _LOG.debug("The function of all sizes serves %s.", text)
        return self.entries.keep(key, entry)

    def note_function(
        self, key: Any, relatives: Relatives | None, entry: Entry, served: ServedCalls
    ) -> None:
        """Let calls like this one run as it does, if the function of all sizes runs it.

        A cache on disk may have a program for each of them.
        """
        has_cache = self.compiler.backend.folder is not None
        if entry.recording.sized is None or relatives is None or not entry.to_numpy or has_cache:
            return
        if not isinstance(served, AutomaticCalls | DerivedCalls):
            return
        shapes = tuple([tuple(shape) for _, shape, _ in key[1]])
        pattern = served.pattern_of(relatives, shapes)
        sizes = None if pattern is None else pattern.sizes_and_rest(shapes)
        if pattern is None or sizes is None:
            return
        like = entry.with_recording(without_stages(entry.recording))
        like.likeness = Likeness.of(key, relatives, pattern, sizes)
        self.entries.of_function = like
