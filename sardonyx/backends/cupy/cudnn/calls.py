"""Calls that cuDNN may compute: by a plan that was found to be right, or without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cupy

from sardonyx.backends.cupy.cudnn.agreement import TOLERANCE, NothingToCompare, difference
from sardonyx.backends.cupy.cudnn.plans import Key, Plan, Plans, Refusal, first_line, is_capturing

# cuDNN's kernels read several elements at once.
ALIGNMENT = 16
NOT_EXPECTED = "its first result is not the expected one"


def aligned(array: Any) -> Any:
    """Return the array, or a copy, in row-major order and at an address that cuDNN can read."""
    is_aligned = array.flags.c_contiguous and array.data.ptr % ALIGNMENT == 0
    return array if is_aligned else array.copy(order="C")


def workspace_of(plan: Plan) -> Any:
    return cupy.empty(max(plan.workspace, 1), cupy.uint8)


@dataclass(frozen=True, slots=True)
class Call:
    """One call that cuDNN may compute."""

    key: Key
    # The arrays by their numbers in the plan's graph, and the number of the result.
    arrays: Callable[[], Mapping[int, Any]]
    result: int
    # The result without cuDNN; and what a plan's first one, or its beginning, should be.
    otherwise: Callable[[], Any]
    expected: Callable[[], Any]

    def run(self, plans: Plans) -> Any:
        """Return the plan's result, or that without cuDNN if there is no plan, or a wrong one."""
        plan = plans.find(self.key)
        if isinstance(plan, Refusal) or (not plan.is_trusted and is_capturing()):
            return self.otherwise()
        try:
            arrays, workspace = self.arrays(), workspace_of(plan)
        except cupy.cuda.memory.OutOfMemoryError:
            return self.otherwise()
        try:
            plans.run(plan, arrays, workspace)
        except Exception as error:
            plans.settle(self.key, Refusal(first_line(error)))
            return self.otherwise()
        if plan.is_trusted or self._is_right(plans, plan, arrays[self.result]):
            return arrays[self.result]
        return self.otherwise()

    def _is_right(self, plans: Plans, plan: Plan, found: Any) -> bool:
        """Compare a plan's first result, and trust the plan from now on, or drop it."""
        try:
            reason = difference(found, self.expected(), TOLERANCE, is_trial=False)
        except NothingToCompare:
            return False
        if reason is not None:
            plans.settle(self.key, Refusal(f"{NOT_EXPECTED}: {reason}"))
        plan.is_trusted = reason is None
        return plan.is_trusted
