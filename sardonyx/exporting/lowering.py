"""Export a model: trace it for several sizes, merge the traces into one program, and lower it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax import export

from sardonyx.backends.jax.portable import PortableBackend
from sardonyx.backends.jax.settings import Settings
from sardonyx.errors import InvalidInput, SardonyxError, UnsupportedModel
from sardonyx.exporting.artefact import Artefact
from sardonyx.exporting.description import Description
from sardonyx.exporting.range_search import Ranges, RangeSearch, last_good
from sardonyx.exporting.signature import Dims, Signature, largest_sizes
from sardonyx.exporting.size_expressions import Sizes
from sardonyx.exporting.size_formulas import Formulas, probe_sizes
from sardonyx.exporting.symbolic_program import SymbolicProgram
from sardonyx.exporting.symbols import with_bounds
from sardonyx.exporting.thresholds import thresholds
from sardonyx.exporting.tracing import Traces
from sardonyx.exporting.value_formulas import ValueFormulas
from sardonyx.graph.ir import Source, ValueInfo
from sardonyx.graph.programs.whole_program import Pure
from sardonyx.graph.standard.types import type_name
from sardonyx.graph.tracing.scope_names import function_name
from sardonyx.graph.values.params import WeightStore
from sardonyx.printable import first_line

R = TypeVar("R")

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
# Largest sizes to try if a program has no formulas that hold for larger ones.
FALLBACK_LIMITS = (2**14, 2**11)


class ProbeRange(NamedTuple):
    """The range of the sizes for which a model is traced."""

    least: int
    most: int
    # Without forms that are faster on some platforms and depend on sizes.
    is_plain: bool = False


# From the most general one on. The search for ranges probes a size of 1 by itself.
PROBE_RANGES = (
    *(ProbeRange(2, most, plain) for plain in (False, True) for most in (255, 63, 23)),
    *(ProbeRange(least, most, is_plain=True) for least in (3, 4, 6, 9, 17) for most in (255, 23)),
)


def exported(
    source: Source,
    params: WeightStore,
    requested: Mapping[str, Any] | None,
    platforms: Sequence[str],
    *,
    largest: int | Mapping[str, int] | None,
    precision: str,
    strict: bool,
) -> Artefact:
    """Return the model's program for a signature, lowered for all of the platforms."""
    _require_platforms(platforms)
    signature = Signature.of(source.graph.required_inputs, requested)
    one = Export(source, params, signature, tuple(platforms), precision, strict)
    return one.artefact(largest_sizes(signature.symbols, largest))


