"""Normalization of rows and their softmax, where a library has a kernel for it."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.backends.operations.array_library import Library
from sardonyx.backends.standard import Array


class Normalization(Library):
    """Rows are the elements along as many last axes as the scale has."""

    def normalizes_rows(
        self, x: Array, scale: Array, bias: Array | None, *, is_centred: bool
    ) -> bool:
        """Whether `normalized_rows` has a kernel that is better than the operations one by one."""
        return False

    def normalized_rows(
        self, x: Array, scale: Array, bias: Array | None, *, epsilon: float, is_centred: bool
    ) -> Array:
        """`x`, less the mean of each row if that is asked, by its root mean square, scaled.

        `epsilon` is added to the mean square.
        """
        raise NotImplementedError

    def has_kernels_of_rows(self, *arrays: Array) -> bool:
        """Whether there are kernels for arrays like these: the functions below, of whole rows."""
        return False

    def standardized_rows(
        self, x: Array, scale: Array, bias: Array | None, *, epsilon: float
    ) -> tuple[Array, Array, Array]:
        """Rows with mean 0 and variance 1, scaled; the means, and the inverses of the deviations.

        `epsilon` is added to the variance.
        """
        raise NotImplementedError

    def softmax_of_rows(self, x: Array, *, or_zero: bool = False) -> Array:
        """The softmax along the last axis; if that is asked, zeros for a row where it is NaN."""
        raise NotImplementedError

    def attended(
        self,
        queries: Array,
        keys: Array,
        values: Array,
        mask: Array | None,
        factors: Sequence[Array | None],
        *,
        or_zero: bool = False,
    ) -> Array:
        """The softmax of the products of queries and keys, which are columns, times the values.

        The mask is added to the scores before. Of the factors, queries, keys and scores are times
        the first three, and scores by the last one; None stands for one.
        """
        raise NotImplementedError
