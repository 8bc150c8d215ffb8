"""The bytes that a program needs while it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from sardonyx.backends.executable import Spec
from sardonyx.display.bars import bar, key, stacked
from sardonyx.display.markup import displayed
from sardonyx.display.tables import table
from sardonyx.display.units import bytes_text
from sardonyx.graph.programs.program import Program
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.tracing.steps import Segment
from sardonyx.graph.values.params import Weights

# What is in memory at once, as parts of one bar.
_AT_THE_PEAK = ("weights", "prepared", "constants", "inputs", "outputs", "temporaries")


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes that a call needs. Printed, it is a short table.

    Under JAX `temporaries` is what XLA allocates. On other backends, where steps run one by one, it
    is the largest total of values that are alive between two steps.
    """

    weights: int
    # Weights that were prepared before the calls, and are passed in place of the original ones.
    prepared: int
    constants: int
    inputs: int
    outputs: int
    temporaries: int
    # Outputs that reuse the buffers of donated inputs, and values that share another's buffer.
    donated: int
    saved_by_aliases: int
    # The total at the peak, weights included.
    peak: int
    # Device memory that the library has reserved, and its limit; 0 if it does not report them.
    reserved: int
    limit: int

    @classmethod
    def of(cls, program: Program, weights: Weights) -> Memory:
        """The memory that a compiled program needs."""
        stages = [stage for stage in program.stages if stage.segment is not None]
        passed, prepared, constants = _bound(stages, weights)
        inputs = sum(_size(spec) for spec in program.inputs)
        outputs = sum(_size(spec) for spec in program.outputs)
        work = max((_temporaries(s) + sum(map(_size, s.results)) for s in stages), default=0)
        donated = sum(_donated(stage) for stage in stages)
        aliases = [v.spec for v in program.names.values() if v.kind == "alias" and v.spec]
        reserved, limit = program.backend.reserved()
        fixed = passed + prepared + constants
        return cls(
            weights=passed,
            prepared=prepared,
            constants=constants,
            inputs=inputs,
            outputs=outputs,
            temporaries=max((_temporaries(stage) for stage in stages), default=0),
            donated=donated,
            saved_by_aliases=sum(map(_size, aliases)),
            peak=fixed + inputs + max(work - donated, 0),
            reserved=reserved,
            limit=limit,
        )

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        sizes = {f.name: getattr(self, f.name) for f in fields(self)}
        parts = [(name, sizes[name]) for name in _AT_THE_PEAK]
        most = max(sizes.values()) or 1
        rows = [
            (
                key(_AT_THE_PEAK.index(name), name) if name in _AT_THE_PEAK else _label(name),
                f"{size:,}",
                bytes_text(size),
                bar(size / most),
            )
            for name, size in sizes.items()
        ]
        chart = table(("", "bytes", "", ""), rows, numbers=[1, 2])
        return displayed(f"Memory of a call: {bytes_text(self.peak)}", stacked(parts), chart)

    def __str__(self) -> str:
        lines = [(_label(f.name), getattr(self, f.name)) for f in fields(self)]
        return "\n".join(f"{name:<18}{value:>20,} bytes" for name, value in lines)


def _label(name: str) -> str:
    return name.replace("_", " ")


def _bound(stages: Sequence[Stage], weights: Weights) -> tuple[int, int, int]:
    """Bytes of weights that are passed unchanged, of prepared weights, and of constants."""
    size = weights.backend.nbytes
    plain: dict[str, int] = {}
    prepared, constants = 0, {}
    for stage in stages:
        binding = stage.binding
        for register, name in binding.weights.items():
            if register in binding.loose:
                plain[name] = weights.host(name).nbytes
        constants.update({id(a): size(a) for r, a in binding.placed.items() if r in binding.loose})
        passed = stage.binding.arrays(weights)
        unchanged = {*binding.weights, *binding.placed}
        loose = zip(binding.loose, passed, strict=False)
        prepared += sum(size(array) for register, array in loose if register not in unchanged)
        prepared += sum(size(array) for array in passed[len(binding.loose) :])
    return sum(plain.values()), prepared, sum(constants.values())


def _donated(stage: Stage) -> int:
    costs = stage.costs
    return costs().donated if costs else 0


def _temporaries(stage: Stage) -> int:
    costs = stage.costs
    if costs:
        return costs().temporaries
    return 0 if stage.segment is None else _most_alive(stage.segment)


def _most_alive(segment: Segment) -> int:
    """The largest total of the steps' results, except the segment's own, that is alive at once."""
    sizes = {
        r: _size(spec)
        for step in segment.steps
        if not step.call.is_view
        for r, spec in zip(step.results, step.specs, strict=True)
        if r not in segment.results
    }
    alive = most = 0
    for step, releases in zip(segment.steps, segment.releases, strict=True):
        alive += sum(sizes.get(register, 0) for register in step.results)
        most = max(most, alive)
        alive -= sum(sizes.get(register, 0) for register in releases)
    return most


def _size(spec: Spec) -> int:
    return math.prod(spec.shape) * spec.dtype.itemsize
