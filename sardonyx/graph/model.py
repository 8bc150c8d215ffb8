"""The object that people hold: a loaded model, callable."""

from __future__ import annotations

import fnmatch
import gc
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from secrets import randbits
from threading import RLock
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from sardonyx.graph import faults
from sardonyx.graph.arguments import (
    arranged,
    by_name,
    chosen_outputs,
    registers_of,
    require_feeds,
)
from sardonyx.graph.arrays import normalised, stand_ins
from sardonyx.graph.buckets.programs import Buckets
from sardonyx.graph.buckets.recording import PaddedRecording, bucketed
from sardonyx.graph.buckets.sizes import Sizes
from sardonyx.graph.buckets.tape import WholeTape
from sardonyx.graph.compiling import Compiler, Watch, unwatched
from sardonyx.graph.inference import Inferred
from sardonyx.graph.kept import KeptRecordings
from sardonyx.graph.loading.audit import audit
from sardonyx.graph.memory import Memory
from sardonyx.graph.params import Constants, Params
from sardonyx.graph.program import Program
from sardonyx.graph.replay import Recording
from sardonyx.graph.results import on_host, results_type
from sardonyx.graph.signatures import Entries, Entry
from sardonyx.graph.stats import Stats
from sardonyx.graph.structure import Source, ValueInfo
from sardonyx.graph.tape import Tape
from sardonyx.graph.trace import Tracer
from sardonyx.graph.trees import described, each, flat, kind, signature
from sardonyx.printable import printable


@dataclass(frozen=True, eq=False, slots=True)
class _Manner:
    """How to run one call: what to draw at random from, and which inputs it gives up."""

    key: Any = None
    donated: tuple[str, ...] = ()


_PLAINLY = _Manner()


