"""The arrays of a call, and what they become in a bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.padding.axes import Axis, Layout, has_padding
from sardonyx.backends.size_limits import refuse_huge
from sardonyx.graph.buckets.sizes import resized
from sardonyx.graph.calls.array_interop import leaf_of
from sardonyx.graph.calls.nested_values import map_arrays
from sardonyx.graph.ir import ValueInfo
from sardonyx.graph.values.kinds import leaves


@dataclass(frozen=True, eq=False, slots=True)
class Given:
    """The arrays of a call, what is declared of each, and the sizes that they are padded to."""

    arrays: Sequence[Any]
    infos: Sequence[ValueInfo]
    # The inputs, with something else where their arrays are.
    places: Sequence[Any]
    sizes: Mapping[str, int]
    changed: Mapping[str, int]

    @classmethod
    def of(cls, values: Sequence[Any], infos: Sequence[ValueInfo]) -> Given:
        """What was passed for these inputs, nothing of which is padded yet."""
        arrays = leaves(list(values))
        pairs = zip(values, infos, strict=True)
        inner = [leaf_of(info) for value, info in pairs for _ in leaves(value)]
        places = [map_arrays(lambda _: ..., value) for value in values]
        return cls(arrays, inner, places, _sizes(arrays, inner), {})

    @property
    def kind(self) -> Given:
        """Itself, without the arrays' data."""
        stand_ins = [_stand_in(spec) for spec in self.specs({})]
        return replace(self, arrays=stand_ins)

    def inputs(self, sizes: Mapping[str, int]) -> list[Any]:
        """Inputs with these sizes in place of their own.

        Of what is padded only shapes and dtypes are known.
        """
        padded = self.padded
        arrays = [
            _stand_in(spec) if i in padded else array
            for i, (array, spec) in enumerate(zip(self.arrays, self.specs(sizes), strict=True))
        ]
        rest = iter(arrays)
        return [map_arrays(lambda _: next(rest), place) for place in self.places]

    def specs(self, sizes: Mapping[str, int]) -> list[Spec]:
        """What the arrays are like with these sizes in place of their own."""
        return [
            Spec(self._shape(i, sizes), np.dtype(array.dtype))
            for i, array in enumerate(self.arrays)
        ]

    def layouts(self, sizes: Mapping[str, int]) -> list[Layout]:
        """Of which axes the ends are padded; those of a bucket are, if only by nothing."""
        return [self._layout(i, sizes) for i in range(len(self.arrays))]

    @property
    def padded(self) -> list[int]:
        """The arrays that are padded, by number."""
        layouts = self.layouts({})
        return [i for i, layout in enumerate(layouts) if has_padding(layout)]

    def _shape(self, index: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
        shape, declared = self.arrays[index].shape, self.infos[index].shape
        if declared is None:
            return tuple(shape)
        pairs = zip(declared, shape, strict=True)
        return tuple(resized(name, size, self.sizes, sizes) for name, size in pairs)

    def _layout(self, index: int, sizes: Mapping[str, int]) -> Layout:
        true, after = self._shape(index, sizes), self._shape(index, self.changed)
        declared = self.infos[index].shape or (None,) * len(true)
        return tuple(
            Axis.of(wide, size, is_padded=size != wide or name in self.changed)
            for size, wide, name in zip(true, after, declared, strict=True)
        )


# NumPy counts bytes in 63 bits.
LARGEST_COUNTED = 2**62


def _stand_in(spec: Spec) -> Any:
    refuse_huge(spec.shape, spec.dtype, LARGEST_COUNTED)
    return np.broadcast_to(np.zeros((), spec.dtype), spec.shape)


def _sizes(arrays: Sequence[Any], infos: Sequence[ValueInfo]) -> dict[str, int]:
    return {
        declared: size
        for array, info in zip(arrays, infos, strict=True)
        if info.shape is not None
        for size, declared in zip(array.shape, info.shape, strict=True)
        if isinstance(declared, str)
    }
