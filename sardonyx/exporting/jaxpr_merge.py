"""Running jaxprs that differ in numbers alone, with expressions in place of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from sardonyx.backends.jax.padding.control import operands_of_scan
from sardonyx.exporting.size_formulas import Formulas, NoFormula
from sardonyx.exporting.tracing import LARGEST_SHAPE

_DIFFERENT = "it is computed in another way for another size"


class Evaluation:
    """Runs several jaxprs as one."""

    def __init__(self, formulas: Formulas) -> None:
        self._formulas = formulas

    def run(self, closed: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """The results of jaxprs for several sizes, on arrays of symbolic ones."""
        jaxprs = [each.jaxpr for each in closed]
        first = jaxprs[0]
        if len({len(each.eqns) for each in jaxprs}) > 1:
            raise NoFormula(_DIFFERENT)
        wires = _Wires(jaxprs)
        values: dict[Any, Any] = dict(zip(first.invars, arguments, strict=True))
        constants = zip(*(each.consts for each in closed), strict=True)
        values.update(zip(first.constvars, map(self.array, constants), strict=True))
        for equations in zip(*(each.eqns for each in jaxprs), strict=True):
            if len({equation.primitive.name for equation in equations}) > 1:
                raise NoFormula(_DIFFERENT)
            atoms = zip(*(equation.invars for equation in equations), strict=True)
            given = [self._read(each, values, wires) for each in atoms]
            results = self._equation(equations, given)
            wires.bind([equation.outvars for equation in equations])
            values.update(zip(equations[0].outvars, results, strict=True))
            self._learn(equations, results)
        outputs = zip(*(each.outvars for each in jaxprs), strict=True)
        return [self._read(each, values, wires) for each in outputs]

    def _learn(self, equations: Sequence[Any], results: Sequence[Any]) -> None:
        """Remember the sizes of what was made: the next equation may be told them as numbers."""
        variables = zip(*(equation.outvars for equation in equations), strict=True)
        for result, own in zip(results, variables, strict=True):
            shapes = zip(*(variable.aval.shape for variable in own), strict=True)
            for size, numbers in zip(result.shape, shapes, strict=True):
                if not isinstance(size, int):
                    self._formulas.learn(size, numbers)

    def array(self, values: Sequence[Any], placed: Any = None) -> Any:
        """An array that is known for each size: as it was placed where it is the same for all.

        Where it differs it is computed of the symbols.
        """
        arrays = [np.asarray(value) for value in values]
        first = arrays[0]
        if all(_is_same(first, other) for other in arrays):
            return jnp.asarray(values[0]) if placed is None else placed
        if len({array.shape for array in arrays}) > 1 or first.size > LARGEST_SHAPE:
            raise NoFormula("a constant is another one for other sizes")
        columns = zip(*(array.ravel().tolist() for array in arrays), strict=True)
        elements = [jnp.asarray(self._number(column)).astype(first.dtype) for column in columns]
        return jnp.stack(elements).reshape(first.shape)

    def _number(self, values: Sequence[Any]) -> Any:
        if len(set(values)) == 1:
            return values[0]
        if not all(isinstance(value, (int, float)) and value == int(value) for value in values):
            raise NoFormula(f"a number is {', '.join(map(str, values))} for different sizes")
        return self._formulas.of([int(value) for value in values])

    def _read(self, atoms: Sequence[Any], values: Mapping[Any, Any], wires: _Wires) -> Any:
        if all(isinstance(atom, Literal) for atom in atoms):
            kind = atoms[0].aval
            array = self.array([np.asarray(atom.val, kind.dtype) for atom in atoms])
            # What is literal gives way to other types, as Python's numbers do.
            weak = getattr(kind, "weak_type", False)
            return atoms[0].val if weak and _all_equal([a.val for a in atoms]) else array
        wires.require_same(atoms)
        return values[atoms[0]]

    # -- equations --------------------------------------------------------------------------------

    def _equation(self, equations: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
        primitive = equations[0].primitive
        special = _SPECIAL.get(primitive.name)
        if special is not None:
            return special(self, equations, given)
        params = [equation.params for equation in equations]
        merged = {name: self._merged([each[name] for each in params]) for name in params[0]}
        results = primitive.bind(*given, **primitive.get_bind_params(merged))
        return results if primitive.multiple_results else [results]

    def _merged(self, values: Sequence[Any]) -> Any:
        """A parameter of an equation, with expressions for the numbers that differ."""
        first = values[0]
        if isinstance(first, (Jaxpr, ClosedJaxpr)):
            if len(set(map(str, values))) > 1:
                raise NoFormula("a function inside of it differs between sizes")
            return first
        if isinstance(first, (tuple, list)):
            if len({len(value) for value in values}) > 1:
                raise NoFormula(_DIFFERENT)
            entries = [self._merged(column) for column in zip(*values, strict=True)]
            is_named = hasattr(first, "_fields")
            return type(first)(*entries) if is_named else type(first)(entries)
        if type(first) is int or isinstance(first, np.integer):  # And no member of an IntEnum.
            return self._formulas.of([int(value) for value in values])
        if not _all_equal(values):
            raise NoFormula(f"it is told {first} for one size and something else for another")
        return first

    def _called(self, closed: Sequence[Any]) -> Callable[..., list[Any]]:
        return lambda *arguments: self.run(closed, arguments)

    def _inlined(
        self, equations: Sequence[Any], given: Sequence[Any], *, name: str
    ) -> Sequence[Any]:
        return self.run([_closed(each.params[name]) for each in equations], given)

    def _branches(self, equations: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
        index, *operands = given
        branches = zip(*(each.params["branches"] for each in equations), strict=True)
        functions = [self._called(each) for each in branches]
        platforms = equations[0].params.get("branches_platforms")
        if platforms is None:
            chosen: Sequence[Any] = lax.switch(index, functions, *operands)
            return chosen
        forms = {
            platform: function
            for names, function in zip(platforms, functions, strict=True)
            for platform in names or ("default",)
        }
        results: Sequence[Any] = lax.platform_dependent(*operands, **forms)
        return results

    def _while(self, equations: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
        first = equations[0].params["cond_nconsts"]
        second = first + equations[0].params["body_nconsts"]
        goes_on = self._called([each.params["cond_jaxpr"] for each in equations])
        body = self._called([each.params["body_jaxpr"] for each in equations])
        results: Sequence[Any] = lax.while_loop(
            lambda carry: goes_on(*given[:first], *carry)[0],
            lambda carry: tuple(body(*given[first:second], *carry)),
            tuple(given[second:]),
        )
        return results

    def _scan(self, equations: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
        told = equations[0].params
        fixed, count = operands_of_scan(equations[0])
        run = self._called([each.params["jaxpr"] for each in equations])
        # A length that is a symbol is told by rows alone.
        numbers = jnp.arange(
            self._merged([each.params["length"] for each in equations]), dtype=np.int32
        )

        def step(carry: Any, numbered: Any) -> Any:
            _, *row = numbered
            results = run(*given[:fixed], *carry, *row)
            return tuple(results[: len(carry)]), results[len(carry) :]

        carry, rows = lax.scan(
            step,
            tuple(given[fixed:count]),
            (numbers, *given[count:]),
            reverse=told["reverse"],
            unroll=told["unroll"],
        )
        return [*carry, *rows]


class _Wires:
    """Which variables of the jaxprs stand for the same value."""

    def __init__(self, jaxprs: Sequence[Any]) -> None:
        self._numbers: list[dict[Any, int]] = [{} for _ in jaxprs]
        self.bind([[*each.invars, *each.constvars] for each in jaxprs])

    def bind(self, variables: Sequence[Sequence[Any]]) -> None:
        for numbers, own in zip(self._numbers, variables, strict=True):
            for variable in own:
                numbers[variable] = len(numbers)

    def require_same(self, atoms: Sequence[Any]) -> None:
        if any(isinstance(atom, Literal) for atom in atoms):
            raise NoFormula(_DIFFERENT)
        if len({n[atom] for n, atom in zip(self._numbers, atoms, strict=True)}) > 1:
            raise NoFormula("it reads other values for other sizes")


def _closed(jaxpr: Any) -> Any:
    return jaxpr if hasattr(jaxpr, "consts") else ClosedJaxpr(jaxpr, ())


def _is_same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _all_equal(values: Sequence[Any]) -> bool:
    return all(value is values[0] or bool(value == values[0]) for value in values)


_SPECIAL: Mapping[str, Callable[..., Sequence[Any]]] = {
    "jit": partial(Evaluation._inlined, name="jaxpr"),
    "pjit": partial(Evaluation._inlined, name="jaxpr"),
    "closed_call": partial(Evaluation._inlined, name="call_jaxpr"),
    "custom_jvp_call": partial(Evaluation._inlined, name="call_jaxpr"),
    "custom_vjp_call": partial(Evaluation._inlined, name="call_jaxpr"),
    "cond": Evaluation._branches,
    "while": Evaluation._while,
    "scan": Evaluation._scan,
}
