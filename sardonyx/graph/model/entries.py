"""What a model keeps for the kinds of calls that it has met, up to a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import is_
from threading import Lock
from typing import Any

import numpy as np

from sardonyx.graph.calls.array_interop import Convert, check_input, exporter, importer, leaf_of
from sardonyx.graph.calls.nested_values import as_dicts, each, flat
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.values.kinds import Static
from sardonyx.graph.values.params import Constants, Weights
from sardonyx.ops.definition import Map, MapRows


@dataclass(eq=False, slots=True)
class Entry:
    """What is kept for calls of one signature: how arrays enter, the recording, how they leave."""

    importers: tuple[Convert | None, ...] | None
    recording: Recording
    exporter: Convert
    to_numpy: bool
    # Whether each input is one array, not a sequence, a map or absent.
    is_flat: bool
    static_version: int
    # The number of the last call that came this way.
    used: int = 0

    @classmethod
    def of(
        cls, given: Sequence[Any], infos: Sequence[ValueInfo], compiler: Compiler, weights: Weights
    ) -> Entry:
        """The entry for calls with arrays like these; they are checked against the model."""
        backend = compiler.backend
        pairs = [
            (leaf, leaf_of(info))
            for value, info in zip(given, infos, strict=True)
            for leaf in flat([value])
        ]
        leaves = [leaf for leaf, _ in pairs]
        is_numpy = all(isinstance(leaf, np.ndarray) for leaf in leaves)
        importers = tuple(
            importer(leaf, info, backend, copies=not is_numpy) for leaf, info in pairs
        )
        sizes: dict[str, int] = {}
        with backend.scope():
            for (leaf, info), convert in zip(pairs, importers, strict=True):
                array = leaf if convert is None else convert(leaf)
                check_input(backend.spec(array), info, sizes)
        inline = any(backend.is_abstract(leaf) for leaf in leaves)
        return cls(
            importers if any(importers) else None,
            Recording(compiler, inline),
            exporter(leaves, backend),
            is_numpy,
            len(leaves) == len(given) and all(map(is_, leaves, given)),
            weights.static_version,
        )

    def leaving(
        self, output: Any, given: Sequence[Any], arrays: Sequence[Any], constants: Constants
    ) -> Any:
        """An output in the caller's library; what the caller passed is that very object."""
        if output is None or isinstance(output, (list, Map, MapRows)):
            left = partial(self._left, given=given, arrays=arrays, constants=constants)
            return as_dicts(each(left, output))
        return self._left(output, given, arrays, constants)

    def _left(
        self, array: Any, given: Sequence[Any], arrays: Sequence[Any], constants: Constants
    ) -> Any:
        if isinstance(array, Static):
            found = array.value
            return found if self.to_numpy else self.exporter(constants.leaving(found))
        if given is not arrays:
            for original, imported in zip(flat(given), flat(arrays), strict=True):
                if array is imported:
                    return original
        return self.exporter(array)


@dataclass(eq=False, slots=True)
class Entries:
    """The entries by signature; of more than `most` those that no call has used for longest go."""

    most: int
    known: dict[Any, Entry] = field(default_factory=dict)
    calls: int = 0
    # Calls that had to record something.
    missed: int = 0
    evicted: int = 0
    _lock: Lock = field(default_factory=Lock)

    def keep(self, key: Any, entry: Entry) -> Entry:
        """Remember an entry, and forget others where there are too many.

        Returns the entry that is remembered: another thread may have been faster.
        """
        with self._lock:
            known = self.known.get(key)
            if known is not None and known.static_version >= entry.static_version:
                return known
            self.known[key] = entry
            entry.used = self.calls
            while len(self.known) > self.most:
                oldest = min(list(self.known.items()), key=lambda item: item[1].used)[0]
                if self.known.pop(oldest, None) is not None:
                    self.evicted += 1
            return entry

    def forget_before(self, static_version: int) -> None:
        """Forget what was recorded for other values of params that tracing reads."""
        with self._lock:
            for key, entry in list(self.known.items()):
                if entry.static_version < static_version:
                    del self.known[key]

    def clear(self) -> None:
        with self._lock:
            self.known.clear()
