"""Kernels that a function calls one after the other, in one call of the library.

Between two calls from Python the threads idle for as long as the next one takes to prepare, which
is a twentieth of the time of a transformer on two threads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from sardonyx.backends.executable import CallPlans
from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.chains import Chain
from sardonyx.backends.jax.onednn.loaded import Kind
from sardonyx.backends.jax.onednn.plan_formulas import PlansBySizes
from sardonyx.backends.jax.onednn.plans import Constants, Function, Own, Planned
from sardonyx.backends.jax.onednn.products import Product
from sardonyx.stopping import stop_if_asked


class OneCall:
    """A function of constants and of further arrays, whose kernels run in one call.

    It is planned for the constants and for the forms of the other arrays that it meets first, and
    anew for others. Results that are to be the caller's `own` lie by rows in memory that nothing
    else has. A function that cannot be planned runs as it is.
    """

    def __init__(
        self,
        function: Function,
        constants: int,
        own: Collection[int] = (),
        threads: int | None = None,
    ) -> None:
        self._function = function
        self._constants = constants
        self._own = Own(own, threads)
        # Replaced as a whole, as other threads read it.
        self._planned: Planned | None = None

    def __call__(self, *arrays: Any) -> Sequence[Any]:
        stop_if_asked()
        constants, inputs = arrays[: self._constants], arrays[self._constants :]
        planned = self._planned
        if planned is None or not planned.serves(constants, inputs):
            function, known = partial(self._function, *constants), Constants(constants)
            self._planned = planned = Planned.of(function, known, inputs, self._own)
        if planned.plan is None:
            return self._function(*arrays)
        return planned.plan.run(inputs)


class OneCallBySizes:
    """The same for a function of variables, then of constants and of further arrays.

    To plan takes less time than to call the kernels one by one; where that was in vain, other sizes
    are planned at their second call. Where a few sizes were planned, formulas say the plans for
    others; a plan for sizes that are all 1 is made at their second call then.
    """

    def __init__(
        self,
        function: Function,
        variables: int,
        constants: int,
        own: Collection[int],
        threads: int | None = None,
    ) -> None:
        self._function = function
        self._variables = variables
        self._constants = constants
        self._own = Own(own, threads)
        self._was_in_vain = False
        # For the constants of the last plan; replaced as a whole, as other threads read it.
        self._known: tuple[Constants, PlansBySizes] | None = None

    def __call__(self, plans: CallPlans, *arguments: Any) -> Sequence[Any]:
        stop_if_asked()
        of_functions = plans.of_functions
        if self._was_in_vain and self not in of_functions:
            of_functions[self] = None
            return self._function(*arguments)
        variables, arrays = arguments[: self._variables], arguments[self._variables :]
        constants, inputs = arrays[: self._constants], arrays[self._constants :]
        planned: Planned | None = of_functions.get(self)
        if planned is None or not planned.serves(constants, inputs):
            planned = self._planned(plans, variables, constants, inputs)
        if planned.plan is None:
            return self._function(*arguments)
        return planned.plan.run(inputs)

    def _planned(
        self,
        plans: CallPlans,
        variables: Sequence[Any],
        constants: Sequence[Any],
        inputs: Sequence[Any],
    ) -> Planned:
        """Return a plan, which further calls of these sizes know unless it is for one call."""
        known = self._known
        if known is None or not known[0].are(constants):
            known = self._known = Constants(constants), PlansBySizes()
        held, by_sizes = known
        # Kernels of new sizes need new code.
        with loaded.generating(_generated(variables)):
            planned = None if self in plans.of_functions else by_sizes.for_one_call(plans.sizes)
            if planned is not None and planned.serves(constants, inputs):
                plans.of_functions[self] = None
                return planned
            planned = by_sizes.at(plans.sizes)
            if planned is None or not planned.serves(constants, inputs):
                function = partial(self._function, *variables, *constants)
                planned = Planned.of(function, held, inputs, self._own)
                by_sizes.note(plans.sizes, planned)
        self._was_in_vain = planned.plan is None
        plans.of_functions[self] = planned
        return planned


def _generated(variables: Sequence[Any]) -> Collection[tuple[Kind, tuple[int, ...]]]:
    """The kernels whose code oneDNN generates, among variables, of which some run a kernel."""
    kernels = [argument for each in variables for argument in getattr(each, "args", ())]
    found = [each for each in kernels if isinstance(each, Product | Chain)]
    return dict.fromkeys((each.kind, each.spec) for each in found)
