"""Prove that one program serves several sizes, from two traces of it, and derive that program.

Two calls may differ in certain decisions: is this axis padded, does this constant vary? The proof
records the decisions in order, and calls with equal decisions share one padded program. A template
holds decisions that were true for other sizes; the proof takes them over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.backends.jax import lockstep
from sardonyx.backends.jax.padding.known import MOST_KNOWN, Known, differs_by_row, tells_rows
from sardonyx.backends.jax.padding.masks import Mask, RuntimeArgs, digits_of
from sardonyx.backends.padding.axes import (
    Axis,
    Different,
    Layout,
    Slot,
    Unpaddable,
    has_padding,
    unpadded_layout,
)
from sardonyx.backends.standard import Shape

# The padded form of an equation or a function, called with the runtime arguments and its operands.
Run: TypeAlias = Callable[..., Sequence[Any]]
Rule: TypeAlias = Callable[["EquationPair"], tuple[Sequence[Layout], Run]]
Watch: TypeAlias = Callable[["EquationPair", Sequence[Layout], Sequence[Known | None]], bool]


class Mark(NamedTuple):
    """A point of a proof, to return to: the number of decisions, and of runtime arguments."""

    decisions: int
    arguments: Mapping[str | None, int]


@dataclass(eq=False, slots=True)
class Proof:
    """The decisions for one pair of sizes, and the runtime arguments of a call with these sizes."""

    rules: Mapping[str, Rule]
    template: Sequence[bool] = ()
    decisions: list[bool] = field(default_factory=list)
    # The runtime arguments: scalars by dtype, and arrays under None.
    arguments: dict[str | None, list[Any]] = field(default_factory=dict)
    # Tells whether an equation computes each row of a padded axis from the same row alone, and all
    # alike; None if nobody wants to know. And whether all equations so far do.
    watch: Watch | None = None
    keeps_rows: bool = True

    @property
    def values(self) -> RuntimeArgs:
        scalars = {name: np.stack(values) for name, values in self.arguments.items() if name}
        return RuntimeArgs(scalars, list(self.arguments.get(None, ())))

    def mark(self) -> Mark:
        """How many decisions and runtime arguments there are so far."""
        counts = {name: len(values) for name, values in self.arguments.items()}
        return Mark(len(self.decisions), counts)

    def rewind(self, mark: Mark) -> None:
        """Drop everything that was added after the mark."""
        del self.decisions[mark.decisions :]
        counts = mark.arguments.items()
        self.arguments = {name: self.arguments[name][:count] for name, count in counts}

    def varies(self, true: Any, padded: Any) -> bool:
        """Decide whether something differs between the traces, here or in the template."""
        index = len(self.decisions)
        expected = index < len(self.template) and self.template[index]
        self.decisions.append(expected or not lockstep.same_bits([true, padded]))
        return self.decisions[-1]

    def slot(self, value: Any) -> Slot:
        """Add a runtime argument, and return its slot."""
        value = np.asarray(value)
        name = None if value.ndim else value.dtype.name
        values = self.arguments.setdefault(name, [])
        values.append(value)
        return Slot(name, len(values) - 1)

    def size_slot(self, size: int) -> Slot:
        return self.slot(np.int32(size))

    def mask(self, layout: Layout, axes: Sequence[int]) -> Mask:
        return Mask(digits_of(layout, axes, self.size_slot))

    def constant(self, true: Any, padded: Any) -> tuple[Layout, Slot | None]:
        """A constant's layout, and its slot if it is a runtime argument."""
        true, padded = np.asarray(true), np.asarray(padded)
        if true.ndim != padded.ndim or true.dtype != padded.dtype:
            raise Different("a constant has another type")
        varying = [self.varies(*sizes) for sizes in zip(true.shape, padded.shape, strict=True)]
        if any(t > p for t, p in zip(true.shape, padded.shape, strict=True)):
            raise Unpaddable("a constant is longer for a smaller size")
        prefix = tuple(slice(size) for size in true.shape)
        is_argument = self.varies(true, padded[prefix])
        if is_argument:
            whole = np.zeros_like(padded)
            whole[prefix] = true
        layout = tuple(
            Axis.of(p, t, is_padded=varies, uniform=not is_argument and _is_uniform(padded, i))
            for i, (t, p, varies) in enumerate(zip(true.shape, padded.shape, varying, strict=True))
        )
        self.keeps_rows &= padded.size <= MOST_KNOWN or not (is_argument or differs_by_row(layout))
        return layout, self.slot(whole) if is_argument else None

    def walk(
        self,
        true: Any,
        padded: Any,
        layouts: Sequence[Layout],
        known: Mapping[int, Known] | None = None,
    ) -> tuple[list[Layout], Run]:
        """Derive the layouts of a jaxpr's results from those of its arguments.

        Also returns the padded program, as a function of the runtime arguments and the arguments.
        The elements of some arguments may be known.
        """
        recorder = _Recorder(self)
        variables = zip(true.jaxpr.invars, padded.jaxpr.invars, layouts, strict=True)
        arguments = list(starmap(recorder.new_value, variables))
        for i, elements in (known or {}).items():
            arguments[i] = replace(arguments[i], known=elements)
        results = lockstep.walk((true, padded), arguments, recorder)
        self.keeps_rows &= not any(tells_rows(each.layout, each.known) for each in results)

        def run(runtime_args: RuntimeArgs, *arrays: Any) -> list[Any]:
            values = list(arrays)
            for call, operands in recorder.calls:
                values += call(
                    runtime_args, *[each.read(runtime_args, values) for each in operands]
                )
            return [each.read(runtime_args, values) for each in results]

        return [value.layout for value in results], run


