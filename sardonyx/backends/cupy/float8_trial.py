"""Which products of floats of 8 bits cuBLASLt computes: tried out once on each device.

Its sums are less exact than those of float32: the H100 adds up about 14 bits of each term. The
trial finds other differences: of scales, layouts, infinities, NaN and numbers that are too large.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import cupy
import ml_dtypes
import numpy as np

from sardonyx.backends.cupy import cublaslt
from sardonyx.backends.cupy.cublaslt import FLOAT8_KINDS, Float8
from sardonyx.backends.cupy.product_plans import Call, Matrix, Plan
from sardonyx.backends.cupy.refusals import LOG

# The first devices whose tensor cores multiply floats of 8 bits.
LEAST_CAPABILITY = 89
ROWS, COLUMNS, LENGTH = 32, 48, 64
SCALES = (0.375, 3.0)
# How far sums may be off, relative to the sum of the sizes of their terms.
TOLERANCE = 2.0**-10


@cache
def float8_kinds_of(device: int) -> frozenset[Float8]:
    """Return the kinds of products that the device computes right."""
    with cupy.cuda.Device(device) as found:
        if int(found.compute_capability) < LEAST_CAPABILITY:
            LOG.info("Device %s has no products of floats of 8 bits", device)
            return frozenset()
        return frozenset(kind for kind in FLOAT8_KINDS if _is_computed(kind))


def _is_computed(kind: Float8) -> bool:
    title = f"products of {kind.a} and {kind.b} to {kind.result}"
    try:
        if _is_right(kind):
            return True
        LOG.info("cuBLASLt's %s differ from those of float32", title)
    except Exception as error:
        # Whatever the reason is, products of floats stand in.
        LOG.info("cuBLASLt computes no %s: %s", title, partial(str, error))
    return False


def _is_right(kind: Float8) -> bool:
    a, columns = _drawn((ROWS, LENGTH), kind.a, 0), _drawn((COLUMNS, LENGTH), kind.b, 1)
    a[0, 0] = np.nan
    a[1] = np.inf if kind.a == ml_dtypes.float8_e5m2 else ml_dtypes.finfo(kind.a).max
    a[2] = ml_dtypes.finfo(kind.a).max
    operands = [cupy.asarray(x.view(np.uint8)) for x in (a, columns)]
    scales = [cupy.asarray(np.float32(scale)) for scale in SCALES]
    result = cupy.empty((ROWS, COLUMNS), kind.result)
    call = Call((0, 0, 0), (0, 0, 0), 1)
    left, right, into = Matrix(False, LENGTH), Matrix(True, LENGTH), Matrix(False, COLUMNS)
    plan = Plan(ROWS, COLUMNS, LENGTH, left, right, into, (call,))
    addresses = (operands[0].data.ptr, operands[1].data.ptr, result.data.ptr)
    pointers = (scales[0].data.ptr, scales[1].data.ptr)
    cublaslt.multiply(kind, plan, addresses, scales=pointers)
    return _agrees(cupy.asnumpy(result), a.astype(np.float64), columns.astype(np.float64).T)


def _agrees(found: np.ndarray[Any, Any], a: Any, b: Any) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):
        scale = SCALES[0] * SCALES[1]
        expected, size = scale * (a @ b), scale * (np.abs(a) @ np.abs(b))
        rounded = expected.astype(found.dtype).astype(np.float64)
        unit = float(ml_dtypes.finfo(found.dtype).eps)
        difference = np.abs(found.astype(np.float64) - rounded)
        is_near = difference <= TOLERANCE * size + unit * np.abs(rounded)
    is_finite = np.isfinite(rounded)
    same = np.array_equal(found[~is_finite].astype(np.float64), rounded[~is_finite], equal_nan=True)
    return same and bool(is_near[is_finite].all())


def _drawn(shape: tuple[int, int], dtype: np.dtype[Any], seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)
