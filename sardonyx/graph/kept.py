"""Recordings kept in a folder: the next process replays at its first call, and traces nothing.

What is kept is the tree of stages, without what was compiled of them: that has files of its own.
Some things are written by name, since they are the next process's own: nodes of the model,
functions of this package, weights. What cannot be written so is not kept.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, cached_property
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import onnx

from sardonyx.backends.base import Executable, Spec
from sardonyx.backends.folder import Folder
from sardonyx.graph.calls import HOLE
from sardonyx.graph.loading.audit import all_nodes
from sardonyx.graph.naming import name_of
from sardonyx.graph.params import Constants, Params, is_static
from sardonyx.graph.preparation import Binding
from sardonyx.graph.replay import Recording
from sardonyx.graph.stages import Stage
from sardonyx.graph.structure import Node, Source
from sardonyx.graph.values import Weight, digest
from sardonyx.ops import OPS
from sardonyx.ops.definition import Op

# With more bytes of constants they are a second copy of what the model's file has; and a tree with
# many ways through it grows with the data that it meets.
LARGEST = 2**24
MOST_WAYS = 16


class KeptRecordings:
    """The recordings of one model, by the kinds of calls."""

    def __init__(
        self, folder: Folder, source: Source, params: Params, constants: Constants, manner: str
    ) -> None:
        self._folder = folder
        self._source = source
        self._params = params
        self._constants = constants
        self._manner = manner

    def recall(self, recording: Recording, kind: Any) -> bool:
        """Go on from what was kept of calls like this one; False if there is nothing."""
        if recording.root.following or not self._keeps(recording):
            return False
        kept = self._folder.kept(self._name(kind))
        try:
            content, read, finite, draws = kept
            if read != self._read(read) or finite != self._finite(finite):
                return False
            root = _Reader(io.BytesIO(content), self._nodes, self._params).load()
        except Exception:  # Nothing, or damaged, or of things that are no more: it is traced.
            return False
        for stage in _all_stages(root):
            stage.binding = self._placed(stage.binding)
        self._params.read_while_tracing.update(read)
        root.draws = draws
        recording.root = root
        recording.settle()
        return True

    def keep(self, recording: Recording, kind: Any) -> None:
        """Leave what was recorded so far for the next process."""
        stages = list(_all_stages(recording.root))
        ways = sum(stage.outputs is not None for stage in stages)
        held = sum(a.nbytes for stage in stages for a in stage.binding.constants.values())
        if ways > MOST_WAYS or held > LARGEST or not self._keeps(recording):
            return
        written = io.BytesIO()
        try:
            _Writer(written, self._nodes).dump(recording.root)
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
            return
        read = self._read(self._params.read_while_tracing)
        kept = written.getvalue(), read, dict(self._params.finite), recording.root.draws
        self._folder.keep(self._name(kind), kept)

    def _keeps(self, recording: Recording) -> bool:
        """Whether the recording follows from the model as it is in its file, and has a name."""
        return not recording.inline and not self._params.static_version and self._model is not None

    @property
    def is_sound(self) -> bool:
        """Whether another process has looked this model over."""
        return self._model is not None and self._folder.kept(f"sound {self._model}") is True

    def note_sound(self) -> None:
        """Let others know that it was looked over, and nothing is wrong with it."""
        if self._model is not None:
            self._folder.keep(f"sound {self._model}", True)

    @cached_property
    def _model(self) -> str | None:
        """A name for all that tracing knows of the model; None if it cannot be told."""
        graph = self._source.graph
        shapes = [(name, a.shape, a.dtype) for name, a in graph.initializers.items()]
        static = [a for a in graph.initializers.values() if is_static(a)]
        bare = replace(self._source, graph=replace(graph, initializers={}), metadata={})
        return name_of((bare, shapes, static, self._manner, onnx.__version__))

    def _name(self, kind: Any) -> str:
        return f"recording {self._model} {name_of(kind)}"

    def _read(self, names: Iterable[str]) -> dict[str, str | None]:
        """What was read of weights while tracing, in short."""
        return {name: name_of(self._params.host(name)) for name in sorted(names)}

    def _finite(self, names: Iterable[str]) -> dict[str, bool]:
        """Of weights whether they are finite, which decides how convolutions pad."""
        weights = self._params.now()
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


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, nodes: list[Node]) -> None:
        super().__init__(file)
        self._places = {id(node): place for place, node in enumerate(nodes)}

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Node):
            place = self._places.get(id(value))
            return None if place is None else ("node", place)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, Weight):
            return "weight", value.register, tuple(value.spec), value.name
        if isinstance(value, Executable):
            return ("nothing",)
        return ("hole",) if value is HOLE else None

    def _function(self, function: FunctionType) -> Any:
        meaning = _meanings().get(function)
        if meaning is not None:
            return "meaning", *meaning
        name = function.__module__, function.__qualname__, function.__code__.co_firstlineno
        if _function(*name) is not function:
            raise pickle.PicklingError(f"{function.__qualname__} cannot be found by its name")
        return "function", *name

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Binding):
            return Binding, (
                value.weights,
                value.constants,
                dict.fromkeys(value.placed),
                value.prepared,
                value.specs,
                value.packs,
                value.loose,
            )
        if isinstance(value, (Op, ModuleType)):
            raise pickle.PicklingError(f"{value} belongs to this process")
        return NotImplemented


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, nodes: list[Node], params: Params) -> None:
        super().__init__(file)
        self._nodes = nodes
        self._params = params

    def persistent_load(self, name: Any) -> Any:
        kind, *about = name
        return getattr(self, f"_{kind}")(*about)

    def _node(self, place: int) -> Node:
        return self._nodes[place]

    def _meaning(self, key: tuple[str, str], place: int) -> Any:
        return OPS[key].definitions[place][1].function

    def _function(self, module: str, name: str, line: int) -> Any:
        found = _function(module, name, line)
        if found is None:
            raise pickle.UnpicklingError(f"{name} is no more")
        return found

    def _weight(self, register: int, spec: Any, name: str) -> Weight:
        return Weight(register, Spec(*spec), name=name, host=self._params.host(name))

    def _nothing(self) -> None:
        return None

    def _hole(self) -> object:
        return HOLE


@cache
def _meanings() -> Mapping[Any, tuple[tuple[str, str], int]]:
    """The functions of operators: whose they are, and which of its meanings, oldest first."""
    return {
        definition.function: (key, place)
        for key, op in OPS.items()
        for place, (_, definition) in enumerate(op.definitions)
    }


def _function(module: str, name: str, line: int) -> Any:
    """A function of the package by where it stands."""
    if not module.startswith("sardonyx."):
        return None
    found = getattr(import_module(module), name, None)
    is_there = isinstance(found, FunctionType) and found.__code__.co_firstlineno == line
    return found if is_there else None
