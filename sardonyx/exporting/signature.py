"""The signature of an exported program: input shapes, with names for sizes that stay free."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from sardonyx.arguments import check_count
from sardonyx.backends.executable import Spec
from sardonyx.errors import InvalidInput
from sardonyx.exporting.size_expressions import Sizes, evaluated, is_valid, names_in
from sardonyx.graph.ir import ValueInfo

Array: TypeAlias = np.ndarray[Any, Any]
Dims: TypeAlias = tuple[int | str, ...]

# The default for the largest size of a free dimension.
LARGEST = 2**20
MOST = 2**31 - 1


@dataclass(frozen=True)
class Signature:
    """The shape of each input, or its value if it is fixed; sizes may be expressions."""

    infos: tuple[ValueInfo, ...]
    inputs: tuple[Dims | Array, ...]
    symbols: tuple[str, ...]

    @classmethod
    def of(cls, infos: Sequence[ValueInfo], requested: Mapping[str, Any] | None) -> Signature:
        """Build a signature from the caller's shapes; other inputs have their declared ones."""
        requested = _named(infos, requested)
        inputs = tuple(_input(info, requested.get(info.name)) for info in infos)
        sizes = [size for dims in inputs if isinstance(dims, tuple) for size in dims]
        names = dict.fromkeys(name for size in sizes for name in names_in(str(size)))
        return cls(tuple(infos), inputs, tuple(names))

    def at(self, sizes: Sizes) -> list[Spec | Array]:
        """Return the specs, or fixed values, of the inputs for these sizes."""
        return [
            Spec(tuple(evaluated(d, sizes) for d in dims), _dtype(info))
            if isinstance(dims, tuple)
            else dims
            for info, dims in zip(self.infos, self.inputs, strict=True)
        ]

    @property
    def free(self) -> list[tuple[ValueInfo, Dims]]:
        """The inputs that a call passes, with their shapes."""
        pairs = zip(self.infos, self.inputs, strict=True)
        return [(info, dims) for info, dims in pairs if isinstance(dims, tuple)]


def largest_sizes(names: Sequence[str], requested: int | Mapping[str, int] | None) -> Sizes:
    """Return the largest requested size for each name."""
    if requested is None:
        return dict.fromkeys(names, LARGEST)
    largest = requested if isinstance(requested, Mapping) else dict.fromkeys(names, requested)
    for name in largest:
        if name not in names:
            raise InvalidInput(
                f"The largest sizes have '{name}', but the signature has the names "
                f"{', '.join(names) or '(none)'}."
            )
    for size in largest.values() if largest is requested else [requested]:
        check_count(size, f"A largest size is from 1 to {MOST}", MOST)
    return {name: int(largest.get(name, LARGEST)) for name in names}


def _named(infos: Sequence[ValueInfo], requested: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if requested is None:
        return {}
    if not isinstance(requested, Mapping):
        raise InvalidInput(
            f"The signature is a {type(requested).__name__}: pass a dict from inputs' names to "
            'shapes, as in {"x": ("batch", 3, 224, 224)}.'
        )
    inputs = [info.name for info in infos]
    for name in requested:
        if name not in inputs:
            raise InvalidInput(
                f"The signature has '{name}', but the model takes {', '.join(inputs) or 'nothing'}."
            )
    return requested


def _input(info: ValueInfo, requested: Any) -> Dims | Array:
    if info.dtype is None or info.dtype == object or not (info.type or "").startswith("tensor("):
        raise InvalidInput(f"The input '{info}' is no tensor of numbers and cannot be exported.")
    if requested is None:
        return _declared(info)
    if isinstance(requested, (tuple, list)):
        return _dims(info, requested)
    value = np.asarray(requested)
    if value.dtype != info.dtype:
        raise InvalidInput(
            f"The signature fixes '{info.name}' to a value of {value.dtype}, but it must be "
            f"{info.dtype}."
        )
    return value


def _declared(info: ValueInfo) -> Dims:
    if info.shape is None:
        raise InvalidInput(
            f"The model does not declare the rank of '{info.name}': pass its shape in the "
            f'signature, as in {{"{info.name}": ("batch", 3)}}.'
        )
    return tuple(
        size if isinstance(size, int) else _symbol(size or f"{info.name}_{axis}")
        for axis, size in enumerate(info.shape)
    )


def _symbol(name: str) -> str:
    """Return a symbol for a dimension's name, without characters that symbols cannot have."""
    return name if is_valid(evaluated, name) else f"size_{re.sub('[^A-Za-z0-9_]', '_', name)}"


def _dims(info: ValueInfo, requested: Sequence[Any]) -> Dims:
    if info.shape is not None and len(requested) != len(info.shape):
        raise InvalidInput(
            f"The signature gives '{info.name}' {len(requested)} dimensions, but it has "
            f"{len(info.shape)} ({info})."
        )
    for axis, size in enumerate(requested):
        is_number = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
        if not isinstance(size, str) and not (is_number and size >= 0):
            raise InvalidInput(
                f"The signature gives '{info.name}' the size {size!r} on axis {axis}: pass a "
                "number or a name."
            )
        # An expression without a name, such as "-1", is no free size.
        has_name = isinstance(size, str) and re.search("[A-Za-z_]", size)
        if isinstance(size, str) and not (has_name and is_valid(evaluated, size)):
            raise InvalidInput(
                f"The size {size!r} in the signature is neither a name nor an expression of names: "
                "pass a number or another name."
            )
        fixed = info.shape[axis] if info.shape is not None else None
        if isinstance(fixed, int) and size != fixed:
            raise InvalidInput(
                f"The signature gives '{info.name}' the size {size} on axis {axis}, but the model "
                f"declares {fixed} ({info})."
            )
    return tuple(size if isinstance(size, str) else int(size) for size in requested)


def _dtype(info: ValueInfo) -> np.dtype[Any]:
    assert info.dtype is not None
    return info.dtype
