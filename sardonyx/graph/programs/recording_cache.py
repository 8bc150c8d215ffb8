"""Recordings on disk: the next process replays at its first call, and traces nothing.

A recording is written as a tree of stages, without its compiled segments, which have files of their
own. Recordings that `recording_format` cannot write are not cached.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeAlias

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
from sardonyx.logs import Log, Once
from sardonyx.printable import first_line

_LOG = Log("cache")
# Maximum bytes of constants: larger ones would be a second copy of the model's file.
LARGEST = 2**24
# Maximum number of paths: a tree with more of them grows with the data of the calls.
MOST_PATHS = 16

# The first stage, digests of the weights that were read, and whether weights are finite.
_Tree: TypeAlias = tuple[Stage, dict[str, str | None], dict[str, bool]]


class RecordingCache:
    """The cached recordings of one model, by the kinds of calls."""

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
        self._missed = Once()

    def recall(self, recording: Recording, kind: Any) -> bool:
        """Continue from a cached recording of such calls; return False if there is none."""
        name = self._name(kind)
        if name is None or recording.root.following or not self._is_cacheable(recording):
            return False
        root = self._read(name)
        if root is None or not self._is_cacheable(recording):
            return False
        for stage in _all_stages(root):
            stage.from_numpy = recording.from_numpy
        recording.tree = root
        recording.settle()
        _LOG.debug("Cache hit: recording %s of %s, no trace is needed.", *self._words(name))
        return True

    def _read(self, name: str) -> Stage | None:
        """Return the first stage of a recording; None if no entry holds for this model."""
        content = self._folder.read(name)
        if content is None:
            # A call whose sizes may get a bucket is looked up twice.
            if self._missed.is_new(name):
                _LOG.debug("Cache miss: no recording %s in %s.", *self._words(name))
            return None
        try:
            root = self._root(content)
        except Exception as error:  # It refers to something that no longer exists.
            reason = partial(first_line, error)
            _LOG.info("Recording %s of %s cannot be used: %s.", *self._words(name), reason)
            return None
        if root is None:
            text = "Recording %s of %s is for other values of weights."
            _LOG.info(text, *self._words(name))
        return root

    def _words(self, name: str) -> tuple[str, str]:
        """Return the ends of a long name, and the place of the cache."""
        return name.rpartition(" ")[2][:12], str(self._folder.path)

    def _root(self, content: bytes) -> Stage | None:
        """Return the tree that was written; None if it does not hold for the present weights."""
        tree: _Tree = recording_format.read(content, self._nodes, self._params, self._classes)
        root, read, finite = tree
        # Noted before the comparison, so that a replacement in between invalidates the recording.
        weights = self._params.now()
        for initializer in read:
            weights.note_read(initializer)
        is_same = read == self._digests(read, weights)
        if not is_same or finite != {name: weights.is_finite(name) for name in finite}:
            return None
        for stage in _all_stages(root):
            stage.binding = self._placed(stage.binding)
        return root

    def keep(self, recording: Recording, kind: Any) -> None:
        """Write what was recorded so far for other processes."""
        name = self._name(kind)
        stages = list(_all_stages(recording.root))
        paths = sum(stage.outputs is not None for stage in stages)
        size = sum(a.nbytes for stage in stages for a in stage.binding.constants.values())
        fits = paths <= MOST_PATHS and size <= LARGEST
        if name is None or not fits or not self._is_cacheable(recording):
            return
        read = self._digests(self._params.read_while_tracing, self._params.now())
        tree: _Tree = recording.root, read, dict(self._params.finite)
        try:
            content = recording_format.written(tree, self._nodes, self._classes)
        except (recording_format.Unwritable, RecursionError) as error:
            reason = partial(first_line, error)
            _LOG.debug("Recording %s is not cached in %s: %s.", *self._words(name), reason)
            return
        if None not in read.values():
            self._folder.write(name, content)
            self._missed.forget(name)

    def _is_cacheable(self, recording: Recording) -> bool:
        """Whether the model has a stable name, and no replaced weight decided the recording."""
        return not recording.inline and not self._params.static_version and self._model is not None

    @property
    def is_sound(self) -> bool:
        """Whether another process has checked this model."""
        return self._model is not None and self._folder.read(f"sound {self._model}") is not None

    def note_sound(self) -> None:
        """Record for other processes that the model was checked and is valid."""
        if self._model is not None:
            self._folder.write(f"sound {self._model}", b"")

    @property
    def misfit(self) -> str | None:
        """Why a file lacks this model, to complete "it was compiled ..."; None if it does not."""
        return None if self.is_sound else self._folder.misfit(self._identity)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the folder's entries to one file, which `load` takes as a cache."""
        self._folder.save(path, self._identity)

    @cached_property
    def _model(self) -> str | None:
        """A name for all that tracing depends on in the model; None if there is no stable one."""
        graph = self._source.graph
        shapes = [(name, a.shape, a.dtype) for name, a in graph.initializers.items()]
        static = [a for a in graph.initializers.values() if is_static(a)]
        bare = replace(
            self._source, graph=replace(graph, initializers={}), metadata={}, written=b"", file=None
        )
        return name_of((bare, shapes, static, self._identity, onnx.__version__))

    def _name(self, kind: Any) -> str | None:
        name = name_of(kind)
        return None if name is None else f"recording {self._model} {name}"

    def _digests(self, names: Iterable[str], weights: Weights) -> dict[str, str | None]:
        """Return digests of the weights that were read while tracing."""
        return {name: name_of(weights.content(name)) for name in sorted(names)}

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
