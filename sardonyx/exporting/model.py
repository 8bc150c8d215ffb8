"""An exported program, loaded: called like the model that it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from sardonyx.backends.jax.backend import EXACT, JaxBackend
from sardonyx.errors import BackendUnavailable, InvalidInput, InvalidModel
from sardonyx.exporting.archive import Content
from sardonyx.exporting.description import described
from sardonyx.exporting.size_formulas import evaluated, holds, names_in
from sardonyx.graph.calls.arguments import chosen_outputs, require_feeds, taken
from sardonyx.graph.calls.array_interop import exporter
from sardonyx.graph.calls.results import results_type
from sardonyx.graph.errors import node_errors
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.values.params import Params
from sardonyx.printable import printable


class ExportedModel:
    """A program that `sardonyx.export` made, on one of its platforms. Call it with arrays.

    It is compiled for each shape when that is first met. Nothing of ONNX is needed any more.
    """

    def __init__(self, content: Content, backend: JaxBackend) -> None:
        self._about, arrays = described(content)
        self._backend = backend
        self._exported = _deserialised(content)
        _require_platform(self._about.platforms, backend, content.origin)
        self._constants = [arrays[name] for name in self._about.constants]
        self._compiled = jax.jit(self._exported.call, compiler_options=EXACT)
        self._results = results_type([info.name for info in self._about.outputs])
        self._draws = np.random.default_rng()
        self.params = Params({name: arrays[name] for name in self._about.weights}, backend)
        _require_fit(self._exported, self.params, self._constants, self._about, content.origin)

    @property
    def backend(self) -> str:
        """The name of the array library that it runs on."""
        return self._backend.name

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """What a call must pass: name, dtype, and shape with names for free sizes."""
        return self._about.inputs

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """What a call returns."""
        return self._about.outputs

    @property
    def bounds(self) -> tuple[str, ...]:
        """What must hold of the free sizes, such as `sequence <= 512`."""
        return self._about.bounds

    @property
    def platforms(self) -> tuple[str, ...]:
        """What it was exported for."""
        return self._about.platforms

    def __repr__(self) -> str:
        given = ", ".join(map(str, self.inputs))
        made = ", ".join(map(str, self.outputs))
        return printable(f"<exported program on {self.backend}: ({given}) -> ({made})>")

    def __call__(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Run the program. One output comes bare, several as a tuple that is also read by name."""
        outputs = self._called(inputs, named_inputs)
        return outputs[0] if len(outputs) == 1 else self._results(*outputs)

    def _called(self, inputs: Sequence[Any], named_inputs: Mapping[str, Any]) -> list[Any]:
        with self._backend.scope():
            given, sizes = taken(self.inputs, inputs, named_inputs, self._backend)
            self._require_bounds(given, sizes)
            outputs = self._run(given)
            export_array = exporter(given, self._backend)
            return [export_array(output) for output in outputs]

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs of these names (None for all) as NumPy arrays, for inputs by name."""
        known = [info.name for info in self.outputs]
        names = chosen_outputs(output_names, known)
        require_feeds(feeds)
        made = self._called((), feeds)
        values = dict(zip(known, made, strict=True))
        return [np.asarray(values[name]) for name in names]

    def _run(self, given: Sequence[Any]) -> Sequence[Any]:
        is_traced = any(map(self._backend.is_abstract, given))
        weights = {name: self.params[name] for name in self._about.weights}
        key = self._draws.integers(2**32, size=2, dtype=np.uint32)
        function = self._exported.call if is_traced else self._compiled
        try:
            outputs: Sequence[Any] = function(weights, self._constants, list(given), key)
        except Exception as error:
            node_errors.raise_told(error, "The program could not run", self._backend)
        return outputs

    def _require_bounds(self, given: Sequence[Any], sizes: Mapping[str, int]) -> None:
        """JAX would refuse too, at greater length."""
        for array, info in zip(given, self.inputs, strict=True):
            for axis, (size, declared) in enumerate(
                zip(array.shape, info.shape or (), strict=True)
            ):
                wanted = _value(declared, sizes)
                if wanted is not None and wanted != size:
                    raise InvalidInput(
                        f"The input '{info.name}' must have size {wanted} ({declared}) on axis "
                        f"{axis}, and got {list(array.shape)}."
                    )
        told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        if 0 in sizes.values():
            raise InvalidInput(
                f"The call has {told}, and sizes that have names are 1 or more in an exported "
                "program: export it with 0 in place of the name for such calls."
            )
        for bound in self.bounds:
            if not sizes.keys() >= set(names_in(bound)):
                continue  # It is of a size that stands in expressions alone: JAX solves these.
            if not self._holds(bound, sizes):
                raise InvalidInput(
                    f"The program holds for {bound}, and was called with {told}: "
                    f"{self._way_out(bound, sizes)}, or call the model itself."
                )

    def _holds(self, bound: str, sizes: Mapping[str, int]) -> bool:
        try:
            return holds(bound, sizes)
        except (ValueError, ArithmeticError):
            raise InvalidModel(
                f"The exported program has the bound {bound!r:.100}, which has no value for this "
                "call. It is damaged, or was written by something else: export it again."
            ) from None

    def _way_out(self, bound: str, sizes: Mapping[str, int]) -> str:
        """How to have a program for such a call: not every bound is one of the graph's own."""
        for name, most in self._about.largest.items():
            if bound == f"{name} <= {most}":
                return f'export it with largest={{"{name}": {sizes[name]}}} or more'
        return "export it with numbers for such sizes"


def _value(declared: Any, sizes: Mapping[str, int]) -> int | None:
    try:
        return evaluated(declared, sizes)
    except (ValueError, ArithmeticError):
        return None


def _deserialised(content: Content) -> Any:
    try:
        return export.deserialize(bytearray(content.program))
    except ImportError as error:
        raise BackendUnavailable(
            f"To read an exported program JAX needs one more package ({error}): "
            "pip install 'sardonyx[export]'."
        ) from None
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise InvalidModel(
            f"The program in {content.origin} cannot be read by JAX {jax.__version__} ({reason}): "
            "it is damaged, or of a version that is too far away: export it again."
        ) from error


def _require_platform(platforms: Sequence[str], backend: JaxBackend, origin: str) -> None:
    device = backend.device or jax.devices()[0]
    here = ("cuda", "rocm") if device.platform == "gpu" else (device.platform,)
    if not set(here).intersection(platforms):
        raise BackendUnavailable(
            f"The program in {origin} was exported for {', '.join(platforms)}, and here is "
            f"{device.platform}: name a device= that is present, or export it for this platform."
        )


def _require_fit(
    exported: Any, params: Params, constants: Sequence[Any], about: Any, origin: str
) -> None:
    """The arrays must be those that the program was made for."""
    weights = [params.host(name) for name in sorted(about.weights)]
    found = [(array.shape, array.dtype) for array in (*weights, *constants)]
    wanted = [(aval.shape, aval.dtype) for aval in exported.in_avals]
    inputs = [info.dtype for info in about.inputs]
    dtypes = [dtype for _, dtype in wanted[len(found) :]]
    if wanted[: len(found)] != found or dtypes != [*inputs, np.dtype(np.uint32)]:
        raise InvalidModel(
            f"The program in {origin} takes other arrays than those that lie with it: the archive "
            "was put together of two. Export it again."
        )
