"""`CompiledModel`: the base class of exported and sharded models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.array_interop import stand_ins
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.model.interface import CallOptions, LoadedModel, RunCall
from sardonyx.graph.model.stats import Stats
from sardonyx.logs import Log

_LOG = Log("compiling")

P = TypeVar("P")


class CompiledModel(LoadedModel):
    """A model that is compiled as a whole, one program per signature; it runs its calls itself."""

    # Members of `Model` that such a model cannot have, and what to use.
    _absent: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self, inputs: tuple[ValueInfo, ...], outputs: tuple[ValueInfo, ...], backend: Backend
    ) -> None:
        super().__init__(inputs, outputs, backend)
        self._programs: dict[Any, Any] = {}
        self._lock = RLock()
        self._calls = self._missed = self._compiles = 0
        self._seconds = 0.0

    if not TYPE_CHECKING:  # A type checker refuses the absent members by itself.

        def __getattr__(self, name: str) -> Any:
            if name in self._absent:
                kind = type(self).__name__
                raise AttributeError(f"{kind} has no attribute '{name}': {self._absent[name]}")
            return super().__getattr__(name)

    # -- calls ------------------------------------------------------------------------------------

    def _donated(self, patterns: tuple[str, ...]) -> tuple[str, ...]:
        if patterns:
            raise InvalidInput(
                f"{type(self).__name__} cannot donate inputs: leave out donate=, or load the ONNX "
                "model itself."
            )
        return ()

    def _run_call_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> RunCall:
        return self._outputs

    def _outputs(
        self,
        inputs: Sequence[Any],
        named: Mapping[str, Any],
        options: CallOptions,
        *,
        to_numpy: bool = False,
    ) -> Sequence[Any]:
        values = self._values(inputs, named, options.key)
        return [np.asarray(value) for value in values] if to_numpy else values

    def _values(self, inputs: Sequence[Any], named: Mapping[str, Any], key: Any) -> Sequence[Any]:
        """The outputs of a call."""
        raise NotImplementedError

    # -- programs ---------------------------------------------------------------------------------

    def compile(self, *signatures: Mapping[str, Any]) -> None:
        """Compile for inputs of these shapes before the first call, as `Model.compile` does."""
        for signature in signatures:
            self._prepare(stand_ins(signature, self._infos))

    def _prepare(self, named: Mapping[str, Any]) -> Any:
        """The compiled program for such inputs."""
        raise NotImplementedError

    def _timed(self, build: Callable[[], P]) -> P:
        start = time.perf_counter()
        program = build()
        seconds = time.perf_counter() - start
        self._seconds += seconds
        self._compiles += 1
        _LOG.info("Compiled a whole program in %.2f s while the caller waited.", seconds)
        return program

    def stats(self) -> Stats:
        """Counts of calls, compiles and hits since the load, and the bytes held."""
        return Stats(
            calls=self._calls,
            hits=self._calls - self._missed,
            signatures=len(self._programs),
            evictions=0,
            traces=self._compiles,
            compiles=self._compiles,
            shared=0,
            compile_seconds=self._seconds,
            written_out=0,
            interpreted=0,
            uninterpreted={},
            unfused={},
            uncaptured={},
            workarounds={},
            bytes_held=self._bytes_held(),
        )

    def _bytes_held(self) -> int:
        """The bytes of the weights on the devices of this process."""
        raise NotImplementedError

    def release(self) -> None:
        """Free the compiled programs. The model can still be called."""
        self._call_threads.release()
        with self._lock:
            self._programs.clear()
