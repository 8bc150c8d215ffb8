"""The choice of a plan: the first one that computes a trial as expected, or the fastest of them.

cuDNN guesses which of its plans is the fastest, and may be wrong by far: for convolutions of one
image in float32 the first one can take ten times as long as a product of matrices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import cupy

from sardonyx.backends.cupy.cudnn.agreement import (
    NothingToCompare,
    difference,
    tolerance_of_trials,
)
from sardonyx.backends.cupy.cudnn.calls import NOT_EXPECTED, Call, workspace_of
from sardonyx.backends.cupy.cudnn.plans import (
    TIME_LEFT,
    Key,
    Plan,
    Plans,
    Refusal,
    Slower,
    first_line,
    is_capturing,
)
from sardonyx.backends.cupy.kernel_times import shortest_time
from sardonyx.backends.cupy.refusals import LOG

# So many plans of a key are tried out,
MOST_TRIED = 10
# and none any more after so many seconds.
LONGEST_CHOICE = 0.25


@dataclass(frozen=True, slots=True)
class Trial:
    """A call on numbers, and the work that takes its place without cuDNN, to be measured too."""

    call: Call
    otherwise: Callable[[], Any] | None = None
    # Whether that is probably faster, where nothing is measured.
    is_otherwise_better: bool = False


BY_RULE = Slower("a product of matrices is taken to be faster")


def tried_out(plans: Plans, key: Key, trial: Callable[[], Trial]) -> Plan | Refusal:
    """Return the plan for a key, if there is one that computes a trial as expected."""
    plan = plans.find(key)
    if isinstance(plan, Refusal) or plan.is_trusted:
        return plan
    if is_capturing():
        return Refusal("a plan is not tried out while a CUDA graph is captured")
    with plans.choosing:
        plan = plans.find(key)
        if isinstance(plan, Refusal) or plan.is_trusted:
            # Another thread has chosen it meanwhile.
            return plan
        try:
            chosen = _chosen(plans, plan, trial())
        except cupy.cuda.memory.OutOfMemoryError:
            return Refusal("there is no memory for a trial")
        except Exception as error:
            # Whatever the reason is, the other forms of the call are right.
            chosen = Refusal(first_line(error))
        plans.settle(key, chosen)
        return chosen


def _chosen(plans: Plans, first: Plan, trial: Trial) -> Plan | Refusal:
    is_measured = plans.measures_now
    if plans.is_measured and not is_measured and trial.is_otherwise_better:
        return BY_RULE
    arrays, expected = trial.call.arrays(), trial.call.expected()
    faults: list[str] = []
    right = _right_plans(plans, first, trial.call, arrays, expected, faults)
    plan = next(right, None)
    if plan is None:
        return Refusal(faults[0])
    return _fastest(plans, plan, right, trial, arrays) if is_measured else plan


def _right_plans(
    plans: Plans, first: Plan, call: Call, arrays: Any, expected: Any, faults: list[str]
) -> Iterator[Plan]:
    """Yield the plans whose result is right, and note what is wrong with the others."""
    for plan in islice(plans.candidates(first), MOST_TRIED):
        fault = fault_of(plans, plan, call, arrays, expected)
        if fault is None:
            plan.is_trusted = True
            yield plan
        else:
            faults.append(fault)
            words = (plan.name, partial(str, call.key), fault)
            LOG.info("cuDNN's plan %s of %s is not used: %s", *words)


def fault_of(plans: Plans, plan: Plan, call: Call, arrays: Any, expected: Any) -> str | None:
    """Return what is wrong with a plan, or None. Its graph must have built no other plan since."""
    result = arrays[call.result]
    # The result of the plan before must not be taken for this one's.
    result.fill(cupy.nan)
    tolerance = tolerance_of_trials(result.dtype, is_exact=plans.is_exact)
    try:
        plans.run(plan, arrays, workspace_of(plan))
        reason = difference(result, expected, tolerance, is_trial=True)
    except NothingToCompare:
        return "it could not be tried out"
    except cupy.cuda.memory.OutOfMemoryError:
        return "there is no memory for its trial"
    except Exception as error:
        return first_line(error)
    return None if reason is None else f"{NOT_EXPECTED}: {reason}"


def _fastest(
    plans: Plans, first: Plan, others: Iterator[Plan], trial: Trial, arrays: Any
) -> Plan | Slower:
    """Return the fastest of the right plans that there is time for."""
    best, least = first, time_of(plans, first, arrays)
    if least is None:
        return BY_RULE if trial.is_otherwise_better else best
    # Only now: the first plan's trial may have compiled kernels of CuPy's.
    started = time.perf_counter()
    for plan in others:
        seconds = time_of(plans, plan, arrays)
        if seconds is not None and seconds < least:
            best, least = plan, seconds
        if time.perf_counter() - started > LONGEST_CHOICE:
            break
    TIME_LEFT.seconds -= time.perf_counter() - started
    elsewhere = None if trial.otherwise is None else seconds_of(trial.otherwise)
    words = (partial(str, trial.call.key), best.name, least * 1e6, (elsewhere or 0) * 1e6)
    LOG.info("cuDNN computes %s by %s in %.1f us; without it, it takes %.1f us", *words)
    if elsewhere is not None and elsewhere < least:
        return Slower(f"it takes {least * 1e6:.1f} us, and {elsewhere * 1e6:.1f} us without cuDNN")
    return best


def time_of(plans: Plans, plan: Plan, arrays: Any) -> float | None:
    """Return the seconds that a plan takes. Its graph must have built no other plan since."""
    try:
        workspace = workspace_of(plan)
    except cupy.cuda.memory.OutOfMemoryError:
        return None
    return seconds_of(partial(plans.run, plan, arrays, workspace))


def seconds_of(work: Callable[[], Any]) -> float | None:
    """Return the seconds that work takes on the device, or None if that cannot be measured."""
    try:
        return shortest_time(work)
    except Exception as error:
        LOG.info("a time could not be measured: %s", partial(str, error))
        return None
