"""What the library is to do for a function that calls kernels, in one call."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.backends.jax.onednn import loaded
from sardonyx.backends.jax.onednn.copies import copied
from sardonyx.backends.jax.onednn.loaded import KernelCall, Kind

Function: TypeAlias = Callable[..., Sequence[Any]]


class Unplanned(Exception):  # noqa: N818  (a signal, not an error)
    """A function does more than to call kernels and to look at arrays in other ways."""


class Form(NamedTuple):
    """What a function may know of an array whose elements it does not read itself."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, array: Any) -> Form:
        return cls(array.shape, array.strides, array.dtype)

    def empty(self) -> Any:
        """An array that lies like this in new memory."""
        if 0 in self.shape:
            return np.empty(self.shape, self.dtype)
        ends = [(n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)]
        before = -sum(min(end, 0) for end in ends)
        size = before + sum(max(end, 0) for end in ends) + self.dtype.itemsize
        return self.view_of(np.empty(size, np.uint8), before)

    def view_of(self, array: Any, at: int) -> Any:
        """What lies like this in the memory of an array, from a place on."""
        return np.ndarray(self.shape, self.dtype, array, at, self.strides)


# An array that a kernel is called with: the identity of its memory, None for a constant, and where
# its elements begin.
_Passed: TypeAlias = tuple[int | None, int]


class Result(NamedTuple):
    """One of the arrays that are written for the caller, or a view of it."""

    written: int
    at: int
    # None for the array itself.
    form: Form | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What the library is to do, as numbers, and with which arrays."""

    spec: bytes
    # The addresses of the constants.
    constants: bytes
    written: Sequence[Form]
    results: Sequence[Result]

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Compute the results of the function for arrays like those of the plan."""
        written = [np.empty(form.shape, form.dtype) for form in self.written]
        # NumPy's functions return scalars for arrays without axes.
        inputs = [x if type(x) is np.ndarray else np.asarray(x) for x in inputs]
        packed = loaded.packed_addresses
        loaded.run(Kind.SEQUENCE, self.spec, packed(inputs) + self.constants + packed(written))
        return [
            written[number] if form is None else form.view_of(written[number], at)
            for number, at, form in self.results
        ]


@dataclass(frozen=True, slots=True)
class Own:
    """The results that are to be the caller's own, and how many threads copy them; None: all."""

    places: Collection[int]
    threads: int | None

    def apart(self, results: Sequence[Any]) -> Sequence[Any]:
        """The results, with copies of those of them that are parts of others."""
        found, taken = list(results), set()
        for i in self.places:
            memory = _memory(found[i])
            if id(memory) in taken or not _is_all_of(found[i], memory):
                found[i] = memory = copied(found[i], self.threads)
            taken.add(id(memory))
        return found


