"""Two traces of one model, for a call's sizes and for larger ones, walked over together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.padding.axes import Different, Layout, Place, Unpaddable, clean_layout
from sardonyx.backends.jax.padding.protocols import Act, Call, Prover
from sardonyx.graph.buckets.pieces import PieceRecorder
from sardonyx.graph.tracing.recorder import TracedSegment
from sardonyx.graph.tracing.steps import Operand, Step


class Unfit(Exception):  # noqa: N818  (a finding, not a fault)
    """Padding cannot be shown to be right at some node."""


class OfAnotherForm(Exception):  # noqa: N818
    """The traces differ, so that nothing can be said of padding."""


@dataclass(frozen=True, eq=False, slots=True)
class PaddedCall:
    """What a step of a padded program calls: what is told comes before the operands."""

    run: Act
    told: int

    is_unsized: ClassVar[bool] = False
    is_view: ClassVar[bool] = False

    @property
    def key(self) -> Any:
        return self

    def __call__(self, xp: Backend, arrays: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(self.run(arrays[: self.told], arrays[self.told :]))


@dataclass(eq=False, slots=True)
class Comparison:
    """What was found: for each value of the true program where it is in the padded one, and how."""

    true: PieceRecorder
    padded: PieceRecorder
    prover: Prover
    layouts: dict[int, Layout]
    twins: dict[int, int]
    # The padded program's steps, what each is to run instead, and on what.
    acts: list[tuple[Step, Act | None, tuple[Operand, ...]]] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        true: PieceRecorder,
        padded: PieceRecorder,
        inputs: Mapping[int, Layout],
        prover: Prover,
    ) -> Comparison:
        layouts = {**inputs, padded.registers.key: clean_layout((2,))}
        found = cls(true, padded, prover, layouts, {register: register for register in layouts})
        if len(true.pieces) != len(padded.pieces):
            raise OfAnotherForm("the graph is divided otherwise")
        for one, other in zip(true.pieces, padded.pieces, strict=True):
            if len(one.steps) != len(other.steps):
                raise OfAnotherForm(_first_difference(one.steps, other.steps))
            for pair in zip(one.steps, other.steps, strict=True):
                found._step(*pair)
        return found

    def pieces(self, told: Sequence[int]) -> list[TracedSegment]:
        """The padded program's pieces; what is told comes in these registers."""
        made = iter(self.acts)
        return [
            replace(piece, steps=[_padded(*next(made), told) for _ in piece.steps])
            for piece in self.padded.pieces
        ]

    def _step(self, true: Step, padded: Step) -> None:
        if true.title != padded.title or len(true.operands) != len(padded.operands):
            raise OfAnotherForm(f"{padded.node.label} ({padded.title}) is not run")
        try:
            places: dict[int, Place] = {}
            layouts = []
            for i, pair in enumerate(zip(true.operands, padded.operands, strict=True)):
                layout, place = self._operand(*pair)
                layouts.append(layout)
                if place is not None:
                    places[i] = place
            made, act = self.prover.step(
                _call(true, self.true), _call(padded, self.padded), layouts, places
            )
        except Unpaddable as reason:
            raise Unfit(f"{padded.node.label} ({padded.title}): {reason}") from None
        except Different as reason:
            raise OfAnotherForm(f"{padded.node.label} ({padded.title}): {reason}") from None
        self.layouts.update(zip(padded.results, made, strict=True))
        self.twins.update(zip(true.results, padded.results, strict=True))
        kept = tuple(o for i, o in enumerate(padded.operands) if i not in places)
        self.acts.append((padded, act, kept))

    def _operand(self, true: Operand, padded: Operand) -> tuple[Layout, Place | None]:
        values = self.true.constant(true), self.padded.constant(padded)
        if values[0] is not None and values[1] is not None:
            return self.prover.constant(*values)
        if not (isinstance(true, int) and isinstance(padded, int)):
            raise Different("a value is a constant for one size alone")
        name = self.padded.weight_name(padded)
        if name is not None and name == self.true.weight_name(true):
            return clean_layout(self.padded.spec(padded).shape), None
        if self.twins.get(true) != padded:
            raise Different("it reads another value for another size")
        return self.layouts[padded], None


def _call(step: Step, recorder: PieceRecorder) -> Call:
    def function(*arrays: Any) -> Sequence[Any]:
        return step.call(recorder.backend, arrays)

    return Call(function, step.call.key, [recorder.spec(operand) for operand in step.operands])


def _padded(
    step: Step, act: Act | None, operands: tuple[Operand, ...], told: Sequence[int]
) -> Step:
    if act is None:
        return step
    return replace(
        step,
        call=PaddedCall(act, len(told)),
        operands=(*told, *operands),
        blocks=(),
        captured=(),
        renamed=step.title,
    )


def _first_difference(true: Sequence[Step], padded: Sequence[Step]) -> str:
    for one, other in zip(true, padded, strict=False):
        if one.title != other.title or one.node is not other.node:
            return f"{other.node.label} ({other.title}) is not run"
    longer = max(true, padded, key=len)
    extra = longer[min(len(true), len(padded))]
    return f"{extra.node.label} ({extra.title}) is run for some sizes alone"