class Model:
    """An ONNX model on one backend. Call it with arrays; they come back in their own library.

    >>> import numpy as np, sardonyx
    >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    >>> model(np.zeros((1, 8, 48), np.float32)).shape
    (1, 8, 48)
    """

    def __init__(
        self,
        source: Source,
        backend: Backend,
        *,
        strict: bool = True,
        most_signatures: int = 256,
        watch: Watch = unwatched,
        buckets: Sizes | None = None,
    ) -> None:
        self.source = source
        self._backend = backend
        self._strict = strict
        self._infos = source.graph.required_inputs
        self._optional = source.graph.optional_inputs
        self._forms: dict[tuple[str, ...], Model] = {}
        self._output_names = tuple(output.name for output in source.graph.outputs)
        self._results = results_type(self._output_names)
        self._constants = Constants(backend)
        self._entries = Entries(most_signatures)
        self._compiler = Compiler(backend, watch)
        self._inferred = Inferred(backend)
        self._lock = RLock()
        self._draws = count()
        self._entropy = np.uint32(randbits(32))
        self._sizes = buckets
        self.params = Params(source.graph.initializers, backend)
        self._kept: KeptRecordings | None = None
        if backend.folder is not None:
            manner = f"{backend.manner} {strict}"
            self._kept = KeptRecordings(
                backend.folder, source, self.params, self._constants, manner
            )

    def audit(self) -> None:
        """Refuse a model of which it can be told, without running it, that it is wrong.

        What another process has found sound is not looked at again: that alone takes onnx 10 ms.
        """
        if self._kept is None or not self._kept.is_sound:
            audit(self.source, strict=self._strict)
            if self._kept is not None:
                self._kept.note_sound()

    # -- what it says of itself -------------------------------------------------------------------

    @property
    def backend(self) -> str:
        """The name of the array library that it runs on."""
        return self._backend.name

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """What a call must pass: name, dtype, and shape with names for free dimensions."""
        return self._infos

    @property
    def optional_inputs(self) -> tuple[ValueInfo, ...]:
        """What a call may pass besides, by name or after the others: inputs with a default."""
        return self._optional

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """What a call returns."""
        return self.source.graph.outputs

    @property
    def opsets(self) -> dict[str, int]:
        """The version of each domain of operators; ONNX's own domain is the empty string."""
        return dict(self.source.opsets)

    @property
    def metadata(self) -> dict[str, str]:
        """Producer, description, and the properties that the exporter wrote."""
        return dict(self.source.metadata)

    def __repr__(self) -> str:
        given = ", ".join(str(info) for info in self.inputs)
        made = ", ".join(str(info) for info in self.outputs)
        return printable(f"<sardonyx model on {self.backend}: ({given}) -> ({made})>")

    # -- running it -------------------------------------------------------------------------------

    def __call__(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Run the model. One output comes bare, several as a tuple that is also read by name.

        `donate=["past_*"]` gives up the inputs of these names, as `donating` does.
        """
        if "donate" in named_inputs and all(info.name != "donate" for info in self._infos):
            return self.donating(*named_inputs.pop("donate"))(*inputs, **named_inputs)
        return self._called(_PLAINLY, *inputs, **named_inputs)

    def keyed(self, key: Any) -> Callable[..., Any]:
        """The model as a function whose random operators draw from this key, at every call alike.

        `key` is a number, a pair of uint32, or one of JAX's keys, which may be traced. Without one
        each call draws anew; operators that have a seed always draw the same.

        >>> import sardonyx
        >>> from onnx import parser
        >>> text = "<ir_version: 10, opset_import: ['': 22]> g () => (float[2] y) "
        >>> text += "{ y = RandomNormal <shape = [2]> () }"
        >>> model = sardonyx.load(parser.parse_model(text.replace(chr(39), chr(34))))
        >>> bool((model.keyed(7)() == model.keyed(7)()).all()), bool((model() == model()).all())
        (True, False)
        """
        return partial(self._called, _Manner(key=self._backend.key(key)))

    def donating(self, *patterns: str) -> Callable[..., Any]:
        """The model as a function that gives up the inputs whose names match, at every call.

        Their buffers are taken over by outputs of the same shape and dtype, so that a decoder's
        cache is updated in place; the arrays that were passed are gone. NumPy's and CuPy's stay.

        >>> import jax.numpy as jnp, sardonyx
        >>> from onnx import parser
        >>> text = "<ir_version: 10, opset_import: ['': 22]> g (float[4] past) => (float[4] now) "
        >>> text += "{ now = Add (past, past) }"
        >>> model = sardonyx.load(parser.parse_model(text.replace(chr(39), chr(34))))
        >>> past = jnp.ones(4)
        >>> model.donating("past*")(past), past.is_deleted()
        (Array([2., 2., 2., 2.], dtype=float32), True)
        """
        names = [info.name for info in (*self._infos, *self._optional)]
        for pattern in patterns:
            if not fnmatch.filter(names, pattern):
                raise InvalidInput(
                    f"No input is called {pattern!r}; the model takes {', '.join(names) or 'none'}."
                )
        chosen = tuple(n for n in names if any(fnmatch.fnmatchcase(n, p) for p in patterns))
        return partial(self._called, _Manner(donated=chosen))

    def _called(self, manner: _Manner, /, *inputs: Any, **named_inputs: Any) -> Any:
        form = self._form_for(inputs, named_inputs)
        values = form._call(form._arranged(inputs, named_inputs), manner)
        return values[0] if len(values) == 1 else self._results(*values)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs of these names (None for all) as NumPy arrays, for inputs by name.

        >>> import numpy as np, sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
        >>> (name,) = [info.name for info in model.inputs]
        >>> [y.shape for y in model.run(None, {name: np.zeros((2, 5, 48), np.float32)})]
        [(2, 5, 48)]
        """
        require_feeds(feeds)
        names = chosen_outputs(output_names, self._output_names)
        form = self._form_for((), feeds)
        made = form._call(form._arranged((), feeds), _PLAINLY, to_numpy=True)
        values = dict(zip(self._output_names, made, strict=True))
        return [values[name] for name in names]

    def trace(self, *inputs: Any, **named_inputs: Any) -> Program:
        """What a call with these inputs would run: the kinds of all values, and the segments."""
        form = self._form_for(inputs, named_inputs)
        return form._traced(form._arranged(inputs, named_inputs))

    def compile(
        self, *signatures: Mapping[str, Any], background: bool = False
    ) -> list[Future[Program]]:
        """Compile ahead of the first call, for inputs of these shapes; several in parallel.

        A signature gives each input a shape, as a tuple, or an array. It is done when this
        returns, or with `background` when the futures are, whose results are the programs. What
        depends on the data of a call, such as what follows a NonZero, waits for a call.

        >>> import sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx")
        >>> done = model.compile({"x": (1, 8, 48)}, {"x": (2, 8, 48)})
        >>> model.stats().compiles
        2
        """
        with ThreadPoolExecutor(min(len(signatures), os.cpu_count() or 1) or 1) as pool:
            futures = [pool.submit(self._compiled, each) for each in signatures]
            pool.shutdown(wait=not background)
        for future in () if background else futures:
            future.result()
        return futures

    def _compiled(self, signature: Mapping[str, Any]) -> Program:
        named = stand_ins(signature, (*self._infos, *self._optional))
        form = self._form_for((), named)
        program = form._traced(form._arranged((), named))
        try:
            for stage in program.stages:
                stage.compile(form._compiler, self.params)
        except Exception as error:
            faults.raise_told(error, "The program could not be compiled", self._backend)
        return program

    def memory(self, *inputs: Any, **named_inputs: Any) -> Memory:
        """What a call with these inputs needs, in bytes: weights, constants, and the peak.

        An input may be given as its shape, a tuple. The program is compiled for that.

        >>> import sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx")
        >>> memory = model.memory(x=(1, 8, 48))
        >>> memory.inputs, memory.peak > memory.weights
        (1536, True)
        """
        infos = (*self._infos, *self._optional)
        program = self._compiled(by_name(infos, inputs, named_inputs))
        return Memory.of(program, self.params)

    def stats(self) -> Stats:
        """Calls, compiles, hits and evictions so far, and the bytes that are held.

        >>> import numpy as np, sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx")
        >>> for batch in (1, 2, 1): _ = model(np.zeros((batch, 8, 48), np.float32))
        >>> stats = model.stats()
        >>> stats.calls, stats.hits, stats.compiles
        (3, 1, 2)
        """
        entries = [self._entries, *(form._entries for form in self._forms.values())]
        calls = sum(each.calls for each in entries)
        return Stats(
            calls=calls,
            hits=calls - sum(each.missed for each in entries),
            signatures=sum(len(each.known) for each in entries),
            evictions=sum(each.evicted for each in entries),
            compiles=self._compiler.compiles,
            shared=self._compiler.shared,
            compile_seconds=self._compiler.seconds,
            bytes_held=self.params.bytes_held + self._constants.bytes_held,
        )

    def release(self) -> None:
        """Give back programs and what is on the device. The model can still be called."""
        with self._lock:
            for model in (self, *self._forms.values()):
                model._entries.clear()
                model._inferred.clear()
                model.__dict__.pop("_buckets", None)
            self._constants.clear()
            self.params.release()
        # What was traced refers to itself in circles, and would be there until Python looks.
        gc.collect()

    # -- one call ---------------------------------------------------------------------------------

    def _form_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Model:
        """The model itself; or, where initializers are overridden, one in which they are inputs."""
        if not self._optional:
            return self
        beyond = len(inputs) - len(self._infos)
        chosen = [v for i, v in enumerate(self._optional) if i < beyond or v.name in named]
        if not chosen:
            return self
        key = tuple(info.name for info in chosen)
        if key not in self._forms:
            graph = self.source.graph
            rest = {name: a for name, a in graph.initializers.items() if name not in key}
            graph = replace(graph, inputs=(*self._infos, *chosen), initializers=rest)
            form = Model(
                replace(self.source, graph=graph),
                self._backend,
                strict=self._strict,
                most_signatures=self._entries.most,
                buckets=self._sizes,
            )
            form.params, form._constants = self.params, self._constants
            form._compiler = self._compiler
            self._forms[key] = form
        return self._forms[key]

    def _arranged(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        return arranged(self._infos, inputs, named)

    def _call(self, given: list[Any], manner: _Manner, *, to_numpy: bool = False) -> Sequence[Any]:
        entries = self._entries
        try:
            entry = entries.known[
                manner.donated, tuple([(type(a), a.shape, a.dtype) for a in given])
            ]
        except (KeyError, AttributeError, TypeError):
            given = [normalised(a, info) for a, info in zip(given, self._infos, strict=True)]
            entry = self._entry_for(given, manner)
        if entry.static_version != self.params.static_version:
            entries.clear()
            entry = self._entry_for(given, manner)
        entries.calls = entry.used = entries.calls + 1
        arrays = given if entry.importers is None else self._taken(given, entry)
        outputs = self._run(entry, arrays, manner)
        if to_numpy:
            return [on_host(output, self._backend) for output in outputs]
        return [entry.leaving(output, given, arrays, self._constants) for output in outputs]

    def _traced(self, arranged: Sequence[Any]) -> Program:
        given = [normalised(a, info) for a, info in zip(arranged, self._infos, strict=True)]
        entry = self._entry_for(given, _PLAINLY)
        arrays = self._taken(given, entry)
        if isinstance(entry.recording, PaddedRecording):
            with self._backend.scope():
                shown = entry.recording.shown(flat(arrays))
            if shown is not None:
                return shown
        return self._record(entry, arrays, _PLAINLY, execute=False)[0]

    def _taken(self, given: Sequence[Any], entry: Entry) -> list[Any]:
        if entry.importers is None:
            return list(given)
        converts = iter(entry.importers)

        def taken(array: Any) -> Any:
            convert = next(converts)
            return array if convert is None else convert(array)

        with self._backend.scope():
            return [each(taken, value) for value in given]

    def _run(self, entry: Entry, arrays: list[Any], manner: _Manner) -> Sequence[Any]:
        try:
            with self._backend.scope():
                outputs = self._replayed(entry, arrays, manner)
                if outputs is not None:
                    return outputs
                self._entries.missed += 1
                if self._recalled(entry, arrays, manner):
                    outputs = self._replayed(entry, arrays, manner)
                if outputs is not None:
                    return outputs
                return self._record(entry, arrays, manner, execute=True)[1]
        except Exception as error:
            faults.raise_from_call(error, self._backend, partial(self._retrace, entry, arrays))

    def _replayed(self, entry: Entry, arrays: list[Any], manner: _Manner) -> Sequence[Any] | None:
        inputs = flat(arrays)
        if entry.recording.draws:
            inputs.append(self._with_key(manner).key)
        return entry.recording.run(inputs)

    def _recalled(self, entry: Entry, arrays: list[Any], manner: _Manner) -> bool:
        """Whether another process has recorded such a call."""
        if self._kept is None or not isinstance(entry.recording, Recording):
            return False
        with self._lock:
            return self._kept.recall(entry.recording, self._kind(arrays, manner))

    def _kind(self, arrays: Sequence[Any], manner: _Manner) -> Any:
        return manner.donated, tuple(kind(value, self._backend) for value in arrays)

    def _retrace(self, entry: Entry, arrays: list[Any]) -> None:
        """Trace a call that failed once more: where a node is at fault, that names it."""
        recording = Recording(self._compiler, self.params, entry.recording.inline)
        self._record(replace(entry, recording=recording), arrays, _PLAINLY, execute=False)

    def _record(
        self, entry: Entry, arrays: list[Any], manner: _Manner, *, execute: bool
    ) -> tuple[Program, Sequence[Any]]:
        recording = entry.recording
        with self._lock, self._backend.scope():
            is_new = execute or not recording.root.following
            tape = Tape(
                recording.root,
                self._compiler,
                self.params,
                self._constants,
                inferred=self._inferred,
                inline=recording.inline,
                execute=execute,
                donated=registers_of(manner.donated, self._infos, arrays),
            )
            tracer = Tracer(self.source, tape, strict=self._strict)
            key, title = self._with_key(manner).key, self._title(arrays)
            program = tracer.trace(arrays, key, title)
            recording.draws |= tape.draws
            recording.settle()
            if is_new and self._kept is not None:
                self._kept.keep(recording, self._kind(arrays, manner))
            return program, tape.output_arrays() if execute else ()

    def _with_key(self, manner: _Manner) -> _Manner:
        if manner.key is not None:
            return manner
        fresh = np.asarray([self._entropy, next(self._draws)], np.uint32)
        return replace(manner, key=self._backend.key(fresh))

    def _title(self, arrays: Sequence[Any]) -> str:
        given = ", ".join(
            f"{info.name}: {described(array, self._backend)}"
            for info, array in zip(self._infos, arrays, strict=True)
        )
        return f"{self.source.graph.name or 'graph'}({given}) on {self.backend}"

    def _entry_for(self, given: Sequence[Any], manner: _Manner) -> Entry:
        key = manner.donated, tuple(signature(value) for value in given)
        entry = self._entries.known.get(key)
        if entry is None or entry.static_version != self.params.static_version:
            entry = Entry.of(given, self._infos, self._compiler, self.params)
            if self._buckets is not None:
                arrays = self._taken(given, entry)
                with self._backend.scope():
                    entry.recording = bucketed(entry.recording, self._buckets, arrays, self._infos)
            self._entries.keep(key, entry)
        return entry

    @cached_property
    def _buckets(self) -> Buckets | None:
        """What pads calls to sizes that share a program, where any are asked for."""
        padding = self._backend.padding() if self._sizes else None
        if not self._sizes or padding is None:
            return None

        def trace(tape: WholeTape, values: Sequence[Any]) -> Program:
            tracer = Tracer(self.source, tape, strict=self._strict)
            return tracer.trace(values, self._with_key(_PLAINLY).key, self._title(values))

        return Buckets(
            self._sizes,
            padding,
            self._compiler,
            self.params,
            self._constants,
            trace,
            lambda padded: WholeTape(self._compiler, self.params, self._inferred, padded),
            lambda: self._with_key(_PLAINLY).key,
            self._lock,
        )
