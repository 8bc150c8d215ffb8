"""Products of floats of 8 bits by cuBLASLt, where the device computes them."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from sardonyx.backends.cupy.bits import Bits, widened
from sardonyx.backends.cupy.cublaslt import Float8
from sardonyx.backends.cupy.float8_trial import float8_kinds_of
from sardonyx.backends.cupy.lt_calls import multiply_by_parts, row_major
from sardonyx.backends.cupy.products import FAILURES, product, result_shape
from sardonyx.backends.cupy.refusals import is_refused, note
from sardonyx.backends.executable import Spec
from sardonyx.backends.fusion import library_products
from sardonyx.backends.fusion.library_products import FLOATS, takes_float8


class Float8Products(library_products.Float8Products):
    """Whatever the library refuses is a product of float32."""

    device: int

    def multiplies_float8(self, a: Spec, b: Spec) -> bool:
        if not takes_float8(a, b):
            return False
        # All are tried out now, since there may be no trial during a capture.
        kinds = float8_kinds_of(self.device)
        return all(Float8(a.dtype, b.dtype, to) in kinds for to in FLOATS)

    def float8_product(
        self, a: Any, columns: Any, a_scale: Any, b_scale: Any, *, dtype: np.dtype[Any]
    ) -> Any:
        a, columns = (Bits(row_major(x.bits), x.dtype) for x in (a, columns))
        b = Bits(columns.bits.swapaxes(-1, -2), columns.dtype)
        scales = (a_scale, b_scale)
        options = (b.dtype, dtype, *(scale is not None for scale in scales))
        if not is_refused(a, b, *options):
            result = cupy.empty(result_shape(a.shape, b.shape), dtype)
            kind = Float8(a.dtype, b.dtype, dtype)
            pointers = [None if scale is None else scale.data.ptr for scale in scales]
            try:
                multiply_by_parts(kind, a.bits, b.bits, result, scales=(pointers[0], pointers[1]))
            except FAILURES as error:
                note(error, a, b, *options, instead="a product of float32")
            else:
                return result
        factors = _scaled(a, a_scale), _scaled(b, b_scale)
        return product(*factors, precision=self.precision).astype(dtype, copy=False)


def _scaled(x: Bits, scale: Any) -> Any:
    numbers = widened(x).astype(np.float32, copy=False)
    return numbers if scale is None else numbers * scale
