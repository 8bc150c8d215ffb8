"""What a backend that compiles offers, so that one program can serve many sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from sardonyx.backends.padding.axes import Layout, Place

# A step as a function of what is told at each call, and of its own arguments.
Act: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


class Call(NamedTuple):
    """A pure function of arrays, what tells it from others (or None), and what it is called with.

    The last are shapes and dtypes.
    """

    function: Callable[..., Sequence[Any]]
    key: Any
    specs: Sequence[tuple[tuple[int, ...], Any]]


class Prover(Protocol):
    """Proves, step by step, that a program for larger sizes does what one for smaller ones does.

    Raises `Unpaddable` or `Different` where it cannot.
    """

    @property
    def decisions(self) -> Sequence[bool]:
        """Equal for calls that can share a program, one that tells them apart by what is told."""

    @property
    def told(self) -> Sequence[Any]:
        """The values that the program must be told for these sizes."""

    def constant(self, true: Any, padded: Any) -> tuple[Layout, Place | None]:
        """A constant's layout, and where it stands among what is told, if it does."""

    def step(
        self, true: Call, padded: Call, layouts: Sequence[Layout], places: Mapping[int, Place]
    ) -> tuple[Sequence[Layout], Act | None]:
        """The results' layouts, and what to run; None stands for the step as it is.

        `places` are those of arguments that are told; the others are what is run is called with.
        """


class Padding(Protocol):
    """Padding, as a backend does it."""

    def prover(self, template: Sequence[bool], traces: dict[Any, Any]) -> Prover:
        """Proves that calls can share the program of which these are the decisions."""

    def enlarged(self, array: Any, shape: Sequence[int]) -> Any:
        """The array with zeros behind its ends."""

    def reduced(self, array: Any, layout: Layout) -> Any:
        """What is true of an array."""
