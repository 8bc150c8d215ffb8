"""The kernels as operations of XLA's programs, which find them by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.jax.onednn import loaded


@cache
def register() -> None:
    """Let XLA find the kernels, if there are any, for programs that call them."""
    library = loaded.shared_library()
    if library is not None:
        for name in loaded.TARGETS:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(library[name]), platform="cpu")


def called(
    target: str,
    spec: Sequence[int],
    result: Spec,
    *arrays: Any,
    layouts: Sequence[Sequence[int]] | None = None,
) -> Any:
    """The result of a kernel; `layouts` has the order of the axes of each array and the result."""
    register()
    orders: dict[str, Any] = {}
    if layouts is not None:
        *inputs, output = layouts
        orders = {"input_layouts": inputs, "output_layouts": output}
    call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(*result), **orders)
    return call(*arrays, spec=np.asarray(spec, np.int64))
