"""Products of matrices: calls of the library, with their epilogue where it has a kernel for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import Epilogue
from sardonyx.backends.fusion.forms import Forms
from sardonyx.backends.fusion.library_products import IntegerProducts, takes_epilogue
from sardonyx.backends.shape_backend import SHAPES

INT32 = np.dtype(np.int32)


class Products(IntegerProducts, Forms):
    """Strides of views become arguments of the library, so that no operand is copied for it."""

    def matmul(self, a: Any, b: Any) -> Any:
        return self.opaque("matmul", self.asarray(a), self.asarray(b))

    def int8_product(self, a: Any, b: Any) -> Any:
        spec = Spec(SHAPES.matmul(a.blank, self.matrix_transpose(b).blank).shape, INT32)

        def call(xp: Any, arrays: Sequence[Any]) -> Sequence[Any]:
            return (xp.int8_product(*arrays),)

        return self.deferred(call, (a, b), [spec])[0]

    def multiplies_with(self, a: Any, b: Any, others: Any, epilogue: Epilogue) -> bool:
        return takes_epilogue(a, b, others, epilogue)

    def matmul_and_more(self, a: Any, b: Any, *others: Any, epilogue: Epilogue) -> Any:
        spec = Spec(SHAPES.matmul(a.blank, b.blank).shape, a.dtype)

        def call(xp: Any, arrays: Sequence[Any]) -> Sequence[Any]:
            return (xp.matmul_and_more(*arrays, epilogue=epilogue),)

        return self.deferred(call, (a, b, *others), [spec])[0]
