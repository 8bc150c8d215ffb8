"""A small segment that runs as calls of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Executable, Replay, Spec, WrittenOut
from sardonyx.backends.fused_epilogue import NOTHING
from sardonyx.backends.numpy import HOST
from sardonyx.backends.operations.products import PackedProduct
from sardonyx.backends.written_out.noted_steps import Kernel, noted_steps
from sardonyx.backends.written_out.program import written
from sardonyx.graph.tracing.op_call import HOLE, OpCall
from sardonyx.ops.fused_products import packed_product, product_chain


def written_with_kernels(
    replay: Replay,
    specs: Sequence[Spec],
    inputs: int,
    xp: Backend | None,
    *,
    as_program: bool,
) -> WrittenOut | None:
    """Return a segment as calls of NumPy, which is `xp`, and of kernels, if steps can be noted.

    Its price is that of what runs beside kernels that compiled programs call, too.
    """
    noted = None if xp is None else noted_steps(replay, xp, specs, kernel_of)
    if xp is None or noted is None:
        return None
    fixed = zip(noted.arguments[inputs:], (spec.shape for spec in specs[inputs:]), strict=True)
    return written(
        noted.calls,
        noted.arguments[:inputs],
        dict(fixed),
        noted.results,
        variables=0,
        as_program=as_program,
        library=xp,
    )


def kernel_of(call: Any) -> Kernel | None:
    """Return the kernel that a step is, and nothing else, if compiled programs call it, too."""
    if not isinstance(call, OpCall) or any(argument is not HOLE for argument in call.arguments):
        return None
    if call.function is product_chain:
        chain: Kernel = call.attributes["chain"]
        return chain
    if call.function is not packed_product or call.attributes.get("epilogue", NOTHING) != NOTHING:
        return None
    product: PackedProduct = call.attributes["product"]
    return product if product.is_same_in_programs else None


class WrittenSegment:
    """The function of a segment: that of NumPy, or the compiled one where NumPy raises an error.

    The compiled function says what is wrong, or that nothing is: the same as where it ran first. It
    also runs while somebody watches for bad values.
    """

    def __init__(
        self,
        written: WrittenOut,
        inputs: int,
        backend: Backend,
        compile_segment: Callable[[], Executable],
    ) -> None:
        self._written = written
        self._backend = backend
        self._inputs = inputs
        self._compile_segment = compile_segment

    @property
    def executable(self) -> Executable:
        """The segment as calls run it."""
        return Executable(self._run, on_numpy=self._on_numpy)

    def _run(self, *arrays: Any) -> Sequence[Any]:
        return self._on_numpy(arrays[self._inputs :])(*arrays[: self._inputs])

    def _on_numpy(self, fixed: Sequence[Any]) -> Replay:
        """Return the function of the inputs alone, for these weights and constants."""

        def instead(*inputs: Any) -> Sequence[Any]:
            with self._backend.scope():
                return self._compiled.run(*inputs, *fixed)

        try:
            with HOST.scope():
                ahead = self._written.ahead(*map(np.asarray, fixed))
        except Exception:  # Whatever NumPy raises.
            return instead
        return partial(self._written.run, self._backend.watches, instead, *ahead)

    @cached_property
    def _compiled(self) -> Executable:
        return self._compile_segment()
