"""The program of a call: the kind of each value, and the segments that run."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.tracing.names import Named
from sardonyx.graph.tracing.steps import Operand, Segment, Step
from sardonyx.graph.tracing.tracer import Traced
from sardonyx.graph.values.kinds import Device, digest, leaves, spec_text
from sardonyx.printable import printable

_MOST_STEPS = 60
_LONGEST_LINE = 2000
_MOST_NAMES = 8


class Program:
    """One path through a recording: the kind of each value, and the segments that run.

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
        # The shapes and dtypes of a call's arrays, and of those that the device returns.
        self.inputs = tuple(traced.registers.input_specs)
        leaf_values = [leaf for output in traced.outputs for leaf in leaves(output)]
        self.outputs = tuple(leaf.spec for leaf in leaf_values if isinstance(leaf, Device))
        self.names: Mapping[str, Named] = traced.names
        """Every value of the graph, in the order of tracing."""
        self.constants = _constants(traced, stages)
        """The static values that device steps use, by the first name of each."""

    def kind(self, name: str) -> str:
        """Return the kind of a value: "static", "device", "alias" or "host"."""
        return self.named(name).kind

    def named(self, name: str) -> Named:
        try:
            return self.names[name]
        except KeyError:
            raise KeyError(printable(f"the graph has no value named '{name}'")) from None

    @property
    def static(self) -> dict[str, np.ndarray[Any, Any]]:
        """The values known while tracing, by name. They cost nothing at a call."""
        return {n: v.static for n, v in self.names.items() if v.static is not None}

    @property
    def aliases(self) -> dict[str, str]:
        """For each alias, the name of the value whose buffer it shares."""
        return {n: v.source for n, v in self.names.items() if v.kind == "alias" and v.source}

    @property
    def segments(self) -> list[Segment]:
        """The segments that run at each call, in order."""
        return [stage.segment for stage in self.stages if stage.segment is not None]

    @property
    def round_trips(self) -> int:
        """How often a call waits for the device: to read a value, or to run steps on the host."""
        reads = sum(bool(stage.reads) for stage in self.stages)
        return reads + sum(segment.host for segment in self.segments)

    def __str__(self) -> str:
        return _listing(self)


def _constants(traced: Traced, stages: Sequence[Stage]) -> dict[str, Any]:
    """Return the arrays that steps take for static values, by the first name of each value."""
    registers = traced.registers
    names: dict[int, str] = {}
    for name, named in traced.names.items():
        if named.static is not None:
            names.setdefault(id(named.static), name)
    used = sorted({register for stage in stages for register in stage.binding.constants})
    arrays = {id(registers.constants[r]): registers.placed[r] for r in used}
    for embedded in [e for stage in stages for step in stage.steps for e in step.embedded]:
        # A recording of another process has values of its own, equal to those of this trace.
        value = registers.embedded.get(digest(embedded.value), embedded).value
        arrays[id(value)] = value
    return {names.get(key, f"constant {i}"): a for i, (key, a) in enumerate(arrays.items())}


# -- as text --------------------------------------------------------------------------------------


def _listing(program: Program) -> str:
    """Return the text that `print(program)` shows."""
    names = _register_names(program)
    lines = [program.title, "", *_summary(program)]
    stages = [(stage, stage.segment) for stage in program.stages if stage.segment is not None]
    for i, (stage, segment) in enumerate(stages):
        where = "host" if segment.host else program.backend.name
        count = len(segment.steps)
        lines += ["", f"segment {i} on {where}: {count} step{'s' * (count != 1)}"]
        lines += _steps(segment, {**_prepared_names(stage, names), **names})
    return "\n".join(printable(line, _LONGEST_LINE) for line in lines)


def _summary(program: Program) -> Iterator[str]:
    spec = program.backend.spec
    yield _line("static", [f"{n} = {_content(v)}" for n, v in program.static.items()])
    yield _line("aliases", [f"{name} is {source}" for name, source in program.aliases.items()])
    yield _line("constants", [f"{n} {spec_text(spec(a))}" for n, a in program.constants.items()])
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
    results = ", ".join(
        f"{_operand(register, names)}: {spec_text(spec)}"
        for register, spec in zip(step.results, step.specs, strict=True)
    )
    own = step.operands[: len(step.operands) - len(step.captured)]
    operands = ", ".join(_operand(operand, names) for operand in own)
    yield f"{indent}{results} = {step.title}({operands})"
    for block in step.blocks:
        yield f"{indent}  block:"
        for inner in block.steps:
            yield from _step(inner, names, indent + "    ")


def _operand(operand: Operand, names: Mapping[int, str]) -> str:
    if isinstance(operand, int):
        return names.get(operand, f"%{operand}")
    return _content(operand.value)


def _register_names(program: Program) -> dict[int, str]:
    names: dict[int, str] = {}
    for name, value in program.names.items():
        if value.register is not None and (value.kind != "alias" or value.register not in names):
            names[value.register] = name
    return names


def _prepared_names(stage: Stage, names: dict[int, str]) -> dict[int, str]:
    """Return names for weights that rewrites prepared, such as `PackedWeight(weight)`."""
    prepared: dict[int, str] = {}
    all_names = ChainMap(names, prepared)
    for step in (step for group in stage.binding.prepared for step in group.steps):
        operands = ", ".join(_operand(operand, all_names) for operand in step.operands)
        prepared.update(dict.fromkeys(step.results, f"{step.title}({operands})"))
    return prepared


def _content(value: np.ndarray[Any, Any]) -> str:
    if value.size > 8:
        return spec_text(Spec(value.shape, value.dtype))
    return str(value.tolist())
