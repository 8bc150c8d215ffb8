"""Backends that count compilations, so that tests can tell a replay from a recording."""

from __future__ import annotations

from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Executable, Spec
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import NumpyBackend


class Counts:
    """Adds counters to a backend: `compilations` of segments, and `looks` at arrays.

    Arrays are looked at, for their shapes and dtypes, only while recording.
    """

    compilations = 0
    looks = 0

    def compile(self, *arguments: Any, **donated: Any) -> Executable:
        self.compilations += 1
        result: Executable = super().compile(*arguments, **donated)  # type: ignore[misc]
        return result

    def spec(self, value: Any) -> Spec:
        self.looks += 1
        result: Spec = super().spec(value)  # type: ignore[misc]
        return result


class CountingNumpy(Counts, NumpyBackend):
    pass


class CountingJax(Counts, JaxBackend):
    pass


COUNTING: tuple[type[Backend], ...] = (CountingNumpy, CountingJax)
