"""What serves the calls of a form whose sizes change, by the option `buckets` and the backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, TypeAlias

from sardonyx.backends.padding.protocols import Padding
from sardonyx.graph.buckets.automatic_calls import AutomaticCalls
from sardonyx.graph.buckets.derived_calls import DerivedCalls
from sardonyx.graph.buckets.foreseen import Foresight
from sardonyx.graph.buckets.programs import Buckets
from sardonyx.graph.buckets.recording import PaddedCalls
from sardonyx.graph.buckets.sampled_traces import SampledTraces
from sardonyx.graph.buckets.sizes import Sizes
from sardonyx.graph.buckets.unnamed import UnnamedCalls
from sardonyx.graph.ir import Source, ValueInfo
from sardonyx.graph.model.shared import Shared
from sardonyx.graph.model.weak_methods import weakly
from sardonyx.graph.programs.compiler import NEVER
from sardonyx.graph.programs.replay import Recording

ServedCalls: TypeAlias = PaddedCalls | AutomaticCalls | DerivedCalls | UnnamedCalls


@dataclass(frozen=True, eq=False)
class Serving:
    """Chooses what serves calls; it pads them if programs are compiled."""

    source: Source
    shared: Shared
    infos: Sequence[ValueInfo]
    # Methods of the form: one traces a call without running it, into the recorder that it gets;
    # the other fills a recording, if another process has recorded such a call.
    trace: Callable[..., Any]
    recall: Callable[[Recording, Sequence[Any]], bool]
    # Held while calls are traced for buckets.
    lock: Lock

    def chosen(self) -> ServedCalls | None:
        """Return what serves all calls of the form; None if each size is traced by itself."""
        sizes, backend = self.shared.options.buckets, self.shared.backend
        if not sizes:
            return None
        padding = backend.padding()
        # NumPy runs all sizes without compiling, so that nothing needs padding.
        if padding is None or self.shared.compiler.mode == NEVER:
            runs_steps = backend.compiled or backend.follows_numpy
            return self._derived() if runs_steps else None
        new_buckets = partial(self._new_buckets, padding)
        if sizes.are_automatic:
            derived = self._derived(), Foresight.of(self.infos, self.source.graph)
            return AutomaticCalls(new_buckets, self.infos, self.recall, *derived)
        if sizes.unnamed:
            return UnnamedCalls(new_buckets, sizes, self.infos)
        return PaddedCalls(new_buckets(sizes), self.infos)

    def _derived(self) -> DerivedCalls:
        shared, rewrites = self.shared, self.source.rewrites
        samples = shared.backend, shared.constants, weakly(self.trace), rewrites
        return DerivedCalls(partial(SampledTraces, *samples), self.infos, weakly(self.recall))

    def _new_buckets(self, padding: Padding, sizes: Sizes) -> Buckets:
        compiler, constants = self.shared.compiler, self.shared.constants
        rewrites = self.source.rewrites
        return Buckets(sizes, padding, compiler, constants, self.trace, self.lock, rewrites)
