"""Products of matrices: calls of the library, with their epilogue where it has a kernel for it."""

from __future__ import annotations

from typing import Any

from sardonyx.backends.fused_epilogue import Epilogue
from sardonyx.backends.fusion.forms import Forms
from sardonyx.backends.fusion.library_products import Float8Products, takes_epilogue


class Products(Float8Products, Forms):
    """Strides of views become arguments of the library, so that no operand is copied for it."""

    def matmul(self, a: Any, b: Any) -> Any:
        return self.opaque("matmul", self.asarray(a), self.asarray(b))

    def int8_product(self, a: Any, b: Any) -> Any:
        return self.opaque("int8_product", a, b)

    def float8_product(self, a: Any, columns: Any, *scales: Any, dtype: Any) -> Any:
        return self.opaque("float8_product", a, columns, *scales, dtype=dtype)

    def multiplies_with(self, a: Any, b: Any, others: Any, epilogue: Epilogue) -> bool:
        return takes_epilogue(a, b, others, epilogue)

    def matmul_and_more(self, a: Any, b: Any, *others: Any, epilogue: Epilogue) -> Any:
        return self.opaque("matmul_and_more", a, b, *others, epilogue=epilogue)
