"""Branches and loops: their bodies are walked in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from sardonyx.backends.jax.lockstep import carried_by_scan, columns
from sardonyx.backends.jax.padding.masks import RuntimeArgs
from sardonyx.backends.jax.padding.proof import EquationPair, Rule, Run
from sardonyx.backends.padding.axes import Axis, Layout, Unpaddable, joined


def branches(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    if pair.params.get("branches_platforms") is not None:
        return _platform_forms(pair)
    walks = [
        pair.proof.walk(true, padded, pair.layouts[1:])
        for true, padded in columns(pair.both("branches"))
    ]
    results = [_common(layouts) for layouts in columns(layouts for layouts, _ in walks)]

    def run(runtime_args: RuntimeArgs, index: Any, *operands: Any) -> Sequence[Any]:
        functions = [partial(branch, runtime_args) for _, branch in walks]
        outputs: Sequence[Any] = lax.switch(index, functions, *operands)
        return outputs

    return results, run


def _platform_forms(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """One function in forms for several platforms: the proof of the general form holds for all.

    If the general form needs a mask or a runtime argument inside, it replaces the other forms.
    """
    before = pair.proof.mark()
    true, padded = pair.both("branches")
    layouts, general = pair.proof.walk(true[-1], padded[-1], pair.layouts[1:])
    if pair.proof.mark().arguments == before.arguments:
        return layouts, pair.unchanged
    return layouts, lambda runtime_args, index, *operands: general(runtime_args, *operands)


def scan(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """Steps beyond the true length leave the carry unchanged."""
    proof = pair.proof
    options = {"reverse": pair.same("reverse"), "unroll": pair.params["unroll"]}
    carry = carried_by_scan((pair.true, pair.padded))
    constants, carried, scanned = _parts(pair.layouts, carry)
    length, padded_length = pair.both("length")
    varies = proof.varies(length, padded_length)
    rows = [layout[0] for layout in scanned]
    along = joined([Axis.of(padded_length, length, is_padded=varies), *rows])
    if not along.is_prefix:
        raise Unpaddable("it loops along an axis that was merged from two, one of them padded")
    rest = [layout[1:] for layout in scanned]
    carried, results, body = _settled(pair, "jaxpr", constants, carried, rest)
    end = proof.size_slot(length) if along.is_padded else None

    def run(runtime_args: RuntimeArgs, *operands: Any) -> Sequence[Any]:
        constants, initial, scanned = _parts(operands, carry)

        def step(before: Any, numbered: Any) -> Any:
            number, *row = numbered
            results = body(runtime_args, *constants, *before, *row)
            after = results[: len(before)]
            if end is not None:
                goes_on = number < runtime_args[end]
                pairs = zip(after, before, strict=True)
                after = [jnp.where(goes_on, new, old) for new, old in pairs]
            return tuple(after), results[len(before) :]

        numbers = np.arange(padded_length, dtype=np.int32)
        final, stacked = lax.scan(
            step, tuple(initial), (numbers, *scanned), padded_length, **options
        )
        return [*final, *stacked]

    stacked = [(along.nonuniform, *layout) for layout in results[len(carried) :]]
    return [*carried, *stacked], run


def _parts(operands: Sequence[Any], carry: slice) -> tuple[Any, Any, Any]:
    """The constants, the carry and the scanned arrays among the operands of a scan."""
    return operands[: carry.start], operands[carry], operands[carry.stop :]


def while_loop(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    first = pair.same("cond_nconsts")
    second = first + pair.same("body_nconsts")
    carried, _, body = _settled(
        pair, "body_jaxpr", pair.layouts[first:second], pair.layouts[second:], []
    )
    _, condition = pair.proof.walk(*pair.both("cond_jaxpr"), [*pair.layouts[:first], *carried])

    def run(runtime_args: RuntimeArgs, *operands: Any) -> Sequence[Any]:
        results: Sequence[Any] = lax.while_loop(
            lambda carry: condition(runtime_args, *operands[:first], *carry)[0],
            lambda carry: tuple(body(runtime_args, *operands[first:second], *carry)),
            tuple(operands[second:]),
        )
        return results

    return carried, run


def _settled(
    pair: EquationPair,
    name: str,
    constants: Sequence[Layout],
    carried: Sequence[Layout],
    rows: Sequence[Layout],
) -> tuple[list[Layout], list[Layout], Callable[..., Any]]:
    """Walk a body until its carry comes out with the layouts that it goes in with."""
    layouts = list(carried)
    while True:
        before = pair.proof.mark()
        results, run = pair.proof.walk(*pair.both(name), [*constants, *layouts, *rows])
        wider = [_common(each) for each in zip(layouts, results[: len(layouts)], strict=True)]
        if wider == layouts:
            return layouts, results, run
        pair.proof.rewind(before)
        layouts = wider


def _common(layouts: Sequence[Layout]) -> Layout:
    return tuple(joined(axes) for axes in columns(layouts))


RULES: Mapping[str, Rule] = {"cond": branches, "scan": scan, "while": while_loop}
