"""JAX on CPU, CUDA and TPU: its devices, and segments compiled by XLA."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from sardonyx.backends import blas_threads
from sardonyx.backends.base import Backend
from sardonyx.backends.compiled_folder import Place
from sardonyx.backends.conditions import Condition
from sardonyx.backends.dlpack import on_host
from sardonyx.backends.executable import Executable, FirstTier, Replay, Spec
from sardonyx.backends.host_memory import aligned, give_back_freed, retain_results
from sardonyx.backends.jax import (
    devices,
    exchange,
    first_tier,
    inline,
    limited_clients,
    memory,
    nans,
    presence,
    processes,
)
from sardonyx.backends.jax.accelerators import cudnn_attention, cudnn_choice, cudnn_trial
from sardonyx.backends.jax.cache import ExecutableFolder
from sardonyx.backends.jax.checks import Checks
from sardonyx.backends.jax.compiling import compiled
from sardonyx.backends.jax.costs import bytes_made_anew, costs_of
from sardonyx.backends.jax.folder import identity, kernels_of
from sardonyx.backends.jax.onednn import in_programs
from sardonyx.backends.jax.onednn.threads import threads_of_process
from sardonyx.backends.jax.op_times import can_trace, op_times
from sardonyx.backends.jax.operations import JaxOperations
from sardonyx.backends.jax.padding.arrays import JaxPadding
from sardonyx.backends.jax.settings import Settings
from sardonyx.backends.jax.traits import SIX_BITS
from sardonyx.backends.jax.xla_cuda import layouts
from sardonyx.backends.jax.xla_tpu.refusals import TPUS_LACK
from sardonyx.backends.operations.scores import Scoring
from sardonyx.backends.padding.protocols import Padding
from sardonyx.backends.stopwatch import OpTimes
from sardonyx.errors import InvalidInput

if TYPE_CHECKING:
    from sardonyx.backends.cupy.cutter import CupyCutter

# Each value has the dtype of the graph: XLA would drop casts to narrow dtypes and back.
EXACT = {"xla_allow_excess_precision": False}

# Seconds of a compilation that leaves so much freed memory that giving it back pays.
LONG_COMPILE = 0.5


class JaxBackend(JaxOperations):
    """JAX on one device, or on the one that JAX chooses."""

    def __init__(
        self,
        device: jax.Device | None = None,
        *,
        jit: bool = True,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(jnp)
        self.compiled = self.names_steps = jit
        self.settings = settings or Settings()
        threads = self.settings.threads
        self.device = device if threads is None else limited_clients.device(threads)
        self.precision, self.folder = self.settings.precision, self.settings.cache
        self.checked = self.settings.checks is not None
        self.reports = jit and self.checked
        # With a device of its own, the arrays of a call must be put there, as the weights are;
        # where programs are compiled for the device of a limited client, XLA does so.
        self.takes_numpy = self.device is None or threads is not None
        self._fork = presence.fork()

    @property
    def threads(self) -> int | None:
        return self.settings.threads

    def __reduce__(self) -> Any:
        is_own = self.device is not None and self.settings.threads is None
        place = processes.place_of(self.device) if is_own else None
        return _restored, (type(self), place, self.compiled, self.settings)

    def scope(self) -> AbstractContextManager[object]:
        self._fork.refuse()
        checks = self.settings.checks
        scope = jax.enable_x64(True) if checks is None else checks.scope()
        return blas_threads.limited(scope, self.settings.threads)

    def named_step(self, name: str) -> AbstractContextManager[object]:
        return jax.named_scope(name)

    def op_times(self) -> AbstractContextManager[OpTimes] | None:
        return op_times() if can_trace() else None

    @classmethod
    def has_accelerator(cls) -> bool:
        return devices.has_accelerator()

    @classmethod
    def limit_memory(cls, fraction: float) -> None:
        memory.limit(fraction, cls.has_accelerator)

    @classmethod
    def device_for(cls, kind: str | None, index: int | None) -> jax.Device | None:
        return devices.device_for(kind, index)

    @classmethod
    def device_of(cls, value: Any) -> jax.Device | None:
        return devices.device_of(value)

    def key(self, value: Any) -> Any:
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            # The keys of JAX's generators have several sizes.
            value = jax.random.bits(value, (2,), np.uint32)
        key = super().key(value)
        move = self.mover(key) if self.owns(key) else None
        return key if move is None else move(key)

    def mover(self, value: Any) -> Callable[[Any], Any] | None:
        # Callers have arrays of JAX's own client alone.
        if self.settings.threads is None or self.is_abstract(value):
            return None
        return partial(jax.device_put, device=self.device)

    def own_result(self, value: Any) -> Any:
        if self.settings.threads is None or self.is_abstract(value):
            return value
        return jax.device_put(value, jax.local_devices(backend="cpu")[0])

    @cached_property
    def missing_types(self) -> frozenset[np.dtype[Any]]:  # type: ignore[override]  # an attribute of the base
        return SIX_BITS | TPUS_LACK if self._actual_device.platform == "tpu" else SIX_BITS

    def put(self, value: np.ndarray[Any, Any]) -> Any:
        if value.dtype in self.missing_types:
            return value
        # Also while JAX traces: the array is data, not a part of the trace.
        if self._is_on_cpu and isinstance(value, np.ndarray):
            value = aligned(value)
        with jax.ensure_compile_time_eval():
            return jax.device_put(value, self.device)

    def adopt(self, value: Any) -> Any:
        is_described = hasattr(value, "__cuda_array_interface__")
        if is_described and not hasattr(value, "__dlpack__") and not self._is_on_cpu:
            return exchange.described(value, self.device)
        try:
            array = jax.dlpack.from_dlpack(value)
        except (AttributeError, BufferError, TypeError, RuntimeError, ValueError):
            return self.put(on_host(value))
        return array if self._is_on_cpu else exchange.placed(array)

    def to_donate(self, value: Any) -> Any:
        # XLA ends the process if another library's memory is donated on a GPU.
        return value if self._is_on_cpu else first_tier.own_copy(value)

    def uncompiled(self) -> Backend:
        return JaxBackend(self.device, jit=False, settings=self.settings)

    def with_cache(self, folder: Place | None) -> Backend:
        if folder is None:
            return self._with(cache=None)
        return self._with(cache=ExecutableFolder(folder, of_processor=self._is_on_cpu))

    def with_precision(self, precision: str) -> Backend:
        return self._with(precision=precision)

    def with_threads(self, threads: int) -> Backend:
        if not self._is_on_cpu:
            return super().with_threads(threads)
        if not self.compiled:
            raise InvalidInput(
                "With jit=False operators run one by one on all threads of JAX: leave out "
                "threads=, or compile."
            )
        blas_threads.require()
        return self._with(threads=threads)

    def with_checks(self) -> Backend:
        return self._with(checks=Checks())

    def outline(self) -> Backend:
        return self._with(simplest=True, outlines=True)

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
        with cudnn_trial.noted() as notes:
            try:
                executable = self._compiled(replay, arguments, donated, name)
            except jax.errors.JaxRuntimeError:
                if not (self.asks_cudnn and self._calls_cudnn(replay, arguments)):
                    raise
                with suppress(jax.errors.JaxRuntimeError):
                    plain = cudnn_choice.without_cudnn(replay)
                    executable = self._compiled(plain, arguments, donated, None)
                    return replace(executable, workaround=cudnn_attention.WITHOUT_CUDNN)
                # This error says what is wrong, and not the second one.
                raise
        return replace(executable, workaround=executable.workaround or next(iter(notes), None))

    def _calls_cudnn(self, replay: Replay, arguments: Sequence[Any]) -> bool:
        lowered = self._jitted(replay, ()).lower(*map(self._stand_in, arguments))
        return cudnn_attention.is_in(lowered)

    def _compiled(
        self, replay: Replay, arguments: Sequence[Any], donated: Sequence[int], name: str | None
    ) -> Executable:
        jitted = self._jitted(replay, donated)
        stand_ins = list(map(self._stand_in, arguments))
        lower = partial(jitted.lower, *stand_ins)
        if self.settings.cache is None and self.settings.checks is None and self._is_on_cpu:
            jit = partial(self._jitted, donated=donated)
            lower = partial(inline.lowered, jit, replay, stand_ins)
        workarounds: list[str] = []
        built, is_stored = self._built(lower, name, workarounds.append)
        executable = self._executable(replay, arguments, jitted, built)
        workaround = next(iter(workarounds), None)
        return replace(executable, workaround=workaround, is_stored=is_stored)

    def stored(
        self,
        replay: Replay,
        arguments: Sequence[Any],
        *,
        donated: Sequence[int] = (),
        name: str | None = None,
    ) -> Executable | None:
        folder = self.settings.cache
        if folder is None or name is None:
            return None
        self._register_kernels()
        built = folder.stored(name, self._entry_options, self._actual_device)
        if built is None:
            return None
        return self._executable(replay, arguments, self._jitted(replay, donated), built)

    @property
    def waits_by_default(self) -> bool:  # type: ignore[override]  # an attribute of the base
        """Where nothing runs meanwhile: on CUDA that is CuPy."""
        return not self._is_on_cpu and self.reason_to_wait is not None

    @property
    def packs_matrices(self) -> bool:  # type: ignore[override]  # an attribute of the base
        """On the CPU: a copy of so few bytes takes less time there than an argument."""
        return self._is_on_cpu

    @property
    def attends(self) -> bool:  # type: ignore[override]  # an attribute of the base
        """Off the CPU, where XLA has kernels for attention if it is one operation."""
        return not self._is_on_cpu

    @property
    def asks_cudnn(self) -> bool:
        """Not without jit, where nothing could take its place if XLA refuses it."""
        is_chosen = self.compiled and cudnn_choice.is_for_device(self._capability)
        return is_chosen and cudnn_choice.is_for_cache(self.settings.cache)

    def trusts_cudnn(self, q: Any, k: Any, scoring: Scoring) -> bool:
        return cudnn_trial.is_open() and cudnn_trial.agrees(self._actual_device, q, k, scoring)

    @property
    def interprets(self) -> bool:
        is_exact = self.precision != "bfloat16" and not self.checked
        return self.compiled and is_exact and self.reason_to_wait is None

    @cached_property
    def reason_to_wait(self) -> str | None:
        return first_tier.reason_to_wait(self._actual_device)

    @cached_property
    def _cutter(self) -> CupyCutter | None:
        return first_tier.cutter(self._actual_device)

    def first_tier(self, is_overtaken: Callable[[], bool], *, is_final: bool = False) -> FirstTier:
        device = self._actual_device
        return first_tier.first_tier(self, device, is_overtaken, is_final=is_final)

    def steps_on_numpy(self, *, is_final: bool = False) -> Backend | None:
        is_possible = self._is_on_cpu and self.interprets
        return super().steps_on_numpy(is_final=is_final) if is_possible else None

    def watches(self) -> bool:
        config: Any = jax.config
        return bool(config.jax_debug_nans or config.jax_debug_infs or config.jax_disable_jit)

    def is_here(self, array: Any) -> bool:
        return not isinstance(array, jax.Array) or array.sharding.device_set == {
            self._actual_device
        }

    def _jitted(self, replay: Replay, donated: Sequence[int]) -> Any:
        checks = self.settings.checks
        function = replay if checks is None else checks.reporting(replay)
        return jax.jit(function, donate_argnums=tuple(donated), compiler_options=EXACT)

    def _executable(
        self, replay: Replay, arguments: Sequence[Any], jitted: Any, built: Any
    ) -> Executable:
        checks = self.settings.checks
        specs = [self.spec(argument) for argument in arguments]
        if self._is_on_cpu:
            retain_results(bytes_made_anew(built))

        def run(*arrays: Any) -> Any:
            try:
                outputs = built(*arrays)
            except (TypeError, ValueError):
                # The arrays are on another device than those it was compiled for, or a key is
                # traced. Inside of another jit the options of that jit hold.
                if any(map(self.is_abstract, arrays)):
                    return jax.jit(replay)(*arrays)
                outputs = jitted(*map(self._placed, arrays))
            except Exception as error:
                nans.raise_found(error, replay, arrays)
            if checks is None:
                return outputs
            return checks.read(outputs, partial(_traced, jitted, specs))

        return Executable(run, partial(costs_of, built), listing=built.as_text)

    def _built(
        self, lower: Callable[[], Any], name: str | None, note: Callable[[str], None]
    ) -> tuple[Any, bool]:
        """The executable, and whether it is from the cache's folder; `note` gets workarounds."""
        folder, is_stored = self.settings.cache, False
        started = time.perf_counter()
        if folder is None:
            built, workaround = compiled(lower(), self._actual_device.platform)
            if workaround is not None:
                note(workaround)
        else:
            self._register_kernels()
            device = self._actual_device
            built, is_stored = folder.compiled(lower, name, self._entry_options, device, note)
        if time.perf_counter() - started > LONG_COMPILE:
            give_back_freed()
        return built, is_stored

    def _register_kernels(self) -> None:
        """Let XLA find oneDNN's kernels before it loads a stored program that calls them."""
        if self.fuses:
            in_programs.register()

    @property
    def _entry_options(self) -> dict[str, Any]:
        return {**EXACT, "depends on": self.identity}

    @property
    def identity(self) -> str:
        device = self._actual_device
        threads = self.settings.threads or threads_of_process()
        limit = [] if self.settings.threads is None else [f"threads={threads}"]
        cudnn = [cudnn_choice.identity()] if self.asks_cudnn else []
        return identity(
            *(device.platform, device.device_kind, self.precision, self.compiled, self.checked),
            kernels_of(threads) if self.fuses else "none",
            *(self.largest_value, *cudnn, *limit),
        )

    def _placed(self, array: Any) -> Any:
        is_elsewhere = self.settings.threads is not None and not self.is_abstract(array)
        return jax.device_put(array, self.device) if is_elsewhere else array

    def _stand_in(self, argument: Any) -> Any:
        is_placed = self.settings.threads is None
        if is_placed and not isinstance(argument, (Spec, jax.core.Tracer)):
            return argument
        place = None if self.device is None else SingleDeviceSharding(self.device)
        return jax.ShapeDtypeStruct(argument.shape, argument.dtype, sharding=place)

    def reserved(self) -> tuple[int, int]:
        return memory.reserved(self._actual_device)

    @cached_property
    def fuses(self) -> bool:  # type: ignore[override]  # an attribute of the base
        # The kernels do not round the factors.
        return self.compiled and self._is_on_cpu and self.precision != "bfloat16"

    @cached_property
    def reads_host_memory(self) -> bool:
        return self.compiled and self.takes_numpy and self._is_on_cpu

    @cached_property
    def is_only_for_cpus(self) -> bool:  # type: ignore[override]  # an attribute of the base
        return self.compiled and self._is_on_cpu

    @cached_property
    def _is_on_cpu(self) -> bool:
        return bool(self._actual_device.platform == "cpu")

    @cached_property
    def _capability(self) -> tuple[int, int] | None:
        return layouts.capability_of(self._actual_device)

    @property
    def _actual_device(self) -> jax.Device:
        """The backend's own device, or the one that JAX chooses."""
        return self.device or jax.devices()[0]

    def reads_filters_with_channels_last(self, x: Spec, weight: Spec) -> bool:
        return self.compiled and layouts.has_channels_last(x, weight, self._capability)

    def padding(self) -> Padding | None:
        return JaxPadding(cutter=lambda: self._cutter) if self.compiled else None


def _traced(function: Callable[..., Any], specs: Sequence[Spec]) -> Any:
    return jax.eval_shape(function, *(jax.ShapeDtypeStruct(*spec) for spec in specs))


def _restored(
    kind: type[JaxBackend], place: tuple[str, int] | None, jit: bool, settings: Settings
) -> Backend:
    """A pickled backend, on the device of this process with the same place."""
    return kind(kind.device_for(*place) if place else None, jit=jit, settings=settings)
