"""Products of which each but the last is read by later ones alone, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.loaded import Kind
from sardonyx.backends.jax.onednn.products import (
    AxisOrder,
    Product,
    called,
    empty_in_order,
    in_axis_order,
    in_memory_order,
)
from sardonyx.backends.operations.products import Link


@dataclass(frozen=True)
class Chain:
    """Linked products, for arrays of certain shapes and no others.

    Their threads stay awake from the first product to the last, and results in between lie in
    memory that the next call gets again.

    >>> import numpy as np
    >>> from sardonyx.backends.executable import Spec
    >>> from sardonyx.backends.jax.onednn import matrix_product
    >>> x, weight = np.ones((128, 32), np.float32), np.ones((32, 32), np.float32)
    >>> product = matrix_product(Spec(x.shape, x.dtype), Spec(weight.shape, weight.dtype))
    >>> if product is not None:
    ...     squared = chain([Link(product, 0), Link(product, 1)], 1)
    ...     packed = product.form.pack(weight)
    ...     assert squared.run(x, packed, packed)[0, 0] == 32 * 32
    """

    links: tuple[Link, ...]
    arrays: int

    kind: ClassVar[Kind] = Kind.CHAIN

    # These two are made at first use: rewrites make a chain for each of its products.

    @cached_property
    def spec(self) -> tuple[int, ...]:
        """The links as numbers, for the kernel."""
        spec = [self.arrays, len(self.links)]
        for product, x, addend in self.links:
            spec += x, -1 if addend is None else addend, len(product.spec), *product.spec
        return tuple(spec)

    @cached_property
    def layouts(self) -> tuple[AxisOrder, ...]:
        """The orders of the axes of the arrays, of the weights, and of the result."""
        orders: dict[int, AxisOrder] = {}
        weights: list[AxisOrder] = []
        for product, x, addend in self.links:
            orders[x], *weight, _ = product.layouts
            if addend is not None:
                orders[addend] = weight.pop()
            weights += weight
        outside = [orders[number] for number in range(self.arrays)]
        return *outside, *weights, self.links[-1].product.layouts[-1]

    def run(self, *arguments: Any) -> Any:
        """The last product, of the arrays and then the packed weight and bias of each link.

        As with `Product.run`, it runs at once on arrays of the host, and has no derivatives.
        """
        last = self.links[-1].product
        *inputs, output = self.layouts
        if isinstance(arguments[0], np.ndarray):
            arrays = map(in_memory_order, arguments, inputs, repeat(last.threads))
            y = empty_in_order(last.result, output)
            loaded.compute(self.kind, self.spec, *arrays, y)
            return in_axis_order(y, output)
        return called(loaded.CHAIN, self.spec, last.result, *arguments, layouts=self.layouts)


def chain(links: Sequence[Link], arrays: int) -> Chain | None:
    """The links as one kernel, or None if not all of them read arrays as others write them."""
    orders: dict[int, AxisOrder] = {}
    for number, (product, x, addend) in enumerate(links, arrays):
        if not isinstance(product, Product):
            return None
        order, *others, orders[number] = product.layouts
        if orders.setdefault(x, order) != order:
            return None
        if addend is not None and orders.setdefault(addend, others[-1]) != others[-1]:
            return None
    return Chain(tuple(links), arrays)
