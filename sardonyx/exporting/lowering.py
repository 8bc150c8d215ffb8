"""Export a model: trace it for several sizes, merge the traces into one program, and lower it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax import export

from sardonyx.backends.jax.portable import PortableBackend
from sardonyx.backends.jax.settings import Settings
from sardonyx.errors import InvalidInput, SardonyxError, UnsupportedModel
from sardonyx.exporting.artefact import Artefact
from sardonyx.exporting.description import Description
from sardonyx.exporting.range_search import Ranges, RangeSearch
from sardonyx.exporting.signature import Signature, largest_sizes
from sardonyx.exporting.size_formulas import Formulas, Sizes, probe_sizes
from sardonyx.exporting.symbolic_program import SymbolicProgram
from sardonyx.exporting.symbols import with_bounds
from sardonyx.exporting.thresholds import thresholds
from sardonyx.exporting.tracing import Traces
from sardonyx.exporting.value_formulas import ValueFormulas
from sardonyx.graph.ir import Source, ValueInfo
from sardonyx.graph.programs.whole_program import Pure
from sardonyx.graph.standard.types import type_name
from sardonyx.graph.values.params import WeightStore

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
    asked: Mapping[str, Any] | None,
    platforms: Sequence[str],
    *,
    largest: int | Mapping[str, int] | None,
    precision: str,
    strict: bool,
) -> Artefact:
    """The model's program for the signature, lowered for all of the platforms."""
    _require_platforms(platforms)
    signature = Signature.of(source.graph.required_inputs, asked)
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
        """The program for sizes up to these, or as far as its formulas hold."""
        if not self.signature.symbols:
            return self._lowered(self._traces(PROBE_RANGES[0]), {}, largest)
        nearby: tuple[Traces, Ranges] | None = None
        refusal: SardonyxError | None = None
        for probe in PROBE_RANGES:
            if probe.most - probe.least < len(self.signature.symbols):
                continue  # There are fewer sizes than names.
            try:
                traces = self._traces(probe)
                self._require_symbolic(traces)
                search = self._search(traces)
                ranges = _at_least(probe, search.ranges(largest))
                nearby = nearby or (traces, ranges)
                return self._lowered(traces.extended(search.corners(ranges)), ranges, largest)
            except SardonyxError as error:
                refusal = refusal or error
        assert refusal is not None
        if nearby is None:
            raise refusal
        return self._within_lower_limits(*nearby, largest)

    def _within_lower_limits(self, traces: Traces, ranges: Ranges, largest: Sizes) -> Artefact:
        """The program if numbers within operators have no formula up to the largest sizes."""
        for most in FALLBACK_LIMITS:
            closer = {name: (least, min(top, most)) for name, (least, top) in ranges.items()}
            try:
                further = traces.extended(self._search(traces).corners(closer))
                return self._lowered(further, closer, largest)
            except SardonyxError:
                continue
        near = {n: (least, min(top, traces.sizes[0][n])) for n, (least, top) in ranges.items()}
        return self._lowered(traces, near, largest)

    def _traces(self, probe: ProbeRange) -> Traces:
        settings = Settings(precision=self.precision, outlines=probe.is_plain)
        backend = PortableBackend(settings=settings)
        probed = probe_sizes(self.signature.symbols, probe.least, probe.most)
        model = self.source, backend, self.params
        return Traces.of(model, self.signature, probed, strict=self.strict)

    def _search(self, traces: Traces) -> RangeSearch:
        fixed = [value for value in self.signature.given if not isinstance(value, tuple)]
        return RangeSearch(traces, ValueFormulas.of(traces), thresholds(self.source, fixed))

    def _lowered(self, traces: Traces, ranges: Ranges, largest: Sizes) -> Artefact:
        first = traces.programs[0]
        bounds = _bounds(ranges)
        weights = {n: self.params.host(n) for n in dict.fromkeys(first.weights.values())}
        constants = _constants(first)

        def build(symbols: dict[str, Any]) -> Any:
            function = jax.jit(SymbolicProgram(traces, Formulas(traces.sizes, symbols)))
            return export.export(function, platforms=self.platforms)(
                *self._arguments(weights, constants, symbols)
            )

        program = self._built(traces, build, bounds)
        description = Description(
            title=self.source.graph.name,
            inputs=tuple(
                ValueInfo(info.name, info.type, info.dtype, dims)
                for info, dims in self.signature.free
            ),
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

    def _require_symbolic(self, traces: Traces) -> None:
        """Raise `UnsupportedModel` unless one program serves all traced sizes."""
        first = traces.programs[0]
        weights = {n: self.params.host(n) for n in dict.fromkeys(first.weights.values())}

        def build(symbols: dict[str, Any]) -> Any:
            function = SymbolicProgram(traces, Formulas(traces.sizes, symbols))
            return jax.eval_shape(function, *self._arguments(weights, _constants(first), symbols))

        self._built(traces, build, [])

    def _built(self, traces: Traces, build: Callable[[dict[str, Any]], R], bounds: list[str]) -> R:
        try:
            with traces.programs[0].backend.scope():
                return with_bounds(build, self.signature.symbols, bounds, traces.sizes)
        except SardonyxError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise UnsupportedModel(
                f"JAX cannot lower the program for {', '.join(self.platforms)}: {reason}."
            ) from error

    def _arguments(
        self, weights: Mapping[str, Any], constants: Mapping[str, Any], symbols: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        inputs = [_symbolic(info, dims, symbols) for info, dims in self.signature.free]
        key = jax.ShapeDtypeStruct((2,), np.uint32)
        return _specs(weights), list(_specs(constants).values()), inputs, key


def _constants(program: Pure) -> dict[str, np.ndarray[Any, Any]]:
    return {f"constant {i}": array for i, array in enumerate(program.constants.values())}


def _at_least(probe: ProbeRange, ranges: Ranges) -> Ranges:
    """The ranges from the smallest traced size on; from 1 if that is 2, since 1 is probed."""
    start = probe.least if probe.least > 2 else 1
    return {name: (max(least, start), most) for name, (least, most) in ranges.items()}


def _bounds(ranges: Ranges) -> list[str]:
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


def _specs(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    return {name: jax.ShapeDtypeStruct(a.shape, a.dtype) for name, a in arrays.items()}


def _symbolic(info: ValueInfo, dims: Sequence[int | str], symbols: Mapping[str, Any]) -> Any:
    sizes: Sequence[Any] = dims
    if symbols:
        scope = next(iter(symbols.values())).scope
        text = ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "")
        sizes = export.symbolic_shape(text, scope=scope) if dims else ()
    return jax.ShapeDtypeStruct(tuple(sizes), info.dtype)


def _outputs(source: Source, avals: Sequence[Any]) -> tuple[ValueInfo, ...]:
    return tuple(
        ValueInfo(
            info.name,
            type_name(np.dtype(aval.dtype)),
            np.dtype(aval.dtype),
            tuple(d if isinstance(d, int) else str(d) for d in aval.shape),
        )
        for info, aval in zip(source.graph.outputs, avals, strict=True)
    )


def _serialised(program: Any) -> bytes:
    try:
        return bytes(program.serialize())
    except ImportError as error:
        raise UnsupportedModel(
            f"To write an exported program JAX needs one more package ({error}): "
            "pip install 'sardonyx[export]'."
        ) from None
    except ValueError as error:
        raise UnsupportedModel(
            f"JAX cannot serialise the program: {str(error).splitlines()[0].rstrip('.')}."
        ) from error
