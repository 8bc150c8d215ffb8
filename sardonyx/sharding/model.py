"""A model over the devices of a mesh: sharded weights, and one compiled program for each shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sardonyx.backends.executable import Spec
from sardonyx.backends.jax.backend import EXACT
from sardonyx.backends.jax.portable import PortableBackend
from sardonyx.backends.jax.settings import Settings
from sardonyx.display.folding import fold
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.arguments import checked_arrays
from sardonyx.graph.errors.node_errors import raise_translated
from sardonyx.graph.ir import Node, Source, ValueInfo
from sardonyx.graph.model.compiled_model import CompiledModel
from sardonyx.graph.model.interface import OnnxModel
from sardonyx.graph.programs.whole_program import Pure, pure
from sardonyx.graph.standard.types import short_name
from sardonyx.graph.tracing.scope_names import function_name
from sardonyx.graph.values.params import WeightStore, is_static
from sardonyx.logs import postponed
from sardonyx.sharding.annotations import Annotated
from sardonyx.sharding.layout import WHOLE, Layout, MeshAxes, Misfit, shown
from sardonyx.sharding.plan import Plan, Rules, plan, presets
from sardonyx.sharding.report import Report, Row, report_table
from sardonyx.sharding.tracing import PinningTracer
from sardonyx.sharding.weight_placement import Reading, placed


@dataclass(eq=False)
class _Program:
    """The program for inputs of one signature, and its compiled form after the first call."""

    pure: Pure
    constants: Sequence[Any]
    run: Callable[..., list[Any]]
    compiled: Any = None


class ShardedModel(OnnxModel, CompiledModel):
    """A model whose weights and work are divided over the devices of a mesh.

    `sardonyx.shard` creates it. Call it like a `Model`. Under `jax.distributed` every process makes
    the same calls with the same inputs: a whole array, or a `jax.Array` that spans the processes.
    """

    _absent: ClassVar[Mapping[str, str]] = {
        "profile": "profile the loaded model, or use jax.profiler.trace",
        "view": "view the loaded model, whose graph is the same",
        "trace": "look at `compiled(...)`, such as its as_text(), or trace the loaded model",
        "memory": "`report` has the bytes of the weights per device, `compiled(...)` the rest",
    }

    def __init__(
        self,
        source: Source,
        host: WeightStore,
        mesh: Mesh,
        plan: Plan,
        backend: PortableBackend,
        *,
        strict: bool,
    ) -> None:
        super().__init__(source.graph.required_inputs, source.graph.outputs, backend)
        self._source = source
        self._host = host
        self._plan = plan
        self._strict = strict
        self._draws = np.random.default_rng()
        self._read: set[str] = set()
        self.mesh = mesh
        self.reading = Reading()
        self._params = self._placed_weights()

    # -- description ------------------------------------------------------------------------------

    @property
    def params(self) -> Mapping[str, jax.Array]:
        """The weights by name, each with its sharding.

        A function of `to_jax` takes them as `{**params, **sharded.params}`: its own params also
        have the single numbers, which are constants here.
        """
        return MappingProxyType(self._params)

    @property
    def report(self) -> Report:
        """How each weight and input is divided, and why; print it."""
        rows = []
        for name, array in self._params.items():
            choice = self._plan.weights.get(name, WHOLE)
            dtype = short_name(self._backend.numpy_dtype(array.dtype))
            divided = choice.layout.on(array.shape, self._plan.mesh)
            text = f"{dtype}{list(array.shape)}"
            rows.append(Row(name, text, divided, array.nbytes, choice.reason))
        inputs = tuple((info.name, self._input_layout(info)) for info in self._infos)
        return Report(self._plan.mesh, tuple(rows), inputs, tuple(self._plan.notes))

    def compiled(self, *inputs: Any, **named_inputs: Any) -> Any:
        """The `jax.stages.Compiled` for these inputs: its shardings, its text, its costs."""
        arrays = self._imported(inputs, named_inputs)
        return self._compiled(self._program(arrays), arrays)

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={size}" for name, size in self._plan.mesh.items())
        return f"<sardonyx model on a mesh of {self.mesh.size} devices ({axes})>"

    def _parts(self) -> list[str]:
        return [repr(self).strip("<>"), fold("weights", report_table(self.report))]

    # -- running it -------------------------------------------------------------------------------

    def _values(self, inputs: Sequence[Any], named: Mapping[str, Any], key: Any) -> Sequence[Any]:
        arrays = self._imported(inputs, named)
        program = self._program(arrays)
        drawn = self._fresh_key() if key is None else key
        is_traced = any(map(self._backend.is_abstract, (*arrays, drawn)))
        if not is_traced:
            self._calls += 1
            self._missed += program.compiled is None
        run = program.run if is_traced else self._compiled(program, arrays)
        try:
            with self._backend.scope():
                outputs = run(*self._arguments(program, arrays, drawn))
            on_host = arrays and all(isinstance(array, np.ndarray) for array in arrays)
            if on_host and not is_traced:
                outputs = [_fetched(output) for output in outputs]
        except Exception as error:
            raise_translated(error, "The call could not run", self._backend)
        values: Sequence[Any] = outputs
        return values

    def _prepare(self, named: Mapping[str, Any]) -> Any:
        return self.compiled(**named)

    def _bytes_held(self) -> int:
        return sum(
            shard.data.nbytes
            for array in self._params.values()
            for shard in array.addressable_shards
        )

    def _imported(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        with self._backend.scope():
            return checked_arrays(self._infos, inputs, named, self._backend)[0]

    def _program(self, arrays: Sequence[Any]) -> _Program:
        specs = tuple(self._backend.spec(array) for array in arrays)
        program: _Program | None = self._programs.get(specs)
        if program is None:
            with postponed(), self._lock:
                program = self._programs.get(specs)
                if program is None:
                    program = self._programs[specs] = self._traced(specs)
        return program

    def _traced(self, specs: Sequence[Spec]) -> _Program:
        tracer = partial(PinningTracer, pins=self._plan.pins, hold=self._hold)
        traced = pure(
            self._source, self._backend, self._host, specs, tracer=tracer, strict=self._strict
        )
        self._count_read(traced.read)
        with self._backend.scope():
            constants = [self._spread(array) for array in traced.constants.values()]
        run: Any = partial(self._run, traced)
        run.__name__ = function_name(self._source.graph.name)
        return _Program(traced, constants, run)

    def _compiled(self, program: _Program, arrays: Sequence[Any]) -> Any:
        if program.compiled is None:
            with postponed(), self._lock, self._backend.scope():
                if program.compiled is None:
                    key = np.zeros(2, np.uint32)
                    jitted = jax.jit(program.run, compiler_options=EXACT)
                    lowered = jitted.lower(*self._arguments(program, arrays, key))
                    program.compiled = self._timed(lowered.compile)
        return program.compiled

    def _run(self, program: Pure, *arguments: Any) -> list[Any]:
        outputs = program(*arguments)
        for i, info in enumerate(self.outputs):
            if info.name in self._plan.outputs:
                layout = self._plan.outputs[info.name].layout
                outputs[i] = self._hold(None, outputs[i], layout=layout, node=None)
        return outputs

    def _arguments(self, program: _Program, arrays: Sequence[Any], key: Any) -> tuple[Any, ...]:
        weights = {name: self._params[name] for name in program.pure.weights.values()}
        inputs = [
            self._spread(array, self._input_sharding(array.shape, info))
            for array, info in zip(arrays, self._infos, strict=True)
        ]
        return weights, program.constants, inputs, self._spread(key)

    def _fresh_key(self) -> np.ndarray[Any, Any]:
        """Return a random key that all processes have in common."""
        drawn = self._draws.integers(2**32, size=2, dtype=np.uint32)
        if jax.process_count() > 1 and any(p.pure.draws for p in self._programs.values()):
            drawn = np.asarray(multihost_utils.broadcast_one_to_all(drawn))
        return drawn

    # -- where arrays lie -------------------------------------------------------------------------

    def _sharding(self, layout: Layout, shape: Sequence[int]) -> NamedSharding:
        divided = layout.on(shape, self._plan.mesh)
        named = {axis % len(shape) for axis, _ in layout.axes}
        free = PartitionSpec.UNCONSTRAINED if layout.open else None
        entries = [names or (None if axis in named else free) for axis, names in enumerate(divided)]
        return NamedSharding(self.mesh, PartitionSpec(*entries))

    def _placed_weights(self) -> dict[str, jax.Array]:
        weights = {}
        with self._backend.scope():
            for name in self._host:
                array = self._host.host(name)
                if not is_static(array):
                    layout = self._plan.weights.get(name, WHOLE).layout
                    sharding = self._sharding(layout, array.shape)
                    weights[name] = placed(array, sharding, self.reading)
        return weights

    def _count_read(self, names: frozenset[str]) -> None:
        """Count weights whose values the program depends on; every process reads all of them."""
        for name in names - self._read:
            self.reading.read += self._host.host(name).nbytes
            self._plan.note(f"Every process reads '{name}', on whose values the program depends.")
        self._read |= names

    def _input_sharding(self, shape: Sequence[int], info: ValueInfo) -> NamedSharding:
        choice = self._plan.inputs.get(info.name, WHOLE)
        try:
            return self._sharding(choice.layout, shape)
        except Misfit as reason:
            raise InvalidInput(
                f"The input '{info.name}' of shape {list(shape)} cannot be divided "
                f"({choice.reason}): {reason}. Pad it, or pass a rule that keeps it whole."
            ) from None

    def _input_layout(self, info: ValueInfo) -> str:
        axes = self._plan.inputs.get(info.name, WHOLE).layout.axes
        rank = max([len(info.shape or ()), *(axis + 1 for axis, _ in axes)])
        names = {axis % rank: names for axis, names in axes}
        return shown(tuple(names.get(axis, ()) for axis in range(rank)))

    def _spread(self, array: Any, sharding: NamedSharding | None = None) -> jax.Array:
        """Put an array on the mesh; each process contributes its part."""
        sharding = sharding or NamedSharding(self.mesh, PartitionSpec())
        result: jax.Array
        if isinstance(array, jax.core.Tracer):
            result = jax.lax.with_sharding_constraint(array, sharding)
        elif isinstance(array, jax.Array) and (
            sharding.is_fully_addressable or not array.is_fully_addressable
        ):
            result = jax.device_put(array, sharding)
        else:
            host = np.asarray(array)
            # A copy, since JAX may read the array after the call.
            result = jax.make_array_from_callback(
                host.shape, sharding, lambda at: np.array(host[at])
            )
        return result

    def _hold(self, xp: Any, x: Any, *, layout: Layout, node: Node | None) -> Any:
        try:
            sharding = self._sharding(layout, x.shape)
        except Misfit as reason:
            where = f"A tensor of {node.label}" if node else "An output"
            self._plan.note(f"{where}, of shape {list(x.shape)}, stays whole: {reason}.")
            return x
        return jax.lax.with_sharding_constraint(x, sharding)


def _fetched(output: jax.Array) -> np.ndarray[Any, Any]:
    if output.is_fully_addressable:
        return np.asarray(output)
    if output.is_fully_replicated:
        return np.asarray(output.addressable_data(0))
    whole: np.ndarray[Any, Any] = multihost_utils.process_allgather(output, tiled=True)
    return whole


# -- shard ---------------------------------------------------------------------------------------


def sharded(
    source: Source,
    host: WeightStore,
    mesh: Mesh | None,
    rules: Rules,
    configuration: str | None,
    *,
    precision: str,
    strict: bool,
) -> ShardedModel:
    """Return the model on the mesh; without one, on the devices of its annotations."""
    if mesh is not None and not isinstance(mesh, Mesh):
        raise InvalidInput(f"The mesh is a {type(mesh).__name__}: pass a jax.sharding.Mesh.")
    follows = rules is None or "annotations" in presets(rules)
    annotated = Annotated.of(source, configuration) if follows or configuration else None
    chosen = _mesh(mesh, annotated)
    axes: MeshAxes = dict(zip(chosen.axis_names, chosen.devices.shape, strict=True))
    backend = PortableBackend(settings=Settings(precision=precision))
    layouts = plan(source, axes, rules, annotated)
    return ShardedModel(source, host, chosen, layouts, backend, strict=strict)


def _mesh(mesh: Mesh | None, annotated: Annotated | None) -> Mesh:
    """Return the mesh with axes along which XLA decides; JAX's explicit axes refuse products."""
    if annotated is None:
        if mesh is None:
            raise InvalidInput(
                "The model has no device annotations: pass a mesh, as in "
                'jax.make_mesh((jax.device_count(),), ("data",)).'
            )
        return _automatic(mesh.devices, mesh.axis_names)
    name, count = annotated.configuration.name, annotated.configuration.devices
    devices = np.asarray(jax.devices()[:count]) if mesh is None else mesh.devices
    if devices.size != count:
        raise InvalidInput(
            f"The device configuration '{name}' is for {count} devices, but there are "
            f"{devices.size}. Pass a mesh of {count}, or other rules."
        )
    preferred = None if mesh is None else dict(zip(mesh.axis_names, devices.shape, strict=True))
    axes = annotated.mesh_axes(preferred)
    return _automatic(devices.reshape(tuple(axes.values())), tuple(axes))


def _automatic(devices: Any, names: Sequence[str]) -> Mesh:
    return Mesh(devices, tuple(names), axis_types=(AxisType.Auto,) * len(names))
