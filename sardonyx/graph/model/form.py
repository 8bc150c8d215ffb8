"""A graph with one choice of its inputs, and the calls of it that were recorded.

A model has one form for calls that pass its required inputs alone, and one more for each set of
optional inputs that calls have passed: there these are inputs, and no initializers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from logging import DEBUG, INFO, WARNING
from threading import Lock
from typing import Any

import numpy as np

from sardonyx.display.units import counted
from sardonyx.errors import InvalidInput
from sardonyx.garbage import RARELY_COLLECTED
from sardonyx.graph.buckets.automatic_calls import AutomaticCalls
from sardonyx.graph.buckets.derived_calls import DerivedCalls
from sardonyx.graph.buckets.folded import NotingTracer
from sardonyx.graph.buckets.recording import PaddedRecording
from sardonyx.graph.buckets.relatives import Relatives
from sardonyx.graph.buckets.segment_collector import SegmentCollector
from sardonyx.graph.calls.arguments import in_input_order, registers_of
from sardonyx.graph.calls.array_interop import leaf_of, normalised
from sardonyx.graph.calls.dimensions import DeclaredSizes
from sardonyx.graph.calls.nested_values import described, key_of, map_arrays
from sardonyx.graph.calls.results import on_host
from sardonyx.graph.errors import node_errors
from sardonyx.graph.ir import Source, ValueInfo
from sardonyx.graph.model.entries import EVICTED, Entries, Entry
from sardonyx.graph.model.interface import PLAIN, CallOptions
from sardonyx.graph.model.resized_entries import ResizedEntries
from sardonyx.graph.model.served_calls import ServedCalls, Serving
from sardonyx.graph.model.shared import Shared
from sardonyx.graph.model.signature_texts import difference, signature_text
from sardonyx.graph.profiling.measuring import MeasuredCall, measured
from sardonyx.graph.profiling.profile import Profile
from sardonyx.graph.profiling.watching import Watch
from sardonyx.graph.programs.call_recorder import CallRecorder
from sardonyx.graph.programs.compiler import NEVER
from sardonyx.graph.programs.parallel_compiling import compile_stages
from sardonyx.graph.programs.program import Program
from sardonyx.graph.programs.recording_cache import RecordingCache
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.tracing.recorder import Recorder
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.tracing.tracer import Traced, Tracer
from sardonyx.graph.values.kinds import leaves
from sardonyx.graph.values.params import Weights, WeightStore
from sardonyx.logs import Log, Word, postponed

_LOG = Log("tracing")


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One call while it is recorded; its arrays belong to the backend, in the inputs' order."""

    entry: Entry
    arrays: list[Any]
    options: CallOptions
    weights: Weights


