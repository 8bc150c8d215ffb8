"""Control flow: on the device where it can be, walked through by the tracer where not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.errors import InvalidInput, InvalidModel
from sardonyx.ops.definition import Body, DType, Outline, Strings, Value, Walk, op
from sardonyx.ops.loops import single


@op
def If(walk: Walk, cond: Value, *, then_branch: Body, else_branch: Body) -> Value:
    single(cond, "its condition")
    if not walk.knows(cond):
        shapes = _shapes(walk, then_branch)
        if shapes is not None and shapes == _shapes(walk, else_branch):
            made = walk.on_device(_chosen, cond, then_branch=then_branch, else_branch=else_branch)
            if made is not None:
                return made
    return then_branch() if bool(walk.read(cond).item()) else else_branch()


def _shapes(walk: Walk, branch: Body) -> Any:
    """What a branch makes; None if it does not run on the device, or not at all.

    Exporters write branches that fit other sizes than these. They are an error only where taken.
    """
    try:
        return walk.shapes(branch)
    except (InvalidInput, InvalidModel):
        return None


@If.infers()
def _of_both_branches(
    dtypes: Sequence[DType | None], outputs: int, *, then_branch: Outline, else_branch: Outline
) -> list[DType | None]:
    counts = len(then_branch.dtypes), len(else_branch.dtypes)
    if {*counts} != {outputs}:
        raise ValueError(
            f"it has {outputs} outputs, and its branches make {counts[0]} and {counts[1]} values"
        )
    pairs = list(zip(then_branch.dtypes, else_branch.dtypes, strict=True))
    for i, (one, other) in enumerate(pairs):
        if None not in (one, other) and one != other:
            raise ValueError(f"as output {i} its branches make {one} and {other}")
    return [one or other for one, other in pairs]


def _chosen(xp: Backend, cond: Array, *, then_branch: Body, else_branch: Body) -> Any:
    return xp.cond(cond, then_branch, else_branch)


@op
def SequenceMap(walk: Walk, input_sequence: Value, *additional_inputs: Value, body: Body) -> Value:
    def of(value: Value, place: int) -> Value:
        return value[place] if isinstance(value, list) else value

    lengths = {len(v) for v in (input_sequence, *additional_inputs) if isinstance(v, list)}
    if not isinstance(input_sequence, list) or len(lengths) > 1:
        raise ValueError(f"its sequences must be of one length, and are of {sorted(lengths)}")
    made = [
        body(*(of(value, i) for value in (input_sequence, *additional_inputs)))
        for i in range(len(input_sequence))
    ]
    return tuple([results[i] for results in made] for i in range(body.outputs))


@op(domain="ai.onnx.preview.training")
def Gradient(walk: Walk, *Inputs: Value, xs: Strings, y: str, zs: Strings = ()) -> Value:
    names = (*xs, *zs)
    if len(Inputs) != len(names):
        raise ValueError(f"it has {len(Inputs)} inputs for the {len(names)} names of xs and zs")
    return walk.with_body(_gradients, *Inputs, body=walk.between(names, y), count=len(xs))


def _gradients(xp: Backend, *arrays: Array, body: Body, count: int) -> tuple[Array, ...]:
    return body.gradients(arrays, count)