@dataclass(frozen=True, eq=False, slots=True)
class EquationPair:
    """One equation in both traces, and the layouts of its operands."""

    proof: Proof
    true: Any
    padded: Any
    layouts: tuple[Layout, ...]

    @property
    def name(self) -> str:
        return str(self.padded.primitive.name)

    @property
    def params(self) -> Mapping[str, Any]:
        params: Mapping[str, Any] = self.padded.params
        return params

    def both(self, name: str) -> tuple[Any, Any]:
        """A parameter in the true and in the padded trace."""
        return self.true.params[name], self.padded.params[name]

    def operand_shapes(self, index: int = 0) -> tuple[Shape, Shape]:
        """An operand's true and padded shape."""
        return self.true.invars[index].aval.shape, self.padded.invars[index].aval.shape

    def result_shapes(self, index: int = 0) -> tuple[Shape, Shape]:
        """A result's true and padded shape."""
        return self.true.outvars[index].aval.shape, self.padded.outvars[index].aval.shape

    def result_axis(self, axis: int, index: int = 0, *, uniform: bool = False) -> Axis:
        """An axis of a result, whose first elements are true; padded if the sizes differ."""
        true, padded = (shape[axis] for shape in self.result_shapes(index))
        return Axis.of(padded, true, is_padded=self.proof.varies(true, padded), uniform=uniform)

    def require_same(self, *names: str) -> None:
        """Raise `Different` unless these parameters are the same in both traces."""
        lockstep.require_same((self.true, self.padded), *names)

    def same(self, name: str) -> Any:
        """A parameter that must be the same in both traces."""
        self.require_same(name)
        return self.params[name]

    def pads_behind(self, name: str, axis: int) -> bool:
        """Whether the parameter says that the equation itself pads the end of an axis.

        Its padding before an axis, and between the elements, must not depend on the size.
        """
        true, padded = (each[axis] for each in self.both(name))
        if (true[0], *true[2:]) != (padded[0], *padded[2:]):
            raise Unpaddable("its padding in front of or within an axis depends on the size")
        return self.proof.varies(true[1], padded[1]) or bool(padded[1] > 0)

    def masked(self, mask: Mask, value: Callable[[Any], Any]) -> Run:
        """Run the padded equation with a value, by dtype, for the padding of its first operand."""

        def run(runtime_args: RuntimeArgs, x: Any, *others: Any) -> Sequence[Any]:
            filled = mask.fill(runtime_args, x, value(x.dtype))
            return self.unchanged(runtime_args, filled, *others)

        return run

    def unchanged(self, runtime_args: RuntimeArgs, *values: Any) -> Sequence[Any]:
        """Run the padded equation without any masking."""
        primitive = self.padded.primitive
        results = primitive.bind(*values, **self.params)
        return results if primitive.multiple_results else [results]


