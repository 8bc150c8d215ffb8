"""The registers of a program, and what tracing knows of their values."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.graph.tracing.steps import Embedded, Frame


class Registers:
    """Numbers the values of a program, and describes each."""

    def __init__(self) -> None:
        self.specs: dict[int, Spec] = {}
        # The caller's arrays, and the values of those that were read while tracing.
        self.inputs: set[int] = set()
        self.inputs_read: dict[int, np.ndarray[Any, Any]] = {}
        # The register of the random key.
        self.key = -1
        # The names of the weights.
        self.weights: dict[int, str] = {}
        # The constants: each on the host, and the array that steps take in its place.
        self.constants: dict[int, np.ndarray[Any, Any]] = {}
        self.placed: dict[int, Any] = {}
        # The constants that are written into steps, by digest; these have no register.
        self.embedded: dict[Any, Embedded] = {}
        # Whether these may have several elements: otherwise they are the same for all sizes.
        self.embeds_arrays = True
        # The arrays of the traced call.
        self.frame: Frame = {}
        self.count = 0
        self._last_of_rewrites = -1

    @property
    def input_specs(self) -> list[Spec]:
        """The shapes and dtypes of the caller's arrays."""
        return [self.specs[register] for register in sorted(self.inputs)]

    def new(self, spec: Spec) -> int:
        """Return a register for a value of this shape and dtype."""
        register = self.count
        self.count += 1
        self.specs[register] = spec
        return register

    def new_for_rewrite(self, spec: Spec) -> int:
        """Return a register for a rewrite, valid in its own segment only.

        These count down from -2: a path that was recorded before is not rewritten again, and all
        other registers must have the same numbers there.
        """
        self._last_of_rewrites -= 1
        self.specs[self._last_of_rewrites] = spec
        return self._last_of_rewrites

    def before_rewrites(self) -> Registers:
        """Return the same registers without those of rewrites, for other rewrites."""
        registers = copy(self)
        registers.specs = {r: spec for r, spec in self.specs.items() if r >= 0}
        registers.placed = dict(self.placed)
        registers._last_of_rewrites = -1
        return registers
