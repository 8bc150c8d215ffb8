"""When a fused segment is captured, and which graph a call replays."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cupy

from sardonyx.backends.captures import Captures
from sardonyx.backends.cupy.captured_segment import CapturedSegment
from sardonyx.backends.cupy.graph_memory import GraphMemory, NotCaptured
from sardonyx.backends.cupy.messages import is_out_of_memory
from sardonyx.backends.fusion.program import Program

# A segment is captured on so many streams.
MOST_STREAMS = 8
# So often a capture may run out of memory, which others may free later.
MOST_EXHAUSTED = 3


@dataclass(eq=False, slots=True)
class _OnStream:
    """What is known of a segment's calls on one stream."""

    memory: GraphMemory
    # The identities of the weights of the last call without a graph.
    weights: tuple[int, ...] | None = None
    graph: CapturedSegment | None = None


class SegmentGraphs:
    """The graphs of one segment, each for the stream that its calls were on.

    A graph is captured when a call follows another one with the same weights.
    """

    def __init__(self, program: Program, inputs: int, captures: Captures) -> None:
        self._program = program
        self._inputs = inputs
        self._captures = captures
        self._on: dict[Hashable, _OnStream] = {}
        self._is_refused = False
        self._exhausted = 0
        reason = refusal(program, inputs)
        if reason is not None:
            self._refuse(reason)
        captures.add(self)

    def replay(self, arrays: Sequence[Any], stream: Hashable) -> list[Any] | None:
        """Return the results of a graph for the current stream; None if there is none to use."""
        if self._is_refused or stream is None:
            return None
        known = self._on.get(stream)
        if known is None:
            known = self._added(stream)
        lock = known.memory.lock
        if not lock.acquire(blocking=False):
            return None
        try:
            graph = self._graph(known, arrays)
            if graph is None:
                return None
            graph.used = self._captures.turn()
            return graph.replay(arrays)
        finally:
            lock.release()

    def _added(self, stream: Hashable) -> _OnStream:
        while len(self._on) >= MOST_STREAMS:
            self._on.pop(next(iter(self._on), None), None)
        memory = self._captures.shared(stream, new_memory)
        return self._on.setdefault(stream, _OnStream(memory))

    def _graph(self, known: _OnStream, arrays: Sequence[Any]) -> CapturedSegment | None:
        weights, graph = arrays[self._inputs :], known.graph
        if graph is not None and graph.reads_weights(weights):
            return graph
        known.graph = graph = None
        identities = tuple(map(id, weights))
        if known.weights != identities:
            known.weights = identities
            return None
        if not self._captures.make_room():
            known.weights = None
            return None
        known.graph = graph = self._captured(arrays, known.memory)
        return graph

    def _captured(self, arrays: Sequence[Any], memory: GraphMemory) -> CapturedSegment | None:
        try:
            graph = CapturedSegment(self._program, arrays, self._inputs, memory)
        except Exception as error:
            # Whatever the reason is, the kernels one by one are right.
            if is_out_of_memory(error):
                self._exhausted += 1
                if self._exhausted < MOST_EXHAUSTED:
                    return None
            is_signal = isinstance(error, NotCaptured)
            self._refuse(str(error) if is_signal else f"{type(error).__name__}: {error}")
            return None
        # Replays leave the program's own arenas alone.
        self._program.release()
        return graph

    def _refuse(self, reason: str) -> None:
        self._is_refused = True
        self._captures.note(reason)

    def release_all(self) -> None:
        """Free what all segments of the model keep for their next calls."""
        self._captures.release()

    # -- for the model that bounds its graphs ------------------------------------------------------

    def last_used(self) -> Iterable[tuple[int, Hashable]]:
        graphs = [(stream, known.graph) for stream, known in list(self._on.items())]
        return [(graph.used, stream) for stream, graph in graphs if graph is not None]

    def drop(self, name: Hashable) -> None:
        known = self._on.get(name)
        if known is not None:
            known.graph = None

    def release(self) -> None:
        self._on.clear()
        self._program.release()


def new_memory() -> GraphMemory:
    """Return memory for graphs on the current stream."""
    return GraphMemory(cupy.cuda.get_current_stream())


def refusal(program: Program, inputs: int) -> str | None:
    """Return why a program is not captured, if that is known without trying."""
    copies = sum(i < inputs for i in program.positions_read) + len(program.computed)
    # A step that was not traced is one call here, and any number of launches.
    if "" not in program.called and program.launches <= copies:
        return f"{program.launches} launches are no more than the {copies} copies of a graph"
    return None
