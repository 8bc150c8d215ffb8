"""Loops and branches inside of `jax.shard_map`, where types name the axes that values vary along.

The carry of a loop must keep its type, and the results of two branches must share it. But a loop
may start from zeros, which are equal everywhere, and compute values from them that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax


def is_manual() -> bool:
    """Whether values here may differ along axes of a mesh."""
    return bool(jax.sharding.get_abstract_mesh().manual_axes)


def settled(body: Callable[..., Sequence[Any]], carry: Sequence[Any]) -> tuple[Any, ...]:
    """The first carry of a loop, marked as different along all axes of the results of `body`."""
    while True:
        axes = [_axes(result) for result in jax.eval_shape(body, *carry)]
        if all(more <= _axes(start) for more, start in zip(axes, carry, strict=True)):
            return tuple(carry)
        carry = [_differing(start, more) for start, more in zip(carry, axes, strict=True)]


def alike(*branches: Callable[[], Any]) -> list[Callable[[], Any]]:
    """The branches, with results that differ along the same axes."""
    types = [jax.eval_shape(branch) for branch in branches]
    axes = jax.tree.map(lambda *results: frozenset[str]().union(*map(_axes, results)), *types)

    def widened(branch: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: jax.tree.map(_differing, branch(), axes)

    return [widened(branch) for branch in branches]


def _axes(value: Any) -> frozenset[str]:
    """The axes along which a value, or a value of this type, may differ."""
    kind = value if isinstance(value, jax.ShapeDtypeStruct) else jax.typeof(value)
    manual = getattr(kind, "manual_axis_type", None)
    axes: frozenset[str] = getattr(kind, "vma", frozenset()) if manual is None else manual.varying
    return axes


def _differing(value: Any, axes: frozenset[str]) -> Any:
    return lax.pcast(value, tuple(sorted(axes - _axes(value))), to="varying")
