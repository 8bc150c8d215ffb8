"""Conditions on data in compiled programs: they return a report, and the call reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

from sardonyx.backends.conditions import Condition
from sardonyx.errors import InvalidInput

# A report is three numbers: whether a condition failed, which one, and an element that is bad.
_REPORT = 3
_VALUE = "\0"


@dataclass(eq=False)
class Checks:
    """The conditions of one model's programs, by the numbers with which programs report them."""

    _known: dict[int, tuple[str, Condition, bool]] = field(default_factory=dict)

    def check(self, x: Any, condition: Condition, place: str) -> None:
        """State the condition in the program that is being traced.

        A caller's own program gets a `checkify.check`, which `checkify.checkify` makes an error.
        """
        elements = jnp.reshape(x[condition.part], (-1,))
        count = elements.shape[0]
        if not count:
            return
        is_integer = jnp.issubdtype(elements.dtype, jnp.integer)
        holds = condition.holds(elements.astype(np.int64) if is_integer else elements)
        bad = jnp.min(jnp.where(holds, count, jnp.arange(count)))
        value = elements[jnp.minimum(bad, count - 1)]
        message = f"{place}: {condition.reason(_VALUE)}"
        number = _number_of(message)
        self._known[number] = place, condition, is_integer
        template = message.replace("{", "{{").replace("}", "}}")
        template = template.replace(_VALUE, "{report[1]:.0f}" if is_integer else "{report[1]}")
        report = jnp.stack([np.float64(number), value.astype(np.float64)])
        checkify.check(bad == count, template, report=report)

    def read(self, made: tuple[Any, Any], retrace: Callable[[], object]) -> Any:
        """A program's results, unless its report says that a condition failed.

        `retrace` traces the program once more: one of another process was not traced in this.
        """
        report, results = made
        failed, number, value = np.asarray(report).tolist()
        if not failed:
            return results
        if number not in self._known:
            retrace()
        place, condition, is_integer = self._known[number]
        reason = condition.reason(int(value) if is_integer else value)
        error = InvalidInput(f"{place}: {reason}.")
        # The innermost node is named already, so that no other is added.
        error.__dict__["placed"] = True
        raise error


def reporting(replay: Callable[..., Any]) -> Callable[..., tuple[Any, Sequence[Any]]]:
    """`replay` as a function that returns a report besides, with all conditions carried out."""
    functional = checkify.checkify(replay, errors=checkify.user_checks)

    def run(*arrays: Any) -> tuple[Any, Sequence[Any]]:
        error, results = functional(*arrays)
        # All checks have payloads of one kind: the error is one flag, one code and one payload.
        leaves = jax.tree.leaves(error)
        if not leaves:
            return jnp.zeros(_REPORT, np.float64), results
        failed, _, report = leaves
        return jnp.concatenate([jnp.reshape(failed, (1,)).astype(np.float64), report]), results

    return run


def _number_of(message: str) -> int:
    """The same in every process, and exact in a float64."""
    return int.from_bytes(blake2b(message.encode(), digest_size=6).digest(), "big")
