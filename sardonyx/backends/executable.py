"""Compiled functions, what runs before they are ready, and the shapes that they are for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

Replay = Callable[..., Sequence[Any]]


class Spec(NamedTuple):
    """Shape and dtype of a value without its data."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Costs:
    """The compiler's report on a program, in bytes and in arithmetic operations."""

    arguments: int
    outputs: int
    # The peak of all other buffers that exist at one time.
    temporaries: int
    # Buffers of donated arguments that became outputs.
    donated: int
    operations: float
    # Read from memory and written to it.
    moved: float


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Executable:
    """A function of arrays, ready to run."""

    run: Replay
    costs: Callable[[], Costs] | None = None
    # Why the usual options of the compiler did not do, if so.
    workaround: str | None = None
    # Whether it came from a cache, without a compile.
    is_stored: bool = False
    # The compiler's listing of the compiled program.
    listing: Callable[[], str] | None = None
    # The names of the steps in that listing, if this process compiled it. Equal segments share an
    # executable, which has the names of the first of them.
    scopes: tuple[str, ...] | None = None
    # From the arguments that are the same at most calls to the function of the inputs alone, if it
    # runs on NumPy, without the backend's library.
    on_numpy: Callable[[Sequence[Any]], Replay] | None = None
    # Whether that runs in the backend's scope, which limits NumPy's threads.
    needs_scope: bool = False
    # Whether it runs for want of a compiled program, for which somebody may ask later.
    stands_in: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class WrittenOut:
    """A small program as calls of NumPy."""

    # From weights and constants to what `run` takes between the two.
    ahead: Callable[..., Sequence[Any]]
    # Takes a function that says whether another one must run, that one, which runs too after an
    # error, and the inputs.
    run: Callable[..., Sequence[Any]]
    # The estimated microseconds of `run`.
    price: float
    # Elements of the largest array that it makes; infinite if it has steps that do not tell.
    largest: float


class JoinableFunctions(Protocol):
    """Functions of NumPy that kernels do as well beside others in one call, on arrays in float32.

    Elsewhere these are NumPy's own.
    """

    def has_elements_of(self, function: Any) -> bool:
        """Return whether there are kernels of this function of arrays' elements."""

    def of_elements(self, function: Any, *operands: Any) -> Any:
        """Return such a function of arrays, of which one may be a number."""

    def has_sums_over(self, axes: Sequence[int]) -> bool:
        """Return whether there are kernels of sums over these axes."""

    def summed(self, x: Any, axes: Sequence[int], *, keepdims: bool) -> Any:
        """Return such sums of an array."""

    def averaged(self, x: Any, axes: Sequence[int], *, keepdims: bool) -> Any:
        """Return the means of what such sums are of."""


@dataclass(frozen=True, slots=True)
class KernelCalls:
    """A function that calls kernels: of constants, and then of further arrays.

    With a number of variables, it takes these before the constants. Then calls pass `CallPlans`
    before all that.
    """

    function: Replay
    constants: int
    # The numbers of the results that need not be views of other arrays.
    own: Collection[int] = ()
    variables: int | None = None

    def one_by_one(self) -> Replay:
        """Return the function as it is called, whose kernels run as they are."""
        if self.variables is None:
            return self.function
        return lambda _, *arguments: self.function(*arguments)


@dataclass(frozen=True, eq=False, slots=True)
class CallPlans:
    """The plans of functions that call kernels, for one choice of their variables."""

    # What decides the variables; empty if nobody knows.
    sizes: tuple[int, ...] = ()
    of_functions: dict[Any, Any] = field(default_factory=dict)


class FirstTier(Protocol):
    """Runs the steps of a segment for another backend, until its compiled function is ready."""

    def run(self, replay: Replay, arrays: Sequence[Any], expected: Sequence[Spec]) -> list[Any]:
        """Return the results as arrays of the other backend; raise if it has to compute them."""

    def close(self) -> None:
        """Free what later runs would have used; the compiled function is ready."""
