"""`Model`: a loaded model, which people call."""

from __future__ import annotations

import fnmatch
import gc
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends import processors
from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.arguments import by_name
from sardonyx.graph.calls.array_interop import stand_ins
from sardonyx.graph.checking.audit import audit
from sardonyx.graph.ir import Source
from sardonyx.graph.model.form import Form
from sardonyx.graph.model.interface import OnnxModel, RunCall
from sardonyx.graph.model.memory import Memory
from sardonyx.graph.model.shared import DEFAULTS, Options, Shared
from sardonyx.graph.model.stats import Stats
from sardonyx.graph.programs.program import Program
from sardonyx.graph.values.params import Params
from sardonyx.limits import DEFAULT as DEFAULT_LIMITS


class Model(OnnxModel):
    """An ONNX model on one backend: call it with arrays, and get arrays of the same library.

    `sardonyx.load` creates it. Threads may share a model. It can be pickled and copied; a copy has
    params of its own.

    >>> import numpy as np, sardonyx
    >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    >>> model(np.zeros((1, 8, 48), np.float32)).shape
    (1, 8, 48)
    """

    _form_type: ClassVar[type[Form]] = Form

    def __init__(self, source: Source, backend: Backend, options: Options = DEFAULTS) -> None:
        graph = source.graph
        super().__init__(graph.required_inputs, graph.outputs, backend, graph.optional_inputs)
        self._source = source
        self._strict = options.strict
        self._options = options
        self._shared = Shared(source, backend, options)
        self._params = Params(self._shared.weights)
        self._plain = self._form_type(source, self._shared)
        # The forms by the optional inputs that they take.
        self._by_optional: dict[tuple[str, ...], Form] = {(): self._plain}

    @property
    def params(self) -> Params:
        """The initializers by name; assign to one to replace it."""
        return self._params

    def __repr__(self) -> str:
        return self._text("sardonyx model")

    # -- calls ------------------------------------------------------------------------------------

    def _donated(self, patterns: tuple[str, ...]) -> tuple[str, ...]:
        names = [info.name for info in (*self._infos, *self._optional)]
        for pattern in patterns:
            if not fnmatch.filter(names, pattern):
                raise InvalidInput(
                    f"No input is called {pattern!r}; the model takes {', '.join(names) or 'none'}."
                )
        return tuple(n for n in names if any(fnmatch.fnmatchcase(n, p) for p in patterns))

    # -- programs and what they need --------------------------------------------------------------

    def trace(self, /, *inputs: Any, **named_inputs: Any) -> Program:
        """The program that a call with these inputs runs: the kinds of all values, and segments."""
        return self._form_for(inputs, named_inputs).trace(inputs, named_inputs)

    def compile(
        self, *signatures: Mapping[str, Any], background: bool = False
    ) -> list[Future[Program]]:
        """Compile for inputs of these shapes before the first call, several signatures in parallel.

        A signature maps each input to its shape, a tuple, or to an array. The result has a future
        per signature, whose result is the program. With `background` this returns at once;
        otherwise all are compiled when it returns. Segments that depend on a call's data, such as
        those after a NonZero, are compiled by the first call.

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
        return self._form_for((), named).compiled(named)

    def memory(self, /, *inputs: Any, **named_inputs: Any) -> Memory:
        """The bytes that a call with these inputs needs: weights, constants, and the peak.

        You can pass the shape of an input, a tuple, in its place. This compiles the program.

        >>> import sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx")
        >>> memory = model.memory(x=(1, 8, 48))
        >>> memory.inputs, memory.peak > memory.weights
        (1536, True)
        """
        infos = (*self._infos, *self._optional)
        program = self._compiled(by_name(infos, inputs, named_inputs))
        return Memory.of(program, self._shared.weights.now())

    def stats(self) -> Stats:
        """Counts of calls, compiles, hits and evictions since the load, and the bytes held.

        >>> import numpy as np, sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx", compile="now")
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
            signatures=sum(len(each.by_key) for each in entries),
            evictions=sum(each.evicted for each in entries),
            traces=sum(each.traces for each in entries),
            compiles=shared.compiler.compiles,
            shared=shared.compiler.shared,
            compile_seconds=shared.compiler.seconds,
            interpreted=shared.compiler.interpreted,
            uninterpreted=dict(shared.compiler.uninterpreted),
            unfused=dict(shared.compiler.unfused),
            uncaptured=dict(shared.compiler.captures.refused),
            workarounds=dict(shared.compiler.workarounds),
            bytes_held=shared.weights.bytes_held + shared.constants.bytes_held,
        )

    def release(self) -> None:
        """Free the programs and the arrays on the device. The model can still be called."""
        for form in self._forms:
            form.release()
        self._shared.compiler.captures.release()
        self._shared.inferred.clear()
        self._shared.constants.clear()
        self._shared.weights.release()
        # Traces contain reference cycles, which Python frees only when it collects garbage.
        gc.collect()
        self._backend.release()

    # -- copies -----------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[Any, ...]]:
        replaced = self._shared.weights.replaced()
        return _restored, (self._source, self._backend, self._options, replaced)

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        restore, arguments = self.__reduce__()
        return restore(*arguments)

    # -- forms ------------------------------------------------------------------------------------

    def _run_call_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> RunCall:
        return self._form_for(inputs, named).call

    @property
    def _forms(self) -> list[Form]:
        with self._shared.lock:
            return list(self._by_optional.values())

    def _form_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Form:
        """The plain form; or, where initializers are overridden, one in which they are inputs."""
        if not self._optional:
            return self._plain
        beyond = len(inputs) - len(self._infos)
        chosen = [v.name for i, v in enumerate(self._optional) if i < beyond or v.name in named]
        key = tuple(chosen)
        with self._shared.lock:
            if key not in self._by_optional:
                self._by_optional[key] = self._plain.overriding(key)
            return self._by_optional[key]


def audited(model: Model) -> Model:
    """The model, if no fault can be seen without running it.

    A model that another process has audited is not audited again: that alone takes onnx 10 ms.
    """
    recordings = model._plain.recordings
    is_known = recordings is not None and recordings.is_sound
    if not is_known or model._source.limits != DEFAULT_LIMITS:
        audit(model._source, strict=model.is_strict)
        if recordings is not None:
            recordings.note_sound()
            _warn_of_misfit(recordings.misfit)
    return model


def _warn_of_misfit(reason: str | None) -> None:
    if reason is not None:
        warnings.warn(
            f"The cache file is not used: it was compiled {reason}. Calls are traced and compiled "
            "as without it; write it again with `sardonyx compile`.",
            stacklevel=4,
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
