"""Layouts: which axes of an array are divided along which axes of the mesh."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sardonyx.errors import InvalidInput

# The sizes of the mesh's axes by name, in order.
MeshAxes: TypeAlias = Mapping[str, int]
# For each axis of an array, the axes of the mesh that divide it, outermost first.
Divided: TypeAlias = tuple[tuple[str, ...], ...]


class Misfit(Exception):  # noqa: N818  (a finding, not a fault)
    """An array of this shape cannot have this layout."""


@dataclass(frozen=True)
class Layout:
    """The axes that are divided, counted from the back if negative; all others are whole.

    In an open layout, XLA chooses how to divide the other axes.
    """

    axes: tuple[tuple[int, tuple[str, ...]], ...] = ()
    open: bool = False

    @classmethod
    def along(cls, axis: int, *names: str) -> Layout:
        return cls(((axis, names),))

    @classmethod
    def of_spec(cls, spec: Any, mesh: MeshAxes, origin: str) -> Layout:
        """Return the layout of a `PartitionSpec` or a tuple like one; errors name its `origin`."""
        entries = tuple(spec) if isinstance(spec, Iterable) else (spec,)
        is_valid = all(entry is None or isinstance(entry, str | tuple) for entry in entries)
        if isinstance(spec, str) or not is_valid or spec is None:
            raise InvalidInput(
                f"{origin} is {spec!r}, a {type(spec).__name__}: pass a "
                "jax.sharding.PartitionSpec, or a tuple of names of axes and None."
            )
        axes = []
        for axis, entry in enumerate(entries):
            names = (entry,) if isinstance(entry, str) else entry or ()
            for name in names:
                if name not in mesh:
                    raise InvalidInput(
                        f"{origin} names the axis {name!r}, but the mesh has {_listed(mesh)}."
                    )
            if names:
                axes.append((axis, names))
        used = [name for _, names in axes for name in names]
        if len(set(used)) < len(used):
            raise InvalidInput(f"{origin} uses an axis of the mesh twice: {spec}.")
        return cls(tuple(axes))

    def __bool__(self) -> bool:
        return bool(self.axes)

    def on(self, shape: Sequence[int], mesh: MeshAxes) -> Divided:
        """Return the layout of an array of this shape; raise `Misfit` if it does not fit."""
        divided: list[tuple[str, ...]] = [()] * len(shape)
        for axis, names in self.axes:
            if not -len(shape) <= axis < len(shape):
                raise Misfit(f"it has {len(shape)} axes, but axis {axis} should be divided")
            count = math.prod(mesh[name] for name in names)
            if shape[axis] % count:
                raise Misfit(f"its size {shape[axis]} on axis {axis} is no multiple of {count}")
            if divided[axis]:
                raise Misfit(f"axis {axis} would be divided twice")
            divided[axis] = names
        return tuple(divided)


@dataclass(frozen=True)
class Choice:
    """A layout of an array and the reason for it."""

    layout: Layout
    reason: str


WHOLE = Choice(Layout(), "no rule names it")


def shown(divided: Divided) -> str:
    """Return a layout as text, such as `(None, 'model')`."""
    entries = [None if not names else names[0] if len(names) == 1 else names for names in divided]
    return repr(tuple(entries)) if any(divided) else "replicated"


def parts(divided: Divided, mesh: MeshAxes) -> int:
    """Return the number of different parts that an array is divided into."""
    return math.prod(mesh[name] for names in divided for name in names)


def _listed(mesh: MeshAxes) -> str:
    return ", ".join(f"'{name}' ({size})" for name, size in mesh.items()) or "none"


def axis_named(mesh: MeshAxes, names: Sequence[str], purpose: str) -> str:
    """Return the only axis of the mesh, or the first that has one of these names."""
    if len(mesh) == 1:
        return next(iter(mesh))
    axis = next((name for name in names if name in mesh), None)
    if axis is None:
        raise InvalidInput(
            f"The rules divide {purpose}, but none of the mesh's axes ({_listed(mesh)}) is called "
            f"{' or '.join(map(repr, names))}: rename one, or pass rules of your own."
        )
    return axis
