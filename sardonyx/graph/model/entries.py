"""The entries of a model: one per signature, up to a maximum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from operator import is_, itemgetter
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from sardonyx.graph.buckets.families import CallSizes
from sardonyx.graph.buckets.recording import PaddedRecording
from sardonyx.graph.buckets.relatives import Likeness, Relatives
from sardonyx.graph.calls.array_interop import (
    Convert,
    Described,
    check_input,
    exporter,
    importer,
    leaf_of,
)
from sardonyx.graph.calls.dimensions import DeclaredSizes, dimensions_of
from sardonyx.graph.calls.nested_values import NESTED, as_dicts, map_arrays
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.values.kinds import Static, leaves
from sardonyx.graph.values.params import Constants, Weights


@dataclass(eq=False, slots=True)
class Entry:
    """The recording for calls of one signature, and how their arrays enter and leave."""

    importers: tuple[Convert | None, ...] | None
    recording: Recording
    exporter: Convert
    to_numpy: bool
    # Whether each input is one array, not a sequence, a map or absent.
    is_flat: bool
    static_version: int
    # The number of the last call that used the entry.
    used: int = 0
    # What the model declares, if other calls are checked by this one.
    declared: DeclaredSizes | None = None
    # What other calls are compared with that this one's bucket may serve.
    likeness: Likeness | None = None

    @classmethod
    def of(
        cls,
        arguments: list[Any],
        infos: Sequence[ValueInfo],
        compiler: Compiler,
        weights: Weights,
        donated: Collection[str] = (),
    ) -> Entry:
        """Check the arrays of a call against the model; return the entry for such calls."""
        backend = compiler.backend
        pairs = [
            (array, leaf_of(info))
            for value, info in zip(arguments, infos, strict=True)
            for array in leaves(value)
        ]
        arrays = [array for array, _ in pairs]
        is_numpy = all(isinstance(array, np.ndarray) for array in arrays)
        importers = [
            importer(array, info, backend, copies=not is_numpy, is_donated=info.name in donated)
            for array, info in pairs
        ]
        sizes: dict[str, int] = {}
        with backend.scope():
            for (array, info), convert in zip(pairs, importers, strict=True):
                imported = array if convert is None else convert(array)
                check_input(backend.spec(imported), info, sizes)
        inline = any(backend.is_abstract(array) for array in arrays)
        return cls(
            tuple(importers) if any(importers) else None,
            Recording(compiler, inline, is_numpy, len(arrays)),
            exporter(arrays, backend),
            is_numpy,
            len(arrays) == len(arguments) and all(map(is_, arrays, arguments)),
            weights.static_version,
        )

    def for_arrays(self, arrays: Sequence[Any], weights: Weights) -> Entry | None:
        """Return the entry for calls with these sizes; None if the model declares others."""
        declared, recording = self.declared, self.recording
        if declared is None or not declared.agree(dimensions_of([a.shape for a in arrays])):
            return None
        entry = self.with_recording(without_stages(recording))
        entry.static_version = weights.static_version
        return entry

    def with_recording(self, recording: Recording) -> Entry:
        """Return the entry for calls that differ in their recording only.

        `dataclasses.replace` looks at all fields, and this runs at each new size of a bucket.
        """
        return Entry(
            self.importers,
            recording,
            self.exporter,
            self.to_numpy,
            self.is_flat,
            self.static_version,
            self.used,
        )

    def for_caller(
        self,
        outputs: Sequence[Any],
        arguments: list[Any],
        arrays: list[Any],
        constants: Constants,
    ) -> list[Any]:
        """Return the outputs in the caller's library; an output that is an input is that object."""
        if arguments is arrays:
            kinds = set(map(type, outputs))
            if self.to_numpy and kinds == _NUMPY:
                return list(outputs)
            if _NEEDING_MORE.isdisjoint(kinds):
                return list(map(self.exporter, outputs))
        originals = {}
        if arguments is not arrays:
            pairs = zip(leaves(arguments), leaves(arrays), strict=True)
            originals = {id(imported): original for original, imported in pairs}

        def convert(array: Any) -> Any:
            if isinstance(array, Static):
                value = array.value
                return value if self.to_numpy else self.exporter(constants.for_output(value))
            original = originals.get(id(array))
            if original is None:
                return self.exporter(array)
            return original.original if isinstance(original, Described) else original

        return [
            as_dicts(map_arrays(convert, output)) if type(output) in NESTED else convert(output)
            for output in outputs
        ]


def without_stages(recording: Recording) -> Recording:
    """Return a new recording for calls whose arrays of NumPy have other sizes than these."""
    return Recording(recording.compiler, recording.inline, True, recording.inputs)


_NUMPY = frozenset((np.ndarray,))
# The kinds of outputs that are more than an array of the backend.
_NEEDING_MORE = frozenset((*NESTED, Static))


# Why an entry was dropped.
EVICTED = "it was evicted; raise max_signatures, or use buckets"
OUTDATED = "a weight that tracing read was replaced"
RELEASED = "its program was released"
# Maximum number of dropped signatures that are remembered, by hashes of them.
MOST_DROPPED = 4096


def _ignore(key: Any) -> None:
    pass


class Alike(NamedTuple):
    """The entry of a padded call, and the sizes of another one that its bucket may serve."""

    entry: Entry
    relatives: Relatives
    sizes: CallSizes


