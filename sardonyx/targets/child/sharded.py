"""Models over a mesh, as `shard` runs them, without their weights in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sardonyx.arguments import precision_level
from sardonyx.backends.jax.portable import PortableBackend
from sardonyx.backends.jax.settings import Settings
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.arguments import checked_arrays
from sardonyx.graph.model.resolve import Opened
from sardonyx.graph.values.params import is_static
from sardonyx.sharding.annotations import Annotated
from sardonyx.sharding.layout import WHOLE
from sardonyx.sharding.model import ShardedModel
from sardonyx.sharding.plan import plan, presets
from sardonyx.targets.child.compiling import compilation, devices_of
from sardonyx.targets.child.models import inputs_of
from sardonyx.targets.jobs import ModelJob
from sardonyx.targets.records import Compilation


def compile_model(
    job: ModelJob,
    say: Callable[[str], None],
    note: Callable[[Compilation], None],
    remark: Callable[[str], None],
) -> None:
    """Compile the program that a call of the sharded model runs on each device."""
    options = dict(job.options)
    source, store, checks_types, own = Opened.of(job.source, strict=options.get("strict"))
    rules = options.get("rules")
    configuration = options.get("configuration")
    follows = rules is None or "annotations" in presets(rules)
    annotated = Annotated.of(source, configuration) if follows or configuration else None
    mesh = _mesh(job)
    axes = dict(zip(mesh.axis_names, mesh.devices.shape, strict=True))
    word = options.get("precision")
    precision = own if word is None else precision_level(word)
    backend = PortableBackend(settings=Settings(precision=precision))
    layouts = plan(source, axes, rules, annotated)
    model = AbsentModel(source, store, mesh, layouts, backend, strict=checks_types)
    inputs = inputs_of(model.inputs, job)
    function, arguments = model.call(inputs)
    title = " x ".join(f"{name} {size}" for name, size in axes.items())
    say(f"for a mesh of {title}")
    with backend.scope():
        note(
            compilation(f"mesh {title}", function, arguments, job.target, keeps_text=job.keeps_text)
        )
    report = model.report
    remark(f"{report.bytes_per_device:,} of {report.total_bytes:,} bytes of weights per device")
    for text in report.notes:
        remark(text)


def _mesh(job: ModelJob) -> Mesh:
    devices = devices_of(job.target)
    axes: Mapping[str, int] = job.mesh or {"data": len(devices)}
    if math.prod(axes.values()) != len(devices):
        raise InvalidInput(
            f"The mesh {dict(axes)} has {math.prod(axes.values())} devices, but "
            f"'{job.target}' has {len(devices)}: change one of them."
        )
    arranged = np.asarray(devices).reshape(tuple(axes.values()))
    return Mesh(arranged, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


class AbsentModel(ShardedModel):
    """A sharded model on devices that are not here: its weights are shapes, dtypes and layouts."""

    def call(self, inputs: Mapping[str, Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return the program of a call, and stand-ins for its arguments."""
        with self._backend.scope():
            arrays = checked_arrays(self._infos, (), inputs, self._backend)[0]
        program = self._program(arrays)
        with self._backend.scope():
            key = np.zeros(2, np.uint32)
            return program.run, self._arguments(program, arrays, key)

    def _placed_weights(self) -> dict[str, Any]:
        weights = {}
        for name in self._host:
            array = self._host.host(name)
            if not is_static(array):
                layout = self._plan.weights.get(name, WHOLE).layout
                weights[name] = Absent(array, self._sharding(layout, array.shape))
        return weights

    def _spread(self, array: Any, sharding: NamedSharding | None = None) -> Any:
        if isinstance(array, jax.core.Tracer):
            return super()._spread(array, sharding)
        return Absent(array, sharding or NamedSharding(self.mesh, PartitionSpec()))


class Absent(jax.ShapeDtypeStruct):
    """The stand-in of an array on the mesh, which has a size as arrays have."""

    def __init__(self, array: Any, sharding: NamedSharding) -> None:
        super().__init__(array.shape, array.dtype, sharding=sharding)  # type: ignore[no-untyped-call]

    @property
    def nbytes(self) -> int:
        """The bytes of all devices' parts together, of a division without copies."""
        return int(self.size * self.dtype.itemsize)
