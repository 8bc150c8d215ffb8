"""Calls of one signature that run the function of all sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.backends import blas_choice
from sardonyx.backends.blas_choice import BlasChoice
from sardonyx.graph.buckets.formulas import SizeVector
from sardonyx.graph.buckets.written_sizes import SizedFunction, WrittenSizes
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.values.params import Weights
from sardonyx.stopping import stop_if_asked


class SizedCall:
    """Runs calls of these sizes, until something else has to."""

    def __init__(
        self,
        written: WrittenSizes,
        sizes: SizeVector,
        note_time: Callable[[float], bool] | None,
        choice: BlasChoice | None = None,
    ) -> None:
        self._written = written
        # Of calls that grow one by one, so that their times can be compared.
        self._choice = choice
        self._sizes = sizes
        self._note_time = note_time
        # Whether the stages run from now on, which compile by themselves.
        self._is_over = False
        # With the version of the weights that it is for; threads replace both together.
        self._bound: tuple[int, SizedFunction] | None = None

    def run(
        self, inputs: Sequence[Any], weights: Weights, compiler: Compiler
    ) -> Sequence[Any] | None:
        """Return the outputs; None if the stages have to run from now on."""
        stop_if_asked()
        start, written = time.monotonic(), self._written
        backend = written.backend
        if self._is_over:
            return None
        passed = [inputs[i] for i in written.registers.inputs]
        if not all(type(array) is np.ndarray for array in passed):
            if not all(map(backend.is_here, passed)):
                return None
            passed = [backend.fetch(array) if backend.owns(array) else array for array in passed]
        function = self._function(weights)
        results = None if function is None else self._results(function, passed)
        if results is None:
            return None
        if not backend.reads_host_memory:
            results = list(map(backend.put, results))
        if backend.compiled:
            compiler.note_interpreted()
        else:
            for result in results:
                result.flags.writeable = True  # It is the caller's, as any result of NumPy.
        if self._note_time is not None and self._note_time(time.monotonic() - start):
            self._is_over = True
        return written.outputs_of(inputs, results)

    def _results(self, function: SizedFunction, passed: Sequence[Any]) -> Sequence[Any] | None:
        choice = self._choice
        if choice is None:
            return function.results(passed)
        is_alone, start = choice.begin(), time.monotonic()
        with blas_choice.scope(is_alone=is_alone):
            results = function.results(passed)
        choice.note(time.monotonic() - start, is_alone=is_alone)
        return results

    def output_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the outputs, as far as a call has told them."""
        if self._bound is None:
            return []
        return [spec.shape for spec in self._bound[1].expected]

    def _function(self, weights: Weights) -> SizedFunction | None:
        bound = self._bound
        if bound is None or bound[0] != weights.version:
            function = self._written.function(self._sizes, weights)
            if function is None:
                return None
            bound = self._bound = weights.version, function
        return bound[1]