@dataclass(eq=False, slots=True)
class Entries:
    """The entries by signature; beyond `most` the least recently used ones are evicted."""

    most: int
    by_key: dict[Any, Entry] = field(default_factory=dict)
    # Entries of padded calls, by all but their sizes.
    relatives: dict[Any, Entry] = field(default_factory=dict)
    # The one of them that served the last call of a new size.
    latest: Entry | None = None
    # The last one whose calls run the function of all sizes, without its recording.
    of_function: Entry | None = None
    # Entries of calls with NumPy's arrays alone, without their recordings, by the same.
    empty: dict[Any, Entry] = field(default_factory=dict)
    calls: int = 0
    # Calls without a recording.
    missed: int = 0
    evicted: int = 0
    traces: int = 0
    # Called with the key of an entry that was evicted.
    note_evicted: Callable[[Any], None] = _ignore
    # When entries were last used, some time ago, with those that are still kept; the newest first.
    _in_order: list[tuple[int, Any, Entry]] = field(default_factory=list)
    # Why entries were dropped, by hashes of their keys.
    _dropped: dict[int, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def keep(self, key: Any, entry: Entry) -> Entry:
        """Keep and return an entry, or the one that another thread kept before; evict others."""
        with self._lock:
            present = self.by_key.setdefault(key, entry)
            if present is not entry:
                if present.static_version >= entry.static_version:
                    return present
                self._replace(key, entry)
            entry.used = self.calls
            evicted = []
            while len(self.by_key) > self.most:
                oldest = self._least_recently_used()
                del self.by_key[oldest]
                self.evicted += 1
                self._note_dropped(oldest, EVICTED)
                evicted.append(oldest)
        for each in evicted:
            self.note_evicted(each)
        return entry

    def _replace(self, key: Any, entry: Entry | None) -> None:
        if entry is None:
            del self.by_key[key]
        else:
            self.by_key[key] = entry
        self._in_order.clear()

    def _least_recently_used(self) -> Any:
        """Return a key; entries are put in order once for many calls: to look for one takes 20 us.

        What was used or kept since then is newer than all that was not.
        """
        while True:
            while self._in_order:
                used, key, entry = self._in_order.pop()
                if entry.used == used:
                    return key
            found = [(entry.used, key, entry) for key, entry in self.by_key.items()]
            found.sort(key=itemgetter(0))
            self._in_order = found[::-1]

    def _note_dropped(self, key: Any, reason: str) -> None:
        self._dropped[hash(key)] = reason
        if len(self._dropped) > MOST_DROPPED:
            del self._dropped[next(iter(self._dropped))]

    def reason_of_drop(self, key: Any) -> str | None:
        """Return why the last entry of this signature was dropped; forget it."""
        with self._lock:
            return self._dropped.pop(hash(key), None)

    def publish(
        self, key: Any, relative_key: Any, entry: Entry, recording: Recording | None
    ) -> None:
        """Let calls of a signature, and those that differ in sizes only, use another recording.

        Without one the signature is new again: its next call may belong to another bucket.
        """
        with self._lock:
            if self.by_key.get(key) is not entry:
                return
            padded = None if recording is None else entry.with_recording(recording)
            self._replace(key, padded)
        if padded is not None:
            self.keep_relative(relative_key, padded)

    def forget_before(self, static_version: int) -> None:
        """Drop the entries recorded for older values of params that tracing reads."""
        with self._lock:
            for key, entry in list(self.by_key.items()):
                if entry.static_version < static_version:
                    self._replace(key, None)
                    self._note_dropped(key, OUTDATED)

    def alike(self, key: Any, static_version: int) -> Alike | None:
        """Return the padded calls that differ from one with this key in sizes only, if any."""
        if not self.relatives:
            return None
        latest = self.latest
        if latest is not None and latest.static_version == static_version:
            likeness = latest.likeness
            sizes = None if likeness is None else likeness.sizes(key)
            if likeness is not None and sizes is not None:
                return Alike(latest, likeness.relatives, sizes)
        relatives = Relatives.of(key)
        entry = self.relatives.get(relatives)
        if relatives is None or entry is None or entry.static_version != static_version:
            return None
        assert isinstance(entry.recording, PaddedRecording)
        pattern = entry.recording.family.pattern
        sizes = pattern.sizes_and_rest(tuple([tuple(shape) for _, shape, _ in key[1]]))
        if sizes is None:
            return None
        if entry.likeness is None or entry.likeness.rest != sizes.rest:
            entry.likeness = Likeness.of(key, relatives, pattern, sizes)
        with self._lock:
            if self.relatives.get(relatives) is entry:
                self.latest = entry
        return Alike(entry, relatives, sizes)

    def alike_by_function(self, key: Any, static_version: int) -> tuple[Entry, CallSizes] | None:
        """Return the entry of calls by the function of all sizes, and the sizes of this one.

        None if this call is not like them.
        """
        entry = self.of_function
        if entry is None or entry.likeness is None or entry.static_version != static_version:
            return None
        sizes = entry.likeness.sizes(key)
        return None if sizes is None else (entry, sizes)

    def keep_relative(self, key: Any, entry: Entry) -> None:
        """Keep the entry of a padded call for others that differ in sizes only."""
        self._keep(self.relatives, key, entry)
        self.latest = None

    def keep_empty(self, key: Any, entry: Entry, declared: DeclaredSizes) -> None:
        """Keep what is the same for all calls that differ in sizes only."""
        kept = entry.with_recording(without_stages(entry.recording))
        kept.declared = declared
        self._keep(self.empty, key, kept)

    def _keep(self, entries: dict[Any, Entry], key: Any, entry: Entry) -> None:
        with self._lock:
            entries[key] = entry
            if len(entries) > self.most:
                del entries[next(iter(entries))]

    def clear(self) -> None:
        with self._lock:
            for key in self.by_key:
                self._note_dropped(key, RELEASED)
            self.by_key.clear()
            self.relatives.clear()
            self.latest = self.of_function = None
            self.empty.clear()
            self._in_order.clear()
