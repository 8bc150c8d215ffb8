"""The walk over two traces of one program, and what a rule sees of each equation.

The decisions in which two calls may differ (is this axis padded? does this constant vary?) are
noted in order. Calls with equal decisions share one padded program; a template asks for decisions
that were found true for other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from sardonyx.backends.jax.padding.masks import Mask, Told, digits_of
from sardonyx.backends.padding.axes import (
    Axis,
    Different,
    Layout,
    Place,
    Unpaddable,
    clean_layout,
    has_padding,
)

Act: TypeAlias = Callable[..., Sequence[Any]]
Rule: TypeAlias = Callable[["Site"], tuple[Sequence[Layout], Act]]


@dataclass(eq=False, slots=True)
class Proof:
    """What was found for one pair of sizes: decisions, and the values that a call must bring."""

    rules: Mapping[str, Rule]
    template: Sequence[bool] = ()
    decisions: list[bool] = field(default_factory=list)
    scalars: dict[str, list[Any]] = field(default_factory=dict)
    arrays: list[Any] = field(default_factory=list)

    @property
    def told(self) -> Told:
        scalars = {name: np.stack(values) for name, values in self.scalars.items()}
        return Told(scalars, list(self.arrays))

    def mark(self) -> tuple[int, int, dict[str, int]]:
        """How far the walk has come."""
        scalars = {name: len(values) for name, values in self.scalars.items()}
        return len(self.decisions), len(self.arrays), scalars

    def back_to(self, mark: tuple[int, int, dict[str, int]]) -> None:
        """Forget what was found since."""
        decisions, arrays, scalars = mark
        del self.decisions[decisions:]
        del self.arrays[arrays:]
        for name in list(self.scalars):
            del self.scalars[name][scalars.get(name, 0) :]
            if not self.scalars[name]:
                del self.scalars[name]

    def varies(self, true: Any, padded: Any) -> bool:
        """Whether something differs between the traces, or is to be taken for different."""
        index = len(self.decisions)
        expected = index < len(self.template) and self.template[index]
        self.decisions.append(expected or not _same(true, padded))
        return self.decisions[-1]

    def place(self, value: Any) -> Place:
        """Where a value will stand that a call must bring."""
        value = np.asarray(value)
        if value.ndim:
            self.arrays.append(value)
            return Place(None, len(self.arrays) - 1)
        among = self.scalars.setdefault(value.dtype.name, [])
        among.append(value)
        return Place(value.dtype.name, len(among) - 1)

    def size(self, size: int) -> Place:
        return self.place(np.int32(size))

    def mask(self, layout: Layout, axes: Sequence[int]) -> Mask:
        return Mask(digits_of(layout, axes, self.size))

    def constant(self, true: Any, padded: Any) -> tuple[Layout, Place | None]:
        """A constant's layout, and its place where it must be told at each call."""
        true, padded = np.asarray(true), np.asarray(padded)
        if true.ndim != padded.ndim or true.dtype != padded.dtype:
            raise Different("a constant has another type")
        varying = [self.varies(*sizes) for sizes in zip(true.shape, padded.shape, strict=True)]
        if any(t > p for t, p in zip(true.shape, padded.shape, strict=True)):
            raise Unpaddable("a constant is longer for a smaller size")
        prefix = tuple(slice(size) for size in true.shape)
        is_told = self.varies(true, padded[prefix])
        if is_told:
            whole = np.zeros_like(padded)
            whole[prefix] = true
        layout = tuple(
            Axis.of(p, t, is_padded=varies, even=not is_told and _is_even(padded, i))
            for i, (t, p, varies) in enumerate(zip(true.shape, padded.shape, varying, strict=True))
        )
        return layout, self.place(whole) if is_told else None

    def walk(self, true: Any, padded: Any, layouts: Sequence[Layout]) -> tuple[list[Layout], Act]:
        """How padding in the arguments spreads to the results of a closed jaxpr.

        Also the padded program itself, as a function of what is told and the arguments.
        """
        if len(true.jaxpr.eqns) != len(padded.jaxpr.eqns):
            raise Different("it is computed in another way for another size")
        trace = _Trace(self)
        for pair, layout in zip(
            zip(true.jaxpr.invars, padded.jaxpr.invars, strict=True), layouts, strict=True
        ):
            trace.bind(*pair, layout)
        constants = []
        for pair, values in zip(
            zip(true.jaxpr.constvars, padded.jaxpr.constvars, strict=True),
            zip(true.consts, padded.consts, strict=True),
            strict=True,
        ):
            layout, place = self.constant(*values)
            constants.append((pair[1], values[1], place))
            trace.bind(*pair, layout)
        actions = [
            trace.equation(*pair) for pair in zip(true.jaxpr.eqns, padded.jaxpr.eqns, strict=True)
        ]
        results = [
            trace.read(*pair) for pair in zip(true.jaxpr.outvars, padded.jaxpr.outvars, strict=True)
        ]
        readers = [read for _, read in results]

        def run(told: Told, *arguments: Any) -> list[Any]:
            values = dict(zip(padded.jaxpr.invars, arguments, strict=True))
            for variable, value, place in constants:
                values[variable] = value if place is None else told[place]
            for reads, act, made in actions:
                outputs = act(told, *[read(told, values) for read in reads])
                values.update(zip(made, outputs, strict=True))
            return [read(told, values) for read in readers]

        return [layout for layout, _ in results], run


