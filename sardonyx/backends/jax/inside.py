"""JAX for functions that its users transform: written as they would write it themselves."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sardonyx.backends.base import Backend
from sardonyx.backends.jax import shard_map
from sardonyx.backends.jax.accelerators import cudnn_choice
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.narrow_products import multiplied_narrowly
from sardonyx.backends.jax.precision import Factors, multiplied, of_convolution
from sardonyx.backends.jax.settings import Settings
from sardonyx.backends.jax.xla_cpu import platforms
from sardonyx.backends.jax.xla_cpu.convolution import general_convolution
from sardonyx.backends.jax.xla_tpu.refusals import refused_on_tpus
from sardonyx.backends.operations.scores import Scoring


class InsideBackend(JaxBackend):
    """JAX inside of a caller's functions; without a `precision` JAX's own settings hold."""

    # Other kernels than XLA's have no derivatives.
    fuses = False
    is_only_for_cpus = False

    def __init__(
        self,
        precision: str | None = None,
        dtype: np.dtype[Any] | None = None,
        *,
        has_one_form: bool = False,
    ) -> None:
        super().__init__(settings=Settings(simplest=has_one_form))
        self._precision = precision
        # The type of 16 bits in which floats are multiplied, if they are.
        self._narrow = dtype if dtype is not None and dtype.itemsize == 2 else None

    def of_form(self, is_plain: bool) -> InsideBackend:
        """The same; a plain one has one form for all platforms, and for all sizes."""
        return InsideBackend(self._precision, self._narrow, has_one_form=is_plain)

    def with_products_of_operands(self) -> Backend:
        if self._narrow is None:
            return self
        return InsideBackend(self._precision, has_one_form=self.settings.simplest)

    def _multiplies_narrowly(self, a: Any, b: Any) -> bool:
        types = (jnp.float32, self._narrow)
        return self._narrow is not None and a.dtype in types and b.dtype in types

    @property
    def asks_cudnn(self) -> bool:
        """Only for callers who say so, whatever the device: it is they who compile.

        Nobody can try it out then, nor compile again without it, and JAX has no forward-mode
        derivatives of it.
        """
        return cudnn_choice.choice() is cudnn_choice.Choice.ALWAYS

    def trusts_cudnn(self, q: Any, k: Any, scoring: Scoring) -> bool:
        # The device is the caller's choice, later.
        return True

    @property
    def product_precision(self) -> str | None:
        return self._precision

    def _factors(self, a: Any, b: Any) -> Factors:
        # The form for convolutions has derivatives of every kind.
        return of_convolution(self._precision, a, b)

    def matmul(self, a: Any, b: Any) -> Any:
        if self._multiplies_narrowly(a, b):
            return multiplied_narrowly(jnp.matmul, a, b, self._narrow)
        if jnp.result_type(a, b).name in ("float64", "complex128"):
            return super().matmul(a, b)
        a, b, options = self._factors(a, b)
        return multiplied(jnp.matmul, a, b, **options)

    # Weights are trained here, and taken for finite.
    skips_padding = False

    def convolution(self, x: Any, weight: Any, **options: Any) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return super().convolution(x, weight, **options)
        if self._multiplies_narrowly(x, weight):
            convolve = partial(general_convolution, layout=ConvolutionLayout.of(**options))
            return multiplied_narrowly(convolve, x, weight, self._narrow)
        x, weight, product = self._factors(x, weight)
        layout = ConvolutionLayout.of(**options)
        if self.settings.simplest:
            return general_convolution(x, weight, layout, **product)
        return platforms.convolution(x, weight, layout, **product)

    def astype(self, x: Any, dtype: Any) -> Any:
        return refused_on_tpus(super().astype(refused_on_tpus(x), dtype))

    def cond(self, predicate: Any, when_true: Any, when_false: Any) -> Any:
        if shard_map.is_manual():
            when_true, when_false = shard_map.alike(when_true, when_false)
        return super().cond(predicate, when_true, when_false)

    def loop(self, condition: Any, body: Any, carry: Any) -> Any:
        if shard_map.is_manual():
            carry = shard_map.settled(body, carry)
        return super().loop(condition, body, carry)

    def scan(self, step: Any, carry: Any, inputs: Any, length: int, **options: Any) -> Any:
        if length and shard_map.is_manual():
            first = [lax.index_in_dim(x, 0, keepdims=False) for x in inputs]
            carry = shard_map.settled(lambda *c: step(c, tuple(first))[0], carry)
        return super().scan(step, carry, inputs, length, **options)

    def outline(self) -> Backend:
        return self

    @staticmethod
    def is_wide() -> bool:
        """Whether the caller has JAX's 64-bit mode switched on; to be asked outside of `scope`."""
        return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]

    def argument(self, value: Any) -> Any:
        """An argument of a call; if TPUs lack its type, no program with it is lowered for one."""
        return refused_on_tpus(value)

    def within(self, value: Any, dtype: np.dtype[Any]) -> Any:
        """An array in a float type; finite numbers beyond its range become the last in it."""
        with self.scope():
            if jnp.finfo(dtype).max < jnp.finfo(value.dtype).max:
                last = jnp.finfo(dtype).max.astype(value.dtype)
                value = jnp.where(jnp.isinf(value), value, jnp.clip(value, -last, last))
            return value.astype(dtype)

    def entering(self, value: Any, *, wide: bool) -> Any:
        """An array of the host or of JAX in a dtype of the caller's mode, which must hold it."""
        dtype = self._dtype_for_caller(value, wide)
        if dtype != value.dtype:
            value = fitting(np.asarray(value), dtype)
        with self.scope():
            return value if self.owns(value) else self.put(value)

    def leaving(self, value: Any, *, wide: bool) -> Any:
        """A result in a dtype of the caller's mode, called inside of `scope`.

        Integers beyond that dtype's range are an error if their values are known; otherwise they
        become the nearest number in the range.
        """
        dtype = self._dtype_for_caller(value, wide)
        if dtype == value.dtype:
            return value if self.owns(value) else self.put(value)
        if dtype.kind in "iu":
            if not self.is_abstract(value) and _is_readable(value):
                return self.put(fitting(np.asarray(value), dtype))
            limits = np.iinfo(dtype)
            value = jnp.clip(value, limits.min, limits.max)
        return lax.convert_element_type(value, dtype)

    def _dtype_for_caller(self, value: Any, wide: bool) -> np.dtype[Any]:
        dtype = np.dtype(value.dtype)
        return dtype if wide else self.narrowed(dtype)


def _is_readable(value: Any) -> bool:
    """Whether this process has all elements."""
    return isinstance(value, np.ndarray) or bool(value.is_fully_addressable)


def fitting(value: np.ndarray[Any, Any], narrow: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Numbers in a narrower type, which must hold all integers."""
    if narrow.kind in "iu":
        limits = np.iinfo(narrow)
        outside = (value < limits.min) | (value > limits.max)
        if outside.any():
            raise OverflowError(f"{value[outside].flat[0]} does not fit {narrow}")
    return value.astype(narrow)
