"""The registers of a program, and what tracing knows of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.graph.tracing.steps import Embedded, Frame


class Registers:
    """Numbers for the values of a program, and what is in each."""

    def __init__(self) -> None:
        self.specs: dict[int, Spec] = {}
        # The caller's arrays, and the values of those for whose values the program was recorded.
        self.inputs: set[int] = set()
        self.inputs_read: dict[int, np.ndarray[Any, Any]] = {}
        # The key to draw at random from.
        self.key = -1
        # The names of the weights.
        self.weights: dict[int, str] = {}
        # The constants: each on the host, and the array that steps take in its place.
        self.constants: dict[int, np.ndarray[Any, Any]] = {}
        self.placed: dict[int, Any] = {}
        # The constants that stand in the steps themselves, by digest; these have no register.
        self.embedded: dict[Any, Embedded] = {}
        # The arrays of the call that is traced.
        self.frame: Frame = {}
        self.count = 0
        self._last_of_rewrites = -1

    def new(self, spec: Spec) -> int:
        """A register for a value of this shape and dtype."""
        register = self.count
        self.count += 1
        self.specs[register] = spec
        return register

    def new_for_rewrite(self, spec: Spec) -> int:
        """One for a rewrite, of use in its segment alone.

        They are counted apart: a path that was recorded before is not rewritten again, and the
        other registers must have the same numbers there.
        """
        self._last_of_rewrites -= 1
        self.specs[self._last_of_rewrites] = spec
        return self._last_of_rewrites
