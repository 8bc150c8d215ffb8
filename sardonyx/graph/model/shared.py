"""The state of a loaded model, which its forms share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from secrets import randbits
from threading import Lock
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.graph.buckets.sizes import Sizes
from sardonyx.graph.ir import Source
from sardonyx.graph.programs.compiler import NOW, Compiler, Watch
from sardonyx.graph.tracing.scope_names import function_name
from sardonyx.graph.tracing.shape_inference import Inferred
from sardonyx.graph.tracing.tracer import Tracer
from sardonyx.graph.values.params import Constants, WeightStore


@dataclass(frozen=True, eq=False, slots=True)
class Options:
    """The options that a model was loaded with, besides its backend."""

    strict: bool = True
    max_signatures: int = 256
    buckets: Sizes | None = None
    watch: Watch = nullcontext
    checked: bool = False
    # When programs are compiled; one of the compiler's modes.
    compile: str | None = NOW
    # What walks the graph; a kind of Tracer.
    tracer: Callable[..., Tracer] = Tracer


DEFAULTS = Options()


class Shared:
    """Options, weights, constants and compiled programs of one model."""

    def __init__(self, source: Source, backend: Backend, options: Options) -> None:
        self.backend = backend
        self.options = options
        self.weights = WeightStore(source.graph.initializers, backend)
        self.constants = Constants(backend)
        title = function_name(source.graph.name)
        self.compiler = Compiler(backend, options.watch, options.compile, title)
        self.inferred = Inferred(backend)
        self.lock = Lock()
        self._draws = count()
        self._entropy = randbits(32)

    def fresh_key(self) -> Any:
        """Return a random key that no call has used."""
        return self.backend.key(np.asarray([self._entropy, next(self._draws)], np.uint32))
