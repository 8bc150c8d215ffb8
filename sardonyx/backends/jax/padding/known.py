"""Values that follow from constants, whose elements a proof may look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from sardonyx.backends.padding.axes import Layout

# Computes an array, with the results of equations so far.
Compute: TypeAlias = Callable[[dict[object, Any]], Any]

# Larger constants are never looked into.
MOST_KNOWN = 2**20


@dataclass(frozen=True, eq=False, slots=True)
class Known:
    """The elements of a value that follow from constants, in the true and in the padded trace."""

    values: Sequence[Compute]
    # Whether they may be others for another number of rows.
    vary: bool

    @classmethod
    def of(cls, values: Sequence[Any], *, vary: bool = False) -> Known:
        return cls([partial(_constant, value) for value in values], vary)

    @classmethod
    def computed(
        cls, equations: Sequence[Any], operands: Sequence[Known | None], *, keeps_rows: bool
    ) -> list[Known]:
        """The results of an equation whose operands are known; they are computed if need be.

        What combines rows, as a sum of ones does, is another number for more of them.
        """
        known = [each for each in operands if each]
        vary = not keeps_rows or any(each.vary for each in known)
        # Functions that are called twice have the same equations.
        call = object()
        return [
            cls(
                [
                    partial(_computed, call, equation, [v.values[side] for v in known], number)
                    for side, equation in enumerate(equations)
                ],
                vary,
            )
            for number in range(len(equations[0].outvars))
        ]

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The elements in both traces."""
        # One program of all that they follow from takes less time than one for each operation.
        compute = jax.jit(lambda: [value({}) for value in self.values])
        return list(map(np.asarray, compute()))


def _constant(value: Any, results: dict[object, Any]) -> Any:
    return jnp.asarray(value)


def _computed(
    call: object,
    equation: Any,
    operands: Sequence[Compute],
    number: int,
    results: dict[object, Any],
) -> Any:
    if call not in results:
        values = [value(results) for value in operands]
        outputs = equation.primitive.bind(*values, **equation.params)
        results[call] = outputs if equation.primitive.multiple_results else [outputs]
    return results[call][number]


def tells_rows(layout: Layout, known: Known | None) -> bool:
    """Whether known elements differ from row to row, or with the number of rows."""
    return known is not None and (known.vary or differs_by_row(layout))


def differs_by_row(layout: Layout) -> bool:
    """Whether elements with this layout may differ from row to row."""
    return any(axis.is_padded and not axis.uniform for axis in layout)
