"""`ExportedModel`: an exported program, loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np
from jax import export

from sardonyx.backends.jax.backend import EXACT, JaxBackend
from sardonyx.backends.jax.costs import costs_of
from sardonyx.errors import BackendUnavailable, InvalidInput, InvalidModel
from sardonyx.exporting.archive import Content
from sardonyx.exporting.description import described
from sardonyx.exporting.size_formulas import evaluated, holds, names_in
from sardonyx.graph.calls.arguments import by_name, checked_arrays
from sardonyx.graph.calls.array_interop import exporter, stand_ins
from sardonyx.graph.errors import node_errors
from sardonyx.graph.model.compiled_model import CompiledModel
from sardonyx.graph.model.memory import Memory
from sardonyx.graph.values.params import Params, WeightStore


class ExportedModel(CompiledModel):
    """A program that `sardonyx.export` wrote, on one of its platforms: call it with arrays.

    `sardonyx.load` creates it. It is compiled at the first call of each signature, and needs
    neither ONNX nor the model's file.
    """

    _absent: ClassVar[Mapping[str, str]] = {
        "opsets": "an exported program has no ONNX operators; load the ONNX model itself",
        "is_strict": "an exported program has no ONNX operators; load the ONNX model itself",
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
            given, sizes = checked_arrays(self.inputs, inputs, named, self._backend)
            self._require_bounds(given, sizes)
            outputs = self._run(given, key)
            export_array = exporter(given, self._backend)
            return [export_array(output) for output in outputs]

    def _run(self, given: Sequence[Any], key: Any) -> Sequence[Any]:
        is_traced = any(map(self._backend.is_abstract, given))
        arguments = self._arguments(given, key)
        try:
            if is_traced or self._backend.is_abstract(arguments[-1]):
                outputs: Sequence[Any] = self._exported.call(*arguments)
            else:
                self._calls += 1
                self._compiled(given, arguments, is_call=True)
                # What was compiled is found by `jit`, which also takes arrays of other devices.
                outputs = self._jitted(*arguments)
        except Exception as error:
            node_errors.raise_translated(error, "The program could not run", self._backend)
        return outputs

    def _arguments(self, given: Sequence[Any], key: Any) -> tuple[Any, ...]:
        weights = {name: self._params[name] for name in self._about.weights}
        drawn = self._draws.integers(2**32, size=2, dtype=np.uint32) if key is None else key
        return weights, self._constants, list(given), drawn

    def _compiled(
        self, given: Sequence[Any], arguments: tuple[Any, ...], *, is_call: bool = False
    ) -> Any:
        signature = tuple(self._backend.spec(array) for array in given)
        if signature not in self._programs:
            with self._lock:
                if signature not in self._programs:
                    self._missed += is_call
                    lowered = self._jitted.lower(*arguments)
                    self._programs[signature] = self._timed(lowered.compile)
        return self._programs[signature]

    def _prepare(self, named: Mapping[str, Any]) -> Any:
        with self._backend.scope():
            given, sizes = checked_arrays(self.inputs, (), named, self._backend)
            self._require_bounds(given, sizes)
            return self._compiled(given, self._arguments(given, None))

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
        shown = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        if 0 in sizes.values():
            raise InvalidInput(
                f"The call has {shown}, and sizes that have names are 1 or more in an exported "
                "program: export it with 0 in place of the name for such calls."
            )
        for bound in self.bounds:
            if not sizes.keys() >= set(names_in(bound)):
                continue  # It is of a size that stands in expressions alone: JAX solves these.
            if not self._holds(bound, sizes):
                raise InvalidInput(
                    f"The program holds for {bound}, and was called with {shown}: "
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
