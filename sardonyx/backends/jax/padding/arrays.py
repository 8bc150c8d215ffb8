"""Arrays that are padded and cut, and the proofs that they may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.backends.jax.arrays import is_array
from sardonyx.backends.jax.padding.lent import Lent
from sardonyx.backends.padding.axes import Cut
from sardonyx.backends.padding.protocols import Prover


class JaxPadding:
    """Pads arrays; those on the host without JAX, which would compile once per size."""

    def __init__(self, import_library: Callable[[], object] = lambda: None) -> None:
        self._lent = Lent()
        # Imports JAX and enters the backend's scope, in which 64 bits are 64 bits.
        self._import_library = import_library

    def prover(
        self,
        template: Sequence[bool],
        true_traces: dict[Any, Any],
        padded_traces: dict[Any, Any],
    ) -> Prover:
        # Every model has a padding, and few have sizes that change.
        self._import_library()
        from sardonyx.backends.jax.padding.prover import JaxProver  # noqa: PLC0415
        from sardonyx.backends.jax.padding.rules import RULES  # noqa: PLC0415

        return JaxProver(RULES, template, true_traces=true_traces, padded_traces=padded_traces)

    def pad(self, array: Any, shape: Sequence[int]) -> Any:
        if array.shape == tuple(shape):
            return array
        padded = self._lent.padded(array)
        if padded is not None and padded.shape == tuple(shape):
            return padded
        if not _is_on_host(array):
            self._import_library()
            import jax.numpy as jnp  # noqa: PLC0415  (as below, JAX is imported by then)

            sizes = zip(array.shape, shape, strict=True)
            return jnp.pad(array, [(0, after - before) for before, after in sizes])
        result = np.zeros(shape, array.dtype)
        result[tuple(map(slice, array.shape))] = np.asarray(array)
        return result

    def unpad(self, array: Any, cut: Cut, *, is_native: bool) -> Any:
        if cut.split == cut.true:
            return array
        is_on_host = _is_on_host(array)
        whole: Any = np.asarray(array) if is_on_host else array
        if cut.split != tuple([size for size in array.shape if size != 1]):
            return whole.reshape(cut.split)[tuple(map(slice, cut.true))].reshape(cut.shape)
        corner = whole[tuple(map(slice, cut.shape))]
        if is_native and is_on_host and is_array(array):
            import jax  # noqa: PLC0415

            (device,) = array.devices()
            corner = jax.device_put(corner, device, may_alias=False)
        return self._lent(corner, array)


def _is_on_host(array: Any) -> bool:
    return isinstance(array, np.ndarray) or all(d.platform == "cpu" for d in array.devices())
