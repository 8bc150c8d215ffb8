"""Products of matrices: calls of the library, in the forms that it starts without kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sardonyx.backends.fusion.forms import Forms
from sardonyx.backends.shape_backend import SHAPES

FLOAT32 = np.dtype(np.float32)


class Products(Forms):
    """CuPy broadcasts batches of matrices by arrays of pointers, which takes several kernels."""

    def matmul(self, a: Any, b: Any) -> Any:
        a, b = self.asarray(a), self.asarray(b)
        result = SHAPES.matmul(a.blank, b.blank)
        if not a.size or not b.size:
            return self.opaque("matmul", a, b)
        if result.dtype.kind in "fV" and result.dtype.itemsize < 4:
            # Casts are part of the kernels before and after.
            wide = self.matmul(self.astype(a, FLOAT32), self.astype(b, FLOAT32))
            return self.astype(wide, result.dtype)
        if min(a.ndim, b.ndim) < 2:
            return self.opaque("matmul", a, b)
        batches, others, batch = a.shape[:-2], b.shape[:-2], result.shape[:-2]
        if math.prod(others) == 1:
            rows = math.prod(batches) * a.shape[-2]
            left, right = (rows, a.shape[-1]), b.shape[-2:]
        else:
            count, most = math.prod(batch), result.size + max(a.size, b.size)
            left, right = (count, *a.shape[-2:]), (count, *b.shape[-2:])
            copied = [
                math.prod(shape)
                for shape, own in ((left, batches), (right, others))
                if math.prod(own) != count
            ]
            if sum(copied) > most:
                return self.opaque("matmul", a, b)
            a, b = (self._repeated(x, batch) for x in (a, b))
        product = self.opaque("matmul", self.reshape(a, left), self.reshape(b, right))
        return self.reshape(product, result.shape)

    def _repeated(self, x: Any, batch: tuple[int, ...]) -> Any:
        """Return a matrix for each of the batch, written by a kernel if there are fewer."""
        if math.prod(x.shape[:-2]) == math.prod(batch):
            return x
        return self._copied(self.broadcast_to(x, (*batch, *x.shape[-2:])))
