"""The primitives of ops, in JAX's own functions where these are better than the general form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.layout import Format, Layout

from sardonyx.backends.jax import casts, indexing, powers, transforms
from sardonyx.backends.jax.accelerators import attention, cudnn_attention, cudnn_choice, softmax
from sardonyx.backends.jax.convolution_layout import ConvolutionLayout
from sardonyx.backends.jax.padded_calls import with_padding
from sardonyx.backends.jax.precision import Factors, multiplied, of_convolution, of_product
from sardonyx.backends.jax.settings import Settings
from sardonyx.backends.jax.traits import JaxTraits
from sardonyx.backends.jax.xla_cpu import platforms, sorting, suppression, windows
from sardonyx.backends.jax.xla_cpu.convolution import general_convolution
from sardonyx.backends.jax.xla_cuda import scaling
from sardonyx.backends.jax.xla_tpu import platforms as elsewhere
from sardonyx.backends.operations.indexing import MOST_BEGUN
from sardonyx.backends.operations.scores import Scoring, scoring_with
from sardonyx.backends.strides import axis_order, dense_strides, same_layout

# XLA takes a time that grows with the square of the number of arrays that are concatenated.
MOST_JOINED = 128
# Of more scores, or pairs of the best, XLA takes longer than NumPy with those above a threshold.
MOST_SCORES, MOST_PAIRS = 2**11, 2**15


class JaxOperations(JaxTraits):
    """JAX's functions, and those that XLA would compile badly in a form of their own."""

    settings: Settings
    # Whether its programs run on CPUs alone, so that forms for other platforms need no trace.
    is_only_for_cpus: bool = False

    @property
    def asks_cudnn(self) -> bool:
        """Whether attention on CUDA goes to cuDNN, if that computes it and is chosen for it."""
        return False

    @property
    def has_one_form(self) -> bool:
        """Whether operations whose form for CPUs is the plain one need no other."""
        return self.settings.simplest or self.is_only_for_cpus

    @property
    def leaves_channels_last(self) -> bool:  # type: ignore[override]  # an attribute of the base
        return self.is_only_for_cpus and not self.settings.simplest

    def owns(self, value: object) -> bool:
        return isinstance(value, jax.Array)

    def is_abstract(self, value: object) -> bool:
        return isinstance(value, jax.core.Tracer)

    def pad(self, x: Any, widths: Any, value: Any) -> Any:
        self.allow_padded(x, widths)
        if self.settings.simplest:
            return jnp.pad(x, widths, constant_values=value)
        return platforms.pad(x, widths, value)

    def reshape(self, x: Any, shape: Any) -> Any:
        y = jnp.reshape(x, shape)
        if self.settings.simplest and y is x:
            # JAX leaves out what changes no shape, but other sizes have this step.
            return lax.reshape_p.bind(x, new_sizes=x.shape, dimensions=None, sharding=None)
        return y

    def below_top(self, x: Any, top: Any) -> Any:
        general = super().below_top
        if self.has_one_form:
            return general(x, top)
        return lax.platform_dependent(x, top, cpu=general, default=softmax.below_top)

    def copysign(self, a: Any, b: Any) -> Any:
        if jnp.result_type(a, b) != jnp.float64:
            return jnp.copysign(a, b)
        # JAX shifts the bits of `b`, which libtpu 0.0.42 cannot compile for 64 bits.
        is_negative = lax.bitcast_convert_type(jnp.asarray(b, dtype=jnp.float64), jnp.int64) < 0
        return jnp.where(is_negative, -jnp.abs(a), jnp.abs(a))

    def nonzero_total(self, total: Any) -> Any:
        general = super().nonzero_total
        if self.has_one_form:
            return general(total)
        return lax.platform_dependent(total, cpu=general, default=softmax.nonzero_total)

    def attention_like(self, general: Any, q: Any, k: Any, v: Any, scoring: Scoring) -> Any:
        if self.has_one_form or not attention.is_supported(q, k, v):
            return general(q, k, v)
        precision = self.product_precision
        on_tpu = partial(attention.attended_on_tpu, scoring=scoring, precision=precision)
        on_gpu = partial(attention.attended, scoring=scoring, precision=precision)
        forms = {"cpu": general, "tpu": on_tpu}
        is_for_cudnn = self.asks_cudnn and cudnn_attention.is_for(q, k, v, scoring)
        if is_for_cudnn and cudnn_choice.is_for_sizes(q, k) and self.trusts_cudnn(q, k, scoring):
            forms["cuda"] = partial(cudnn_attention.attended, scoring=scoring)
        return lax.platform_dependent(q, k, v, **forms, default=on_gpu)

    def trusts_cudnn(self, q: Any, k: Any, scoring: Scoring) -> bool:
        """Whether cuDNN may compute this attention, which is within its limits."""
        return True

    def attention(
        self, q: Any, k: Any, v: Any, bias: Any = None, *, scale: float, is_guarded: bool = False
    ) -> Any:
        if q.ndim == 3:
            # An axis before the heads changes nothing.
            q, k, v = (x[None] for x in (q, k, v))
            return self.attention(q, k, v, bias, scale=scale, is_guarded=is_guarded)[0]
        plain = partial(super().attention, bias=bias, scale=scale)
        if not is_guarded:
            return self.attention_like(plain, q, k, v, scoring_with(bias, scale))
        # Forms that never hold the weights put zeros into their results, in place of NaN.
        guarded = partial(plain, is_guarded=True)
        return self.attention_like(guarded, q, k, v, scoring_with(bias, scale, is_guarded=True))

    @property
    def product_precision(self) -> str | None:
        """How exactly float32 is multiplied; None if JAX's own setting says it."""
        return self.settings.precision

    def detached(self, x: Any) -> Any:
        return lax.stop_gradient(x)

    def erf(self, x: Any) -> Any:
        return lax.erf(x)

    def concat(self, arrays: Any, *, axis: int = 0) -> Any:
        dtype = arrays[0].dtype
        if dtype.name.endswith("int2"):
            # XLA for CPU aborts the process on a concatenation of two-bit integers, and in one
            # kernel with their cast XLA for CUDA gets it wrong (jaxlib 0.11.2).
            joined = self.concat([x.astype(np.int8) for x in arrays], axis=axis)
            return lax.optimization_barrier(joined).astype(dtype)
        while len(arrays) > MOST_JOINED:
            starts = range(0, len(arrays), MOST_JOINED)
            parts = [jnp.concat(arrays[i : i + MOST_JOINED], axis=axis) for i in starts]
            arrays = lax.optimization_barrier(parts)
        if self.has_one_form:
            return jnp.concat(arrays, axis=axis)
        return elsewhere.concat(arrays, axis)

    # An index that is out of range reads the nearest element; libraries that can raise an error do.

    def take(self, x: Any, indices: Any, *, axis: int) -> Any:
        return jnp.take(x, indexing.within(indices, x.shape[axis]), axis=axis, mode="clip")

    def take_in_range(self, x: Any, indices: Any) -> Any:
        return indexing.taken(jnp.asarray(x), indices)

    def take_along_axis(self, x: Any, indices: Any, *, axis: int = -1) -> Any:
        indices = indexing.within(indices, x.shape[axis])
        return jnp.take_along_axis(x, indices, axis=axis, mode="clip")

    def argmax(self, x: Any, **along: Any) -> Any:
        return indexing.place(lax.argmax, x, **along)

    def argmin(self, x: Any, **along: Any) -> Any:
        return indexing.place(lax.argmin, x, **along)

    def gather(self, x: Any, places: Any) -> Any:
        within = tuple(map(indexing.within, places, x.shape))
        return jnp.asarray(x).at[within].get(mode="clip")

    def scatter(self, x: Any, places: Any, updates: Any, combine: str | None = None) -> Any:
        x = jnp.asarray(x)
        within = tuple(map(indexing.or_past_the_end, places, x.shape))
        if combine == "mul":
            return indexing.multiplied(x, updates, *within)
        write = getattr(x.at[within], combine or "set")
        return write(updates, mode="drop")

    def write_rows(self, x: Any, rows: Any, updates: Any, *, axis: int) -> Any:
        general = partial(super().write_rows, axis=axis)
        if self.has_one_form:
            return general(x, rows, updates)
        whole = partial(indexing.write_whole_rows, axis=axis)
        return lax.platform_dependent(x, rows, updates, cpu=general, default=whole)

    def fourier(
        self,
        real: Any,
        imaginary: Any = None,
        *,
        axis: int,
        dtype: Any,
        inverse: bool = False,
        double: bool = False,
        kept: int | None = None,
    ) -> Any:
        options: Any = {"axis": axis, "dtype": dtype}
        form = partial(super().fourier, **options, double=double)
        if not self.has_one_form:
            form = partial(elsewhere.fourier, form, options)
        parts = (real,) if imaginary is None else (real, imaginary)
        found = transforms.transformed(form, real.shape[axis], inverse, parts)
        if kept is None:
            return found
        return tuple(lax.slice_in_dim(part, 0, kept, axis=axis) for part in found)

    def fft(self, x: Any, *, axis: int, inverse: bool = False) -> Any:
        x = jnp.moveaxis(x, axis, -1)
        kind = lax.FftType.IFFT if inverse else lax.FftType.FFT
        return jnp.moveaxis(lax.fft(x, kind, x.shape[-1:]), -1, axis)

    def top_k(self, x: Any, k: int, *, axis: int, largest: bool) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            key = x if largest else ~x
        else:
            # XLA tells the zeros apart, and puts NaN at either end by its sign.
            plain = jnp.where(jnp.isnan(x), jnp.nan, jnp.where(x == 0, 0, x))
            key = plain if largest else -plain
        places = sorting.general_top_k if self.settings.simplest else sorting.top_k
        return places(key, k, axis)

    def first_selected(
        self, boxes: Any, scores: Any, limit: Any, threshold: Any, least: Any, *, has_centres: bool
    ) -> Any:
        numbers = limit, threshold, least
        images, classes, count = scores.shape
        pairs = images * classes * min(count, MOST_BEGUN) ** 2
        is_small = 0 < scores.size <= MOST_SCORES and pairs <= MOST_PAIRS
        is_for_it = is_small and scores.dtype == boxes.dtype == np.float32
        if not is_for_it or any(each is not None and each.size != 1 for each in numbers):
            return super().first_selected(boxes, scores, *numbers, has_centres=has_centres)
        plain = [each if each is None else jnp.reshape(each, ()) for each in numbers]
        return suppression.first_selected(boxes, scores, *plain, has_centres=has_centres)

    def astype(self, x: Any, dtype: Any) -> Any:
        return casts.cast(x, dtype)

    def bitcast(self, x: Any, dtype: Any) -> Any:
        if dtype == np.complex64:
            # JAX would add the parts up, and lose infinities, subnormal numbers and NaN.
            parts = lax.bitcast_convert_type(x, np.float32)
            return lax.complex(parts[..., 0], parts[..., 1])
        return x.view(dtype)

    def pow(self, a: Any, b: Any) -> Any:
        if all(jnp.issubdtype(jnp.result_type(x), jnp.integer) for x in (a, b)):
            return powers.integer_power(a, b)
        return jnp.pow(a, b)

    def fmod(self, a: Any, b: Any) -> Any:
        return elsewhere.divided("fmod", a, b, is_simplest=self.has_one_form)

    def remainder(self, a: Any, b: Any) -> Any:
        return elsewhere.divided("remainder", a, b, is_simplest=self.has_one_form)

    def floor_divide(self, a: Any, b: Any) -> Any:
        return elsewhere.divided("floor_divide", a, b, is_simplest=self.has_one_form)

    def matmul(self, a: Any, b: Any) -> Any:
        if elsewhere.are_wide_integers(a, b) and not self.has_one_form:
            return elsewhere.matmul(a, b)
        a, b, options = self._factors(a, b)
        if a.ndim == b.ndim == 2:
            # The general form names its result's type, and derivatives may then not have float64.
            return multiplied(lax.dot, a, b, **options)
        return multiplied(jnp.matmul, a, b, **options)

    def _factors(self, a: Any, b: Any) -> Factors:
        return of_product(self.settings.precision, a, b)

    def solve_lower(self, a: Any, b: Any) -> Any:
        return lax.linalg.triangular_solve(a, b, left_side=True, lower=True, unit_diagonal=True)

    def det(self, x: Any) -> Any:
        # cuSOLVER takes NaN for a number like any other.
        known = jnp.logical_not(jnp.any(jnp.isnan(x), axis=(-2, -1)))
        return jnp.where(known, elsewhere.det(x), jnp.nan)

    def inverse(self, x: Any) -> Any:
        return jnp.linalg.inv(x)

    def tensordot(self, a: Any, b: Any, *, axes: Any) -> Any:
        if elsewhere.are_wide_integers(a, b) and not self.has_one_form:
            return elsewhere.tensordot(a, b, axes)
        a, b, options = self._factors(a, b)
        return multiplied(partial(jnp.tensordot, axes=axes), a, b, **options)

    def quotient(self, a: Any, b: Any) -> Any:
        wide = jnp.promote_types(a.dtype, jnp.float32)
        result = _divided(a.astype(wide), jnp.asarray(b, dtype=wide))
        if wide != a.dtype:
            # Only the mantissa is reduced: a narrow exponent would make small numbers zero.
            form = jnp.finfo(a.dtype)
            result = lax.reduce_precision(result, 8, form.nmant)
        return result.astype(a.dtype)

    def separate_product(self, a: Any, b: Any) -> Any:
        return _rounded_in_float64(a.astype(jnp.float64) * b.astype(jnp.float64))

    def scaled_like(self, general: Any, x: Any, scale: Any, dtype: np.dtype[Any]) -> Any:
        if self.has_one_form or not scaling.is_exact(x.dtype, dtype):
            return general(x, scale)
        narrow = partial(scaling.scaled, dtype=dtype)
        return lax.platform_dependent(x, scale, cuda=narrow, default=general)

    def integer_matmul(self, a: Any, b: Any) -> Any:
        """Signed by signed, for which there are instructions: x is (x - 128) + 128."""
        if a.dtype == jnp.uint8:
            below = 128 * jnp.sum(b, axis=-2, keepdims=True, dtype=jnp.int32)
            return self.integer_matmul(_less_128(a), b) + below
        if b.dtype == jnp.uint8:
            below = 128 * jnp.sum(a, axis=-1, keepdims=True, dtype=jnp.int32)
            return self.integer_matmul(a, _less_128(b)) + below
        if a.shape[-1] % 4:
            return lax.platform_dependent(a, b, cuda=_matmul_by_fours, default=_matmul_of_bytes)
        return _matmul_of_bytes(a, b)

    def convolution(self, x: Any, weight: Any, *, is_finite: bool = False, **options: Any) -> Any:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            # XLA convolves integers with plain loops on the CPU, and not at all on a GPU.
            return super().convolution(x, weight, **options)
        layout = ConvolutionLayout.of(**options)
        convolve = general_convolution if self.settings.simplest else platforms.convolution
        x, weight, product = of_convolution(self.settings.precision, x, weight)
        y = convolve(x, weight, layout, **product)
        if is_finite or self.settings.outlines:
            return y
        return with_padding(y, x.shape, weight, layout)

    def integer_convolution(
        self, x: Any, weight: Any, by_columns: Any, *, strides: Any, dilations: Any, groups: int
    ) -> Any:
        if self.has_one_form:
            return by_columns(x, weight)
        layout = ConvolutionLayout(
            tuple(strides), ((0, 0),) * len(strides), tuple(dilations), groups
        )
        return elsewhere.integer_convolution(x, weight, layout, by_columns)

    def sum(self, x: Any, **options: Any) -> Any:
        return self._reduced(jnp.sum, x, **options)

    def mean(self, x: Any, **options: Any) -> Any:
        return self._reduced(jnp.mean, x, **options)

    def max(self, x: Any, **options: Any) -> Any:
        return self._reduced(jnp.max, x, **options)

    def _reduced(self, function: Any, x: Any, *, axis: Any = None, **options: Any) -> Any:
        if self.leaves_channels_last and windows.are_planes(x, axis):
            return windows.reduced_planes(function, x, **options)
        return function(x, axis=axis, **options)

    def window_max(self, x: Any, *window: Sequence[int]) -> Any:
        lowest = -np.inf if jnp.issubdtype(x.dtype, jnp.floating) else int(np.iinfo(x.dtype).min)
        return platforms.window_reduce(lax.max, x, lowest, *window)

    def window_sum(self, x: Any, *window: Sequence[int]) -> Any:
        return platforms.window_reduce(lax.add, x, 0, *window)

    def strides(self, x: Any) -> tuple[int, ...]:
        order = range(x.ndim) if self.is_abstract(x) else x.format.layout.major_to_minor
        packed = dense_strides([x.shape[axis] for axis in order])
        return tuple(packed[list(order).index(axis)] for axis in range(x.ndim))

    def with_strides(self, x: Any, steps: Any) -> Any:
        """The device's layout of the array: JAX has any order of the axes, but no padding."""
        copy = jnp.copy(x)
        if same_layout(x.shape, steps, self.strides(copy)):
            return copy
        order = axis_order(x.shape, steps)
        if order is None or self.is_abstract(x):
            raise ValueError(
                f"JAX has no strides {tuple(steps)} for shape {x.shape}: outside of jit its axes "
                "may lie in any order, but densely; NumPy and CuPy have any strides"
            )
        result = jax.device_put(copy, Format(Layout(order), copy.sharding))
        if result.format.layout.major_to_minor != order:
            raise ValueError(f"JAX does not let {copy.device} have strides {tuple(steps)}")
        return result

    def write(self, out: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.is_abstract(out):
            return function(self, *arguments)
        others = (None if argument is out else argument for argument in arguments)
        return _writer(out.format)(self, function, out, *others)

    def cond(self, predicate: Any, when_true: Any, when_false: Any) -> Any:
        return lax.cond(jnp.reshape(predicate, ()), when_true, when_false)

    def loop(self, condition: Any, body: Any, carry: Any) -> Any:
        return lax.while_loop(
            lambda carried: jnp.reshape(condition(*carried), ()), lambda c: body(*c), carry
        )

    def scan(self, step: Any, carry: Any, inputs: Any, length: int, **options: Any) -> Any:
        return lax.scan(step, carry, inputs, length, **options)

    def gradients(self, function: Any, arrays: Any, count: int) -> Any:
        def total(*chosen: Any) -> Any:
            return jnp.sum(function(*chosen, *arrays[count:])[0])

        return jax.grad(total, argnums=tuple(range(count)))(*arrays[:count])


def _matmul_of_bytes(a: Any, b: Any) -> Any:
    return jnp.matmul(a, b, preferred_element_type=jnp.int32)


def _matmul_by_fours(a: Any, b: Any) -> Any:
    """For GPUs, where XLA's product is wrong if its length is no multiple of 4 (jaxlib 0.11.2)."""
    more = -a.shape[-1] % 4
    a = jnp.pad(a, [*[(0, 0)] * (a.ndim - 1), (0, more)])
    b = jnp.pad(b, [*[(0, 0)] * (b.ndim - 2), (0, more), (0, 0)])
    return _matmul_of_bytes(a, b)


def _divided(x: Any, y: Any) -> Any:
    """`x / y`, rounded once on every platform."""
    # Where one number divides many, XLA multiplies by its inverse: here no two are the same.
    y = jnp.where(jnp.isnan(x), x, y)
    if x.dtype != jnp.float32:
        return x / y
    return lax.platform_dependent(x, y, cuda=_divided_in_float64, default=jnp.divide)


def _divided_in_float64(x: Any, y: Any) -> Any:
    """For GPUs, where XLA's quotients of float32 may be off by two units in the last place."""
    return _rounded_in_float64(x.astype(jnp.float64) / y.astype(jnp.float64))


def _rounded_in_float64(x: Any) -> Any:
    """Round to float32; without the first step LLVM would compute `x` itself in float32."""
    return lax.platform_dependent(
        x,
        # XLA has a float64 there as the sum of two float32, and no such step for it.
        tpu=lambda x: x.astype(jnp.float32),
        default=lambda x: lax.reduce_precision(x, 11, 23).astype(jnp.float32),
    )


def _less_128(x: Any) -> Any:
    return lax.bitcast_convert_type(x ^ jnp.uint8(128), jnp.int8)


@cache
def _writer(place: Format) -> Callable[..., Any]:
    """Computes into the buffer of `out`, which also stands for each argument that is None."""

    def write(xp: JaxOperations, function: Callable[..., Any], out: Any, *arguments: Any) -> Any:
        return function(xp, *(out if argument is None else argument for argument in arguments))

    return jax.jit(
        write, static_argnums=(0, 1), donate_argnums=2, keep_unused=True, out_shardings=place
    )
