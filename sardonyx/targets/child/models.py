"""Models: as `load` runs them, program by program, and as the function that `to_jax` gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np

from sardonyx.api import load
from sardonyx.arguments import precision_level
from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.model.model import Model
from sardonyx.graph.model.resolve import Opened
from sardonyx.graph.programs.program import Program
from sardonyx.graph.tracing.steps import Segment, Step
from sardonyx.targets.child.backend import TargetBackend
from sardonyx.targets.child.compiling import compilation, devices_of, stand_in
from sardonyx.targets.jobs import ModelJob
from sardonyx.targets.records import Compilation, HostSteps
from sardonyx.to_jax.backend import inside_backend
from sardonyx.to_jax.pure_function import PureFunction

Say = Callable[[str], None]
Note = Callable[[Compilation], None]
NoteHost = Callable[[HostSteps], None]

_DATA_DECIDES = (
    "Values that a call computes decide how the model goes on; here all inputs without values are "
    "zeros."
)


def compile_loaded(
    job: ModelJob, say: Say, note: Note, note_host: NoteHost, remark: Callable[[str], None]
) -> None:
    """Compile each segment of the program that a call of the loaded model runs."""
    titles = Titles()

    def title() -> str:
        text = titles.next()
        say(text)
        return text

    backend = TargetBackend(job.target, note, title, keeps_text=job.keeps_text)
    options = {"compile": "now", "buckets": None, **job.options}
    model = load(job.source, backend=backend, **options)
    assert isinstance(model, Model)
    arguments = inputs_of(model.inputs, job, model.optional_inputs)
    program = model.trace(**arguments)
    _compile_rest(model, program, titles)
    for stage in program.stages:
        if stage.segment is not None and stage.segment.host:
            note_host(_host_steps(stage.segment))
    if any(stage.reads or stage.measures for stage in program.stages):
        remark(_DATA_DECIDES)


class Titles:
    """Names programs in the order in which they are compiled."""

    def __init__(self) -> None:
        self.count = 0
        self.segment: Segment | None = None

    def next(self) -> str:
        """Return the title of the next program."""
        text = f"segment {self.count}"
        self.count += 1
        if self.segment is None:
            return text
        steps = self.segment.steps
        count = f"{len(steps)} step{'s' * (len(steps) != 1)}"
        return f"{text}, {count} from {steps[0].title} to {steps[-1].title}"


def _compile_rest(model: Model, program: Program, titles: Titles) -> None:
    """Compile the segments that did not run while the program was traced; weights stay unread."""
    compiler, weights = model._shared.compiler, model._shared.weights.now()
    for stage in program.stages:
        segment = stage.segment
        if segment is not None and not segment.host and stage.executable is None:
            titles.segment = segment
            with compiler.backend.scope():
                arguments = [*stage.inputs, *stage.binding.stand_ins(weights)]
                stage.executable_for(segment, compiler, arguments)


def _host_steps(segment: Segment) -> HostSteps:
    reasons = dict.fromkeys(map(_why_on_host, segment.steps))
    return HostSteps(tuple(step.title for step in segment.steps), "; ".join(reasons))


def _why_on_host(step: Step) -> str:
    if step.call.is_unsized:
        return "the shape of its result depends on data"
    return "it reads or writes strings, data on the host, or a type that the device lacks"


def inputs_of(
    infos: Sequence[ValueInfo], job: ModelJob, optional: Sequence[ValueInfo] = ()
) -> dict[str, Any]:
    """Return an input for each required one: the job's own value, or zeros of its shape."""
    known = {info.name: info for info in (*infos, *optional)}
    for name in (*job.shapes, *job.inputs):
        if name not in known:
            raise InvalidInput(
                f"No input is called {name!r}; the model takes {', '.join(known) or 'none'}."
            )
    tensors = {name: v for name, v in job.inputs.items() if not known[name].container}
    shapes = {**job.shapes, **{name: np.shape(value) for name, value in tensors.items()}}
    sizes = _named_sizes(known, shapes)
    arrays = {name: zeros(known[name], shape) for name, shape in job.shapes.items()}
    for info in infos:
        if info.name not in {**shapes, **job.inputs}:
            shape = [s if isinstance(s, int) else sizes.get(s or "", 1) for s in info.shape or ()]
            arrays[info.name] = zeros(info, shape)
    return {**arrays, **job.inputs}


def _named_sizes(
    infos: Mapping[str, ValueInfo], shapes: Mapping[str, Sequence[int]]
) -> dict[str, int]:
    """Return the sizes of the model's named dimensions, as far as these shapes say them."""
    return {
        dimension: size
        for name, shape in shapes.items()
        for dimension, size in zip(infos[name].shape or (), shape, strict=False)
        if isinstance(dimension, str)
    }


def zeros(info: ValueInfo, shape: Sequence[int]) -> Any:
    """Return zeros for an input that take no memory."""
    if info.container:
        raise InvalidInput(
            f"The input {info} is no tensor, so that a shape is not enough: pass a value."
        )
    if info.dtype == np.dtype(object):
        return np.full(shape, "", object)
    return np.broadcast_to(np.zeros((), info.dtype or np.float32), shape)


def compile_pure(job: ModelJob, say: Say, note: Note) -> None:
    """Compile the function of `to_jax` as one program, with its weights as arguments."""
    options = job.options
    source, _, checks_types, _ = Opened.of(
        job.source, strict=options.get("strict"), ops=options.get("ops", ())
    )
    word = options.get("precision")
    backend = inside_backend(None if word is None else precision_level(word))
    function = PureFunction(source, backend, training=False, strict=checks_types)
    device = devices_of(job.target)[0]
    inputs = inputs_of(function.inputs, job)
    with jax.enable_x64(True) if job.wide else nullcontext():
        weights = {n: _narrowed(w, device) for n, w in function.weights.items()}
        values = {n: _narrowed(v, device) for n, v in inputs.items() if n not in job.inputs}
        given = {n: v for n, v in inputs.items() if n in job.inputs}

        def call(params: Any, arrays: Any) -> Any:
            return function(params, **arrays, **given)

        say("the function of to_jax")
        note(
            compilation(
                "the function of to_jax",
                call,
                (weights, values),
                job.target,
                keeps_text=job.keeps_text,
            )
        )


def _narrowed(array: Any, device: Any) -> Any:
    """Return a stand-in of the type that an array has in JAX's present mode."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    return stand_in(jax.ShapeDtypeStruct(array.shape, dtype), device)
