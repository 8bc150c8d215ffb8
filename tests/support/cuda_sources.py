"""The CUDA sources that segments are fused into, without CuPy and without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.backends.executable import Executable, Spec
from sardonyx.backends.fusion.kernel_source import KernelSource
from sardonyx.backends.fusion.program import Launch, fused
from sardonyx.backends.numpy import HOST, NumpyBackend


class Sources:
    """A library that compiles nothing, and keeps the kernels that it is asked for."""

    def __init__(self) -> None:
        self.sources: list[KernelSource] = []

    def spec(self, value: Any) -> Spec:
        return HOST.spec(value)

    place = shield = staticmethod(HOST.put)

    def contiguous(self, array: Any, alignment: int) -> Any:
        return array

    def blank(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return np.zeros(shape, dtype)

    def launcher(self, source: KernelSource) -> Launch:
        self.sources.append(source)
        return lambda arrays: None


class SourcesBackend(NumpyBackend):
    """NumPy, which keeps the kernels that CuPy would run each segment with."""

    def __init__(self) -> None:
        super().__init__()
        self.library = Sources()

    def bind(
        self,
        replay: Callable[..., Sequence[Any]],
        arguments: Sequence[Any],
        note: Callable[[str], None],
    ) -> Executable:
        try:
            fused(replay, arguments, self.library)
        except Exception as error:
            note(f"{type(error).__name__}: {error}")
        return super().bind(replay, arguments, note)
