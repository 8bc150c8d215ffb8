"""The walk over several jaxprs of one program, and what it must refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sardonyx.backends.jax.lockstep import Counterparts, Different, all_same, carried_by_scan, walk

Function = Callable[..., Any]
SIZES = (3, 5, 8)


def jaxpr_for(function: Function, size: int) -> Any:
    return jax.make_jaxpr(function)(jax.ShapeDtypeStruct((size,), np.float32))


class Texts:
    """Visits jaxprs; its values are texts of what was computed."""

    def constant(self, values: Sequence[Any]) -> str:
        return f"constant{[np.shape(value) for value in values]}"

    def literal(self, literals: Sequence[Any]) -> str:
        return str([float(literal.val) for literal in literals])

    def equation(self, equations: Sequence[Any], operands: Sequence[str]) -> Sequence[str]:
        text = f"{equations[0].primitive.name}({', '.join(operands)})"
        return [f"{text}.{i}" for i in range(len(equations[0].outvars))]


def walked(function: Function, sizes: Sequence[int] = SIZES) -> list[str]:
    return walk([jaxpr_for(function, size) for size in sizes], ["x"], Texts())


def test_each_value_stands_for_one_variable_of_every_jaxpr() -> None:
    assert walked(lambda x: (jnp.sin(x) * x, x)) == ["mul(sin(x).0, x).0", "x"]


def test_literals_and_constants_have_one_value_per_jaxpr() -> None:
    table = np.arange(8, dtype=np.float32)
    assert walked(lambda x: x * x.shape[0]) == ["mul(x, [3.0, 5.0, 8.0]).0"]
    assert walked(lambda x: x + table[: x.size]) == ["add(x, constant[(3,), (5,), (8,)]).0"]
    assert walked(lambda x: 1.5) == ["[1.5, 1.5, 1.5]"]


def test_called_functions_are_walked_in_place() -> None:
    @jax.jit
    def called(x: Any) -> Any:
        return jax.nn.relu(jnp.sin(x))  # A `custom_jvp_call`.

    once = "max(sin({}).0, [0.0, 0.0, 0.0]).0"
    assert walked(lambda x: called(called(x))) == [once.format(once.format("x"))]


def test_a_visitor_sees_every_version_of_an_equation() -> None:
    lengths = []

    class Iotas(Texts):
        def equation(self, equations: Sequence[Any], operands: Sequence[str]) -> Sequence[str]:
            if equations[0].primitive.name == "iota":
                lengths.append([each.params["dimension"] for each in equations])
                lengths.append([each.params["shape"] for each in equations])
            return super().equation(equations, operands)

    walk([jaxpr_for(lambda x: x + lax.iota(np.float32, x.size), n) for n in SIZES], ["x"], Iotas())
    assert lengths == [[0, 0, 0], [(3,), (5,), (8,)]]


def odd(x: Any) -> bool:
    return bool(x.size % 2)


def at_least_one(x: Any) -> Any:
    largest = jnp.max(x)
    return lax.max(largest, 1.0 if odd(x) else largest)


REFUSED: dict[str, tuple[Function, str]] = {
    "number of equations": (lambda x: jnp.sin(x) if odd(x) else jnp.sin(x) + x, "another way"),
    "primitive": (lambda x: jnp.sin(x) if odd(x) else jnp.cos(x), "another way"),
    "operand": (lambda x: jnp.sin(x) - x if odd(x) else x - jnp.sin(x), "other values"),
    "result": (lambda x: (x, jnp.sin(x)) if odd(x) else (jnp.sin(x), x), "other values"),
    "number of results": (lambda x: (x, x) if odd(x) else x, "another way"),
    "number of operands": (
        lambda x: jnp.concatenate([x, x] if odd(x) else [x, x, x]), "another way",
    ),
    "literal": (at_least_one, "constant for one size only"),
    "number of constants": (
        lambda x: x * (np.ones(x.size, np.float32) if odd(x) else x), "another way",
    ),
    "inside a function": (
        jax.jit(lambda x: jnp.sin(x) if odd(x) else jnp.cos(x)), "another way",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("sizes", [(3, 4), (4, 3), (3, 5, 8)], ids=str)
def test_programs_of_other_forms_are_refused(name: str, sizes: Sequence[int]) -> None:
    function, reason = REFUSED[name]
    with pytest.raises(Different, match=reason):
        walked(function, sizes)
    assert walked(function, [size + size % 2 for size in sizes])  # Even ones alone are walked.


def test_the_same_type_of_variable_does_not_make_it_the_same_value() -> None:
    values: Counterparts[str] = Counterparts(2)
    values.bind_all(["ab", "xy"], ["first", "second"])
    assert values.read(("b", "y")) == "second"
    for variables in (("a", "y"), ("b", "x"), ("a", "unbound"), ("unbound", "unbound")):
        with pytest.raises(Different, match="other values"):
            values.read(variables)


# -- parameters -----------------------------------------------------------------------------------


def combined_by(function: Function) -> Any:
    """The jaxpr that is a parameter of a reduction."""
    (equation,) = jaxpr_for(lambda x: lax.reduce(x, 1.0, function, (0,)), 3).eqns
    return equation.params["jaxpr"]


def test_inner_jaxprs_are_compared_as_programs() -> None:
    first, again = (combined_by(lambda a, b: a + 2 * b) for _ in range(2))
    assert all_same([first, again, first])
    for other in (lambda a, b: a + 3 * b, lambda a, b: b + 2 * a, lambda a, b: a - 2 * b):
        assert not all_same([first, again, combined_by(other)])


def test_inner_jaxprs_with_other_constants_or_types_differ() -> None:
    table = np.asarray([1, 2, 3], np.float32)
    one, other = (jaxpr_for(lambda x, t=t: x + t, 3) for t in (table, -table))
    assert all_same([one, one])
    assert not all_same([one, other])
    assert not all_same([jaxpr_for(jnp.sin, 3), jaxpr_for(jnp.sin, 5)])
    assert not all_same([one, "text"])


@pytest.mark.parametrize(
    "values",
    [(1, 2), (1.0, -1.0), (0.0, -0.0), ((1, 2), (1, 3)), ((1, 2), (1, 2, 3)), ((), None),
     (np.zeros(2), np.zeros(3)), (np.zeros(2), np.zeros(2, np.float32))],
    ids=str,
)  # fmt: skip
def test_parameters_that_differ(values: tuple[Any, Any]) -> None:
    assert all_same([values[0], values[0]])
    assert not all_same(values)
    assert not all_same([values[0], values[0], values[1]])


# -- loops ----------------------------------------------------------------------------------------


def scan_of(x: Any, constants: int, carried: int) -> Any:
    fixed = [x * (i + 2) for i in range(constants)]

    def step(carry: Any, row: Any) -> Any:
        return [each + row + sum(f[0] for f in fixed) for each in carry], row

    return lax.scan(step, [x[0] * i for i in range(carried)], x)


def scans(*forms: tuple[int, int]) -> list[Any]:
    jaxprs = [jaxpr_for(lambda x, f=form: scan_of(x, *f), 3 + i) for i, form in enumerate(forms)]
    return [next(e for e in each.eqns if e.primitive.name == "scan") for each in jaxprs]


@pytest.mark.parametrize("form", [(0, 1), (2, 1), (1, 3)], ids=str)
def test_where_the_carry_of_a_scan_is(form: tuple[int, int]) -> None:
    constants, carried = form
    (first, *_) = equations = scans(form, form)
    carry = carried_by_scan(equations)
    assert len(first.invars[carry]) == carried
    assert all(v.aval.ndim == 0 for v in first.outvars[:carried])
    assert (carry.start, carry.stop) == (constants, constants + carried)
    assert len(first.invars) == constants + carried + 1


def test_scans_that_carry_other_values_are_refused() -> None:
    with pytest.raises(Different, match="carries other values"):
        carried_by_scan(scans((0, 1), (0, 2)))
