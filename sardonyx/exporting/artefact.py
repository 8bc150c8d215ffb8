"""An exported program before it is written: what `sardonyx.export` returns."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import export

import sardonyx
from sardonyx.backends.jax import Settings
from sardonyx.backends.jax_portable import PortableBackend
from sardonyx.errors import InvalidInput, SardonyxError, UnsupportedModel
from sardonyx.exporting import archive
from sardonyx.exporting.description import Description
from sardonyx.exporting.general import General
from sardonyx.exporting.signature import Signature
from sardonyx.exporting.sizes import Formulas, points
from sardonyx.exporting.symbols import with_bounds
from sardonyx.exporting.tracing import Traces
from sardonyx.graph.params import Params
from sardonyx.graph.standard.types import type_name
from sardonyx.graph.structure import Source, ValueInfo
from sardonyx.printable import printable

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@dataclass(frozen=True, eq=False)
class Artefact:
    """A program for several platforms, with its weights: save it, and load it without ONNX."""

    description: Description
    program: bytes
    arrays: Mapping[str, np.ndarray[Any, Any]]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file, whole or not at all."""
        target = Path(path)
        unfinished = target.with_name(f"{target.name}.unfinished-{os.getpid()}")
        try:
            with open(unfinished, "wb") as file:
                self._write(file)
            os.replace(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)
        return target

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        file = io.BytesIO()
        self._write(file)
        return file.getvalue()

    def _write(self, file: Any) -> None:
        made_by = {"sardonyx": sardonyx.__version__, "jax": jax.__version__}
        told = {**self.description.as_json(), "made_by": made_by}
        archive.write(file, told, self.program, self.arrays)

    @property
    def platforms(self) -> tuple[str, ...]:
        """Where it runs."""
        return self.description.platforms

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """What a call passes, with the names of sizes that are free."""
        return self.description.inputs

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """What a call returns."""
        return self.description.outputs

    @property
    def bounds(self) -> tuple[str, ...]:
        """What must hold of the free sizes."""
        return self.description.bounds

    def __repr__(self) -> str:
        given = ", ".join(str(info) for info in self.inputs)
        size = len(self.program) + sum(array.nbytes for array in self.arrays.values())
        platforms = ", ".join(self.platforms)
        return printable(f"<exported program for {platforms}: ({given}), {size:,} bytes>")


def exported(
    source: Source,
    params: Params,
    asked: Mapping[str, Any] | None,
    platforms: Sequence[str],
    *,
    strict: bool,
) -> Artefact:
    """The model's program for what was asked, lowered for all of the platforms."""
    _require_platforms(platforms)
    signature = Signature.of(source.graph.required_inputs, asked)
    refusal: SardonyxError | None = None
    for look in LOOKS if signature.symbols else LOOKS[:1]:
        if look.most - look.least < len(signature.symbols):
            continue  # There are not as many sizes as names.
        backend = PortableBackend(settings=Settings(outlines=look.plainly))
        at = points(signature.symbols, look.least, look.most)
        try:
            traces = Traces.of((source, backend, params), signature, at, strict=strict)
            return _lowered(source, params, traces, look, platforms)
        except SardonyxError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


class Look(NamedTuple):
    """Between which sizes a program is looked at."""

    least: int
    most: int
    # Without the forms that are faster on some platforms, and chosen by size.
    plainly: bool = False


# From the most general one on. A size of 1 is looked at by itself.
LOOKS = (
    *(Look(2, most, plainly) for plainly in (False, True) for most in (255, 63, 23)),
    *(Look(least, most, plainly=True) for least in (3, 4, 6, 9, 17) for most in (255, 23)),
)


def _lowered(
    source: Source, params: Params, traces: Traces, look: Look, platforms: Sequence[str]
) -> Artefact:
    signature, first = traces.signature, traces.programs[0]
    bounds = _bounds(traces, look)
    weights = {name: params.host(name) for name in dict.fromkeys(first.weights.values())}
    constants = {f"constant {i}": array for i, array in enumerate(first.constants.values())}

    def made(symbols: dict[str, Any]) -> Any:
        function = General(traces, Formulas(traces.at, symbols))
        inputs = [_symbolic(info, dims, symbols) for info, dims in signature.free]
        key = jax.ShapeDtypeStruct((2,), np.uint32)
        arguments = _specs(weights), list(_specs(constants).values()), inputs, key
        return export.export(jax.jit(function), platforms=tuple(platforms))(*arguments)

    try:
        with first.backend.scope():
            program = with_bounds(made, signature.symbols, bounds, traces.at)
    except SardonyxError:
        raise
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise UnsupportedModel(
            f"JAX cannot lower the program for {', '.join(platforms)}: {reason}."
        ) from error
    description = Description(
        title=source.graph.name,
        inputs=tuple(
            ValueInfo(info.name, info.type, info.dtype, dims) for info, dims in signature.free
        ),
        outputs=_outputs(source, program.out_avals),
        bounds=tuple(bounds),
        platforms=tuple(platforms),
        draws=first.draws,
        weights=tuple(weights),
        constants=tuple(constants),
    )
    return Artefact(description, _serialised(program), {**weights, **constants})


def _bounds(traces: Traces, look: Look) -> list[str]:
    """What is known to be needed: the graph's own limits, and what smaller sizes were not seen."""
    bounds = []
    unseen = look.least if look.least > 2 else 1
    for name, (least, most) in traces.limits().items():
        lower = max(least, unseen)
        bounds += [f"{name} >= {lower}"] if lower > 1 else []
        bounds += [f"{name} <= {most}"] if most else []
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
            f"The program cannot be written down: {str(error).splitlines()[0].rstrip('.')}."
        ) from error
