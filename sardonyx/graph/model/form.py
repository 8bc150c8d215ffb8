"""A graph with one choice of its inputs, and the calls of it that were recorded.

A model has one form for calls that give its required inputs alone, and one more for each set of
optional inputs that calls have given: there these are inputs, and no initializers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from threading import Lock
from typing import Any

from sardonyx.graph.buckets.programs import Buckets
from sardonyx.graph.buckets.recording import PaddedRecording, bucketed
from sardonyx.graph.buckets.segment_collector import SegmentCollector
from sardonyx.graph.calls.arguments import arranged, registers_of
from sardonyx.graph.calls.array_interop import normalised
from sardonyx.graph.calls.nested_values import described, each, flat, kind, signature
from sardonyx.graph.calls.results import on_host
from sardonyx.graph.errors import node_errors
from sardonyx.graph.ir import Source
from sardonyx.graph.model.bound import PLAIN, CallOptions
from sardonyx.graph.model.entries import Entries, Entry
from sardonyx.graph.model.shared import Shared
from sardonyx.graph.programs.call_recorder import CallRecorder
from sardonyx.graph.programs.program import Program
from sardonyx.graph.programs.recording_cache import RecordingCache
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.tracing.recorder import Recorder
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.tracing.tracer import Traced, Tracer
from sardonyx.graph.values.params import Weights


class Form:
    """Runs calls that give the same inputs."""

    def __init__(self, source: Source, shared: Shared) -> None:
        self.source = source
        self.entries = Entries(shared.options.max_signatures)
        self._shared = shared
        self.backend = shared.backend
        self._params = shared.params
        self._infos = source.graph.required_inputs
        self._padding_lock = Lock()

    @cached_property
    def recordings(self) -> RecordingCache | None:
        """The recordings of other processes, where the model has a cache."""
        backend, shared = self.backend, self._shared
        if backend.folder is None:
            return None
        identity = f"{backend.identity} {shared.options.strict}"
        return RecordingCache(
            backend.folder, self.source, shared.params, shared.constants, identity
        )

    def overriding(self, names: Sequence[str]) -> Form:
        """The form in which these initializers are inputs."""
        graph = self.source.graph
        chosen = [info for info in graph.optional_inputs if info.name in names]
        rest = {name: a for name, a in graph.initializers.items() if name not in names}
        graph = replace(graph, inputs=(*self._infos, *chosen), initializers=rest)
        return type(self)(replace(self.source, graph=graph), self._shared)

    def arranged(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """A call's arguments in the order of the inputs."""
        return arranged(self._infos, inputs, named)

    # -- one call ---------------------------------------------------------------------------------

    def call(
        self, given: list[Any], options: CallOptions, *, to_numpy: bool = False
    ) -> Sequence[Any]:
        """The outputs for arguments in the order of the inputs."""
        entries, weights = self.entries, self._params.now()
        try:
            entry = entries.known[
                options.donated, tuple([(type(a), a.shape, a.dtype) for a in given])
            ]
        except (KeyError, AttributeError, TypeError):
            given = self._normalised(given)
            entry = self._entry_for(given, options, weights)
        if entry.static_version != weights.static_version:
            entry, weights = self._renewed(given, options)
        # No other thread can come between reading the count and writing it.
        entries.calls = entry.used = entries.calls + 1
        arrays = given if entry.importers is None else self._imported(given, entry)
        passed = arrays if entry.is_flat else flat(arrays)
        try:
            with self.backend.scope():
                outputs = entry.recording.run(passed, weights, partial(self.key, options))
                if outputs is None:
                    outputs = self._met(entry, arrays, options, weights)
        except Exception as error:
            retrace = partial(self._retrace, entry, arrays, weights)
            node_errors.raise_from_call(error, self.backend, retrace)
        if to_numpy:
            return [on_host(output, self.backend) for output in outputs]
        constants = self._shared.constants
        return [entry.leaving(output, given, arrays, constants) for output in outputs]

    def trace(self, given: Sequence[Any]) -> Program:
        """What a call with these arguments would run."""
        values = self._normalised(given)
        entry, weights = self._renewed(values, PLAIN)
        arrays = self._imported(values, entry)
        if isinstance(entry.recording, PaddedRecording):
            with self.backend.scope():
                shown = entry.recording.shown(flat(arrays), weights)
            if shown is not None:
                return shown
        return self.record(entry, arrays, PLAIN, weights, execute=False)[0]

    def compiled(self, given: Sequence[Any]) -> Program:
        """What a call with these arguments would run, compiled."""
        program, weights = self.trace(given), self._params.now()
        try:
            for stage in program.stages:
                stage.compile(self._shared.compiler, weights)
        except Exception as error:
            node_errors.raise_translated(error, "The program could not be compiled", self.backend)
        return program

    def release(self) -> None:
        """Forget all recordings."""
        self.entries.clear()
        self.__dict__.pop("_buckets", None)

    def _normalised(self, given: Sequence[Any]) -> list[Any]:
        return [normalised(a, info) for a, info in zip(given, self._infos, strict=True)]

    def _imported(self, given: Sequence[Any], entry: Entry) -> list[Any]:
        if entry.importers is None:
            return list(given)
        converts = iter(entry.importers)

        def imported(array: Any) -> Any:
            convert = next(converts)
            return array if convert is None else convert(array)

        with self.backend.scope():
            return [each(imported, value) for value in given]

    # -- entries ----------------------------------------------------------------------------------

    def _renewed(self, given: Sequence[Any], options: CallOptions) -> tuple[Entry, Weights]:
        """An entry and the weights for which it was recorded, which others may be replacing."""
        while True:
            weights = self._params.now()
            self.entries.forget_before(weights.static_version)
            entry = self._entry_for(given, options, weights)
            if entry.static_version == weights.static_version:
                return entry, weights

    def _entry_for(self, given: Sequence[Any], options: CallOptions, weights: Weights) -> Entry:
        key = options.donated, tuple(signature(value) for value in given)
        entry = self.entries.known.get(key)
        if entry is not None and entry.static_version >= weights.static_version:
            return entry
        entry = Entry.of(given, self._infos, self._shared.compiler, weights)
        if self._buckets is not None:
            arrays = self._imported(given, entry)
            with self.backend.scope():
                entry.recording = bucketed(
                    entry.recording, self._buckets, arrays, self._infos, weights
                )
        return self.entries.keep(key, entry)

    @cached_property
    def _buckets(self) -> Buckets | None:
        """Pads calls to sizes that share a program, where any are asked for."""
        shared, sizes = self._shared, self._shared.options.buckets
        padding = self.backend.padding() if sizes else None
        if not sizes or padding is None:
            return None

        def trace(recorder: SegmentCollector, values: Sequence[Any]) -> Callable[..., Program]:
            traced = self._traced(recorder, values, shared.fresh_key())
            return partial(Program, self._title(values), self.backend, traced)

        lock, rewrites = self._padding_lock, self.source.rewrites
        return Buckets(sizes, padding, shared.compiler, shared.constants, trace, lock, rewrites)

    # -- running and recording --------------------------------------------------------------------

    def _met(
        self, entry: Entry, arrays: list[Any], options: CallOptions, weights: Weights
    ) -> Sequence[Any]:
        """Run a call that nothing was recorded for yet; calls of other signatures need not wait."""
        with entry.recording.lock:
            outputs = self._replayed(entry, arrays, options, weights)
            if outputs is not None:  # Recorded by another thread, meanwhile.
                return outputs
            self.entries.missed += 1
            if self._recalled(entry, arrays, options):
                outputs = self._replayed(entry, arrays, options, weights)
            if outputs is not None:
                return outputs
            return self.record(entry, arrays, options, weights, execute=True)[1]

    def _replayed(
        self, entry: Entry, arrays: list[Any], options: CallOptions, weights: Weights
    ) -> Sequence[Any] | None:
        return entry.recording.run(flat(arrays), weights, partial(self.key, options))

    def _recalled(self, entry: Entry, arrays: list[Any], options: CallOptions) -> bool:
        """Whether another process has recorded such a call."""
        recordings = self.recordings
        if recordings is None or not isinstance(entry.recording, Recording):
            return False
        return recordings.recall(entry.recording, self._kind(arrays, options))

    def _kind(self, arrays: Sequence[Any], options: CallOptions) -> Any:
        return options.donated, tuple(kind(value, self.backend) for value in arrays)

    def _retrace(self, entry: Entry, arrays: list[Any], weights: Weights) -> None:
        """Trace a call that failed once more: where a node is at fault, that names it."""
        recording = Recording(self._shared.compiler, entry.recording.inline)
        again = replace(entry, recording=recording)
        self.record(again, arrays, PLAIN, weights, execute=False)

    def record(
        self,
        entry: Entry,
        arrays: list[Any],
        options: CallOptions,
        weights: Weights,
        *,
        execute: bool,
    ) -> tuple[Program, Sequence[Any]]:
        """Trace a call, and with `execute` run it: its program, and then its outputs."""
        shared, recording = self._shared, entry.recording
        with recording.lock, self.backend.scope():
            is_new = execute or not recording.root.following
            recorder = CallRecorder(
                recording.root,
                shared.compiler,
                weights,
                shared.constants,
                is_inline=recording.inline,
                execute=execute,
                rewrites=self.source.rewrites,
                donated=registers_of(options.donated, self._infos, arrays),
            )
            try:
                traced = self._traced(recorder, arrays, self.key(options))
            finally:  # A call that fails as it runs was recorded, and the next replays it.
                recording.settle()
            if is_new and self.recordings is not None:
                self.recordings.keep(recording, self._kind(arrays, options))
            program = Program(self._title(arrays), self.backend, traced, recorder.path)
            return program, recorder.arrays_of(traced.outputs) if execute else ()

    def _traced(self, recorder: Recorder, arrays: Sequence[Any], key: Any) -> Traced:
        """Trace the graph for these arrays; the recorder takes the segments."""
        tape = Tape(recorder, self._shared.inferred)
        return Tracer(self.source, tape, strict=self._shared.options.strict).trace(arrays, key)

    def key(self, options: CallOptions) -> Any:
        """The key to draw at random from: the call's own, or a fresh one."""
        return self._shared.fresh_key() if options.key is None else options.key

    def _title(self, arrays: Sequence[Any]) -> str:
        given = ", ".join(
            f"{info.name}: {described(array, self.backend)}"
            for info, array in zip(self._infos, arrays, strict=True)
        )
        return f"{self.source.graph.name or 'graph'}({given}) on {self.backend.name}"
