"""Conditions on data in compiled programs: they return a report, and the call reads it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from hashlib import blake2b
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify

from sardonyx.backends.conditions import Condition
from sardonyx.backends.executable import Replay
from sardonyx.errors import InvalidInput

_VALUE = "\0"


class _Tracing(threading.local):
    """Whether a thread traces the model's own programs or those of its caller."""

    is_own = False
    # Whether the caller has JAX's 64-bit mode on; None outside of all calls.
    is_wide: bool | None = None


@dataclass(eq=False)
class Checks:
    """The conditions of one model's programs, by the numbers with which programs report them."""

    _by_number: dict[int, tuple[str, Condition, bool]] = field(default_factory=dict)
    _tracing: _Tracing = field(default_factory=_Tracing)

    def __reduce__(self) -> Any:
        """Leave the numbers out: another process traces a program again if it fails there."""
        return Checks, ()

    def check(self, x: Any, condition: Condition, place: str) -> None:
        """State the condition in the program that is being traced."""
        elements = jnp.reshape(x[condition.part], (-1,))
        count = elements.shape[0]
        if not count:
            return
        is_integer = bool(jnp.issubdtype(elements.dtype, jnp.integer))
        holds = condition.holds(elements.astype(np.int64) if is_integer else elements)
        bad = jnp.min(jnp.where(holds, count, jnp.arange(count)))
        value = elements[jnp.minimum(bad, count - 1)]
        message = f"{place}: {condition.reason(_VALUE)}"
        if self._tracing.is_own:
            number = _number_of(message)
            self._by_number[number] = place, condition, is_integer
            report = jnp.stack([np.float64(number), value.astype(np.float64)])
            checkify.check(bad == count, "{report}", report=report)
        else:
            self._check_for_caller(bad == count, message, value)

    def _check_for_caller(self, holds: Any, message: str, value: Any) -> None:
        """A check in the caller's program, which its own `checkify.checkify` makes an error.

        The operands have dtypes of the caller's mode, in which `checkify` adds its own.
        """
        is_wide = bool(self._tracing.is_wide)
        is_integer = jnp.issubdtype(value.dtype, jnp.integer)
        value = value.astype(f"{'int' if is_integer else 'float'}{64 if is_wide else 32}")
        template = message.replace("{", "{{").replace("}", "}}").replace(_VALUE, "{value}")
        with jax.enable_x64(is_wide):
            checkify.check(holds, template, value=value)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """JAX's 64-bit mode, for a call whose caller may have another."""
        tracing, outer = self._tracing, self._tracing.is_wide
        if outer is None:
            tracing.is_wide = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
        try:
            with jax.enable_x64(True):
                yield
        finally:
            tracing.is_wide = outer

    def reporting(self, replay: Replay) -> Callable[..., tuple[Any, Any]]:
        """A function that returns a report, then the results of `replay`.

        The report is None without conditions; else three numbers: whether a condition failed, its
        number, and a bad element.
        """
        functional = checkify.checkify(replay, errors=checkify.user_checks)

        @wraps(replay)
        def run(*arrays: Any) -> tuple[Any, Any]:
            outer, self._tracing.is_own = self._tracing.is_own, True
            try:
                error, results = functional(*arrays)
            finally:
                self._tracing.is_own = outer
            # All checks have payloads of one kind: the error is one flag, one code and one payload.
            leaves = jax.tree.leaves(error)
            if not leaves:
                return None, results
            failed, _, report = leaves
            failed = jnp.reshape(failed, (1,)).astype(np.float64)
            return jnp.concatenate([failed, report]), results

        return run

    def read(self, reported: tuple[Any, Any], retrace: Callable[[], object]) -> Any:
        """The results of a program, or an error if its report names a condition.

        `retrace` traces the program, which a cache may have brought from another process.
        """
        report, results = reported
        if report is None:
            return results
        failed, number, value = np.asarray(report).tolist()
        if not failed:
            return results
        if number not in self._by_number:
            retrace()
        place, condition, is_integer = self._by_number[number]
        reason = condition.reason(int(value) if is_integer else value)
        error = InvalidInput(f"{place}: {reason}.")
        # The innermost node is named already, so that no other is added.
        error.__dict__["placed"] = True
        raise error


def _number_of(message: str) -> int:
    """The same in every process, and exact in a float64."""
    return int.from_bytes(blake2b(message.encode(), digest_size=6).digest(), "big")