class Constants:
    """Arrays that are the same at most calls, told by identities.

    Nothing else has such an identity as long as none of the arrays is gone. All sizes share this:
    with two objects for each array and size, Python's garbage collector would soon look through all
    objects of the process.
    """

    def __init__(self, constants: Sequence[Any]) -> None:
        arrays = [constant for constant in constants if isinstance(constant, np.ndarray)]
        self._identities = list(map(id, constants))
        self._gone: list[Any] = []
        note_gone = self._gone.append
        # Arrays of NumPy are not kept for others' sake.
        self._held = [
            weakref.ref(constant, note_gone) if isinstance(constant, np.ndarray) else constant
            for constant in constants
        ]
        self._addresses = {id(array): loaded.address(array) for array in arrays}
        self._memories = {id(_memory(array)) for array in arrays}

    def are(self, constants: Sequence[Any]) -> bool:
        """Whether these are the same ones."""
        return not self._gone and self._identities == list(map(id, constants))

    def address(self, array: Any) -> int | None:
        """Where the elements of one of them begin, or of a view of one; None for other arrays."""
        address = self._addresses.get(id(array))
        if address is None and id(_memory(array)) in self._memories:
            address = loaded.address(array)
        return address


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, if there is one, and the arrays that it is for."""

    constants: Constants
    forms: Sequence[Form]
    plan: Plan | None

    @classmethod
    def of(
        cls,
        function: Function,
        constants: Constants,
        inputs: Sequence[Any],
        own: Own,
    ) -> Planned:
        """The plan for a function that has these constants, and for inputs that lie like these."""
        forms = list(map(Form.of, inputs))
        try:
            plan = Planner(constants, [form.empty() for form in forms]).planned(function, own)
        except Exception:  # If anything is wrong, the function says so when it runs.
            plan = None
        return cls(constants, forms, plan)

    def serves(self, constants: Sequence[Any], inputs: Sequence[Any]) -> bool:
        return self.constants.are(constants) and self.forms == list(map(Form.of, inputs))


def _is_all_of(array: Any, memory: Any) -> bool:
    return bool(array.flags.c_contiguous and array.nbytes == memory.nbytes)


class Planner:
    """Tells arrays by the memory that they are views of. All of them must be held elsewhere."""

    def __init__(self, constants: Constants, inputs: Sequence[Any]) -> None:
        self._arrays = inputs
        self._inputs = {id(_memory(array)): i for i, array in enumerate(inputs)}
        self._constants = constants
        # The arrays that kernels write to, and where those and inputs begin; further, the numbers
        # of constants by their addresses.
        self._written: dict[int, Any] = {}
        self._begins = {id(_memory(array)): loaded.address(array) for array in inputs}
        self._addresses: dict[int, int] = {}
        self._calls: list[tuple[KernelCall, list[_Passed | None]]] = []

    def planned(self, function: Function, own: Own) -> Plan:
        """The plan of the calls of a function of the inputs; raise `Unplanned` if it does more."""
        with loaded.only_noted(to_join=True) as calls:
            results = function(*self._arrays)
            if not all(isinstance(result, np.ndarray) for result in results):
                raise Unplanned
            results = own.apart(results)
        for call in calls:
            self._note(call)
        return self._plan(results)

    def _note(self, call: KernelCall) -> None:
        """Take a call whose arguments are known; raise `Unplanned` for others."""
        first_written = len(call.arrays) - call.results
        passed = [None if a is None else self._read(a) for a in call.arrays[:first_written]]
        for array in call.arrays[first_written:]:
            if array is None:
                passed.append(None)
                continue
            memory, address = _memory(array), loaded.address(array)
            self._written[id(memory)] = memory
            self._begins[id(memory)] = address if memory is array else loaded.address(memory)
            passed.append((id(memory), address))
        self._calls.append((call, passed))

    def _read(self, array: Any) -> _Passed:
        address = self._constants.address(array)
        if address is not None:
            self._addresses.setdefault(address, len(self._addresses))
            return None, address
        memory = id(_memory(array))
        if memory not in self._begins:
            raise Unplanned
        return memory, loaded.address(array)

    def _plan(self, results: Sequence[Any]) -> Plan:
        """The plan of all calls, after which these are returned."""
        returned = dict.fromkeys(id(_memory(result)) for result in results)
        if not returned.keys() <= self._written.keys():
            raise Unplanned
        between = [memory for memory in self._written if memory not in returned]
        first = len(self._inputs) + len(self._addresses)
        numbers = {memory: first + i for i, memory in enumerate([*returned, *between])}
        numbers.update(self._inputs)
        spec = [first + len(returned), len(between)]
        spec += [self._written[memory].nbytes for memory in between]
        spec.append(len(self._calls))
        for call, passed in self._calls:
            spec += call.kind, len(call.spec), *call.spec, len(passed)
            spec += self._operands(passed, numbers)
        forms = {memory: Form.of(self._written[memory]) for memory in returned}
        for result in results:
            # It is not a view then.
            if _is_all_of(result, _memory(result)):
                forms[id(_memory(result))] = Form.of(result)
        written = list(forms.values())
        views = [self._result(result, forms) for result in results]
        constants = loaded.packed_numbers([address or 0 for address in self._addresses])
        return Plan(loaded.packed_numbers(spec), constants, written, views)

    def _operands(self, passed: Sequence[_Passed | None], numbers: Mapping[int, int]) -> list[int]:
        """The number of each array, and how many bytes behind its beginning the operand lies."""
        found: list[int] = []
        for each in passed:
            memory, address = each or (None, 0)
            if memory is not None:
                found += numbers[memory], address - self._begins[memory]
            else:
                constant = len(self._inputs) + self._addresses[address] if each else -1
                found += constant, 0
        return found

    def _result(self, result: Any, forms: Mapping[int, Form]) -> Result:
        memory, form = id(_memory(result)), Form.of(result)
        at = loaded.address(result) - self._begins[memory]
        is_whole = at == 0 and form == forms[memory]
        return Result(list(forms).index(memory), at, None if is_whole else form)


def _memory(array: Any) -> Any:
    """The array whose memory this one is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
