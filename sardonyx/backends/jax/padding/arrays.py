"""Arrays that are padded and cut, and the proofs that they may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.backends.jax.arrays import is_array
from sardonyx.backends.jax.padding.lent import Lent
from sardonyx.backends.padding.axes import Cut
from sardonyx.backends.padding.protocols import Prover

if TYPE_CHECKING:
    from sardonyx.backends.cupy.cutter import CupyCutter

# Bytes of an array of a device that the host pads and cuts. On an H200 it takes 80 us for 0.4 MB,
# there and back, CuPy 200 us whatever the size, and XLA 70 ms for each new size.
LARGEST_BESIDE_CUPY = 2**20
LARGEST_BESIDE_XLA = 2**25


class JaxPadding:
    """Pads and cuts arrays, where it can without JAX, which would compile once per size."""

    def __init__(
        self,
        import_library: Callable[[], object] = lambda: None,
        cutter: Callable[[], CupyCutter | None] = lambda: None,
    ) -> None:
        self._lent = Lent()
        # For arrays that stay on a device; None if only XLA computes there.
        self._cutter = cutter
        # Imports JAX and enters the backend's scope, in which 64 bits are 64 bits.
        self._import_library = import_library

    def prover(
        self,
        template: Sequence[bool],
        true_traces: dict[Any, Any],
        padded_traces: dict[Any, Any],
        *,
        watches_rows: bool = False,
    ) -> Prover:
        # Every model has a padding, and few have sizes that change.
        self._import_library()
        from sardonyx.backends.jax.padding.prover import JaxProver  # noqa: PLC0415
        from sardonyx.backends.jax.padding.rows import keeps_rows  # noqa: PLC0415
        from sardonyx.backends.jax.padding.rules import RULES  # noqa: PLC0415

        return JaxProver(
            RULES,
            template,
            watch=keeps_rows if watches_rows else None,
            true_traces=true_traces,
            padded_traces=padded_traces,
        )

    def pad(self, array: Any, shape: Sequence[int]) -> Any:
        if array.shape == tuple(shape):
            return array
        padded = self._lent.padded(array)
        if padded is not None and padded.shape == tuple(shape):
            return padded
        if self._stays(array):
            return self._padded_on_device(array, shape)
        result = np.zeros(shape, array.dtype)
        result[tuple(map(slice, array.shape))] = np.asarray(array)
        return result

    def _padded_on_device(self, array: Any, shape: Sequence[int]) -> Any:
        cutter = self._cutter()
        padded = cutter and cutter.pad(array, shape)
        if padded is not None:
            return padded
        self._import_library()
        import jax.numpy as jnp  # noqa: PLC0415  (as below, JAX is imported by then)

        sizes = zip(array.shape, shape, strict=True)
        return jnp.pad(array, [(0, after - before) for before, after in sizes])

    def unpad(self, arrays: Sequence[Any], cuts: Sequence[Cut], *, is_native: bool) -> list[Any]:
        results = list(arrays)
        stay: list[int] = []
        for i, (array, cut) in enumerate(zip(arrays, cuts, strict=True)):
            if cut.split == cut.true:
                continue
            if is_native and self._stays(array):
                stay.append(i)
            else:
                results[i] = _cut_on_host(array, cut, is_native=is_native)
        cut_there = self._cut_on_device([arrays[i] for i in stay], [cuts[i] for i in stay])
        for i, result in zip(stay, cut_there, strict=True):
            results[i] = result
        return [
            self._lent(result, array) if result is not array and cut.is_corner(array) else result
            for result, array, cut in zip(results, arrays, cuts, strict=True)
        ]

    def _stays(self, array: Any) -> bool:
        """Whether an array is too large to be fetched from a device and brought back."""
        if array.nbytes <= LARGEST_BESIDE_CUPY or _is_on_host(array):
            return False
        return array.nbytes > LARGEST_BESIDE_XLA or self._cutter() is not None

    def _cut_on_device(self, arrays: Sequence[Any], cuts: Sequence[Cut]) -> list[Any]:
        if not arrays:
            return []
        cutter = self._cutter()
        results = cutter and cutter.cut(arrays, cuts)
        if results:
            return results
        return [cut.applied(array) for array, cut in zip(arrays, cuts, strict=True)]


def _cut_on_host(array: Any, cut: Cut, *, is_native: bool) -> Any:
    result = cut.applied(np.asarray(array))
    if not is_native or not is_array(array):
        return result
    import jax  # noqa: PLC0415  (it made the array)

    (device,) = array.devices()
    return jax.device_put(result, device, may_alias=False)


def _is_on_host(array: Any) -> bool:
    return isinstance(array, np.ndarray) or all(d.platform == "cpu" for d in array.devices())
