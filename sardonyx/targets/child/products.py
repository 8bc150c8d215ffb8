"""Operations of the matrix products and convolutions of a program, by the type of their factors."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr

_PRECISIONS = {
    lax.Precision.DEFAULT: "default",
    lax.Precision.HIGH: "high",
    lax.Precision.HIGHEST: "highest",
}
# The primitive of JAX that calls cuDNN's attention.
_OF_CUDNN = "dot_product_attention_fwd_wrapper"


def products_of(jaxpr: Any, platform: str) -> dict[str, float]:
    """Return the operations by type, with the form that each part has on this platform.

    A scan counts as often as it runs, any other loop once. Of a branch the larger side counts.
    """
    return dict(_of_jaxpr(_bare(jaxpr), platform))


def _of_jaxpr(jaxpr: Jaxpr, platform: str) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            total[_kind(equation)] += _of_product(equation)
        elif name == "conv_general_dilated":
            total[_kind(equation)] += _of_convolution(equation)
        elif name == _OF_CUDNN:
            total[_kind(equation)] += _of_attention(equation)
        elif name == "cond":
            _add(total, _of_cond(params, platform))
        else:
            times = params["length"] if name == "scan" else 1
            for inner in _inner(params):
                _add(total, _of_jaxpr(inner, platform), times)
    return total


def _add(total: dict[str, float], others: Mapping[str, float], times: int = 1) -> None:
    for kind, count in others.items():
        total[kind] += count * times


def _of_cond(params: Mapping[str, Any], platform: str) -> dict[str, float]:
    """Return the operations of the platform's branch, or of the branch that has most."""
    branches = [_of_jaxpr(_bare(each), platform) for each in params["branches"]]
    platforms = params.get("branches_platforms")
    if platforms is not None:
        return branches[_branch(platforms, platform)]
    return max(branches, key=lambda branch: sum(branch.values()))


def _branch(platforms: Any, platform: str) -> int:
    """Return the first branch for a platform, or for all."""
    return next(i for i, names in enumerate(platforms) if names is None or platform in names)


def _inner(params: Mapping[str, Any]) -> Iterator[Jaxpr]:
    for value in params.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(each, (Jaxpr, ClosedJaxpr)):
                yield _bare(each)


def _bare(jaxpr: Any) -> Jaxpr:
    bare: Jaxpr = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    return bare


def _kind(equation: Any) -> str:
    """Return the type of the factors, for float32 with the precision."""
    left, right = (variable.aval.dtype for variable in equation.invars[:2])
    name = str(jnp.promote_types(left, right)) if left != right else str(left)
    precision = equation.params.get("precision")
    precision = precision[0] if isinstance(precision, tuple) else precision
    if name != "float32":
        return name
    return f"{name} {_PRECISIONS.get(precision, 'default')}"


def _of_product(equation: Any) -> float:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval
    depth: int = math.prod(left.shape[axis] for axis in contracted)
    return 2.0 * depth * int(math.prod(equation.outvars[0].aval.shape))


def _of_attention(equation: Any) -> float:
    """Return the operations of both products, of arrays of (batch, length, heads, size)."""
    q, k, v = (variable.aval.shape for variable in equation.invars[:3])
    scores: int = math.prod(q[:3]) * k[1]
    return 2.0 * scores * int(q[3] + v[3])


def _of_convolution(equation: Any) -> float:
    """Return the operations with all windows inside of the padded input."""
    weight = equation.invars[1].aval
    layout = equation.params["dimension_numbers"].rhs_spec
    window: int = math.prod(weight.shape[axis] for axis in layout[1:])
    return 2.0 * window * int(math.prod(equation.outvars[0].aval.shape))