class Form:
    """Runs calls that pass the same inputs."""

    def __init__(self, source: Source, shared: Shared) -> None:
        self.source = source
        infos, most = source.graph.required_inputs, shared.options.max_signatures
        # Not a method of this form, which would then hold itself.
        self.entries = Entries(most, note_evicted=partial(_note_evicted, infos, most))
        self._shared = shared
        self.backend = shared.backend
        self._weights: WeightStore | Weights = shared.weights
        self._infos = infos
        self._takes_arrays = not any(info.container for info in infos)
        self._padding_lock = Lock()
        self._resizing = ResizedEntries(self.entries, infos, shared.compiler)

    @cached_property
    def recordings(self) -> RecordingCache | None:
        """The cache of recordings, if the model has a folder for it."""
        backend, shared = self.backend, self._shared
        if backend.folder is None:
            return None
        level = (shared.options.strict, self.source.to_the_letter)
        identity = f"{backend.identity} {level}"
        return RecordingCache(
            backend.folder, self.source, shared.weights, shared.constants, identity
        )

    def overriding(self, names: Sequence[str]) -> Form:
        """Return the form in which these initializers are inputs."""
        graph = self.source.graph
        chosen = [info for info in graph.optional_inputs if info.name in names]
        rest = {name: a for name, a in graph.initializers.items() if name not in names}
        graph = replace(graph, inputs=(*self._infos, *chosen), initializers=rest)
        return self.with_source(replace(self.source, graph=graph))

    def with_source(self, source: Source) -> Form:
        """Return the form of the same model for another graph of the same weights."""
        return type(self)(source, self._shared)

    def of_its_own(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of a call's inputs that this form takes."""
        return {info.name: named[info.name] for info in self._infos if info.name in named}

    # -- one call ---------------------------------------------------------------------------------

    def call(
        self,
        inputs: Sequence[Any],
        named: Mapping[str, Any],
        options: CallOptions,
        *,
        to_numpy: bool = False,
    ) -> Sequence[Any]:
        """Run a call and return its outputs."""
        arguments = in_input_order(self._infos, inputs, named)
        entries, weights = self.entries, self._weights.now()
        try:
            key = options.donated, tuple([(type(a), a.shape, a.dtype) for a in arguments])
            entry = entries.by_key.get(key) or self._resized(key, weights)
        except (AttributeError, TypeError):
            entry = None
        if entry is None:
            recorder = next((a for a in arguments if hasattr(type(a), "inline_model")), None)
            if recorder is not None:
                inlined: Sequence[Any] = recorder.inline_model(self.source, weights, arguments)
                return inlined
            arguments = self._normalised(arguments)
            entry = self._entry_for(arguments, options, weights)
        if entry.static_version != weights.static_version:
            entry, weights = self._renewed(arguments, options)
        # No other thread can come between reading the count and writing it.
        entries.calls = entry.used = entries.calls + 1
        arrays = arguments if entry.importers is None else self._imported(arguments, entry)
        passed = arrays if entry.is_flat else leaves(arrays)
        try:
            outputs = entry.recording.run_on_numpy(passed, weights)
            if outputs is None:
                with self.backend.scope():
                    outputs = entry.recording.run(passed, weights, partial(self.key, options))
            if outputs is None:
                outputs = self._first_run(Call(entry, arrays, options, weights))
        except Exception as error:
            retrace = partial(self._retrace, Call(entry, arrays, PLAIN, weights))
            node_errors.raise_from_call(error, self.backend, retrace)
        if to_numpy:
            backend = self.backend
            return [a if type(a) is np.ndarray else on_host(a, backend) for a in outputs]
        return entry.for_caller(outputs, arguments, arrays, self._shared.constants)

    def trace(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Program:
        """Return the program that a call with these inputs runs."""
        arguments = self._normalised(in_input_order(self._infos, inputs, named))
        entry, weights = self._renewed(arguments, PLAIN, learns=False)
        arrays = self._imported(arguments, entry)
        if isinstance(entry.recording, PaddedRecording):
            with self.backend.scope():
                shown = entry.recording.shown(leaves(arrays), weights)
            if shown is not None:
                return shown
        program, _ = self.record(Call(entry, arrays, PLAIN, weights), execute=False)
        return program()

    def compiled(self, named: Mapping[str, Any]) -> Program:
        """Return the program that a call with these inputs runs, compiled."""
        program, weights = self.trace((), named), self._weights.now()
        try:
            compile_stages(program.stages, self._shared.compiler, weights)
        except Exception as error:
            node_errors.raise_translated(error, "The program could not be compiled", self.backend)
        return program

    def profile(
        self, inputs: Sequence[Any], named: Mapping[str, Any], calls: int | None
    ) -> Profile:
        """Return the profile of a call with these inputs, compiled if calls are."""
        arguments = self._normalised(in_input_order(self._infos, inputs, named))
        entry, weights = self._renewed(arguments, PLAIN, learns=False)
        recording, compiler = entry.recording, self._shared.compiler
        if recording.inline:
            raise InvalidInput(
                "Under a transformation such as jit or vmap nothing runs that could be measured: "
                "pass arrays with data."
            )
        recording.sized = None  # The stages are measured, and run from now on.
        if not recording.root.following and compiler.mode != NEVER:
            self.compiled(dict(zip((i.name for i in self._infos), arguments, strict=True)))
        watch, options = Watch(compiler), CallOptions(key=self.key(PLAIN))
        call = Call(entry, self._imported(arguments, entry), options, weights)
        arrays, new_key = leaves(call.arrays), partial(self.key, options)
        try:
            with self.backend.scope():
                if not watch.prepare(recording, arrays, weights, new_key):
                    self.record(call, execute=True)
                    watch.prepare(recording, arrays, weights, new_key)
                followed = watch.watched(recording, arrays, weights)
        except Exception as error:
            node_errors.raise_from_call(error, self.backend, partial(self._retrace, call))

        def repeated(recording: Recording) -> Callable[[], None]:
            form = self._apart(arguments, entry.with_recording(recording), weights)
            return partial(form._finished_call, inputs, named, options)

        title = self._title(call.arrays)
        measured_call = MeasuredCall(title, weights, repeated(recording), repeated(followed))
        return measured(measured_call, watch, calls)

    def _apart(self, arguments: list[Any], entry: Entry, weights: Weights) -> Form:
        """Return a form for calls like these and these weights, whose counts are its own."""
        form = copy(self)
        form.entries = Entries(self.entries.most)
        form._resizing = replace(self._resizing, entries=form.entries)
        form.entries.keep((PLAIN.donated, key_of(arguments, _library_and_spec)), entry)
        form._weights = weights
        return form

    def _finished_call(
        self, inputs: Sequence[Any], named: Mapping[str, Any], options: CallOptions
    ) -> None:
        """Run a call, and return when its results are computed."""
        outputs = leaves(self.call(inputs, named, options))
        owned = [array for array in outputs if self.backend.owns(array)]
        if owned:
            self.backend.wait(owned)

    def release(self) -> None:
        """Forget all recordings."""
        self.entries.clear()
        self.__dict__.pop("_padded_calls", None)

    def _normalised(self, arguments: list[Any]) -> list[Any]:
        if self._takes_arrays and _NUMPY.issuperset(map(type, arguments)):
            return arguments
        return [normalised(a, info) for a, info in zip(arguments, self._infos, strict=True)]

    def _imported(self, arguments: list[Any], entry: Entry) -> list[Any]:
        if entry.importers is None:
            return arguments
        if entry.is_flat and entry.to_numpy and self.backend.takes_numpy:
            # What reads NumPy's arrays only checks them, or copies them there.
            pairs = zip(arguments, entry.importers, strict=True)
            return [a if convert is None else convert(a) for a, convert in pairs]
        converts = iter(entry.importers)

        def imported(array: Any) -> Any:
            convert = next(converts)
            return array if convert is None else convert(array)

        with self.backend.scope():
            return [map_arrays(imported, value) for value in arguments]

    # -- entries ----------------------------------------------------------------------------------

    def _renewed(
        self, arguments: list[Any], options: CallOptions, *, learns: bool = True
    ) -> tuple[Entry, Weights]:
        """Return an entry and the weights it was recorded for, which other threads may replace."""
        while True:
            weights = self._weights.now()
            self.entries.forget_before(weights.static_version)
            entry = self._entry_for(arguments, options, weights, learns=learns)
            if entry.static_version == weights.static_version:
                return entry, weights

    def _entry_for(
        self, arguments: list[Any], options: CallOptions, weights: Weights, *, learns: bool = True
    ) -> Entry:
        """Return the entry of a call; `learns` unless somebody only looks at the call."""
        key = options.donated, key_of(arguments, _library_and_spec)
        entry = self.entries.by_key.get(key)
        if entry is not None and entry.static_version >= weights.static_version:
            return entry
        resized = self._resized(key, weights, learns=learns)
        if resized is not None:
            return resized
        with postponed():
            new = self._new_entry(key, arguments, options, weights, learns=learns)
            kept = self.entries.keep(key, new)
            if kept is new:
                self._note_new(key)
            return kept

    def _note_new(self, key: Any) -> None:
        text, graph = partial(signature_text, key, self._infos), self.source.graph.name or "graph"
        reason: Word | None = self.entries.reason_of_drop(key)
        level = WARNING if reason == EVICTED else INFO
        if reason is None:
            reason = partial(difference, key, self._infos, list(self.entries.by_key))
        words, fields = (graph, text, reason), {"signature": text, "reason": reason}
        _LOG.log(level, "New signature %s(%s): %s.", *words, **fields)

    def _new_entry(
        self,
        key: Any,
        arguments: list[Any],
        options: CallOptions,
        weights: Weights,
        *,
        learns: bool,
    ) -> Entry:
        relatives = Relatives.of(key)
        entry = self._empty_entry(relatives, arguments, options, weights)
        padded = self._padded_calls
        if padded is None or (isinstance(padded, AutomaticCalls | DerivedCalls) and not learns):
            return entry
        arrays = self._imported(arguments, entry)
        recording = padded.recording
        if isinstance(padded, AutomaticCalls) and self._shared.compiler.interprets:
            publish = partial(self.entries.publish, key, relatives, entry)
            recording = partial(padded.recording, publish=publish)
        with self.backend.scope():
            entry.recording = recording(entry.recording, relatives, arrays, weights)
        if relatives is not None and isinstance(entry.recording, PaddedRecording):
            self.entries.keep_relative(relatives, entry)
        self._resizing.note_function(key, relatives, entry, padded)
        return entry

    def _empty_entry(
        self,
        relatives: Relatives | None,
        arguments: list[Any],
        options: CallOptions,
        weights: Weights,
    ) -> Entry:
        """Return an entry for calls like this one, without stages."""
        empty = self.entries.empty.get(relatives)
        entry = None if empty is None else empty.for_arrays(arguments, weights)
        if entry is not None:
            return entry
        # It refuses sizes that are not the declared ones.
        entry = Entry.of(arguments, self._infos, self._shared.compiler, weights, options.donated)
        if relatives is not None and entry.to_numpy:
            shapes = [array.shape for array in arguments]
            declared = DeclaredSizes(list(map(leaf_of, self._infos)), shapes)
            self.entries.keep_empty(relatives, entry, declared)
        return entry

    def _resized(self, key: Any, weights: Weights, *, learns: bool = True) -> Entry | None:
        """Return the entry of a call that differs from earlier ones in sizes only, if known."""
        entries, resizing = self.entries, self._resizing
        entry = None
        if entries.relatives:
            entry = resizing.of_bucket(key, weights, self._padded_calls)
        if entry is None and learns and entries.of_function is not None:
            entry = resizing.of_function(key, weights, self._padded_calls)
        return entry

    @cached_property
    def _padded_calls(self) -> ServedCalls | None:
        methods = self._collected, self._recall_plain
        parts = self.source, self._shared, self._infos, *methods, self._padding_lock
        return Serving(*parts).chosen()

    def _collected(
        self, recorder: SegmentCollector, values: Sequence[Any]
    ) -> Callable[..., Program]:
        """Trace a call without running it; return what shows stages as its program."""
        tracer = partial(NotingTracer, folded=recorder.folded)
        traced = self._traced(recorder, values, self._shared.fresh_key(), tracer)
        return partial(Program, self._title(values), self.backend, traced)

    # -- running and recording --------------------------------------------------------------------

    def _first_run(self, call: Call) -> Sequence[Any]:
        """Record and run a call of a new signature; calls of other signatures do not wait."""
        with postponed(), self.backend.scope(), call.entry.recording.lock:
            outputs = self._replayed(call)
            if outputs is not None:  # Recorded by another thread, meanwhile.
                return outputs
            self.entries.missed += 1
            if self._recalled(call):
                outputs = self._replayed(call)
            return self.record(call, execute=True)[1] if outputs is None else outputs

    def _replayed(self, call: Call) -> Sequence[Any] | None:
        new_key = partial(self.key, call.options)
        return call.entry.recording.run(leaves(call.arrays), call.weights, new_key)

    def _recalled(self, call: Call) -> bool:
        return self._recall(call.entry.recording, self._cache_key(call.arrays, call.options))

    def _recall_plain(self, recording: Recording, arrays: Sequence[Any]) -> bool:
        if self.recordings is None:
            return False
        return self._recall(recording, self._cache_key(arrays, PLAIN))

    def _recall(self, recording: Recording, key: Any) -> bool:
        """Read the recording of such a call from the cache; return whether there was one."""
        return self.recordings is not None and self.recordings.recall(recording, key)

    def _cache_key(self, arrays: Sequence[Any], options: CallOptions) -> Any:
        return options.donated, key_of(arrays, self.backend.spec)

    def _retrace(self, call: Call) -> None:
        """Trace a failed call again, so that the error names the node."""
        recording = Recording(self._shared.compiler, call.entry.recording.inline)
        again = replace(call, entry=replace(call.entry, recording=recording))
        self.record(again, execute=False)

    def record(self, call: Call, *, execute: bool) -> tuple[Callable[[], Program], Sequence[Any]]:
        """Trace a call, and with `execute` run it.

        Return its program, which is described only for those who ask for it, and its outputs.
        """
        shared, recording, arrays = self._shared, call.entry.recording, call.arrays
        start = time.perf_counter()
        with RARELY_COLLECTED, postponed(), recording.lock, self.backend.scope():
            recording.sized = None  # Whoever looks at the stages compiles them, too.
            is_new = execute or not recording.root.following
            recorder = CallRecorder(
                recording.root,
                shared.compiler,
                call.weights,
                shared.constants,
                is_inline=recording.inline,
                execute=execute,
                rewrites=self.source.rewrites,
                donated=registers_of(call.options.donated, self._infos, arrays),
                from_numpy=recording.from_numpy,
                before_run=recording.before_run if execute else None,
                inputs=[
                    i.name for i, v in zip(self._infos, arrays, strict=True) for _ in leaves(v)
                ],
            )
            recorder.registers.embeds_arrays = recording.embeds_arrays
            try:
                traced = self._traced(recorder, arrays, self.key(call.options))
            finally:  # A call that fails as it runs was recorded, and the next replays it.
                recording.settle()
            if is_new and self.recordings is not None:
                self.recordings.keep(recording, self._cache_key(arrays, call.options))
            title, path = partial(self._title, arrays), tuple(recorder.path)
            self._note_traced(title, path, time.perf_counter() - start, is_run=execute)
            outputs = recorder.arrays_of(traced.outputs) if execute else ()
            return lambda: Program(title(), self.backend, traced, path), outputs

    def _note_traced(
        self, title: Callable[[], str], path: Sequence[Stage], seconds: float, *, is_run: bool
    ) -> None:
        segments = [stage.segment for stage in path if stage.segment is not None]
        steps = sum(len(segment.steps) for segment in segments)
        size = f"{counted(steps, 'step')} in {counted(len(segments), 'segment')}"
        level, what = (INFO, "Traced and ran") if is_run else (DEBUG, "Traced")
        words = what, title, seconds, size
        _LOG.log(level, "%s a call of %s in %.3f s: %s.", *words, seconds=seconds, steps=steps)

    def _traced(
        self,
        recorder: Recorder,
        arrays: Sequence[Any],
        key: Any,
        tracer: Callable[..., Tracer] | None = None,
    ) -> Traced:
        """Trace the graph for these arrays; the recorder takes the segments."""
        self.entries.traces += 1
        tape = Tape(recorder, self._shared.inferred)
        options = self._shared.options
        walk = options.tracer if tracer is None else tracer
        return walk(self.source, tape, strict=options.strict).trace(arrays, key)

    def key(self, options: CallOptions) -> Any:
        """Return the key for random draws: that of the call, or a fresh one."""
        return self._shared.fresh_key() if options.key is None else options.key

    def _title(self, arrays: Sequence[Any]) -> str:
        inputs = ", ".join(
            f"{info.name}: {described(array, self.backend)}"
            for info, array in zip(self._infos, arrays, strict=True)
        )
        return f"{self.source.graph.name or 'graph'}({inputs}) on {self.backend.name}"


_NUMPY = frozenset((np.ndarray,))


def _note_evicted(infos: Sequence[ValueInfo], most: int, key: Any) -> None:
    text = partial(signature_text, key, infos)
    _LOG.info("Evicted the signature %s: max_signatures is %d.", text, most, signature=text)


def _library_and_spec(array: Any) -> Any:
    return type(array), tuple(array.shape), array.dtype
