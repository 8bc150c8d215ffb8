"""Run jaxprs that differ only in numbers as one, with size expressions in place of the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from sardonyx.backends.jax import lockstep
from sardonyx.backends.jax.lockstep import all_same, carried_by_scan, columns, same_bits
from sardonyx.exporting.size_formulas import Formulas, NoFormula
from sardonyx.exporting.tracing import LARGEST_SHAPE


class Merger:
    """Visits jaxprs for several sizes; its values are arrays with symbolic shapes."""

    def __init__(self, formulas: Formulas) -> None:
        self._formulas = formulas

    def run(self, jaxprs: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """Return the results of the jaxprs for these symbolic arrays."""
        return lockstep.walk(jaxprs, arguments, self)

    def constant(self, values: Sequence[Any], shared: Any = None) -> Any:
        """Return the array for a constant: `shared`, or a new one, if it is the same for all sizes.

        Otherwise its elements are expressions of the symbols.
        """
        if same_bits(values):
            return jnp.asarray(values[0]) if shared is None else shared
        arrays = list(map(np.asarray, values))
        first = arrays[0]
        if len({array.shape for array in arrays}) > 1 or first.size > LARGEST_SHAPE:
            raise NoFormula("a constant differs between sizes")
        elements = [
            jnp.asarray(self._number(column)).astype(first.dtype)
            for column in columns(array.ravel().tolist() for array in arrays)
        ]
        return jnp.stack(elements).reshape(first.shape)

    def literal(self, literals: Sequence[Any]) -> Any:
        aval, values = literals[0].aval, [literal.val for literal in literals]
        # A weakly typed literal takes the type of the other operand, as Python's numbers do.
        if getattr(aval, "weak_type", False) and all_same(values):
            return values[0]
        return self.constant([np.asarray(value, aval.dtype) for value in values])

    def equation(self, equations: Sequence[Any], operands: Sequence[Any]) -> Sequence[Any]:
        primitive = equations[0].primitive
        if primitive.name in _CONTROL_FLOW:
            results: Sequence[Any] = _CONTROL_FLOW[primitive.name](self, equations, operands)
        else:
            params = {name: self.parameter(equations, name) for name in equations[0].params}
            results = primitive.bind(*operands, **primitive.get_bind_params(params))
            results = results if primitive.multiple_results else [results]
        self._learn_sizes(equations, results)
        return results

    def parameter(self, equations: Sequence[Any], name: str) -> Any:
        """Return a parameter of an equation, with expressions for the numbers that differ."""
        return self._merged([equation.params[name] for equation in equations])

    def _merged(self, values: Sequence[Any]) -> Any:
        first = values[0]
        if isinstance(first, (tuple, list)):
            entries = list(map(self._merged, columns(values)))
            is_named = hasattr(first, "_fields")
            return type(first)(*entries) if is_named else type(first)(entries)
        if type(first) is int or isinstance(first, np.integer):  # And no member of an IntEnum.
            return self._formulas.of([int(value) for value in values])
        if not all_same(values):
            raise NoFormula("a parameter or an inner function differs between sizes")
        return first

    def _number(self, values: Sequence[Any]) -> Any:
        if len(set(values)) == 1:
            return values[0]
        if not all(isinstance(value, (int, float)) and value == int(value) for value in values):
            raise NoFormula(f"a number is {', '.join(map(str, values))} for different sizes")
        return self._formulas.of([int(value) for value in values])

    def _learn_sizes(self, equations: Sequence[Any], results: Sequence[Any]) -> None:
        """Remember the sizes of results: they may be numbers in the next equation."""
        variables = columns(equation.outvars for equation in equations)
        for result, own in zip(results, variables, strict=True):
            shapes = columns(variable.aval.shape for variable in own)
            for size, numbers in zip(result.shape, shapes, strict=True):
                if not isinstance(size, int):
                    self._formulas.learn(size, numbers)


# -- control flow ---------------------------------------------------------------------------------


def _function(merger: Merger, jaxprs: Sequence[Any]) -> Callable[..., list[Any]]:
    return lambda *arguments: merger.run(jaxprs, arguments)


def _body(merger: Merger, equations: Sequence[Any], name: str) -> Callable[..., list[Any]]:
    return _function(merger, [equation.params[name] for equation in equations])


def _cond(merger: Merger, equations: Sequence[Any], operands: Sequence[Any]) -> Any:
    index, *arguments = operands
    branches = columns(equation.params["branches"] for equation in equations)
    functions = [_function(merger, branch) for branch in branches]
    platforms = equations[0].params.get("branches_platforms")
    if platforms is None:
        return lax.switch(index, functions, *arguments)
    forms = {
        platform: function
        for names, function in zip(platforms, functions, strict=True)
        for platform in names or ("default",)
    }
    return lax.platform_dependent(*arguments, **forms)


def _while(merger: Merger, equations: Sequence[Any], operands: Sequence[Any]) -> Any:
    lockstep.require_same(equations, "cond_nconsts", "body_nconsts")
    first = equations[0].params["cond_nconsts"]
    second = first + equations[0].params["body_nconsts"]
    condition = _body(merger, equations, "cond_jaxpr")
    body = _body(merger, equations, "body_jaxpr")
    return lax.while_loop(
        lambda carry: condition(*operands[:first], *carry)[0],
        lambda carry: tuple(body(*operands[first:second], *carry)),
        tuple(operands[second:]),
    )


def _scan(merger: Merger, equations: Sequence[Any], operands: Sequence[Any]) -> Sequence[Any]:
    lockstep.require_same(equations, "reverse")
    params, carry = equations[0].params, carried_by_scan(equations)
    body = _body(merger, equations, "jaxpr")
    # JAX takes a symbolic length from scanned arrays only, and there may be no other one.
    numbers = jnp.arange(merger.parameter(equations, "length"), dtype=np.int32)

    def step(before: Any, numbered: Any) -> Any:
        _, *row = numbered
        results = body(*operands[: carry.start], *before, *row)
        return tuple(results[: len(before)]), results[len(before) :]

    scanned = numbers, *operands[carry.stop :]
    options = {"reverse": params["reverse"], "unroll": params["unroll"]}
    final, stacked = lax.scan(step, tuple(operands[carry]), scanned, **options)
    return [*final, *stacked]


_CONTROL_FLOW: Mapping[str, Callable[..., Any]] = {
    "cond": _cond,
    "while": _while,
    "scan": _scan,
}
