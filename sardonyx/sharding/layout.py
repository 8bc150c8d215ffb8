"""How an array is divided: which of its axes lie along which axes of the mesh."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sardonyx.errors import InvalidInput

# The sizes of the mesh's axes, by name and in order.
MeshAxes: TypeAlias = Mapping[str, int]
# For each axis of an array the axes of the mesh that it is divided over, the outermost first.
Divided: TypeAlias = tuple[tuple[str, ...], ...]


class Misfit(Exception):  # noqa: N818  (a finding, not a fault)
    """An array of this shape cannot be divided so."""


@dataclass(frozen=True)
class Layout:
    """The axes that are divided, counted from the back where negative; all others are whole.

    In an open one it is left to XLA how axes that are not named are divided.
    """

    axes: tuple[tuple[int, tuple[str, ...]], ...] = ()
    open: bool = False

    @classmethod
    def along(cls, axis: int, *names: str) -> Layout:
        return cls(((axis, names),))

    @classmethod
    def of_spec(cls, spec: Any, mesh: MeshAxes, told: str) -> Layout:
        """What a `PartitionSpec`, or a tuple like one, says; `told` says where it stands."""
        entries = tuple(spec) if isinstance(spec, Iterable) else (spec,)
        known = all(entry is None or isinstance(entry, str | tuple) for entry in entries)
        if isinstance(spec, str) or not known or spec is None:
            raise InvalidInput(
                f"{told} is {spec!r}, a {type(spec).__name__}: pass a jax.sharding.PartitionSpec, "
                "or a tuple of axes' names and None."
            )
        axes = []
        for axis, entry in enumerate(entries):
            names = (entry,) if isinstance(entry, str) else entry or ()
            for name in names:
                if name not in mesh:
                    raise InvalidInput(
                        f"{told} names the axis {name!r}, and the mesh has {_listed(mesh)}."
                    )
            if names:
                axes.append((axis, names))
        used = [name for _, names in axes for name in names]
        if len(set(used)) < len(used):
            raise InvalidInput(f"{told} uses an axis of the mesh twice: {spec}.")
        return cls(tuple(axes))

    def __bool__(self) -> bool:
        return bool(self.axes)

    def on(self, shape: Sequence[int], mesh: MeshAxes) -> Divided:
        """The layout of an array of this shape; `Misfit` where it has none."""
        divided: list[tuple[str, ...]] = [()] * len(shape)
        for axis, names in self.axes:
            if not -len(shape) <= axis < len(shape):
                raise Misfit(f"it has {len(shape)} axes, and axis {axis} is to be divided")
            count = math.prod(mesh[name] for name in names)
            if shape[axis] % count:
                raise Misfit(f"its size {shape[axis]} on axis {axis} is no multiple of {count}")
            if divided[axis]:
                raise Misfit(f"axis {axis} is to be divided twice")
            divided[axis] = names
        return tuple(divided)


def shown(divided: Divided) -> str:
    """A layout for people: `(None, 'model')`."""
    entries = [None if not names else names[0] if len(names) == 1 else names for names in divided]
    return repr(tuple(entries)) if any(divided) else "replicated"


def parts(divided: Divided, mesh: MeshAxes) -> int:
    """Into how many different parts an array is divided."""
    return math.prod(mesh[name] for names in divided for name in names)


def _listed(mesh: MeshAxes) -> str:
    return ", ".join(f"'{name}' ({size})" for name, size in mesh.items()) or "none"


def axis_named(mesh: MeshAxes, names: Sequence[str], purpose: str) -> str:
    """The axis of the mesh that bears one of these names; the only one, where there is but one."""
    if len(mesh) == 1:
        return next(iter(mesh))
    found = next((name for name in names if name in mesh), None)
    if found is None:
        raise InvalidInput(
            f"The rules divide {purpose}, and none of the mesh's axes ({_listed(mesh)}) is called "
            f"{' or '.join(map(repr, names))}: name one so, or give rules of your own."
        )
    return found
