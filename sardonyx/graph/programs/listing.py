"""A program in words: what it takes, what became of its values, and what runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.backends.base import Spec
from sardonyx.graph.standard.types import short_name
from sardonyx.printable import printable

if TYPE_CHECKING:
    from sardonyx.graph.programs.program import Operand, Program, Segment, Step

_MOST_STEPS = 60
_LONGEST_LINE = 2000
_MOST_NAMES = 8


def listing(program: Program) -> str:
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


def spec_text(spec: Spec) -> str:
    """A shape and dtype as messages and listings write it."""
    return f"{short_name(spec.dtype)}{list(spec.shape)}"


def _type(array: Any) -> str:
    return f"{np.dtype(array.dtype).name}{list(array.shape)}"


def _content(value: np.ndarray[Any, Any]) -> str:
    if value.size > 8:
        return f"{short_name(value.dtype)}{list(value.shape)}"
    return str(value.tolist())
