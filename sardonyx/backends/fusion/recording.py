"""Symbols and their nodes, and calls of the library that kernels have no form of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.fusion.nodes import Constant, Node, Opaque, Part
from sardonyx.backends.fusion.symbols import Symbol
from sardonyx.backends.on_device import OnDevice
from sardonyx.backends.shape_arrays import NoShapeRule, ShapeArray
from sardonyx.backends.shape_backend import SHAPES
from sardonyx.backends.standard import Shape

BOOL = np.dtype(np.bool_)


def _refuse(*_: Any, **__: Any) -> Any:
    raise NoShapeRule


class Recording(OnDevice):
    """Symbols, nodes and opaque calls. A step that cannot be traced becomes a call."""

    def isdtype(self, dtype: Any, kind: Any) -> bool:
        return SHAPES.isdtype(dtype, kind)

    def owns(self, value: object) -> bool:
        return isinstance(value, Symbol)

    def is_abstract(self, value: object) -> bool:
        return isinstance(value, Symbol)

    def deferred(
        self, call: Callable[..., Any], arrays: Sequence[Any], specs: Sequence[Spec]
    ) -> Sequence[Any]:
        """Return symbols of the results of a step that was not traced to its end."""
        is_unsized = bool(getattr(call, "is_unsized", False))
        operands = tuple(self.node(array) for array in arrays)
        node = Opaque(shape=(), dtype=BOOL, operands=operands, call=call, results=len(specs))
        return [self._part(node, i, *spec, is_unsized=is_unsized) for i, spec in enumerate(specs)]

    # What reads or writes elements, or lets them decide.
    fetch = adopt = nonzero = cond = loop = scan = gradients = _refuse
    strides = elements_at = with_strides = write = _refuse

    # -- nodes ------------------------------------------------------------------------------------

    def symbol(self, node: Node) -> Symbol:
        return Symbol(node, self)

    def node(self, value: Any) -> Node:
        """Return the node of a symbol, or of a value that is known now."""
        if isinstance(value, Symbol):
            return value.node
        value = np.asarray(value)
        return Constant(shape=value.shape, dtype=value.dtype, value=value)

    def _like(self, result: Any, kind: type[Node], *operands: Node, **fields: Any) -> Symbol:
        """Return a symbol with the shape and dtype of an inferred result."""
        if not result.size:
            return self.symbol(self.node(np.empty(result.shape, result.dtype)))
        node = kind(shape=result.shape, dtype=result.dtype, operands=operands, **fields)
        return self.symbol(node)

    def _part(
        self, node: Node, index: int, shape: Shape, dtype: Any, is_unsized: bool = False
    ) -> Symbol:
        part = Part(
            shape=shape, dtype=np.dtype(dtype), operands=(node,), index=index, is_unsized=is_unsized
        )
        return self.symbol(part)

    def opaque(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Record a call of the library's own function of this name."""
        result = getattr(SHAPES, name)(*blank(arguments), **blank(options))
        several = isinstance(result, (tuple, list))
        results = result if several else (result,)
        if not all(isinstance(one, ShapeArray) for one in results):
            raise NoShapeRule
        symbols = list(_symbols(arguments)) + list(_symbols(options))

        def call(xp: Any, arrays: Sequence[Any], **more: Any) -> Sequence[Any]:
            rest = iter(arrays)
            filled, named = _filled(arguments, rest), _filled(options, rest)
            found = getattr(xp, name)(*filled, **named, **more)
            return tuple(found) if several else (found,)

        node = Opaque(
            shape=(),
            dtype=BOOL,
            operands=tuple([symbol.node for symbol in symbols]),
            call=call,
            results=len(results),
            name=name,
        )
        parts = [self._part(node, i, one.shape, one.dtype) for i, one in enumerate(results)]
        return parts if several else parts[0]


def blank(value: Any) -> Any:
    """Replace symbols, also those in sequences, by arrays that have a shape and a dtype alone."""
    if isinstance(value, Symbol):
        return value.blank
    if isinstance(value, (tuple, list)):
        return type(value)(map(blank, value))
    return {k: blank(v) for k, v in value.items()} if isinstance(value, dict) else value


def _symbols(value: Any) -> Iterator[Symbol]:
    if isinstance(value, Symbol):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _symbols(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _symbols(one)


def _filled(value: Any, arrays: Iterator[Any]) -> Any:
    """Replace symbols by arrays, in their order."""
    if isinstance(value, Symbol):
        return next(arrays)
    if isinstance(value, (tuple, list)):
        return type(value)([_filled(one, arrays) for one in value])
    return {k: _filled(v, arrays) for k, v in value.items()} if isinstance(value, dict) else value