@dataclass(frozen=True, eq=False, slots=True)
class Site:
    """One equation, in both traces, and the layouts of its operands."""

    proof: Proof
    true: Any
    padded: Any
    layouts: tuple[Layout, ...]

    @property
    def name(self) -> str:
        name: str = self.padded.primitive.name
        return name

    @property
    def params(self) -> Mapping[str, Any]:
        params: Mapping[str, Any] = self.padded.params
        return params

    def shapes(self, index: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """An operand's shapes: the true and the padded one."""
        return self.true.invars[index].aval.shape, self.padded.invars[index].aval.shape

    def made(self, index: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """A result's shapes: the true and the padded one."""
        return self.true.outvars[index].aval.shape, self.padded.outvars[index].aval.shape

    def fresh(self, axis: int, index: int = 0, *, even: bool = False) -> Axis:
        """An axis of a result whose first elements are true, and padded where the sizes differ."""
        true, padded = (shape[axis] for shape in self.made(index))
        return Axis.of(padded, true, is_padded=self.proof.varies(true, padded), even=even)

    def require_same(self, *names: str) -> None:
        """Settings that must be those of the other trace."""
        for name in names:
            if not same_settings(self.true.params[name], self.params[name]):
                raise Different(f"its {self.name} has another {name} for another size")

    def again(self, told: Told, *values: Any) -> Sequence[Any]:
        """The equation as it stands."""
        primitive = self.padded.primitive
        results = primitive.bind(*values, **self.params)
        return results if primitive.multiple_results else [results]


class _Trace:
    """The variables of two jaxprs that are walked over together."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._layouts: dict[Any, Layout] = {}
        self._twins: dict[Any, Any] = {}

    def bind(self, true: Any, padded: Any, layout: Layout) -> None:
        sizes = tuple(axis.true for axis in layout), tuple(axis.padded for axis in layout)
        if sizes != (true.aval.shape, padded.aval.shape) or true.aval.dtype != padded.aval.dtype:
            raise Unpaddable(
                f"a value of shape {list(true.aval.shape)} would be found in {list(sizes[0])} of "
                f"{list(padded.aval.shape)}"
            )
        self._layouts[padded] = layout
        self._twins[true] = padded

    def read(self, true: Any, padded: Any) -> tuple[Layout, Callable[..., Any]]:
        if hasattr(padded, "val"):
            if not hasattr(true, "val"):
                raise Different("a value is a constant for one size alone")
            layout, place = self._proof.constant(true.val, padded.val)
            if place is None:
                return layout, lambda told, values: padded.val
            return layout, lambda told, values: told[place]
        if self._twins.get(true) is not padded:
            raise Different("values are used in another order for another size")
        return self._layouts[padded], lambda told, values: values[padded]

    def equation(self, true: Any, padded: Any) -> tuple[list[Any], Act, list[Any]]:
        ends = [(len(one.invars), len(one.outvars)) for one in (true, padded)]
        if true.primitive is not padded.primitive or ends[0] != ends[1]:
            raise Different("it is computed in another way for another size")
        pairs = [self.read(*pair) for pair in zip(true.invars, padded.invars, strict=True)]
        site = Site(self._proof, true, padded, tuple(layout for layout, _ in pairs))
        layouts, act = _judged(site)
        for one, other, layout in zip(true.outvars, padded.outvars, layouts, strict=True):
            self.bind(one, other, layout)
        return [read for _, read in pairs], act, list(padded.outvars)


def _judged(site: Site) -> tuple[Sequence[Layout], Act]:
    rule = site.proof.rules.get(site.name)
    if rule is not None:
        return rule(site)
    made = [v.aval.shape for v in site.padded.outvars]
    if any(has_padding(layout) for layout in site.layouts) or made != [
        v.aval.shape for v in site.true.outvars
    ]:
        raise Unpaddable(f"nothing is known of how padding spreads through JAX's {site.name}")
    site.require_same(*site.params)
    return [clean_layout(shape) for shape in made], site.again


def same_settings(a: Any, b: Any) -> bool:
    """Whether two equations have equal settings; programs inside are compared as such."""
    if hasattr(a, "eqns") and hasattr(b, "eqns"):
        return _same_programs(a, b)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return _all(same_settings, a, b)
    if isinstance(a, (np.ndarray, float)):
        return _same(a, b)
    return a is b or bool(a == b)


def _same_programs(a: Any, b: Any) -> bool:
    names: dict[Any, Any] = {}

    def same(x: Any, y: Any) -> bool:
        if hasattr(x, "val") or hasattr(y, "val"):
            return hasattr(x, "val") and hasattr(y, "val") and _same(x.val, y.val)
        return names.setdefault(x, y) is y and x.aval == y.aval

    def alike(x: Any, y: Any) -> bool:
        return (
            x.primitive is y.primitive
            and x.params.keys() == y.params.keys()
            and all(same_settings(x.params[name], y.params[name]) for name in x.params)
            and _all(same, x.invars, y.invars)
            and _all(same, x.outvars, y.outvars)
        )

    first, second = getattr(a, "jaxpr", a), getattr(b, "jaxpr", b)
    return (
        _all(_same, getattr(a, "consts", ()), getattr(b, "consts", ()))
        and _all(same, first.constvars, second.constvars)
        and _all(same, first.invars, second.invars)
        and _all(alike, first.eqns, second.eqns)
        and _all(same, first.outvars, second.outvars)
    )


def _all(test: Callable[[Any, Any], bool], a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(map(test, a, b))


def _same(true: Any, padded: Any) -> bool:
    """Whether two constants are the same to the last bit."""
    a, b = np.asarray(true), np.asarray(padded)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _is_even(value: np.ndarray[Any, Any], axis: int) -> bool:
    if value.shape[axis] == 0:
        return False
    first = value[(slice(None),) * axis + (slice(0, 1),)]
    return np.array_equal(np.broadcast_to(first, value.shape), value)