@dataclass(frozen=True, eq=False)
class Export:
    """One export: a model, the signature of its program, and the platforms."""

    source: Source
    params: WeightStore
    signature: Signature
    platforms: tuple[str, ...]
    precision: str
    strict: bool

    def artefact(self, largest: Sizes) -> Artefact:
        """Return the program for sizes up to these, or as far as its formulas hold."""
        if not self.signature.symbols:
            return self._lowered(self._traces(PROBE_RANGES[0], [{}]), {}, largest)
        nearby: tuple[Traces, Ranges] | None = None
        refusal: SardonyxError | None = None
        for probe in PROBE_RANGES:
            if probe.most - probe.least < len(self.signature.symbols):
                continue  # There are fewer sizes than names.
            for leasts in self._leasts(probe):
                try:
                    traces = self._fitting_traces(probe, leasts)
                    search = self._search(traces)
                    ranges = _at_least(leasts, search.ranges(largest))
                    nearby = nearby or (traces, ranges)
                    return self._lowered(traces.extended(search.corners(ranges)), ranges, largest)
                except SardonyxError as error:
                    refusal = refusal or error
        assert refusal is not None
        if nearby is None:
            raise refusal
        return self._within_lower_limits(*nearby, largest)

    def _within_lower_limits(self, traces: Traces, ranges: Ranges, largest: Sizes) -> Artefact:
        """Return the program for smaller sizes: its formulas do not hold up to the largest ones."""
        for most in FALLBACK_LIMITS:
            closer = {name: (least, min(top, most)) for name, (least, top) in ranges.items()}
            try:
                further = traces.extended(self._search(traces).corners(closer))
                return self._lowered(further, closer, largest)
            except SardonyxError:
                continue
        near = {n: (least, min(top, traces.sizes[0][n])) for n, (least, top) in ranges.items()}
        return self._lowered(traces, near, largest)

    def _leasts(self, probe: ProbeRange) -> Iterator[Sizes]:
        """Yield the least sizes from which to trace for a range, until one choice is right."""
        same = dict.fromkeys(self.signature.symbols, probe.least)
        yield from self._smaller_first(probe, same)
        possible = {name: max(least, self._possible[name]) for name, least in same.items()}
        # Each name has another size.
        if possible != same and max(possible.values()) + len(possible) <= probe.most + 1:
            yield from self._smaller_first(probe, possible)

    @cached_property
    def _possible(self) -> Sizes:
        """The least size of each name at which the graph runs if the other names' are large.

        Windows need a size of their own, which the batch in front of them does not.
        """
        probe = PROBE_RANGES[0]
        large = dict.fromkeys(self.signature.symbols, probe.most)

        def runs(sizes: Sizes) -> bool:
            try:
                self._traces(probe, [sizes])
            except SardonyxError:
                return False
            return True

        return {name: _least(runs, large, name) for name in large}

    def _smaller_first(self, probe: ProbeRange, leasts: Sizes) -> Iterator[Sizes]:
        """Yield smaller sizes first if one program fits from them on too; none if it never does."""
        if probe.least > 2:
            if not self._fits(probe, leasts):
                return
            smaller = dict(probe_sizes(leasts, probe.most)[1])
            for name in smaller:
                smaller[name] = _least(partial(self._fits, probe), smaller, name)
            if smaller != leasts:
                yield smaller
        yield leasts

    def _fits(self, probe: ProbeRange, leasts: Sizes) -> bool:
        try:
            self._fitting_traces(probe, leasts)
        except SardonyxError:
            return False
        return True

    def _fitting_traces(self, probe: ProbeRange, leasts: Sizes) -> Traces:
        """Return the traces for these sizes; raise if no program serves all of them."""
        traces = self._traces(probe, probe_sizes(leasts, probe.most))
        self._built(traces, jax.eval_shape, [])
        return traces

    def _traces(self, probe: ProbeRange, sizes: Sequence[Sizes]) -> Traces:
        settings = Settings(precision=self.precision, simplest=probe.is_plain)
        backend = PortableBackend(settings=settings)
        model = self.source, backend, self.params
        return Traces.of(model, self.signature, sizes, strict=self.strict)

    def _search(self, traces: Traces) -> RangeSearch:
        fixed = [value for value in self.signature.inputs if not isinstance(value, tuple)]
        return RangeSearch(traces, ValueFormulas.of(traces), thresholds(self.source, fixed))

    def _lowered(self, traces: Traces, ranges: Ranges, largest: Sizes) -> Artefact:
        first = traces.programs[0]
        bounds = bounds_of(ranges)
        weights = self._weights(first)
        constants = {f"constant {i}": a for i, a in enumerate(first.constants.values())}

        def lower(program: Callable[..., Any], *arguments: Any) -> Any:
            def function(*arrays: Any) -> Any:
                return program(*arrays)

            function.__name__ = function_name(self.source.graph.name)
            return export.export(jax.jit(function), platforms=self.platforms)(*arguments)

        program = self._built(traces, lower, bounds)
        description = Description(
            title=self.source.graph.name,
            inputs=tuple(replace(info, shape=dims) for info, dims in self.signature.free),
            outputs=_outputs(self.source, program.out_avals),
            bounds=tuple(bounds),
            largest=dict(largest),
            platforms=self.platforms,
            draws=first.draws,
            weights=tuple(weights),
            constants=tuple(constants),
            metadata=dict(self.source.metadata),
        )
        return Artefact(description, _serialised(program), {**weights, **constants})

    def _weights(self, program: Pure) -> dict[str, np.ndarray[Any, Any]]:
        return {name: self.params.host(name) for name in program.weights.values()}

    def _built(self, traces: Traces, build: Callable[..., R], bounds: list[str]) -> R:
        """Return `build(program, *arguments)`; raise if no program serves all traced sizes."""
        first = traces.programs[0]
        weights = {name: _spec(array) for name, array in self._weights(first).items()}
        constants = list(map(_spec, first.constants.values()))
        key = jax.ShapeDtypeStruct((2,), np.uint32)

        def attempt(symbols: dict[str, Any]) -> R:
            program = SymbolicProgram(traces, Formulas(traces.sizes, symbols))
            inputs = [_symbolic(info, dims, symbols) for info, dims in self.signature.free]
            return build(program, weights, constants, inputs, key)

        try:
            with first.backend.scope():
                return with_bounds(attempt, self.signature.symbols, bounds, traces.sizes)
        except SardonyxError:
            raise
        except Exception as error:
            raise UnsupportedModel(
                f"JAX cannot lower the program for {', '.join(self.platforms)}: "
                f"{first_line(error)}."
            ) from error


