"""The arrays of a call, and their shapes for the sizes of a bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.padding.axes import Axis, Layout, has_padding
from sardonyx.backends.size_limits import refuse_huge
from sardonyx.graph.buckets.expressions import names_in
from sardonyx.graph.buckets.sizes import resized
from sardonyx.graph.calls.array_interop import leaf_of
from sardonyx.graph.calls.nested_values import map_arrays
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.values.kinds import leaves

# NumPy counts bytes in 63 bits.
LARGEST_COUNTED = 2**62


@dataclass(frozen=True, eq=False, slots=True)
class CallArrays:
    """The arrays of a call, their declarations, and the sizes of its bucket."""

    arrays: Sequence[Any]
    infos: Sequence[ValueInfo]
    # The inputs, with a placeholder for each array.
    nesting: Sequence[Any]
    # The sizes of named dimensions, and those of the bucket where dimensions are padded.
    sizes: Mapping[str, int]
    bucket: Mapping[str, int]

    @classmethod
    def of(cls, values: Sequence[Any], infos: Sequence[ValueInfo]) -> CallArrays:
        """Return the arrays of these inputs, without a bucket."""
        arrays = leaves(list(values))
        pairs = zip(values, infos, strict=True)
        leaf_infos = [leaf_of(info) for value, info in pairs for _ in leaves(value)]
        nesting = [map_arrays(lambda _: ..., value) for value in values]
        return cls(arrays, leaf_infos, nesting, _named_sizes(arrays, leaf_infos), {})

    @property
    def without_data(self) -> CallArrays:
        """The same shapes and dtypes, with arrays that take no memory."""
        return replace(self, arrays=list(map(stand_in, self.specs({}))))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of all arrays."""
        return [tuple(array.shape) for array in self.arrays]

    @property
    def padded(self) -> list[int]:
        """The numbers of the arrays that are padded."""
        return [i for i, layout in enumerate(self.layouts({})) if has_padding(layout)]

    def is_batch(self, name: str) -> bool:
        """Whether a dimension is the first one of inputs, and no other one depends on it."""
        others = [dimension for info in self.infos for dimension in (info.shape or ())[1:]]
        return not any(isinstance(each, str) and name in names_in(each) for each in others)

    def inputs(self, sizes: Mapping[str, int]) -> list[Any]:
        """Return the inputs for these sizes in place of the call's; padded ones have no data."""
        arrays = list(self.arrays)
        specs = self.specs(sizes)
        for i in self.padded:
            arrays[i] = stand_in(specs[i])
        rest = iter(arrays)
        return [map_arrays(lambda _: next(rest), place) for place in self.nesting]

    def specs(self, sizes: Mapping[str, int]) -> list[Spec]:
        """Return shapes and dtypes for these sizes in place of the call's."""
        pairs = zip(self.arrays, self.infos, strict=True)
        return [
            Spec(resized(info.shape, array.shape, self.sizes, sizes), np.dtype(array.dtype))
            for array, info in pairs
        ]

    def layouts(self, sizes: Mapping[str, int]) -> list[Layout]:
        """Return which axes are padded, and from which sizes.

        The dimensions of the bucket count as padded, even if the call fills them.
        """
        specs = zip(self.specs(sizes), self.specs(self.bucket), self.infos, strict=True)
        return [self._layout(true, padded, info) for true, padded, info in specs]

    def _layout(self, true: Spec, padded: Spec, info: ValueInfo) -> Layout:
        names = info.shape or (None,) * len(true.shape)
        return tuple(
            Axis.of(wide, size, is_padded=size != wide or name in self.bucket)
            for size, wide, name in zip(true.shape, padded.shape, names, strict=True)
        )


def stand_in(spec: Spec) -> Any:
    """Return an array of zeros, or of empty strings, that takes no memory."""
    refuse_huge(spec.shape, spec.dtype, LARGEST_COUNTED)
    element = np.array("", object) if spec.dtype == object else np.zeros((), spec.dtype)
    return np.broadcast_to(element, spec.shape)


def _named_sizes(arrays: Sequence[Any], infos: Sequence[ValueInfo]) -> dict[str, int]:
    return {
        name: size
        for array, info in zip(arrays, infos, strict=True)
        if info.shape is not None
        for size, name in zip(array.shape, info.shape, strict=True)
        if isinstance(name, str)
    }
