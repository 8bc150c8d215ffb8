"""Names for the registers of programs: the values' own, or what a rewrite put there."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence

from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.tracing.names import Named
from sardonyx.graph.tracing.steps import Segment, Step, content_text, operand_text
from sardonyx.printable import shortened


def named_segments(stages: Sequence[Stage], named: Mapping[str, Named], key: int) -> list[Segment]:
    """Return the segments of the stages with the names of their registers.

    A weight that rewrites prepared bears the name of its origin, as in `PackedWeight(weight)`; a
    step that one put before a node is named after the node, as in `scores/Transpose`.
    """
    names = _register_names(named)
    names[key] = "random key"
    segments = []
    for stage in stages:
        if stage.segment is not None:
            # The registers of rewrites have a meaning in their own segment only.
            own: dict[int, str] = {}
            fixed = _fixed_names(stage, names)
            _name_results(stage.segment.steps, names, own, fixed)
            segments.append(stage.segment.named(ChainMap(own, names, fixed)))
    return segments


def _register_names(named: Mapping[str, Named]) -> dict[int, str]:
    """Return the names of a trace by register; of several names the value's own."""
    names: dict[int, str] = {}
    for name, value in named.items():
        if value.register is not None and (value.kind != "alias" or value.register not in names):
            names[value.register] = name
    return names


def _fixed_names(stage: Stage, names: dict[int, str]) -> dict[int, str]:
    """Return the names of weights, constants and prepared weights."""
    binding = stage.binding
    fixed = {register: content_text(value) for register, value in binding.constants.items()}
    fixed.update(binding.weights)
    known = ChainMap(names, fixed)
    for step in (step for group in binding.prepared for step in group.steps):
        operands = ", ".join(operand_text(operand, known) for operand in step.operands)
        fixed.update(dict.fromkeys(step.results, shortened(f"{step.title}({operands})", 300)))
    return fixed


def _name_results(
    steps: Sequence[Step], names: dict[int, str], own: dict[int, str], fixed: Mapping[int, str]
) -> None:
    """Name the results that have no name in the graph: those of rewrites in `own`."""
    taken = {*names.values(), *fixed.values()}
    counts: Counter[str] = Counter()

    def name(register: int, wanted: str) -> None:
        if register in names or register in own or register in fixed:
            return
        text = wanted
        while text in taken:
            counts[wanted] += 1
            text = f"{wanted} {counts[wanted] + 1}"
        taken.add(text)
        (own if register < 0 else names)[register] = text

    for step in _with_blocks(steps):
        for block in step.blocks:
            for i, parameter in enumerate(block.parameters):
                name(parameter, f"{step.node.first_output}/argument {i}")
        for i, register in enumerate(step.results):
            name(register, _wanted(step, register, i))


def _wanted(step: Step, register: int, place: int) -> str:
    """Return the name of the node's own result in one of several passes; or of a rewrite's."""
    outputs = step.node.outputs
    if register >= 0 and place < len(outputs) and outputs[place]:
        return outputs[place]
    return f"{step.node.first_output}/{step.title}"


def _with_blocks(steps: Sequence[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        for block in step.blocks:
            yield from _with_blocks(block.steps)
