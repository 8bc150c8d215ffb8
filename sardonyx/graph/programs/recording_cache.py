"""Recordings kept in a folder: the next process replays at its first call, and traces nothing.

What is kept is the tree of stages (`recorded` writes it down), without what was compiled of them:
that has files of its own. What cannot be written is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import onnx

from sardonyx.backends.folder import Folder
from sardonyx.graph.checking.audit import all_nodes
from sardonyx.graph.ir import Node, Source
from sardonyx.graph.programs import recording_format
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.programs.stable_keys import name_of
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.programs.weight_preparation import Binding
from sardonyx.graph.values.kinds import digest
from sardonyx.graph.values.params import Constants, Weights, WeightStore, is_static

# With more bytes of constants they are a second copy of what the model's file has; and a tree with
# many ways through it grows with the data that it meets.
LARGEST = 2**24
MOST_WAYS = 16


class RecordingCache:
    """The recordings of one model, by the kinds of calls."""

    def __init__(
        self,
        folder: Folder,
        source: Source,
        params: WeightStore,
        constants: Constants,
        identity: str,
    ) -> None:
        self._folder = folder
        self._source = source
        self._params = params
        self._constants = constants
        self._identity = identity
        self._classes = folder.dataclasses

    def recall(self, recording: Recording, kind: Any) -> bool:
        """Go on from what was kept of calls like this one; False if there is nothing."""
        name = self._name(kind)
        if recording.root.following or name is None or not self._keeps(recording):
            return False
        content = self._folder.read(name)
        if content is None:
            return False
        try:
            root, read, finite = recording_format.read(
                content, self._nodes, self._params, self._classes
            )
            # Noted before it is compared, so that no replacement in between goes unnoticed.
            weights = self._params.now()
            for initializer in read:
                weights.note_read(initializer)
            is_same = read == self._read(read, weights) and finite == self._finite(finite, weights)
            if not is_same or not self._keeps(recording):
                return False
            stages = list(_all_stages(root))
        except Exception:  # Of things that are no more: it is traced.
            return False
        for stage in stages:
            stage.binding = self._placed(stage.binding)
        recording.root = root
        recording.settle()
        return True

    def keep(self, recording: Recording, kind: Any) -> None:
        """Leave what was recorded so far for the next process."""
        name = self._name(kind)
        stages = list(_all_stages(recording.root))
        ways = sum(stage.outputs is not None for stage in stages)
        held = sum(a.nbytes for stage in stages for a in stage.binding.constants.values())
        fits = ways <= MOST_WAYS and held <= LARGEST
        if name is None or not fits or not self._keeps(recording):
            return
        read = self._read(self._params.read_while_tracing, self._params.now())
        try:
            content = recording_format.written(
                (recording.root, read, dict(self._params.finite)), self._nodes, self._classes
            )
        except (recording_format.Unwritable, RecursionError):
            return
        if None not in read.values():
            self._folder.write(name, content)

    def _keeps(self, recording: Recording) -> bool:
        """Whether the recording follows from the model as it is in its file, and has a name."""
        return not recording.inline and not self._params.static_version and self._model is not None

    @property
    def is_sound(self) -> bool:
        """Whether another process has looked this model over."""
        return self._model is not None and self._folder.read(f"sound {self._model}") is not None

    def note_sound(self) -> None:
        """Let others know that it was looked over, and nothing is wrong with it."""
        if self._model is not None:
            self._folder.write(f"sound {self._model}", b"")

    @cached_property
    def _model(self) -> str | None:
        """A name for all that tracing knows of the model; None if it has no stable name."""
        graph = self._source.graph
        shapes = [(name, a.shape, a.dtype) for name, a in graph.initializers.items()]
        static = [a for a in graph.initializers.values() if is_static(a)]
        bare = replace(self._source, graph=replace(graph, initializers={}), metadata={})
        return name_of((bare, shapes, static, self._identity, onnx.__version__))

    def _name(self, kind: Any) -> str | None:
        name = name_of(kind)
        return None if name is None else f"recording {self._model} {name}"

    def _read(self, names: Iterable[str], weights: Weights) -> dict[str, str | None]:
        """What was read of weights while tracing, in short."""
        return {name: name_of(weights.host(name)) for name in sorted(names)}

    def _finite(self, names: Iterable[str], weights: Weights) -> dict[str, bool]:
        """Of weights whether they are finite, which decides how convolutions pad."""
        return {name: weights.is_finite(name) for name in names}

    @cached_property
    def _nodes(self) -> list[Node]:
        return [node for node, _ in all_nodes(self._source)]

    def _placed(self, binding: Binding) -> Binding:
        arrays = binding.constants
        placed = {r: self._constants.place(digest(arrays[r]), arrays[r]) for r in binding.placed}
        return replace(binding, placed=placed)


def _all_stages(root: Stage) -> Iterator[Stage]:
    for stage in root.following:
        yield stage
        yield from _all_stages(stage)
