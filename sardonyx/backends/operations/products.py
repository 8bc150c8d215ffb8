"""Products of matrices and linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import Epilogue
from sardonyx.backends.operations.array_library import Library
from sardonyx.backends.standard import Array

# Sums of more products of 8-bit integers could leave int32.
LONGEST_SUM = 2**17 - 1


class PackedForm(Protocol):
    """A form of weights that some kernels read; equal if it is the same one."""

    @property
    def packed(self) -> Spec:
        """Shape and dtype of the weight in this form."""

    def pack(self, weight: Any) -> Any:
        """The weight in this form; it runs ahead of the calls, on an array of the host."""


class PackedProduct(Protocol):
    """A kernel that multiplies arrays of certain shapes by a packed weight."""

    @property
    def form(self) -> PackedForm:
        """The form of its weight, which kernels for other shapes may read too."""

    @property
    def is_same_in_programs(self) -> bool:
        """Whether compiled programs call the kernel that computes it on arrays of the host."""

    def run(self, x: Any, packed: Any, *others: Any) -> Any:
        """The product and its epilogue, whose bias and addend, if any, are the `others`."""


class Link(NamedTuple):
    """One product of a chain, and the numbers of the arrays that it reads.

    The arrays from outside come first, and then the results of the links in turn.
    """

    product: Any
    x: int
    addend: int | None = None


class ProductChain(Protocol):
    """A kernel that computes linked products, of which only the last one has a reader outside."""

    @property
    def links(self) -> tuple[Link, ...]:
        """The products, each after those that it reads."""

    @property
    def arrays(self) -> int:
        """How many arrays come from outside."""

    def run(self, *arguments: Any) -> Any:
        """The last product, of the arrays and then the packed weight and bias of each link."""


@dataclass(frozen=True, slots=True)
class PreparedFactor:
    """8-bit integers on the right side of products, in the form that the backend's kernel reads.

    To ops it is the array that it was prepared from.
    """

    shape: tuple[int, ...]
    dtype: Any
    columns: Array
    # The sum of each column of the integers as signed ones, with a row's shape.
    sums: Array
    # Whether the zero point of the signed integers is known to be 0.
    is_centred: bool

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)


class Products(Library):
    """Matrices times matrices."""

    # Whether products of dequantized float8 may use kernels whose sums are less exact than float32.
    multiplies_dequantized_float8: bool = False
    # Whether products of 8-bit types are faster if their right side is prepared ahead of calls.
    prepares_columns: bool = False

    def integer_matmul(self, a: Array, b: Array) -> Array:
        """The product of matrices of 8-bit integers, signed or not, in int32 modulo 2**32.

        Through floats, which libraries multiply fast, and which hold these sums exactly.
        """
        largest = a.shape[-1] * 2**16
        wide = self.dtype(np.dtype(np.float32 if largest <= 2**24 else np.float64))
        product = self.matmul(self.astype(a, wide), self.astype(b, wide))
        if largest > 2**31:
            product = self.astype(product, self.dtype(np.dtype(np.int64)))
        return self.astype(product, self.dtype(np.dtype(np.int32)))

    def signed_bytes(self, x: Array) -> Array:
        """Return 8-bit integers as signed ones: those without a sign less 128."""
        raise NotImplementedError

    def columns_of_bytes(self, b: Array) -> Array:
        """Return the columns of 8-bit integers in the form that `product_with_columns` reads."""
        raise NotImplementedError

    def product_with_columns(self, a: Array, columns: Array) -> Array:
        """Return the product of signed bytes in int32; further columns may follow it."""
        raise NotImplementedError

    def multiplies_float8(self, a: Spec, b: Spec) -> bool:
        """Whether `float8_matmul` has a kernel for the product of these matrices."""
        return False

    def columns_of_float8(self, b: Array) -> Array:
        """Return the columns of floats of 8 bits in the form that `float8_matmul` reads."""
        raise NotImplementedError

    def columns_spec(self, b: Spec) -> Spec:
        """Return the shape and dtype of the columns of integers or floats of 8 bits."""
        raise NotImplementedError

    def float8_matmul(
        self,
        a: Array,
        columns: Array,
        a_scale: Array | None,
        b_scale: Array | None,
        *,
        dtype: np.dtype[Any],
    ) -> Array:
        """Return the product times both scales, which are numbers; further columns may follow.

        Its sums may be less exact than those of float32.
        """
        raise NotImplementedError

    def multiplies_with(
        self, a: Array, b: Array, others: Sequence[Array], epilogue: Epilogue
    ) -> bool:
        """Whether `matmul_and_more` has a kernel for the product of these and this epilogue."""
        return False

    def matmul_and_more(self, a: Array, b: Array, *others: Array, epilogue: Epilogue) -> Array:
        """The product and its epilogue, whose bias, if any, is among the `others`."""
        raise NotImplementedError

    def solve_lower(self, a: Array, b: Array) -> Array:
        """`x` such that `a @ x` is `b`; the matrix `a` has 1 on its diagonal and 0 above it.

        The upper half comes first, so that an infinity or NaN reaches only the rows below it.
        """
        half = a.shape[-1] // 2
        if not half:
            return b
        above = self.solve_lower(a[..., :half, :half], b[..., :half, :])
        rest = b[..., half:, :] - self.matmul(a[..., half:, :half], above)
        below = self.solve_lower(a[..., half:, half:], rest)
        return self.concat([above, below], axis=-2)

    def det(self, x: Array) -> Array:
        """The determinants of square matrices."""
        determinants: Array = self._namespace.linalg.det(x)
        return determinants

    def inverse(self, x: Array) -> Array:
        """The inverses of square matrices, of which no element is finite where there is none.

        NumPy raises an error for a singular matrix, so that it must not see any.
        """
        linalg = self._namespace.linalg
        sign, _ = linalg.slogdet(x)
        is_singular = self.equal(sign, 0)[..., None, None]
        one = self.eye(x.shape[-1], dtype=x.dtype)
        inverses = linalg.inv(self.where(is_singular, one, x))
        return self.where(is_singular, self.full((), np.nan, dtype=x.dtype), inverses)

    def packed_matmul(
        self,
        x: Spec,
        weight: Spec,
        *,
        is_transposed: bool,
        epilogue: Epilogue,
        in_small_program: bool,
        single_rows: bool,
    ) -> PackedProduct | None:
        """A kernel for the product of rows and a matrix with the epilogue, if there is one.

        A small program may run as calls of NumPy, which cannot read every form of a weight. With
        `single_rows` a product of one row gets the kernel that several rows would have.
        """
        return None

    def product_chain(self, links: Sequence[Link], arrays: int) -> ProductChain | None:
        """A kernel for linked products that read so many arrays from outside, if there is one."""
        return None
