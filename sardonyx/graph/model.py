"""The object that people hold: a loaded model, callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from secrets import randbits
from threading import RLock
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput, SardonyxError
from sardonyx.graph import faults
from sardonyx.graph.arrays import Convert, check_input, exporter, importer, leaf_of, normalised
from sardonyx.graph.compiling import Compiler
from sardonyx.graph.params import Constants, Params
from sardonyx.graph.program import Program
from sardonyx.graph.replay import Recording
from sardonyx.graph.results import results_type
from sardonyx.graph.structure import Source, ValueInfo
from sardonyx.graph.tape import Tape
from sardonyx.graph.trace import Tracer
from sardonyx.graph.trees import as_dicts, described, each, flat, signature
from sardonyx.graph.values import Static


@dataclass(eq=False, slots=True)
class _Entry:
    """What is kept for calls of one signature: how arrays enter, the recording, how they leave."""

    importers: tuple[Convert | None, ...] | None
    recording: Recording
    exporter: Convert
    to_numpy: bool
    static_version: int


class Model:
    """An ONNX model on one backend. Call it with arrays; they come back in their own library.

    >>> import numpy as np, sardonyx
    >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    >>> model(np.zeros((1, 8, 48), np.float32)).shape
    (1, 8, 48)
    """

    def __init__(self, source: Source, backend: Backend, *, strict: bool = True) -> None:
        self._source = source
        self._backend = backend
        self._strict = strict
        self._infos = source.graph.required_inputs
        self._optional = source.graph.optional_inputs
        self._forms: dict[tuple[str, ...], Model] = {}
        self._output_names = tuple(output.name for output in source.graph.outputs)
        self._results = results_type(self._output_names)
        self._constants = Constants(backend)
        self._entries: dict[Any, _Entry] = {}
        self._inferred: dict[Any, Any] = {}
        self._compiler = Compiler(backend)
        self._lock = RLock()
        self._draws = count()
        self._entropy = np.uint32(randbits(32))
        self.params = Params(source.graph.initializers, backend)

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
        return self._source.graph.outputs

    @property
    def opsets(self) -> dict[str, int]:
        """The version of each domain of operators; ONNX's own domain is the empty string."""
        return dict(self._source.opsets)

    @property
    def metadata(self) -> dict[str, str]:
        """Producer, description, and the properties that the exporter wrote."""
        return dict(self._source.metadata)

    def __repr__(self) -> str:
        given = ", ".join(str(info) for info in self.inputs)
        made = ", ".join(str(info) for info in self.outputs)
        return f"<sardonyx model on {self.backend}: ({given}) -> ({made})>"

    # -- running it -------------------------------------------------------------------------------

    def __call__(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Run the model. One output comes bare, several as a tuple that is also read by name."""
        return self._called(None, *inputs, **named_inputs)

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
        return partial(self._called, self._backend.key(key))

    def _called(self, key: Any, /, *inputs: Any, **named_inputs: Any) -> Any:
        form = self._form_for(inputs, named_inputs)
        values = form._call(form._arranged(inputs, named_inputs), key)
        return values[0] if len(values) == 1 else self._results(*values)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs of these names (None for all) as NumPy arrays, for inputs by name.

        >>> import numpy as np, sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
        >>> (name,) = [info.name for info in model.inputs]
        >>> [y.shape for y in model.run(None, {name: np.zeros((2, 5, 48), np.float32)})]
        [(2, 5, 48)]
        """
        if not isinstance(feeds, Mapping):
            raise InvalidInput(f"The feeds are a {type(feeds).__name__}: pass a dict, by name.")
        if isinstance(output_names, str):
            raise InvalidInput(f"The output names are a str: pass a list, [{output_names!r}].")
        names = self._output_names if output_names is None else output_names
        for name in names:
            if name not in self._output_names:
                raise InvalidInput(
                    f"The model has no output '{name}'; it has {', '.join(self._output_names)}."
                )
        form = self._form_for((), feeds)
        made = form._call(form._arranged((), feeds), None, to_numpy=True)
        values = dict(zip(self._output_names, made, strict=True))
        return [values[name] for name in names]

    def trace(self, *inputs: Any, **named_inputs: Any) -> Program:
        """What a call with these inputs would run: the kinds of all values, and the segments."""
        form = self._form_for(inputs, named_inputs)
        given = [
            normalised(value, info)
            for value, info in zip(form._arranged(inputs, named_inputs), form._infos, strict=True)
        ]
        entry = form._entry_for(given)
        return form._record(entry, form._taken(given, entry), None, execute=False)[0]

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
            graph = self._source.graph
            rest = {name: a for name, a in graph.initializers.items() if name not in key}
            graph = replace(graph, inputs=(*self._infos, *chosen), initializers=rest)
            form = Model(replace(self._source, graph=graph), self._backend, strict=self._strict)
            form.params, form._constants = self.params, self._constants
            self._forms[key] = form
        return self._forms[key]

    def _arranged(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        if not named and len(inputs) == len(self._infos):
            return list(inputs)
        names = [info.name for info in self._infos]
        if len(inputs) > len(names):
            raise InvalidInput(
                f"The model takes {len(names)} inputs ({', '.join(names) or 'none'}), and got "
                f"{len(inputs)}."
            )
        given = dict(zip(names, inputs, strict=False))
        for name, value in named.items():
            if name not in names:
                raise InvalidInput(
                    f"The model has no input '{name}'; it takes {', '.join(names) or 'none'}."
                )
            if name in given:
                raise InvalidInput(f"The input '{name}' was given twice: by position and by name.")
            given[name] = value
        optional = {i.name for i in self._infos if (i.type or "").startswith("optional(")}
        if missing := [
            str(i) for i in self._infos if i.name not in given and i.name not in optional
        ]:
            raise InvalidInput(f"The model also needs {'; '.join(missing)}.")
        return [given.get(name) for name in names]

    def _call(self, given: list[Any], key: Any, *, to_numpy: bool = False) -> Sequence[Any]:
        try:
            entry = self._entries[tuple([(type(a), a.shape, a.dtype) for a in given])]
        except (KeyError, AttributeError, TypeError):
            given = [normalised(a, info) for a, info in zip(given, self._infos, strict=True)]
            entry = self._entry_for(given)
        if entry.static_version != self.params.static_version:
            entry = self._renewed(given)
        arrays = given if entry.importers is None else self._taken(given, entry)
        outputs = self._run(entry, arrays, key)
        if to_numpy:
            return [self._to_numpy(output) for output in outputs]
        return [self._exported(output, entry, given, arrays) for output in outputs]

    def _taken(self, given: Sequence[Any], entry: _Entry) -> list[Any]:
        if entry.importers is None:
            return list(given)
        converts = iter(entry.importers)

        def taken(array: Any) -> Any:
            convert = next(converts)
            return array if convert is None else convert(array)

        with self._backend.scope():
            return [each(taken, value) for value in given]

    def _run(self, entry: _Entry, arrays: list[Any], key: Any) -> Sequence[Any]:
        try:
            with self._backend.scope():
                inputs = flat(arrays)
                if entry.recording.draws:
                    key = self._next_key() if key is None else key
                    inputs.append(key)
                outputs = entry.recording.run(inputs)
                if outputs is not None:
                    return outputs
                return self._record(entry, arrays, key, execute=True)[1]
        except SardonyxError:
            raise
        except Exception as error:
            self._retrace(entry, arrays)
            raise faults.told(error, "The call could not run", self._backend) from error

    def _retrace(self, entry: _Entry, arrays: list[Any]) -> None:
        """Trace a call that failed once more: where a node is at fault, that names it."""
        recording = Recording(self._compiler, self.params, entry.recording.inline)
        try:
            self._record(replace(entry, recording=recording), arrays, None, execute=False)
        except SardonyxError:
            raise
        except Exception:
            return  # What failed is no node, so the first error says as much.

    def _record(
        self, entry: _Entry, arrays: list[Any], key: Any, *, execute: bool
    ) -> tuple[Program, Sequence[Any]]:
        recording = entry.recording
        with self._lock, self._backend.scope():
            tape = Tape(
                recording.root,
                self._compiler,
                self.params,
                self._constants,
                inferred=self._inferred,
                inline=recording.inline,
                execute=execute,
            )
            tracer = Tracer(self._source, tape, strict=self._strict)
            key = self._next_key() if key is None else key
            program = tracer.trace(arrays, key, self._title(arrays))
            recording.draws |= tape.draws
            recording.settle()
            return program, tape.output_arrays() if execute else ()

    def _next_key(self) -> Any:
        return self._backend.key(np.asarray([self._entropy, next(self._draws)], np.uint32))

    def _title(self, arrays: Sequence[Any]) -> str:
        given = ", ".join(
            f"{info.name}: {described(array, self._backend)}"
            for info, array in zip(self._infos, arrays, strict=True)
        )
        return f"{self._source.graph.name or 'graph'}({given}) on {self.backend}"

    # -- signatures -------------------------------------------------------------------------------

    def _entry_for(self, given: Sequence[Any]) -> _Entry:
        key = tuple(signature(value) for value in given)
        entry = self._entries.get(key)
        if entry is None or entry.static_version != self.params.static_version:
            self._entries[key] = entry = self._new_entry(given)
        return entry

    def _renewed(self, given: Sequence[Any]) -> _Entry:
        self._entries.clear()
        return self._entry_for(given)

    def _new_entry(self, given: Sequence[Any]) -> _Entry:
        pairs = [
            (leaf, leaf_of(info))
            for value, info in zip(given, self._infos, strict=True)
            for leaf in flat([value])
        ]
        importers = tuple(importer(leaf, info, self._backend) for leaf, info in pairs)
        sizes: dict[str, int] = {}
        with self._backend.scope():
            for (leaf, info), convert in zip(pairs, importers, strict=True):
                array = leaf if convert is None else convert(leaf)
                check_input(self._backend.spec(array), info, sizes)
        leaves = [leaf for leaf, _ in pairs]
        return _Entry(
            importers if any(importers) else None,
            Recording(
                self._compiler, self.params, any(self._backend.is_abstract(a) for a in leaves)
            ),
            exporter(leaves, self._backend),
            all(isinstance(leaf, np.ndarray) for leaf in leaves),
            self.params.static_version,
        )

    def _exported(
        self, output: Any, entry: _Entry, given: Sequence[Any], arrays: Sequence[Any]
    ) -> Any:
        def exported(array: Any) -> Any:
            if isinstance(array, Static):
                return array.value if entry.to_numpy else self._placed(array, entry)
            if given is not arrays:
                for original, imported in zip(flat(given), flat(arrays), strict=True):
                    if array is imported:
                        return original
            return entry.exporter(array)

        return as_dicts(each(exported, output))

    def _placed(self, output: Static, entry: _Entry) -> Any:
        return entry.exporter(self._constants.leaving(output.value))

    def _to_numpy(self, value: Any) -> Any:
        def fetched(array: Any) -> Any:
            if isinstance(array, Static):
                return array.value
            return self._backend.fetch(array) if self._backend.owns(array) else array

        return as_dicts(each(fetched, value))
