"""`ExportedModel`: an exported program, loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np
from jax import export

from sardonyx.backends.jax.backend import EXACT, JaxBackend
from sardonyx.backends.jax.costs import costs_of
from sardonyx.display.folding import fold
from sardonyx.display.tables import facts
from sardonyx.errors import BackendUnavailable, InvalidInput, InvalidModel, UnsupportedModel
from sardonyx.exporting.archive import Content
from sardonyx.exporting.description import described
from sardonyx.exporting.size_expressions import evaluated, holds, names_in
from sardonyx.graph.calls.arguments import by_name, checked_arrays
from sardonyx.graph.calls.array_interop import exporter, stand_ins
from sardonyx.graph.errors import node_errors
from sardonyx.graph.model.compiled_model import CompiledModel
from sardonyx.graph.model.memory import Memory
from sardonyx.graph.values.params import Params, WeightStore
from sardonyx.graph.values.params_display import params_parts
from sardonyx.logs import postponed
from sardonyx.printable import first_line


class ExportedModel(CompiledModel):
    """A program that `sardonyx.export` wrote, on one of its platforms: call it with arrays.

    `sardonyx.load` creates it. It is compiled at the first call of each signature, and needs
    neither ONNX nor the model's file.
    """

    _absent: ClassVar[Mapping[str, str]] = {
        "opsets": "an exported program has no ONNX operators; load the ONNX model itself",
        "is_strict": "an exported program has no ONNX operators; load the ONNX model itself",
        "profile": "load the ONNX model itself to profile it, or use jax.profiler.trace",
        "view": "an exported program has no ONNX operators; view the ONNX model itself",
        "trace": "an exported program is traced already; load the ONNX model itself to look at it",
    }

    def __init__(self, content: Content, backend: JaxBackend) -> None:
        self._about, arrays = described(content)
        super().__init__(self._about.inputs, self._about.outputs, backend)
        self._exported = _deserialised(content)
        _require_platform(self._about.platforms, backend, content.origin)
        self._constants = [arrays[name] for name in self._about.constants]
        self._jitted: Any = jax.jit(self._exported.call, compiler_options=EXACT)
        self._draws = np.random.default_rng()
        self._weights = WeightStore({n: arrays[n] for n in self._about.weights}, backend)
        self._params = Params(self._weights)
        _require_fit(self._exported, self._params, self._constants, self._about, content.origin)

    @property
    def params(self) -> Params:
        """The weights by name; assign to one to replace it."""
        return self._params

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the ONNX model that was exported."""
        return dict(self._about.metadata)

    @property
    def bounds(self) -> tuple[str, ...]:
        """The conditions on the free sizes, such as `sequence <= 512`."""
        return self._about.bounds

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that it was exported for."""
        return self._about.platforms

    def __repr__(self) -> str:
        return self._text("exported program")

    def _parts(self) -> list[str]:
        about = [("platforms", ", ".join(self.platforms)), ("bounds", ", ".join(self.bounds))]
        return [
            *super()._parts(),
            facts([(n, text) for n, text in about if text]),
            fold("weights", *params_parts(self._params._entries())),
        ]

    def memory(self, /, *inputs: Any, **named_inputs: Any) -> Memory:
        """The bytes that a call with these inputs needs, as `Model.memory` does."""
        shapes = by_name(self.inputs, inputs, named_inputs)
        costs = costs_of(self._prepare(stand_ins(shapes, self.inputs)))
        constants = sum(array.nbytes for array in self._constants)
        weights = sum(self._params.host(name).nbytes for name in self._params)
        reserved, limit = self._backend.reserved()
        return Memory(
            weights=weights,
            prepared=0,
            constants=constants,
            inputs=max(costs.arguments - weights - constants, 0),
            outputs=costs.outputs,
            temporaries=costs.temporaries,
            donated=costs.donated,
            saved_by_aliases=0,
            peak=costs.arguments + costs.outputs + costs.temporaries - costs.donated,
            reserved=reserved,
            limit=limit,
        )

    def release(self) -> None:
        """Free the programs and the weights on the device. The model can still be called."""
        super().release()
        self._jitted.clear_cache()
        self._weights.release()

    def _bytes_held(self) -> int:
        return self._weights.bytes_held

    def _values(self, inputs: Sequence[Any], named: Mapping[str, Any], key: Any) -> Sequence[Any]:
        with self._backend.scope():
            arrays, sizes = checked_arrays(self.inputs, inputs, named, self._backend)
            self._require_bounds(arrays, sizes)
            outputs = self._run(arrays, key)
            export_array = exporter(arrays, self._backend)
            return [export_array(output) for output in outputs]

    def _run(self, arrays: Sequence[Any], key: Any) -> Sequence[Any]:
        is_traced = any(map(self._backend.is_abstract, arrays))
        arguments = self._arguments(arrays, key)
        try:
            if is_traced or self._backend.is_abstract(arguments[-1]):
                outputs: Sequence[Any] = self._exported.call(*arguments)
            else:
                self._calls += 1
                self._compiled(arrays, arguments, is_call=True)
                # `jit` finds the compiled program, and also takes arrays of other devices.
                outputs = self._jitted(*arguments)
        except NotImplementedError as error:
            if not is_traced:
                raise
            raise UnsupportedModel(
                f"An exported program cannot be transformed so: {first_line(error)}. Call it under "
                "jax.jit alone, or use sardonyx.to_jax on the ONNX model for jax.vmap and jax.grad."
            ) from error
        except Exception as error:
            node_errors.raise_translated(error, "The program could not run", self._backend)
        return outputs

    def _arguments(self, arrays: Sequence[Any], key: Any) -> tuple[Any, ...]:
        weights = {name: self._params[name] for name in self._about.weights}
        drawn = self._draws.integers(2**32, size=2, dtype=np.uint32) if key is None else key
        return weights, self._constants, list(arrays), drawn

    def _compiled(
        self, arrays: Sequence[Any], arguments: tuple[Any, ...], *, is_call: bool = False
    ) -> Any:
        signature = tuple(self._backend.spec(array) for array in arrays)
        if signature not in self._programs:
            with postponed(), self._lock:
                if signature not in self._programs:
                    self._missed += is_call
                    lowered = self._jitted.lower(*arguments)
                    self._programs[signature] = self._timed(lowered.compile)
        return self._programs[signature]

    def _prepare(self, named: Mapping[str, Any]) -> Any:
        with self._backend.scope():
            arrays, sizes = checked_arrays(self.inputs, (), named, self._backend)
            self._require_bounds(arrays, sizes)
            return self._compiled(arrays, self._arguments(arrays, None))

    def _require_bounds(self, arrays: Sequence[Any], sizes: Mapping[str, int]) -> None:
        """Refuse sizes that the program cannot have; JAX's own message is longer."""
        for array, info in zip(arrays, self.inputs, strict=True):
            for axis, (size, declared) in enumerate(
                zip(array.shape, info.shape or (), strict=True)
            ):
                expected = _value(declared, sizes)
                if expected is not None and expected != size:
                    raise InvalidInput(
                        f"The input '{info.name}' must have size {expected} ({declared}) on axis "
                        f"{axis}, but has the shape {list(array.shape)}."
                    )
        shown = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        if 0 in sizes.values():
            raise InvalidInput(
                f"The call has {shown}, but an exported program takes no named sizes of 0. Export "
                "it with 0 in place of the name for such calls."
            )
        for bound in self.bounds:
            if not sizes.keys() >= set(names_in(bound)):
                continue  # JAX computes sizes that occur only within expressions.
            if not self._holds(bound, sizes):
                raise InvalidInput(
                    f"The program holds for {bound}, but the call has {shown}. Export it with "
                    f"{self._way_out(bound, sizes)}, or call the model itself."
                )

    def _holds(self, bound: str, sizes: Mapping[str, int]) -> bool:
        try:
            return holds(bound, sizes)
        except (ValueError, ArithmeticError):
            raise InvalidModel(
                f"The bound {bound!r:.100} of the exported program has no value for this call. The "
                "program is damaged, or sardonyx did not write it: export it again."
            ) from None

    def _way_out(self, bound: str, sizes: Mapping[str, int]) -> str:
        """Return the options of an export that serves such a call."""
        for name, most in self._about.largest.items():
            if bound == f"{name} <= {most}":
                return f'largest={{"{name}": {sizes[name]}}} or more'
        return "numbers for such sizes"


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
        reason = first_line(error)
        raise InvalidModel(
            f"JAX {jax.__version__} cannot read the program in {content.origin} ({reason}). It is "
            "damaged, or of a version that is too old or too new: export it again."
        ) from error


def _require_platform(platforms: Sequence[str], backend: JaxBackend, origin: str) -> None:
    device = backend.device or jax.devices()[0]
    here = ("cuda", "rocm") if device.platform == "gpu" else (device.platform,)
    if not set(here).intersection(platforms):
        raise BackendUnavailable(
            f"The program in {origin} was exported for {', '.join(platforms)}, but the device is a "
            f"{device.platform}. Pass another device=, or export the program for this platform."
        )


def _require_fit(
    exported: Any, params: Params, constants: Sequence[Any], about: Any, origin: str
) -> None:
    """Refuse an archive whose arrays do not fit its program."""
    weights = [params.host(name) for name in sorted(about.weights)]
    present = [(array.shape, array.dtype) for array in (*weights, *constants)]
    expected = [(aval.shape, aval.dtype) for aval in exported.in_avals]
    inputs = [info.dtype for info in about.inputs]
    dtypes = [dtype for _, dtype in expected[len(present) :]]
    if expected[: len(present)] != present or dtypes != [*inputs, np.dtype(np.uint32)]:
        raise InvalidModel(
            f"The program in {origin} takes other arrays than those in the archive, which combines "
            "two archives or is damaged. Export it again."
        )
