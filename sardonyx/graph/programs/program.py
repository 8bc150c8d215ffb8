"""One path through the tree of stages that was recorded: what each value became, and what runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import islice
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.standard.types import short_name
from sardonyx.graph.tracing.names import Named
from sardonyx.graph.tracing.steps import Operand, Segment, Step
from sardonyx.graph.tracing.tracer import Traced
from sardonyx.graph.values.kinds import digest, spec_text
from sardonyx.printable import printable

_MOST_STEPS = 60
_LONGEST_LINE = 2000
_MOST_NAMES = 8


class Program:
    """One path through a recording: what each value became, and the segments that run.

    >>> import numpy as np, sardonyx
    >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
    >>> program = model.trace(np.zeros((1, 8, 48), np.float32))
    >>> len(program.segments)
    1
    """

    def __init__(
        self, title: str, backend: Backend, traced: Traced, stages: Sequence[Stage]
    ) -> None:
        self.title = title
        self.backend = backend
        self.stages = tuple(stages)
        # The arrays that a call passes, and those that it gets from the device.
        self.inputs = tuple(traced.inputs)
        self.outputs = tuple(traced.output_specs)
        self.names: Mapping[str, Named] = traced.names
        """Every value of the graph, in the order in which tracing met it."""
        self.constants = _named_constants(traced, stages)
        """The static values that device steps use, by the first name each was bound to."""

    def with_stages(self, stages: Sequence[Stage]) -> Program:
        """The same program, run in other pieces."""
        changed = copy(self)
        changed.stages = tuple(stages)
        return changed

    def kind(self, name: str) -> str:
        """How a value lives: "static", "device", "alias" or "host"."""
        return self.named(name).kind

    def named(self, name: str) -> Named:
        try:
            return self.names[name]
        except KeyError:
            raise KeyError(printable(f"the graph has no value named '{name}'")) from None

    @property
    def static(self) -> dict[str, np.ndarray[Any, Any]]:
        """The values known while tracing, by name: they cost nothing at run time."""
        return {n: v.static for n, v in self.names.items() if v.static is not None}

    @property
    def aliases(self) -> dict[str, str]:
        """For each alias the name of the value whose buffer it is."""
        return {n: v.source for n, v in self.names.items() if v.kind == "alias" and v.source}

    @property
    def segments(self) -> list[Segment]:
        """The pieces that run at each call, in order."""
        return [stage.segment for stage in self.stages if stage.segment is not None]

    @property
    def round_trips(self) -> int:
        """How often a call waits for the device: to read a value, or to go on on the host."""
        reads = sum(bool(stage.reads) for stage in self.stages)
        return reads + sum(segment.host for segment in self.segments)

    def __str__(self) -> str:
        return _listing(self)


def _named_constants(traced: Traced, stages: Sequence[Stage]) -> dict[str, Any]:
    names: dict[int, str] = {}
    for name, named in traced.names.items():
        if named.static is not None:
            names.setdefault(id(named.static), name)
    used = _used_constants(traced, stages)
    return {names.get(id(v), f"constant {i}"): array for i, (v, array) in enumerate(used)}


def _used_constants(
    traced: Traced, stages: Sequence[Stage]
) -> list[tuple[np.ndarray[Any, Any], Any]]:
    """The constants that the steps use, each with the array that they take for it."""
    known = traced.registers
    placed = {register for stage in stages for register in stage.binding.all_constants}
    steps = [step for stage in stages for step in stage.steps]
    # Steps of another process have values of their own, which are equal to those met here.
    found = (known.embedded.get(digest(e.value), e) for step in steps for e in step.embedded)
    embedded = {id(each): each.value for each in found}
    used = [(known.constants[register], known.placed[register]) for register in sorted(placed)]
    return used + [(value, value) for value in embedded.values()]


# -- as text --------------------------------------------------------------------------------------


def _listing(program: Program) -> str:
    """The whole text that `print(program)` shows."""
    names = _register_names(program)
    lines = [program.title, ""]
    lines += _summary(program)
    for i, segment in enumerate(program.segments):
        where = "host" if segment.host else program.backend.name
        count = len(segment.steps)
        lines += ["", f"segment {i} on {where}: {count} step{'s' * (count != 1)}"]
        lines += _steps(segment, names)
    return "\n".join(printable(line, _LONGEST_LINE) for line in lines)


def _summary(program: Program) -> Iterator[str]:
    yield _line("static", [f"{n} = {_content(v)}" for n, v in program.static.items()])
    yield _line("aliases", [f"{name} is {source}" for name, source in program.aliases.items()])
    yield _line("constants", [f"{n} {_type(a)}" for n, a in program.constants.items()])
    weights = [name for stage in program.stages for name in stage.binding.weights.values()]
    yield _line("weights", weights)
    host = [name for name, value in program.names.items() if value.kind == "host"]
    if host:
        yield _line("host", host)


def _line(title: str, entries: Sequence[str]) -> str:
    more = f", … {len(entries) - _MOST_NAMES} more" if len(entries) > _MOST_NAMES else ""
    return f"{title:<10}{len(entries):>4}  {', '.join(entries[:_MOST_NAMES])}{more}".rstrip()


def _steps(segment: Segment, names: dict[int, str]) -> Iterator[str]:
    for step in islice(segment.steps, _MOST_STEPS):
        yield from _step(step, names, "  ")
    if len(segment.steps) > _MOST_STEPS:
        yield f"  … {len(segment.steps) - _MOST_STEPS} more steps"


def _step(step: Step, names: dict[int, str], indent: str) -> Iterator[str]:
    made = ", ".join(
        f"{names.get(register, f'%{register}')}: {spec_text(spec)}"
        for register, spec in zip(step.results, step.specs, strict=True)
    )
    own = step.operands[: len(step.operands) - len(step.captured)]
    taken = ", ".join(_operand(operand, names) for operand in own)
    yield f"{indent}{made} = {step.title}({taken})"
    for block in step.blocks:
        yield f"{indent}  block:"
        for inner in block.steps:
            yield from _step(inner, names, indent + "    ")


def _operand(operand: Operand, names: dict[int, str]) -> str:
    if isinstance(operand, int):
        return names.get(operand, f"%{operand}")
    return _content(operand.value)


def _register_names(program: Program) -> dict[int, str]:
    names: dict[int, str] = {}
    for name, value in program.names.items():
        if value.register is not None and (value.kind != "alias" or value.register not in names):
            names[value.register] = name
    return names


def _type(array: Any) -> str:
    return f"{np.dtype(array.dtype).name}{list(array.shape)}"


def _content(value: np.ndarray[Any, Any]) -> str:
    if value.size > 8:
        return f"{short_name(value.dtype)}{list(value.shape)}"
    return str(value.tolist())
