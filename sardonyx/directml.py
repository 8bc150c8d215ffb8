"""DirectML's element-wise identity as a function of arrays, on whatever library they belong to.

>>> import numpy as np
>>> x = np.arange(6, dtype=np.float32).reshape(2, 3)
>>> element_wise_identity(x, scale_bias=(2, 1)).tolist()
[[1.0, 3.0, 5.0], [7.0, 9.0, 11.0]]
>>> element_wise_identity(x, strides=(1, 2)).strides
(4, 8)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from operator import index
from typing import Any, TypeAlias

from sardonyx.backends import backend_of
from sardonyx.backends.base import Backend
from sardonyx.backends.strides import dense_strides, extent, overlap, same_layout
from sardonyx.errors import InvalidInput, SardonyxError
from sardonyx.ops.directml import check_support, scaled

Strides: TypeAlias = Sequence[int]


def element_wise_identity(
    x: Any,
    *,
    scale_bias: tuple[float, float] | None = None,
    out: Any = None,
    strides: Strides | tuple[Strides | None, Strides | None] | None = None,
    feature_level: str | float = "4.1",
) -> Any:
    """Return x * scale + bias, or `x` without a `scale_bias`, in a new buffer or in `out`.

    `out` may be `x` itself: the operator then works in place. JAX's arrays are immutable; there
    the result reuses the buffer of `out`, which is deleted. `strides`, counted in elements, are
    those of the result, or a pair for the input and the result. With strides for the input, its
    elements in row-major order are the buffer that is read at those strides; a stride of 0 repeats
    elements. DirectML's types and ranks at `feature_level` are accepted.

    Floats are computed in their own type. Integers are computed in float64 (those of 64 bits with
    a whole scale and bias exactly), truncated towards zero and limited to the range of their type;
    NaN becomes 0.
    """
    xp = backend_of(x).for_ops
    with xp.scope():
        try:
            _check_type(xp, x, feature_level)
            return _computed(xp, x, _scaling(scale_bias), out, _pair(strides))
        except SardonyxError:
            raise
        except (ValueError, RuntimeError) as error:
            reason = xp.explain(error) or error
            if reason is error and not isinstance(error, ValueError):
                raise
            raise InvalidInput(f"element_wise_identity of {_described(x)}: {reason}.") from error


@dataclass(frozen=True)
class _Scaling:
    """The computation; instances with the same numbers are equal, so that one is compiled."""

    scale: float
    bias: float

    def __call__(self, xp: Backend, x: Any) -> Any:
        return scaled(xp, x, self.scale, self.bias)


def _computed(xp: Backend, x: Any, scaling: _Scaling, out: Any, strides: tuple[Any, Any]) -> Any:
    from_strides, to_strides = (_checked(x.shape, steps) for steps in strides)
    if to_strides is not None and overlap(x.shape, to_strides):
        raise ValueError(f"with the strides {to_strides} two elements would overlap")
    source = x if from_strides is None else _read(xp, x, from_strides)
    if out is not None:
        _check_out(xp, x, out, to_strides)
        return xp.write(out, scaling, source)
    result = scaling(xp, source)
    wanted = to_strides or dense_strides(x.shape)
    if result is source or xp.strides(result) != wanted:
        return xp.with_strides(result, wanted)
    return result


def _read(xp: Backend, x: Any, steps: tuple[int, ...]) -> Any:
    needed = extent(x.shape, steps)
    if needed > x.size:
        raise ValueError(
            f"the input's strides {steps} reach element {needed - 1}, but its buffer has "
            f"{x.size} elements"
        )
    return xp.elements_at(x, steps)


def _check_type(xp: Backend, x: Any, feature_level: str | float) -> None:
    dtype = xp.numpy_dtype(x.dtype)
    if not dtype.isnative:
        raise ValueError(
            "DirectML takes numbers in the byte order of the machine; convert them with "
            "x.astype(x.dtype.newbyteorder('='))"
        )
    check_support(dtype, x.ndim, feature_level)


def _check_out(xp: Backend, x: Any, out: Any, steps: tuple[int, ...] | None) -> None:
    if out is not x and not xp.owns(out):
        raise ValueError(
            f"out is {_described(out)}, but must be an array of {xp.name} on the same device"
        )
    if (out.dtype, out.shape) != (x.dtype, x.shape):
        raise ValueError(f"out is {_described(out)}, but input and output must agree in both")
    present = xp.strides(out)
    if steps is not None and not same_layout(x.shape, present, steps):
        raise ValueError(
            f"out has the strides {present}, not {steps}; leave out its strides, or leave out out"
        )
    if overlap(x.shape, present):
        raise ValueError("two elements of out overlap, so that they cannot be written")


def _scaling(scale_bias: Any) -> _Scaling:
    if scale_bias is None:
        return _Scaling(1.0, 0.0)
    numbers = tuple(scale_bias) if isinstance(scale_bias, Sequence) else ()
    if len(numbers) != 2 or not all(isinstance(n, Real) for n in numbers):
        raise ValueError(f"scale_bias is {scale_bias!r}, but must be a pair of numbers")
    return _Scaling(*map(float, numbers))


def _pair(strides: Any) -> tuple[Any, Any]:
    """The strides of the input and of the output; those of the input may be left out."""
    if strides is None:
        return None, None
    steps = tuple(strides)
    if len(steps) == 2 and all(one is None or isinstance(one, Sequence) for one in steps):
        return steps
    return None, steps


def _checked(shape: tuple[int, ...], steps: Any) -> tuple[int, ...] | None:
    if steps is None:
        return None
    wanted = f"but must be {len(shape)} whole numbers of elements, none of them negative"
    try:
        strides = tuple(index(step) for step in steps)
    except TypeError:
        raise ValueError(f"the strides are {steps!r}, {wanted}") from None
    if len(strides) != len(shape) or any(step < 0 for step in strides):
        raise ValueError(f"the strides are {strides}, {wanted}")
    return strides


def _described(x: Any) -> str:
    if not hasattr(x, "dtype") or not hasattr(x, "shape"):
        return f"a {type(x).__name__}"
    return f"{x.dtype} {tuple(x.shape)}"
