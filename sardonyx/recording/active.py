"""Which recording the calls of operators in this thread belong to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from sardonyx.recording.operators import Operator


@dataclass(eq=False, slots=True)
class BoundCall:
    """One call of an operator; an input that is left out is None, and such a result's name empty.

    Without `results` their number follows from a subgraph.
    """

    operator: Operator
    inputs: list[Any]
    attributes: dict[str, Any]
    results: tuple[str, ...] | None

    @property
    def has_bodies(self) -> bool:
        """Whether an attribute is a subgraph in the form of a Python function."""
        return any(map(is_body, self.attributes.values()))


def is_body(value: Any) -> bool:
    """Whether an attribute is a Python function; types are dtypes."""
    return callable(value) and not isinstance(value, type)


class Recorder(Protocol):
    """Takes note of calls of operators in place of running them."""

    def call(self, call: BoundCall) -> tuple[Any, ...]:
        """Record a call, and return its results as symbolic arrays."""


_ACTIVE: ContextVar[Recorder | None] = ContextVar("sardonyx_recorder", default=None)

active = _ACTIVE.get


@contextmanager
def recording_into(recorder: Recorder) -> Iterator[None]:
    """Record the calls of this thread into the recorder, until the block ends."""
    token = _ACTIVE.set(recorder)
    try:
        yield
    finally:
        _ACTIVE.reset(token)
