"""Control flow: it runs on the device where possible; otherwise the tracer unrolls it."""

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
    single("cond", cond)
    if not walk.knows(cond):
        shapes = _shapes(walk, then_branch)
        if shapes is not None and shapes == _shapes(walk, else_branch):
            results = walk.on_device(_cond, cond, then_branch=then_branch, else_branch=else_branch)
            if results is not None:
                return results
    return then_branch() if bool(walk.read(cond).item()) else else_branch()


def _shapes(walk: Walk, branch: Body) -> Any:
    """Return the shapes of a branch's results; None if it cannot run on the device, or at all.

    Exporters write branches for other sizes than these; only a branch that runs is an error.
    """
    try:
        return walk.shapes(branch)
    except (InvalidInput, InvalidModel):
        return None


@If.infers()
def _infer_if(
    dtypes: Sequence[DType | None], outputs: int, *, then_branch: Outline, else_branch: Outline
) -> list[DType | None]:
    counts = len(then_branch.dtypes), len(else_branch.dtypes)
    if {*counts} != {outputs}:
        raise ValueError(
            f"it has {outputs} outputs, but its branches return {counts[0]} and {counts[1]} values"
        )
    pairs = list(zip(then_branch.dtypes, else_branch.dtypes, strict=True))
    for i, (one, other) in enumerate(pairs):
        if None not in (one, other) and one != other:
            raise ValueError(f"output {i} is {one} in then_branch, but {other} in else_branch")
    return [one or other for one, other in pairs]


def _cond(xp: Backend, cond: Array, *, then_branch: Body, else_branch: Body) -> Any:
    return xp.cond(cond, then_branch, else_branch)


@op
def SequenceMap(walk: Walk, input_sequence: Value, *additional_inputs: Value, body: Body) -> Value:
    values = (input_sequence, *additional_inputs)
    lengths = {len(value) for value in values if isinstance(value, list)}
    if not isinstance(input_sequence, list) or len(lengths) > 1:
        raise ValueError(
            f"its first input must be a sequence, and all sequences must have the same length; the "
            f"lengths are {sorted(lengths)}"
        )
    columns = [v if isinstance(v, list) else [v] * len(input_sequence) for v in values]
    results = [body(*items) for items in zip(*columns, strict=True)]
    return tuple([row[i] for row in results] for i in range(body.outputs))


@op(domain="ai.onnx.preview.training")
def Gradient(walk: Walk, *Inputs: Value, xs: Strings, y: str, zs: Strings = ()) -> Value:
    names = (*xs, *zs)
    if len(Inputs) != len(names):
        raise ValueError(f"it has {len(Inputs)} inputs, but xs and zs have {len(names)} names")
    return walk.with_body(_gradients, *Inputs, body=walk.between(names, y), count=len(xs))


def _gradients(xp: Backend, *arrays: Array, body: Body, count: int) -> tuple[Array, ...]:
    return body.gradients(arrays, count)
