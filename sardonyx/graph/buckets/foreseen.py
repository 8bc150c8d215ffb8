"""A size that is likely to change, by what the file says: its search begins in the first call.

That search takes as long as a few calls, and a call of another size waits for it. The first call of
a large network packs its weights, and leaves processors idle meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from sardonyx.backends import processors
from sardonyx.backends.base import Backend
from sardonyx.graph.buckets.automatic import REACH, STEPS
from sardonyx.graph.buckets.sizes import Sizes
from sardonyx.graph.calls.dimensions import Shapes
from sardonyx.graph.ir import Dimension, Graph, ValueInfo

# Traces of smaller networks take too little time to care.
LEAST_NODES = 200
# Nobody knows yet how large the sizes are: recordings are derived at least up to this one, if the
# model runs there.
LEAST_SIZE = 256


class Foreseen(NamedTuple):
    """The inputs, with a name for the size that may change, and its buckets."""

    infos: Sequence[ValueInfo]
    sizes: Sizes


class Foresight(NamedTuple):
    """What a file says of the sizes of calls."""

    infos: Sequence[ValueInfo]
    outputs: Sequence[ValueInfo]
    nodes: int

    @classmethod
    def of(cls, infos: Sequence[ValueInfo], graph: Graph) -> Foresight:
        """Return that of a graph with these inputs."""
        return cls(infos, graph.outputs, len(graph.nodes))

    @property
    def may_pay(self) -> bool:
        """Whether a search takes long, and another processor is free for it."""
        return self.nodes >= LEAST_NODES and processors.available() > 1

    def sizes(self, shapes: Shapes) -> Foreseen | None:
        """Return which size may change after a call with these shapes; None if that is open.

        The file has to name it, and no other size beyond 1. A cache that grows changes in another
        way, which the next calls show.

        >>> text = ValueInfo("ids", "tensor(int64)", None, ("batch", "length"))
        >>> Foresight([text], [], 1).sizes([(1, 40)]).infos
        [<ids: tensor(int64)[1, length]>]
        >>> Foresight([text], [], 1).sizes([(4, 40)])
        """
        names: dict[str, int] = {}
        for info, shape in zip(self.infos, shapes, strict=True):
            if info.shape is None or 0 in shape:
                return None
            for name, size in zip(info.shape, shape, strict=True):
                if isinstance(name, str) and size > 1 and names.setdefault(name, size) != size:
                    return None
        if len(names) != 1 or not all(map(str.isidentifier, names)):
            return None
        pairs = product(self.infos, self.outputs)
        if any(_grows(info, output, name) for info, output in pairs for name in names):
            return None
        named = [
            replace(info, shape=_with_sizes(info.shape, shape, names))
            for info, shape in zip(self.infos, shapes, strict=True)
        ]
        return Foreseen(named, Sizes(dict.fromkeys(names, STEPS), reach=REACH))


def has_kernels(backend: Backend) -> bool:
    """Whether calls run on kernels for good, so that no compiler waits for the processor."""
    return backend.steps_on_numpy() is not None and not backend.steps_without_kernels


def _with_sizes(
    declared: Sequence[Dimension] | None, shape: Sequence[int], names: dict[str, int]
) -> tuple[Dimension, ...]:
    pairs = zip(declared or (), shape, strict=True)
    return tuple([each if each in names else size for each, size in pairs])


def _grows(info: ValueInfo, output: ValueInfo, name: str) -> bool:
    """Whether the output is the input with more elements along the dimension with this name."""
    if info.dtype != output.dtype or info.shape is None or output.shape is None:
        return False
    if len(info.shape) != len(output.shape):
        return False
    changed = [(a, b) for a, b in zip(info.shape, output.shape, strict=True) if a != b]
    return bool(changed) and all(a == name and isinstance(b, str) for a, b in changed)
