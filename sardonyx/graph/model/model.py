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
from sardonyx.display.folding import fold
from sardonyx.display.graph_view.picture import Picture
from sardonyx.display.graph_view.view import GraphView
from sardonyx.display.markup import Html
from sardonyx.display.units import counted
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.arguments import by_name
from sardonyx.graph.calls.array_interop import stand_ins
from sardonyx.graph.checking.audit import audit
from sardonyx.graph.ir import Source
from sardonyx.graph.model.form import Form
from sardonyx.graph.model.forms import Forms
from sardonyx.graph.model.graph_display import graph_parts
from sardonyx.graph.model.interface import OnnxModel, RunCall
from sardonyx.graph.model.memory import Memory
from sardonyx.graph.model.shared import DEFAULTS, Options, Shared
from sardonyx.graph.model.stats import Stats
from sardonyx.graph.profiling.profile import Profile
from sardonyx.graph.programs.program import Program
from sardonyx.graph.values.params import Params
from sardonyx.graph.values.params_display import head_of, params_parts
from sardonyx.graph.viewing.drawing import picture_of
from sardonyx.limits import DEFAULT as DEFAULT_LIMITS
from sardonyx.logs import Log, postponed
from sardonyx.printable import LONGEST_NAME, printable

_LOG = Log("tracing")


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
        self._forms = Forms(self._plain)

    @property
    def params(self) -> Params:
        """The initializers by name; assign to one to replace it."""
        return self._params

    def __repr__(self) -> str:
        return self._text("sardonyx model")

    def _parts(self) -> list[str]:
        entries = self._params._entries()
        weights = fold("weights", *params_parts(entries), note=head_of(entries))
        return [*super()._parts(), *graph_parts(self._source), *([weights] if entries else [])]

    def _picture(self) -> Html:
        return self.view().embedded(len(self._source.graph.nodes))

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

    def view(
        self, /, *inputs: Any, profile: Mapping[str, Any] | None = None, **named_inputs: Any
    ) -> GraphView:
        """An interactive picture of the graph; with inputs, or shapes of them, of their program.

        A notebook shows it, and `.save("graph.html")` writes it as one page. Kinds, segments and
        exact shapes are those of the program. `profile` maps names of nodes to seconds, or to pairs
        of seconds and bytes.

        >>> import sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
        >>> view = model.view(x=(1, 8, 48))
        >>> view.picture.segments
        ['segment 0 on numpy']
        """
        replaced = self._shared.weights.replaced()
        if inputs or named_inputs:
            infos = (*self._infos, *self._optional)
            named = stand_ins(by_name(infos, inputs, named_inputs), infos)
            return self.trace(**named)._view(replaced, profile)
        title = printable(self._source.graph.name or "graph", LONGEST_NAME)

        def draw() -> Picture:
            picture = picture_of(self._source, title, weights=replaced)
            return picture.with_profile(profile or {})

        return GraphView(draw)

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

    def profile(self, /, *inputs: Any, **named_inputs: Any) -> Profile:
        """Measure where a call with these inputs spends its time: per segment and per node.

        This compiles the program first, unless the model was loaded with `compile="never"`, and
        measures calls until the fastest of them agree: 10 or more, but no longer than some seconds.
        `sardonyx.profile` measures as many as you say.

        >>> import numpy as np, sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx")
        >>> profile = model.profile(np.zeros((1, 8, 48), np.float32))
        >>> profile.tier, profile.total > 0
        ('compiled', True)
        """
        return self._form_for(inputs, named_inputs).profile(inputs, named_inputs, None)

    def stats(self) -> Stats:
        """Counts of calls, compiles, hits and evictions since the load, and the bytes held.

        >>> import numpy as np, sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx", compile="now")
        >>> for batch in (1, 2, 1): _ = model(np.zeros((batch, 8, 48), np.float32))
        >>> stats = model.stats()
        >>> stats.calls, stats.hits, stats.compiles
        (3, 1, 2)
        """
        entries = self._forms.entries()
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
            written_out=shared.compiler.written_out,
            interpreted=shared.compiler.interpreted,
            uninterpreted=dict(shared.compiler.uninterpreted),
            unfused=dict(shared.compiler.unfused),
            uncaptured=dict(shared.compiler.captures.refused),
            workarounds=dict(shared.compiler.workarounds),
            bytes_held=shared.weights.bytes_held + shared.constants.bytes_held,
        )

    def release(self) -> None:
        """Free the programs and the arrays on the device. The model can still be called."""
        signatures = sum(len(each.by_key) for each in self._forms.entries())
        for form in self._forms.all():
            form.release()
        self._call_threads.release()
        self._shared.compiler.captures.release()
        self._shared.inferred.clear()
        self._shared.constants.clear()
        self._shared.weights.release()
        # Traces contain reference cycles, which Python frees only when it collects garbage.
        gc.collect()
        self._backend.release()
        _LOG.info("Released the programs of %s.", counted(signatures, "signature"))

    # -- copies -----------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Callable[..., Model], tuple[Any, ...]]:
        replaced = self._shared.weights.replaced()
        return _restored, (self._source, self._backend, self._options, replaced)

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        restore, arguments = self.__reduce__()
        return restore(*arguments)

    # -- forms ------------------------------------------------------------------------------------

    def _run_call_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> RunCall:
        # Most models have no optional inputs, and this runs at each call.
        form = self._form_for(inputs, named) if self._optional else self._plain
        return form.call

    def _form_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Form:
        """The plain form; or, where initializers are overridden, one in which they are inputs."""
        if not self._optional:
            return self._plain
        return self._forms.overriding(self._plain, self._overridden(inputs, named))

    def _overridden(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the optional inputs that a call passes."""
        beyond = len(inputs) - len(self._infos)
        infos = enumerate(self._optional)
        return tuple(v.name for i, v in infos if i < beyond or v.name in named)

    def _capturing_call(
        self, patterns: tuple[str, ...], inputs: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], RunCall]:
        names, form = self._forms.capturing(patterns, self._overridden(inputs, named))
        return names, form.call

    def _inner_call(self, names: Any, feeds: Mapping[str, Any]) -> tuple[RunCall, Any] | None:
        is_list = isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names)
        wanted = tuple(names) if is_list else ()
        if not wanted or self._is_plain(wanted, feeds):
            return None
        for name in feeds:
            if not self._has_input(name):
                infos = ", ".join(info.name for info in (*self._infos, *self._optional)) or "none"
                raise InvalidInput(f"The model has no input {name!r}; it takes {infos}.")
        form = self._forms.computing(wanted, self._overridden((), feeds))
        return form.call, form.of_its_own(feeds)

    def _is_plain(self, names: tuple[str, ...], feeds: Mapping[str, Any]) -> bool:
        """Whether the plain program computes these values from these feeds."""
        return all(name in self._output_names for name in names) and all(
            info.name in feeds for info in self._infos if info.container != "optional"
        )


def audited(model: Model) -> Model:
    """The model, if no fault can be seen without running it.

    A model that another process has audited is not audited again: that alone takes onnx 10 ms.
    """
    # Some versions of Python hold a lock while they compute a `cached_property`.
    with postponed():
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
