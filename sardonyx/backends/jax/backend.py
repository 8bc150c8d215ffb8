"""JAX: CPU, CUDA and TPU; segments are compiled by XLA."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

from sardonyx.backends import fallback
from sardonyx.backends.base import Backend, Executable, PackedProduct, Replay, Spec
from sardonyx.backends.conditions import Condition
from sardonyx.backends.host_memory import aligned
from sardonyx.backends.jax import (
    casts,
    indexing,
    memory,
    messages,
    nans,
    onednn,
    processes,
)
from sardonyx.backends.jax.cache import CompiledFolder
from sardonyx.backends.jax.checks import Checks
from sardonyx.backends.jax.costs import costs_of
from sardonyx.backends.jax.onednn.threads import threads
from sardonyx.backends.jax.padded_calls import with_padding
from sardonyx.backends.jax.padding.protocols import Padding
from sardonyx.backends.jax.precision import of_convolution, of_product
from sardonyx.backends.jax.xla_cpu import packed, platforms
from sardonyx.backends.on_device import OnDevice
from sardonyx.backends.strides import axis_order, dense_strides, same_layout
from sardonyx.errors import BackendUnavailable

_WITHOUT_X64 = {
    "int64": np.dtype(np.int32),
    "uint64": np.dtype(np.uint32),
    "float64": np.dtype(np.float32),
    "complex128": np.dtype(np.complex64),
}

# Each value has the type that its graph says: XLA would drop casts to narrow ones and back.
EXACT = {"xla_allow_excess_precision": False}

# Of fewer products of two numbers than these XLA's own is done before a kernel is called.
SMALLEST_PACKED = 2**14

# XLA takes a time that grows with the square of the number of arrays that are concatenated.
MOST_JOINED = 128


@dataclass(frozen=True)
class Settings:
    """What a model was loaded with."""

    cache: CompiledFolder | None = None
    # Of products of float32: "highest", "high" or "bfloat16".
    precision: str = "highest"
    # Whether only shapes are asked for, so that forms that are fast to run need not be traced.
    outlines: bool = False
    # The conditions on data, where programs check them.
    checks: Checks | None = None


class JaxBackend(OnDevice):
    name: ClassVar[str] = "jax"
    skips_padding = True
    reshapes_are_views: ClassVar[bool] = False
    embeds_up_to: ClassVar[int] = 128
    packs_up_to: ClassVar[int] = 4096

    def __init__(
        self,
        device: jax.Device | None = None,
        *,
        jit: bool = True,
        settings: Settings = Settings(),
    ) -> None:
        super().__init__(jnp)
        self.compiled = jit
        self.device = device
        self.settings = settings
        self.checked = settings.checks is not None
        self.reports = jit and self.checked
        # On a device of its own, what a call passes must be placed there as the weights are.
        self.takes_numpy = device is None
        self._fork = processes.fork()

    def __reduce__(self) -> Any:
        return processes.restored, processes.description(self)

    # -- primitives for ops -----------------------------------------------------------------------

    def pad(self, x: Any, widths: Any, value: Any) -> Any:
        self.allow(fallback.padded_shape(x.shape, widths), np.dtype(x.dtype))
        if self.settings.outlines:
            return jnp.pad(x, widths, constant_values=value)
        return platforms.pad(x, widths, value)

    def detached(self, x: Any) -> Any:
        return lax.stop_gradient(x)

    def erf(self, x: Any) -> Any:
        return lax.erf(x)

    def concat(self, arrays: Any, *, axis: int = 0) -> Any:
        dtype = arrays[0].dtype
        if dtype.name.endswith("int2"):
            # XLA for CPU aborts the process on a concatenation of two-bit integers.
            return self.concat([x.astype(np.int8) for x in arrays], axis=axis).astype(dtype)
        while len(arrays) > MOST_JOINED:
            parts = [
                jnp.concat(arrays[i : i + MOST_JOINED], axis=axis)
                for i in range(0, len(arrays), MOST_JOINED)
            ]
            arrays = lax.optimization_barrier(parts)
        return jnp.concat(arrays, axis=axis)

    # An index that is out of range means the nearest element; libraries that can tell, raise.

    def take(self, x: Any, indices: Any, *, axis: int) -> Any:
        return jnp.take(x, indexing.within(indices, x.shape[axis]), axis=axis, mode="clip")

    def take_along_axis(self, x: Any, indices: Any, *, axis: int = -1) -> Any:
        indices = indexing.within(indices, x.shape[axis])
        return jnp.take_along_axis(x, indices, axis=axis, mode="clip")

    def argmax(self, x: Any, **along: Any) -> Any:
        return indexing.place(lax.argmax, x, **along)

    def argmin(self, x: Any, **along: Any) -> Any:
        return indexing.place(lax.argmin, x, **along)

    def gather(self, x: Any, places: Any) -> Any:
        within = (
            indexing.within(place, size) for place, size in zip(places, x.shape, strict=False)
        )
        return jnp.asarray(x).at[tuple(within)].get(mode="clip")

    def scatter(self, x: Any, places: Any, updates: Any, combine: str | None = None) -> Any:
        x = jnp.asarray(x)
        within = [indexing.or_past_the_end(p, n) for p, n in zip(places, x.shape, strict=False)]
        if combine == "mul":
            return indexing.multiplied(x, updates, *within)
        at = x.at[tuple(within)]
        write = at.set if combine is None else getattr(at, combine)
        return write(updates, mode="drop")

    def fft(self, x: Any, *, axis: int, inverse: bool = False) -> Any:
        x = jnp.moveaxis(x, axis, -1)
        kind = lax.FftType.IFFT if inverse else lax.FftType.FFT
        return jnp.moveaxis(indexing.transformed(x, kind), -1, axis)

    def top_k(self, x: Any, k: int, *, axis: int, largest: bool) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            key = x if largest else ~x
        else:
            # XLA tells the zeros apart, and puts NaN at either end by its sign.
            plain = jnp.where(jnp.isnan(x), jnp.nan, jnp.where(x == 0, 0, x))
            key = plain if largest else -plain
        return lax.top_k(key, k, axis=axis)[1].astype(np.int64)

    def astype(self, x: Any, dtype: Any) -> Any:
        return casts.cast(x, dtype)

    def bitcast(self, x: Any, dtype: Any) -> Any:
        if dtype == np.complex64:
            # JAX would add the parts up, and lose what is infinite, subnormal or not a number.
            parts = lax.bitcast_convert_type(x, np.float32)
            return lax.complex(parts[..., 0], parts[..., 1])
        return x.view(dtype)

    def fmod(self, a: Any, b: Any) -> Any:
        return jnp.fmod(a, b)

    def matmul(self, a: Any, b: Any) -> Any:
        a, b, told = of_product(self.settings.precision, a, b)
        if a.ndim == b.ndim == 2:
            # The general form names its result's type, and derivatives may then not have float64.
            return lax.dot(a, b, **told)
        return jnp.matmul(a, b, **told)

    def solve_lower(self, a: Any, b: Any) -> Any:
        return lax.linalg.triangular_solve(a, b, left_side=True, lower=True, unit_diagonal=True)

    def tensordot(self, a: Any, b: Any, *, axes: Any) -> Any:
        a, b, told = of_product(self.settings.precision, a, b)
        return jnp.tensordot(a, b, axes, **told)

    def quotient(self, a: Any, b: Any) -> Any:
        wide = jnp.promote_types(a.dtype, jnp.float32)
        x, y = a.astype(wide), jnp.asarray(b, dtype=wide)
        # Where one number divides many, XLA multiplies by its inverse: here no two are the same.
        result = x / jnp.where(jnp.isnan(x), x, y)
        if wide != a.dtype:
            # To the mantissa alone: with a narrow exponent it would make small numbers zero.
            form = jnp.finfo(a.dtype)
            result = lax.reduce_precision(result, 8, form.nmant)
        return result.astype(a.dtype)

    def integer_matmul(self, a: Any, b: Any) -> Any:
        """Signed by signed, for which there are instructions: x is (x - 128) + 128."""
        if a.dtype == jnp.uint8:
            below = 128 * jnp.sum(b, axis=-2, keepdims=True, dtype=jnp.int32)
            return self.integer_matmul(_less_128(a), b) + below
        if b.dtype == jnp.uint8:
            below = 128 * jnp.sum(a, axis=-1, keepdims=True, dtype=jnp.int32)
            return self.integer_matmul(a, _less_128(b)) + below
        return jnp.matmul(a, b, preferred_element_type=jnp.int32)

    def convolution(self, x: Any, weight: Any, *, is_finite: bool = False, **layout: Any) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            # XLA convolves integers with plain loops on the CPU, and not at all on a GPU.
            return fallback.convolution(self, x, weight, **layout)
        convolve = (
            platforms.general_convolution if self.settings.outlines else platforms.convolution
        )
        x, weight, precision = of_convolution(self.settings.precision, x, weight)
        y = convolve(x, weight, precision=precision, **layout)
        return y if is_finite else with_padding(y, x.shape, weight, **layout)

    def window_max(self, x: Any, *window: Sequence[int]) -> Any:
        lowest = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else int(np.iinfo(x.dtype).min)
        return platforms.window_reduce(lax.max, x, lowest, *window)

    def window_sum(self, x: Any, *window: Sequence[int]) -> Any:
        return platforms.window_reduce(lax.add, x, 0, *window)

    def strides(self, x: Any) -> tuple[int, ...]:
        order = range(x.ndim) if self.is_abstract(x) else x.format.layout.major_to_minor
        packed = dense_strides([x.shape[axis] for axis in order])
        return tuple(packed[list(order).index(axis)] for axis in range(x.ndim))

    def with_strides(self, x: Any, steps: Any) -> Any:
        """The device's layout of the array: JAX has any order of the axes, but no padding."""
        copy = jnp.copy(x)
        if same_layout(x.shape, steps, self.strides(copy)):
            return copy
        order = axis_order(x.shape, steps)
        if order is None or self.is_abstract(x):
            raise ValueError(
                f"JAX has no strides {tuple(steps)} for shape {x.shape}: outside of jit its axes "
                "may lie in any order, but densely; NumPy and CuPy have any strides"
            )
        result = jax.device_put(copy, Format(Layout(order), copy.sharding))
        if result.format.layout.major_to_minor != order:
            raise ValueError(f"JAX does not let {copy.device} have strides {tuple(steps)}")
        return result

    def write(self, out: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.is_abstract(out):
            return function(self, *arguments)
        others = (None if argument is out else argument for argument in arguments)
        return _writer(out.format)(self, function, out, *others)

    def cond(
        self, predicate: Any, when_true: Callable[[], Any], when_false: Callable[[], Any]
    ) -> Any:
        return lax.cond(jnp.reshape(predicate, ()), when_true, when_false)

    def loop(self, condition: Any, body: Any, carry: Any) -> Any:
        return lax.while_loop(
            lambda carried: jnp.reshape(condition(*carried), ()), lambda c: body(*c), carry
        )

    def scan(
        self, step: Any, carry: Any, inputs: Any, length: int, *, reverse: bool = False
    ) -> Any:
        return lax.scan(step, carry, inputs, length, reverse=reverse)

    def gradients(self, function: Any, arrays: Any, count: int) -> Any:
        def total(*chosen: Any) -> Any:
            return jnp.sum(function(*chosen, *arrays[count:])[0])

        return jax.grad(total, argnums=tuple(range(count)))(*arrays[:count])

    # -- for the graph ----------------------------------------------------------------------------

    def scope(self) -> AbstractContextManager[object]:
        if self._fork.happened:
            self._fork.refuse()
        checks = self.settings.checks
        return jax.enable_x64(True) if checks is None else checks.scope()

    @classmethod
    def has_accelerator(cls) -> bool:
        try:
            return any(device.platform != "cpu" for device in jax.devices())
        except RuntimeError:
            return False

    @classmethod
    def limit_memory(cls, fraction: float) -> None:
        memory.limit(fraction, cls.has_accelerator)

    @classmethod
    def device_for(cls, kind: str | None, index: int | None) -> jax.Device | None:
        processes.fork().refuse()
        if kind is None:
            return None
        try:
            devices = jax.local_devices(backend=kind)
        except RuntimeError as error:
            way = {"gpu": "pip install 'sardonyx[cuda]'", "tpu": "pip install 'sardonyx[tpu]'"}
            raise BackendUnavailable(
                f"JAX finds no {kind.upper()} here ({str(error).splitlines()[0]}): "
                f"{way.get(kind, 'look at JAX_PLATFORMS')}"
            ) from error
        if (index or 0) >= len(devices):
            raise BackendUnavailable(
                f"JAX finds no {kind}:{index}; this machine has {len(devices)}, counted from 0"
            )
        return devices[index or 0]

    @classmethod
    def device_of(cls, value: Any) -> jax.Device | None:
        """None for JAX's own choice, and for what lies on several devices or is not there yet."""
        if isinstance(value, jax.core.Tracer) or len(value.sharding.device_set) != 1:
            return None
        (device,) = value.sharding.device_set
        return None if device == jax.devices()[0] else device

    def owns(self, value: object) -> bool:
        return isinstance(value, jax.Array)

    def is_abstract(self, value: object) -> bool:
        return isinstance(value, jax.core.Tracer)

    def key(self, value: Any) -> Any:
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            # Of whatever size the keys of its generator are.
            return jax.random.bits(value, (2,), np.uint32)
        return super().key(value)

    def narrowed(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        # Users of JAX rarely switch its 64-bit mode on, and then have no int64 to pass.
        return _WITHOUT_X64.get(dtype.name, dtype)

    def put(self, value: np.ndarray[Any, Any]) -> Any:
        # Also while JAX traces: what is placed is data, and no part of the trace.
        if self._is_on_cpu and isinstance(value, np.ndarray):
            value = aligned(value)
        with jax.ensure_compile_time_eval():
            return jax.device_put(value, self.device)

    def fetch(self, value: Any) -> np.ndarray[Any, Any]:
        return np.asarray(value)

    def adopt(self, value: Any) -> Any:
        try:
            return jax.dlpack.from_dlpack(value)
        except (AttributeError, BufferError, TypeError, RuntimeError, ValueError):
            return self.put(np.asarray(value))

    def uncompiled(self) -> Backend:
        return JaxBackend(self.device, jit=False, settings=self.settings)

    def with_cache(self, folder: str | os.PathLike[str] | None) -> Backend:
        return self._with(cache=None if folder is None else CompiledFolder(folder))

    @property
    def precision(self) -> str:
        return self.settings.precision

    def with_precision(self, precision: str) -> Backend:
        return self._with(precision=precision)

    def with_checks(self) -> Backend:
        return self._with(checks=Checks())

    def outline(self) -> Backend:
        return self._with(outlines=True)

    def _with(self, **choices: Any) -> Backend:
        settings = replace(self.settings, **choices)
        return JaxBackend(self.device, jit=self.compiled, settings=settings)

    def check(self, x: Any, condition: Condition) -> None:
        if not self.is_abstract(x):
            super().check(x, condition)
        elif self.settings.checks is not None and not self.settings.outlines:
            self.settings.checks.check(x, condition, self._place)

    def infer(self, function: Replay, *specs: Spec) -> list[Spec]:
        return [Spec(r.shape, r.dtype) for r in _traced(function, specs)]

    def compile(
        self,
        replay: Replay,
        arguments: Sequence[Any],
        *,
        donated: Sequence[int] = (),
        name: str | None = None,
    ) -> Executable:
        if not self.compiled:
            return Executable(replay)
        checks = self.settings.checks
        function = replay if checks is None else checks.reporting(replay)
        jitted = jax.jit(function, donate_argnums=tuple(donated), compiler_options=EXACT)
        specs = [self.spec(argument) for argument in arguments]
        built = self._built(partial(jitted.lower, *map(self._stand_in, arguments)), name)

        def run(*arrays: Any) -> Any:
            try:
                made = built(*arrays)
            except (TypeError, ValueError):
                # They lie elsewhere than those that it was compiled for, or a key is traced. Inside
                # of another jit the options of that one hold.
                if any(map(self.is_abstract, arrays)):
                    return jax.jit(replay)(*arrays)
                made = jitted(*arrays)
            except Exception as error:
                nans.raise_found(error, replay, arrays)
            return made if checks is None else checks.read(made, partial(_traced, jitted, specs))

        return Executable(run, partial(costs_of, built))

    def _built(self, lower: Callable[[], Any], name: str | None) -> Any:
        """The executable: from the cache's folder, or compiled."""
        folder = self.settings.cache
        if folder is None:
            return lower().compile()
        options = {**EXACT, "depends on": self.manner}
        return folder.compiled(lower, name, options, self.device or jax.devices()[0])

    @property
    def folder(self) -> CompiledFolder | None:
        return self.settings.cache

    @property
    def manner(self) -> str:
        device = self.device or jax.devices()[0]
        kernels = f"{onednn.identity()} {threads()}" if self.fuses else "none"
        choices = self.settings.precision, self.compiled, self.checked, kernels, self.largest_value
        return " ".join(map(str, (device.platform, device.device_kind, *choices)))

    def _stand_in(self, argument: Any) -> Any:
        if not isinstance(argument, (Spec, jax.core.Tracer)):
            return argument
        place = None if self.device is None else SingleDeviceSharding(self.device)
        make: Callable[..., Any] = jax.ShapeDtypeStruct
        return make(argument.shape, argument.dtype, sharding=place)

    def reserved(self) -> tuple[int, int]:
        device = self.device or jax.devices()[0]
        said = device.memory_stats() or {}
        held = said.get("pool_bytes", said.get("bytes_reserved", said.get("bytes_in_use", 0)))
        return held, said.get("bytes_limit", 0)

    @cached_property
    def fuses(self) -> bool:  # type: ignore[override]
        # The kernels take factors as they are.
        return self.compiled and self._is_on_cpu and self.settings.precision != "bfloat16"

    @cached_property
    def _is_on_cpu(self) -> bool:
        device = self.device or jax.devices()[0]
        return bool(device.platform == "cpu")

    def packed_convolution(self, x: Spec, weight: Spec, **how: Any) -> PackedProduct | None:
        if not self.fuses or x.dtype != weight.dtype:
            return None
        found: PackedProduct | None = None
        if onednn.is_available():
            found = onednn.convolution(x.shape, weight.shape, x.dtype, **how)
        return found or packed.convolution(x, weight, **how)

    def packed_matmul(self, x: Spec, weight: Spec, **how: Any) -> PackedProduct | None:
        if not self.fuses or x.dtype != weight.dtype:
            return None
        found: PackedProduct | None = None
        # XLA itself is fast where a vector is multiplied, and its call costs less.
        rows = math.prod(x.shape[:-1])
        is_large = rows > 1 and rows * math.prod(weight.shape) >= SMALLEST_PACKED
        if is_large and onednn.is_available():
            found = onednn.matrix_product(x.shape, weight.shape, x.dtype, **how)
        return found or packed.matrix_product(x, weight, **how)

    def padding(self) -> Padding | None:
        if not self.compiled:
            return None
        from sardonyx.backends.jax.padding.prover import JaxPadding  # noqa: PLC0415  (for few users)

        return JaxPadding()

    def explain(self, error: Exception) -> str | None:
        return messages.explained(str(error))


def _traced(function: Callable[..., Any], specs: Sequence[Spec]) -> Any:
    stand_in: Callable[..., Any] = jax.ShapeDtypeStruct
    return jax.eval_shape(function, *(stand_in(*spec) for spec in specs))


def _less_128(x: Any) -> Any:
    return lax.bitcast_convert_type(x ^ jnp.uint8(128), jnp.int8)


@cache
def _writer(place: Format) -> Callable[..., Any]:
    """Computes into the buffer of `out`, which also stands for each argument that is None."""

    def write(xp: JaxBackend, function: Callable[..., Any], out: Any, *arguments: Any) -> Any:
        return function(xp, *(out if argument is None else argument for argument in arguments))

    return jax.jit(
        write, static_argnums=(0, 1), donate_argnums=2, keep_unused=True, out_shardings=place
    )
