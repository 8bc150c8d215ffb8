"""The state of a loaded model: all that its forms have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from secrets import randbits
from threading import Lock
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.graph.buckets.sizes import Sizes
from sardonyx.graph.ir import Source
from sardonyx.graph.programs.compiler import Compiler, Watch, unwatched
from sardonyx.graph.tracing.shape_inference import Inferred
from sardonyx.graph.values.params import Constants, WeightStore


@dataclass(frozen=True, eq=False, slots=True)
class Options:
    """The options that a model was loaded with, besides its backend."""

    strict: bool = True
    max_signatures: int = 256
    buckets: Sizes | None = None
    watch: Watch = unwatched
    checked: bool = False


DEFAULTS = Options()


@dataclass(frozen=True, eq=False, slots=True)
class Shared:
    """Weights, constants and compiled programs of one model, and how it runs them."""

    backend: Backend
    options: Options
    weights: WeightStore
    constants: Constants
    compiler: Compiler
    inferred: Inferred
    lock: Lock = field(default_factory=Lock)
    _draws: Any = field(default_factory=count)
    _entropy: int = field(default_factory=lambda: randbits(32))

    @classmethod
    def of(cls, source: Source, backend: Backend, options: Options) -> Shared:
        """The state of a model that has not been called yet."""
        return cls(
            backend,
            options,
            WeightStore(source.graph.initializers, backend),
            Constants(backend),
            Compiler(backend, options.watch),
            Inferred(backend),
        )

    def fresh_key(self) -> Any:
        """A key that no call has drawn from yet."""
        return self.backend.key(np.asarray([self._entropy, next(self._draws)], np.uint32))
