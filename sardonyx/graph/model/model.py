"""The object that people hold: a loaded model, callable."""

from __future__ import annotations

import fnmatch
import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends import processors
from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.arguments import by_name, chosen_outputs, require_feeds
from sardonyx.graph.calls.array_interop import stand_ins
from sardonyx.graph.calls.results import results_type
from sardonyx.graph.checking.audit import audit
from sardonyx.graph.ir import Source, ValueInfo
from sardonyx.graph.model.form import PLAIN, CallOptions, Form
from sardonyx.graph.model.memory import Memory
from sardonyx.graph.model.shared import DEFAULTS, Options, Shared
from sardonyx.graph.model.stats import Stats
from sardonyx.graph.programs.program import Program
from sardonyx.graph.values.params import Params
from sardonyx.printable import printable


class Model:
    """An ONNX model on one backend. Call it with arrays; they come back in their own library.

    It may be called from many threads, pickled, and copied. A copy has params of its own.

    >>> import numpy as np, sardonyx
    >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    >>> model(np.zeros((1, 8, 48), np.float32)).shape
    (1, 8, 48)
    """

    form_type: ClassVar[type[Form]] = Form

    def __init__(self, source: Source, backend: Backend, options: Options = DEFAULTS) -> None:
        self.source = source
        self._backend = backend
        self._options = options
        self._infos = source.graph.required_inputs
        self._optional = source.graph.optional_inputs
        self._output_names = tuple(output.name for output in source.graph.outputs)
        self._results = results_type(self._output_names)
        self._shared = Shared.of(source, backend, options)
        self._plain = self.form_type(source, self._shared)
        self._overriding: dict[tuple[str, ...], Form] = {}

    @property
    def params(self) -> Params:
        """The initializers by name; assign to one to replace it."""
        return self._shared.params

    @property
    def is_strict(self) -> bool:
        """Whether operators refuse types that their schemas do not list."""
        return self._options.strict

    def audit(self) -> None:
        """Refuse a model of which it can be told, without running it, that it is wrong.

        What another process has found sound is not looked at again: that alone takes onnx 10 ms.
        """
        recordings = self._plain.recordings
        if recordings is None or not recordings.is_sound:
            audit(self.source, strict=self.is_strict)
            if recordings is not None:
                recordings.note_sound()

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

    def __call__(self, /, *inputs: Any, **named_inputs: Any) -> Any:
        """Run the model. One output comes bare, several as a tuple that is also read by name.

        `donate=["past_*"]` gives up the inputs of these names, as `donating` does.
        """
        if "donate" in named_inputs and "donate" not in self._input_names:
            patterns = _patterns(named_inputs.pop("donate"))
            return self.donating(*patterns)(*inputs, **named_inputs)
        return self._called(PLAIN, *inputs, **named_inputs)

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
        return partial(self._called, CallOptions(key=self._backend.key(key)))

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
        names = self._input_names
        for pattern in _patterns(patterns):
            if not fnmatch.filter(names, pattern):
                raise InvalidInput(
                    f"No input is called {pattern!r}; the model takes {', '.join(names) or 'none'}."
                )
        chosen = tuple(n for n in names if any(fnmatch.fnmatchcase(n, p) for p in patterns))
        return partial(self._called, CallOptions(donated=chosen))

    def _called(self, options: CallOptions, /, *inputs: Any, **named_inputs: Any) -> Any:
        form = self._form_for(inputs, named_inputs)
        values = form.call(form.arranged(inputs, named_inputs), options)
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
        made = form.call(form.arranged((), feeds), PLAIN, to_numpy=True)
        values = dict(zip(self._output_names, made, strict=True))
        return [values[name] for name in names]

    def trace(self, /, *inputs: Any, **named_inputs: Any) -> Program:
        """What a call with these inputs would run: the kinds of all values, and the segments."""
        form = self._form_for(inputs, named_inputs)
        return form.trace(form.arranged(inputs, named_inputs))

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
        workers = max(1, min(len(signatures), processors.available()))
        pool = ThreadPoolExecutor(workers, thread_name_prefix="sardonyx-compile")
        futures = [pool.submit(self._compiled, each) for each in signatures]
        pool.shutdown(wait=not background)
        for future in () if background else futures:
            future.result()
        return futures

    def _compiled(self, signature: Mapping[str, Any]) -> Program:
        named = stand_ins(signature, (*self._infos, *self._optional))
        form = self._form_for((), named)
        return form.compiled(form.arranged((), named))

    def memory(self, /, *inputs: Any, **named_inputs: Any) -> Memory:
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
        return Memory.of(program, self.params.now())

    def stats(self) -> Stats:
        """Calls, compiles, hits and evictions so far, and the bytes that are held.

        >>> import numpy as np, sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx")
        >>> for batch in (1, 2, 1): _ = model(np.zeros((batch, 8, 48), np.float32))
        >>> stats = model.stats()
        >>> stats.calls, stats.hits, stats.compiles
        (3, 1, 2)
        """
        entries = [form.entries for form in self._forms]
        calls = sum(each.calls for each in entries)
        shared = self._shared
        return Stats(
            calls=calls,
            hits=calls - sum(each.missed for each in entries),
            signatures=sum(len(each.known) for each in entries),
            evictions=sum(each.evicted for each in entries),
            compiles=shared.compiler.compiles,
            shared=shared.compiler.shared,
            compile_seconds=shared.compiler.seconds,
            bytes_held=shared.params.bytes_held + shared.constants.bytes_held,
        )

    def release(self) -> None:
        """Give back programs and what is on the device. The model can still be called."""
        for form in self._forms:
            form.release()
        self._shared.inferred.clear()
        self._shared.constants.clear()
        self._shared.params.release()
        # What was traced refers to itself in circles, and would be there until Python looks.
        gc.collect()

    # -- copies -----------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[Any, ...]]:
        return _restored, (self.source, self._backend, self._options, self.params.replaced())

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return _restored(self.source, self._backend, self._options, self.params.replaced())

    # -- forms ------------------------------------------------------------------------------------

    @property
    def _input_names(self) -> list[str]:
        return [info.name for info in (*self._infos, *self._optional)]

    @property
    def _forms(self) -> list[Form]:
        with self._shared.lock:
            return [self._plain, *self._overriding.values()]

    def _form_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Form:
        """The plain form; or, where initializers are overridden, one in which they are inputs."""
        if not self._optional:
            return self._plain
        beyond = len(inputs) - len(self._infos)
        chosen = [v.name for i, v in enumerate(self._optional) if i < beyond or v.name in named]
        if not chosen:
            return self._plain
        with self._shared.lock:
            key = tuple(chosen)
            if key not in self._overriding:
                self._overriding[key] = self._plain.overriding(key)
            return self._overriding[key]


def _patterns(value: Any) -> tuple[str, ...]:
    """The names or patterns in what was passed as `donate`; a str is one of them."""
    patterns = (value,) if isinstance(value, str) else value
    if isinstance(patterns, Iterable):
        patterns = tuple(patterns)
        if all(isinstance(pattern, str) for pattern in patterns):
            return patterns
    raise InvalidInput(
        f"The inputs to donate are {value!r}: pass their names or patterns, as in "
        'donate=["past_*"].'
    )


def _restored(
    source: Source,
    backend: Backend,
    options: Options,
    replaced: Mapping[str, np.ndarray[Any, Any]],
) -> Model:
    model = Model(source, backend, options)
    model.params.update(replaced)
    return model
