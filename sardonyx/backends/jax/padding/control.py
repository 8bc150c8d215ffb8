"""Programs within programs: functions, branches and loops, whose bodies are walked in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from sardonyx.backends.jax.padding.masks import Told
from sardonyx.backends.jax.padding.proof import Act, Rule, Site
from sardonyx.backends.padding.axes import Axis, Different, Layout, Unpaddable, joined


def inlined(name: str, site: Site) -> tuple[Sequence[Layout], Act]:
    return site.proof.walk(site.true.params[name], site.params[name], site.layouts)


def branches(site: Site) -> tuple[Sequence[Layout], Act]:
    if site.params.get("branches_platforms") is not None:
        return _forms(site)
    layouts, runs = [], []
    for pair in zip(site.true.params["branches"], site.params["branches"], strict=True):
        made, run = site.proof.walk(*pair, site.layouts[1:])
        layouts.append(made)
        runs.append(run)
    result = [_common(made) for made in zip(*layouts, strict=True)]

    def act(told: Told, index: Any, *operands: Any) -> Sequence[Any]:
        results: Sequence[Any] = lax.switch(index, [partial(run, told) for run in runs], *operands)
        return results

    return result, act


def _forms(site: Site) -> tuple[Sequence[Layout], Act]:
    """One function in the forms that platforms like: what holds for the general one holds for all.

    Unless that must mask something inside; then it is the form that runs.
    """
    before = site.proof.mark()
    general = site.true.params["branches"][-1], site.params["branches"][-1]
    layouts, run = site.proof.walk(*general, site.layouts[1:])
    if site.proof.mark()[1:] == before[1:]:
        return layouts, site.again
    return layouts, lambda told, index, *operands: run(told, *operands)


def scan(site: Site) -> tuple[Sequence[Layout], Act]:
    """Steps beyond the true length leave what is carried as it is."""
    params, proof = site.params, site.proof
    site.require_same("reverse")
    (fixed, count), (true_fixed, true_count) = map(operands_of_scan, (site.padded, site.true))
    if (fixed, count) != (true_fixed, true_count):
        raise Different("its loop carries something else for another size")
    lengths = site.true.params["length"], params["length"]
    varies = proof.varies(*lengths)
    rows = [layout[0] for layout in site.layouts[count:]]
    along = joined([Axis.of(lengths[1], lengths[0], is_padded=varies), *rows])
    if not along.is_prefix:
        raise Unpaddable("it loops along an axis that was made of two, of which one is padded")
    slices = [layout[1:] for layout in site.layouts[count:]]
    carried, layouts, run = _settled(
        site, "jaxpr", site.layouts[:fixed], site.layouts[fixed:count], slices
    )
    end = proof.size(lengths[0]) if along.is_padded else None

    def act(told: Told, *operands: Any) -> Sequence[Any]:
        def step(carry: Any, numbered: Any) -> Any:
            number, *row = numbered
            results = run(told, *operands[:fixed], *carry, *row)
            after = results[: len(carry)]
            if end is not None:
                goes_on = number < told[end]
                pairs = zip(after, carry, strict=True)
                after = [jnp.where(goes_on, new, old) for new, old in pairs]
            return tuple(after), results[len(carry) :]

        numbers = np.arange(lengths[1], dtype=np.int32)
        carry, rows = lax.scan(
            step,
            tuple(operands[fixed:count]),
            (numbers, *operands[count:]),
            lengths[1],
            reverse=params["reverse"],
            unroll=params["unroll"],
        )
        return [*carry, *rows]

    made = [(along.uneven, *layout) for layout in layouts[len(carried) :]]
    return [*carried, *made], act


def operands_of_scan(equation: Any) -> tuple[int, int]:
    """Where among its operands what is carried begins, and where it ends.

    JAX says so in a way of its own in each version. What is gone through has an axis more than
    what the body takes of it, and what is gathered one more than what it makes.
    """
    body = equation.params["jaxpr"]
    gone_through = _of_other_rank(equation.invars, body.jaxpr.invars)
    carried = len(equation.outvars) - _of_other_rank(equation.outvars, body.jaxpr.outvars)
    end = len(equation.invars) - gone_through
    return end - carried, end


def _of_other_rank(outer: Sequence[Any], inner: Sequence[Any]) -> int:
    return sum(a.aval.ndim != b.aval.ndim for a, b in zip(outer, inner, strict=True))


def while_loop(site: Site) -> tuple[Sequence[Layout], Act]:
    params, proof = site.params, site.proof
    site.require_same("cond_nconsts", "body_nconsts")
    first = params["cond_nconsts"]
    second = first + params["body_nconsts"]
    carried, _, run = _settled(
        site, "body_jaxpr", site.layouts[first:second], site.layouts[second:], []
    )
    condition = site.true.params["cond_jaxpr"], params["cond_jaxpr"]
    _, goes_on = proof.walk(*condition, [*site.layouts[:first], *carried])

    def act(told: Told, *operands: Any) -> Sequence[Any]:
        results: Sequence[Any] = lax.while_loop(
            lambda carry: goes_on(told, *operands[:first], *carry)[0],
            lambda carry: tuple(run(told, *operands[first:second], *carry)),
            tuple(operands[second:]),
        )
        return results

    return carried, act


def _settled(
    site: Site,
    name: str,
    fixed: Sequence[Layout],
    carried: Sequence[Layout],
    rows: Sequence[Layout],
) -> tuple[list[Layout], list[Layout], Callable[..., Any]]:
    """Walk a body until what it carries comes out with the layout it goes in with."""
    body = site.true.params[name], site.params[name]
    layouts = list(carried)
    while True:
        before = site.proof.mark()
        made, run = site.proof.walk(*body, [*fixed, *layouts, *rows])
        wider = [_common(pair) for pair in zip(layouts, made[: len(layouts)], strict=True)]
        if wider == layouts:
            return layouts, made, run
        site.proof.back_to(before)
        layouts = wider


def _common(layouts: Sequence[Layout]) -> Layout:
    return tuple(joined(axes) for axes in zip(*layouts, strict=True))


RULES: Mapping[str, Rule] = {
    "jit": partial(inlined, "jaxpr"),
    "pjit": partial(inlined, "jaxpr"),
    "closed_call": partial(inlined, "call_jaxpr"),
    "custom_jvp_call": partial(inlined, "call_jaxpr"),
    "custom_vjp_call": partial(inlined, "call_jaxpr"),
    "cond": branches,
    "scan": scan,
    "while": while_loop,
}
