"""The services of a backend that compiles by which one program can serve several sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from sardonyx.backends.padding.axes import Cut, Layout, Slot

# The padded form of a step, as a function of the runtime arguments and of its own operands.
PaddedStep: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


class Call(NamedTuple):
    """A pure function of arrays, and the shapes and dtypes that it is called with.

    The key identifies the function in a cache of traces; None stands for no caching.
    """

    function: Callable[..., Sequence[Any]]
    key: Any
    specs: Sequence[tuple[tuple[int, ...], Any]]


class Prover(Protocol):
    """Proves, step by step, that a program for larger sizes returns the results for smaller ones.

    Raises `Unpaddable` or `Different` if it cannot.
    """

    @property
    def decisions(self) -> Sequence[bool]:
        """Calls with equal decisions share a program; their runtime arguments differ."""

    @property
    def position(self) -> tuple[Any, ...]:
        """How many decisions and runtime arguments there are so far."""

    @property
    def runtime_args(self) -> Sequence[Any]:
        """The values that the program needs for these sizes."""

    @property
    def keeps_rows(self) -> bool:
        """Whether each row of a padded axis is computed from the same row alone, and all alike.

        Only a prover that watches rows knows.
        """

    def constant(self, true: Any, padded: Any) -> tuple[Layout, Slot | None]:
        """A constant's layout, and its slot if it is a runtime argument."""

    def step(
        self,
        true: Call,
        padded: Call,
        layouts: Sequence[Layout],
        slots: Mapping[int, Slot],
        constants: Mapping[int, Sequence[Any]] | None = None,
    ) -> tuple[Sequence[Layout], PaddedStep | None]:
        """The layouts of the results, and the padded step; None if the step needs no change.

        `slots` names the operands that are runtime arguments; the padded step takes the others.
        `constants` has the two values of operands that are constants.
        """


class Padding(Protocol):
    """How a backend pads arrays and proves programs."""

    def prover(
        self,
        template: Sequence[bool],
        true_traces: dict[Any, Any],
        padded_traces: dict[Any, Any],
        *,
        watches_rows: bool = False,
    ) -> Prover:
        """A prover that takes over a template's decisions, and caches its traces of steps."""

    def pad(self, array: Any, shape: Sequence[int]) -> Any:
        """The array with zeros behind the end of each axis."""

    def unpad(self, arrays: Sequence[Any], cuts: Sequence[Cut], *, is_native: bool) -> list[Any]:
        """The arrays without padding; with `is_native` those of the backend's library."""
