"""A program for symbolic sizes inside of a caller's own `jax.export`.

The sizes are those of the caller's `jax.export.symbolic_shape`. The program is that of
`sardonyx.export`: traced for several numbers, and merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax import eval_shape

from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput, UnsupportedModel
from sardonyx.exporting.lowering import Export, ProbeRange, bounds_of
from sardonyx.exporting.range_search import Ranges
from sardonyx.exporting.signature import LARGEST, Signature, largest_sizes
from sardonyx.exporting.size_expressions import Sizes
from sardonyx.exporting.size_formulas import Formulas
from sardonyx.exporting.symbolic_program import SymbolicProgram
from sardonyx.exporting.symbols import is_always, symbols_of
from sardonyx.exporting.tracing import ShapeTracer, Traces
from sardonyx.graph.ir import Source
from sardonyx.graph.values.params import WeightStore


class Bounded(NamedTuple):
    """Traces that make one program, and the bounds within which it is right."""

    traces: Traces
    bounds: Sequence[str]


@dataclass(frozen=True, eq=False)
class InlineExport(Export):
    """An export that ends before the lowering, which is the caller's."""

    # Returns the backend; its argument says whether all platforms have one form.
    backend: Callable[[bool], Backend]
    kind: Callable[..., ShapeTracer]

    def bounded(self) -> Bounded:
        """Return the traces, for sizes up to the largest that `sardonyx.export` tries."""
        found: Any = self.artefact(largest_sizes(self.signature.symbols, None))
        assert isinstance(found, Bounded)
        return found

    def _traces(self, probe: ProbeRange, sizes: Sequence[Sizes]) -> Traces:
        model = self.source, self.backend(probe.is_plain), self.params
        return Traces.of(model, self.signature, sizes, strict=self.strict, kind=self.kind)

    def _lowered(self, traces: Traces, ranges: Ranges, largest: Sizes) -> Any:
        bounds = bounds_of(ranges)
        self._built(traces, eval_shape, bounds)
        search = self._search(traces)
        # Sizes that are too large to check are too large to run.
        free = {
            f"{name} <= {most}"
            for name, (_, most) in ranges.items()
            if most == LARGEST or not search.is_wrong_beyond(name, most)
        }
        return Bounded(traces, [bound for bound in bounds if bound not in free])


def run_at_symbolic_sizes(
    source: Source,
    weights: WeightStore,
    backend: Callable[[bool], Backend],
    arrays: Sequence[Any],
    key: Any,
    *,
    strict: bool,
    kind: Callable[..., ShapeTracer] = ShapeTracer,
) -> list[Any]:
    """Run a model on arrays with symbolic sizes, one for each of its inputs."""
    symbols = symbols_of(size for array in arrays for size in array.shape)
    signature = _signature(source, arrays)

    def bounded(forms: Callable[[bool], Backend]) -> Bounded:
        common = (source, weights, signature, ("cpu",), "default", strict)
        return InlineExport(*common, forms, kind).bounded()

    traces, bounds = bounded(backend)
    if _missing(bounds, symbols):
        # Forms that are faster for some sizes only have bounds that plain ones need not have.
        traces, bounds = bounded(lambda _: backend(True))
        _require(bounds, symbols)
    program = SymbolicProgram(traces, Formulas(traces.sizes, symbols))
    first = traces.programs[0]
    xp = first.backend
    with xp.scope():
        inputs = [
            xp.astype(array, xp.dtype(np.dtype(info.dtype)))
            for array, info in zip(arrays, signature.infos, strict=True)
        ]
        constants = [xp.asarray(array) for array in first.constants.values()]
        return program({}, constants, inputs, key)


def _signature(source: Source, arrays: Sequence[Any]) -> Signature:
    infos = source.graph.required_inputs
    for info in infos:
        if info.dtype is None or info.container or info.dtype == object:
            raise InvalidInput(
                f"The input '{info}' is no tensor of numbers, so the function has no symbolic "
                "sizes: call it with numbers for all sizes."
            )
    shapes = {
        info.name: tuple(size if isinstance(size, int) else str(size) for size in array.shape)
        for info, array in zip(infos, arrays, strict=True)
    }
    return Signature.of(infos, shapes)


def _missing(bounds: Sequence[str], symbols: Mapping[str, Any]) -> list[str]:
    return [bound for bound in bounds if not is_always(bound, symbols)]


def _require(bounds: Sequence[str], symbols: Mapping[str, Any]) -> None:
    if missing := _missing(bounds, symbols):
        raise UnsupportedModel(
            f"The function is right only where {' and '.join(missing)}, which the symbolic sizes "
            "do not say: pass jax.export.symbolic_shape(..., constraints="
            f"{missing!r}), or use sardonyx.export, which finds such bounds itself."
        )