def _least(holds: Callable[[Sizes], bool], sizes: Sizes, name: str) -> int:
    """Return the least size of a name for which `holds`, beside the sizes of the others."""
    return last_good(lambda size: holds({**sizes, name: size}), sizes[name], 2)


def _at_least(leasts: Sizes, ranges: Ranges) -> Ranges:
    """Return the ranges from the smallest traced sizes on; from 1 if that is 2: 1 is probed."""
    starts = {name: least if least > 2 else 1 for name, least in leasts.items()}
    return {name: (max(least, starts[name]), most) for name, (least, most) in ranges.items()}


def bounds_of(ranges: Ranges) -> list[str]:
    """Return the ranges as comparisons."""
    bounds = []
    for name, (least, most) in ranges.items():
        bounds += [f"{name} >= {least}"] if least > 1 else []
        bounds += [f"{name} <= {most}"]
    return bounds


def _require_platforms(platforms: Sequence[str]) -> None:
    if isinstance(platforms, str) or not isinstance(platforms, Sequence) or not platforms:
        raise InvalidInput(f"The platforms are {platforms!r}: pass some of {', '.join(PLATFORMS)}.")
    for platform in platforms:
        if platform not in PLATFORMS:
            also = " (for NVIDIA's GPUs that is 'cuda')" if platform == "gpu" else ""
            raise InvalidInput(
                f"There is no platform {platform!r}{also}: pass some of {', '.join(PLATFORMS)}."
            )


def _spec(array: np.ndarray[Any, Any]) -> Any:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


def _symbolic(info: ValueInfo, dims: Dims, symbols: Mapping[str, Any]) -> Any:
    scope = next((symbol.scope for symbol in symbols.values()), None)
    text = "".join(f"{size}," for size in dims)
    return jax.ShapeDtypeStruct(export.symbolic_shape(text, scope=scope), info.dtype)


def _outputs(source: Source, avals: Sequence[Any]) -> tuple[ValueInfo, ...]:
    infos = []
    for info, aval in zip(source.graph.outputs, avals, strict=True):
        dtype = np.dtype(aval.dtype)
        shape = tuple(d if isinstance(d, int) else str(d) for d in aval.shape)
        infos.append(ValueInfo(info.name, type_name(dtype), dtype, shape))
    return tuple(infos)


def _serialised(program: Any) -> bytes:
    try:
        return bytes(program.serialize())
    except ImportError as error:
        raise UnsupportedModel(
            f"To write an exported program JAX needs one more package ({error}): "
            "pip install 'sardonyx[export]'."
        ) from None
    except ValueError as error:
        raise UnsupportedModel(f"JAX cannot serialise the program: {first_line(error)}.") from error