@dataclass(frozen=True, eq=False, slots=True)
class _Value:
    """A value of both traces: its layout, and how the padded program reads its array."""

    layout: Layout
    read: Callable[[RuntimeArgs, Sequence[Any]], Any]
    # Its elements in both traces, if they are known.
    known: Known | None = None


class _Recorder(lockstep.Visitor["_Value"]):
    """Applies the rule of each equation, and records the calls of the padded program."""

    def __init__(self, proof: Proof) -> None:
        self.calls: list[tuple[Run, Sequence[_Value]]] = []
        self._proof = proof
        self._values = 0

    def new_value(self, true: Any, padded: Any, layout: Layout) -> _Value:
        """The next array that the padded program has, which is that of these variables."""
        _require_layout(true.aval, padded.aval, layout)
        number, self._values = self._values, self._values + 1
        return _Value(layout, lambda runtime_args, values: values[number])

    def constant(self, values: Sequence[Any]) -> _Value:
        layout, slot = self._proof.constant(*values)
        if slot is None:
            array = values[1]
            return _Value(layout, lambda runtime_args, values: array, Known.of(values))
        known = Known.of(values, vary=True)
        return _Value(layout, lambda runtime_args, values: runtime_args[slot], known)

    def equation(self, equations: Sequence[Any], operands: Sequence[_Value]) -> Sequence[_Value]:
        true, padded = equations
        pair = EquationPair(self._proof, true, padded, tuple(each.layout for each in operands))
        rule = self._proof.rules.get(pair.name, _without_rule)
        layouts, run = rule(pair)
        self.calls.append((run, operands))
        results = list(
            starmap(self.new_value, zip(true.outvars, padded.outvars, layouts, strict=True))
        )
        watch = self._proof.watch
        return results if watch is None else self._watched(watch, pair, operands, results)

    def _watched(
        self,
        watch: Watch,
        pair: EquationPair,
        operands: Sequence[_Value],
        results: Sequence[_Value],
    ) -> Sequence[_Value]:
        """Note whether the equation keeps rows apart; what follows from known values is known."""
        known, layouts = [each.known for each in operands], [each.layout for each in results]
        if all(known):
            keeps_rows = watch(pair, layouts, [None] * len(known))
            computed = Known.computed((pair.true, pair.padded), known, keeps_rows=keeps_rows)
            return [replace(each, known=one) for each, one in zip(results, computed, strict=True)]
        self._proof.keeps_rows &= watch(pair, layouts, known)
        return results


def _require_layout(true: Any, padded: Any, layout: Layout) -> None:
    sizes = tuple(axis.true for axis in layout), tuple(axis.padded for axis in layout)
    if sizes != (true.shape, padded.shape) or true.dtype != padded.dtype:
        raise Unpaddable(
            f"a value of shape {list(true.shape)} would be read as {list(sizes[0])} out of "
            f"{list(padded.shape)}"
        )


def _without_rule(pair: EquationPair) -> tuple[Sequence[Layout], Run]:
    """A primitive without a rule must be the same in both traces, without any padding."""
    true, padded = ([v.aval.shape for v in each.outvars] for each in (pair.true, pair.padded))
    if true != padded or any(map(has_padding, pair.layouts)):
        raise Unpaddable(f"sardonyx has no padding rule for JAX's {pair.name}")
    pair.require_same(*pair.params)
    return list(map(unpadded_layout, padded)), pair.unchanged


def _is_uniform(value: np.ndarray[Any, Any], axis: int) -> bool:
    if value.shape[axis] == 0:
        return False
    first = value[(slice(None),) * axis + (slice(0, 1),)]
    return np.array_equal(np.broadcast_to(first, value.shape), value)
