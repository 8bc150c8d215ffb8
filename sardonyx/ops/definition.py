"""What an op is: a function, and what its signature says about where each value lives.

The parameters' annotations are the whole declaration. `Array` is on the device; of a `Shaped` only
shape and dtype are read; `Ints`, `int`, `Host` and their like are known before tracing; a `Value`
is handed through unseen, be it an array, a sequence, an optional or strings. What is returned says
what may be assumed of it: an `Alias` is the input or a view of it, of what is `Unsized` the shape
depends on data. Whoever calls an op reads this from its `Definition`, and needs no other knowledge.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Generic,
    NewType,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)
from typing import get_type_hints as resolve_annotations

import numpy as np

from sardonyx.backends.standard import Array

R = TypeVar("R")
Function = TypeVar("Function", bound=Callable[..., Any])

Ints: TypeAlias = tuple[int, ...]
Floats: TypeAlias = tuple[float, ...]
Strings: TypeAlias = tuple[str, ...]
Host: TypeAlias = np.ndarray[Any, np.dtype[Any]]
DType: TypeAlias = np.dtype[Any]
Value: TypeAlias = Annotated[Any, "value"]
Alias: TypeAlias = Annotated[Any, "alias"]
Arrays: TypeAlias = list[Array]
Unsized: TypeAlias = Annotated[Array, "unsized"]
# A value that training changes without gradients, such as a running mean.
Statistic: TypeAlias = Annotated[Any, "statistic"]
# How many outputs the node has.
Outputs = NewType("Outputs", int)
# Two numbers of 32 bits from which to draw others: new ones for each node and call.
Key: TypeAlias = Annotated[Any, "key"]


class Shaped(Protocol):
    """Something of which an op reads the shape and the dtype, never the data."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...


class Body(Protocol):
    """A subgraph as a function of its inputs."""

    @property
    def outputs(self) -> int:
        """The number of its results."""

    def __call__(self, *arguments: Any, iteration: Any = None) -> tuple[Any, ...]:
        """Return its results. Random numbers differ from one iteration to the next."""

    def specs(self, *arguments: Any, iteration: Any = None) -> tuple[Any, ...]:
        """Shape and dtype of each result."""

    def gradients(self, arrays: Sequence[Array], count: int) -> tuple[Array, ...]:
        """The derivatives of the sum of its first result by the first `count` arrays."""


class Walk(Protocol):
    """The tracer's walk, which an op that runs subgraphs gets in place of a backend.

    Such an op sees no arrays but what stands for them, and decides what is walked through now, step
    by step, and what is left to the device.
    """

    def knows(self, value: Value) -> bool:
        """Whether the value can be read without waiting for the device."""

    def read(self, value: Value) -> Host:
        """Return the value. If it is not static, the rest of the program holds for it alone."""

    def apply(self, function: Callable[..., Any], *values: Value, **options: Any) -> Any:
        """Record `function(xp, *arrays, **options)` as one more step, and return its results."""

    def shapes(self, body: Body, *values: Any, iteration: Any = None) -> Any:
        """Shape and dtype of each result of a body for these values, or for values of their shapes.

        None if it cannot run on the device as a whole.
        """

    def on_device(self, function: Callable[..., Any], *values: Value, **options: Any) -> Any:
        """Like `apply`, for a function that is also given bodies to call.

        None if this cannot run on the device as a whole: the op then walks through it itself.
        """

    def with_body(self, function: Callable[..., Any], *values: Value, **options: Any) -> Any:
        """Like `apply`, for a function that is also given bodies to call, and has no other form."""

    def renew(self, old: Value, new: Value) -> None:
        """Replace an input of the model by a new value for the following nodes."""

    def note(self, value: Value, fact: Any) -> None:
        """Attach a note to a value, for later nodes."""

    def noted(self, value: Value) -> Any:
        """Return the note of this very value, or None."""

    def between(self, inputs: Strings, output: str) -> Body:
        """Return the part of the surrounding graph from some of its values to another."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The number of inputs of a subgraph, and the dtypes of its results, without a run."""

    inputs: int
    # None if the dtype is unknown.
    dtypes: tuple[DType | None, ...]


# Of the dtypes of inputs, the number of outputs and the attributes: the dtypes of the results.
Inference: TypeAlias = Callable[..., "Iterable[DType | None]"]


class NeedsHost(Exception):  # noqa: N818  (a signal, not an error)
    """Code for the device needs a value that only the host can read."""


@dataclass(frozen=True, slots=True)
class Map:
    """A map with static keys, whose values are one array."""

    keys: tuple[int | str, ...]
    values: Any


@dataclass(frozen=True, slots=True)
class MapRows:
    """A sequence of maps with the same keys: one for each row of an array."""

    keys: tuple[int | str, ...]
    values: Any


class Need(Enum):
    """The form in which an op needs a parameter."""

    ARRAY = "an array on the device"
    SHAPED = "a shape and a dtype"
    STATIC = "a value known before tracing"
    VALUE = "whatever it is, unseen"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One input or attribute of an op."""

    name: str
    need: Need
    type: Any
    required: bool
    variadic: bool = False
    default: Any = None

    def convert(self, value: Any) -> Any:
        """Convert a NumPy array or the value of an attribute to the annotated type."""
        if value is None or self.type in (Host, DType, Body, Value) or self._is_converted(value):
            return value
        found = np.asarray(value)
        if self.type in (int, Ints) and found.dtype.kind == "f":
            # The standard casts inputs of another type; attributes are whole numbers.
            self._refuse_parts(found, is_cast=found is value)
        if self.type in (Ints, Floats, Strings):
            element = get_args(self.type)[0]
            return tuple(element(v) for v in found.ravel().tolist())
        if found.size != 1:
            raise ValueError(f"'{self.name}' has shape {found.shape}, but must be one element")
        return self.type(found.item())

    def _is_converted(self, value: Any) -> bool:
        """Whether it is a list of the annotated type; the elements of an attribute have one type.

        Then ops get the same object at each trace, and find the tables that they built from it.
        """
        if self.type not in (Ints, Floats, Strings) or type(value) is not tuple or not value:
            return False
        return type(value[0]) is get_args(self.type)[0]

    def _refuse_parts(self, found: np.ndarray[Any, Any], *, is_cast: bool) -> None:
        for value in found.ravel().tolist():
            if not (value.is_integer() or (is_cast and math.isfinite(value))):
                raise ValueError(f"'{self.name}' is {value}, but must be a whole number")


@dataclass(frozen=True, slots=True)
class Definition:
    """One function of an op, valid for a range of opsets."""

    function: Callable[..., Any]
    inputs: tuple[Parameter, ...]
    attributes: Mapping[str, Parameter]
    # Whether the result is the input, or a view of it.
    is_view: bool
    # Whether the result follows from the attributes alone.
    is_static: bool
    counts_outputs: bool = False
    # Whether the shape of a result depends on data.
    is_unsized: bool = False
    makes_sequence: bool = False
    draws: bool = False
    # Whether the function takes a `Walk` in place of a backend.
    walks: bool = False
    # The attributes that nodes may have and that the function does not take.
    ignored: frozenset[str] = frozenset()

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Definition:
        hints = resolve_annotations(function, include_extras=True)
        first, *rest = inspect.signature(function).parameters.values()
        for name in (*(parameter.name for parameter in (first, *rest)), "return"):
            if name not in hints:
                raise TypeError(_untold(function, name))
        inputs, attributes = [], {}
        special = set()
        for parameter in rest:
            described = _describe(parameter, hints[parameter.name])
            if described.type in (Outputs, Key):
                special.add(described.type)
            elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                attributes[parameter.name] = described
            else:
                inputs.append(described)
        is_view = hints["return"] == Alias and any(p.need is Need.ARRAY for p in inputs)
        is_static = hints["return"] == Host and not inputs
        return cls(
            function,
            tuple(inputs),
            attributes,
            is_view,
            is_static,
            counts_outputs=Outputs in special,
            is_unsized=Unsized in (hints["return"], *get_args(hints["return"])),
            makes_sequence=hints["return"] == Arrays,
            draws=Key in special,
            walks=hints[first.name] is Walk,
        )

    @property
    def bodies(self) -> tuple[str, ...]:
        """The attributes that hold subgraphs."""
        return tuple(name for name, p in self.attributes.items() if p.type == Body)


class Op(Generic[R]):
    """An ONNX operator: today's function, and those of older opsets that differ in meaning."""

    def __init__(self, function: Callable[..., R], domain: str) -> None:
        self.name = function.__name__
        self.domain = domain
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self._function = function
        self._native: dict[str, Callable[..., Any]] = {}
        self._definition = Definition.of(function)
        self._older: list[tuple[int, Definition]] = []
        self._inferences: list[tuple[float, Inference]] = []

    def __call__(self, *arguments: Any, **attributes: Any) -> R:
        """Today's function itself, so that ops can be written in terms of others."""
        return self._function(*arguments, **attributes)

    def __repr__(self) -> str:
        return f"<op {self.domain or 'ai.onnx'}::{self.name}>"

    def __reduce__(self) -> str:
        """An op is pickled by its name, as functions are."""
        return self._function.__qualname__

    @property
    def is_of_the_package(self) -> bool:
        """Whether it is one of sardonyx' own operators, and not one that a user wrote."""
        return (self._function.__module__ or "").startswith("sardonyx.")

    def before(self, opset: int) -> Callable[[Function], Function]:
        """Declare the function that holds for opsets older than `opset`."""

        def declare(function: Function) -> Function:
            self._end(opset, Definition.of(function))
            return function

        return declare

    def ignores(self, name: str, annotation: Any, default: Any = None, *, before: int) -> None:
        """Declare an attribute that nodes of older opsets may have, and that changes no result."""
        today = self._definition
        attribute = Parameter(name, Need.STATIC, annotation, required=False, default=default)
        older = replace(
            today,
            attributes={**today.attributes, name: attribute},
            ignored=today.ignored | {name},
        )
        self._end(before, older)

    def _end(self, opset: int, definition: Definition) -> None:
        self._older.append((opset, definition))
        self._older.sort(key=lambda entry: entry[0])

    def infers(self, *, before: float = math.inf) -> Callable[[Function], Function]:
        """Declare a function that infers the dtypes of results without a run, as at load.

        The function is called with the dtypes of the inputs, each None where it is not known, and
        with the number of outputs. The node's attributes are its keywords, and instead of subgraphs
        their outlines. It raises ValueError for what can never run, and returns the dtypes of
        the results as far as it knows them.
        """

        def declare(function: Function) -> Function:
            self._inferences.append((before, function))
            return function

        return declare

    def inference_at(self, opset: int) -> Inference | None:
        """Return the function declared by `infers` for nodes of this opset."""
        return next((inference for end, inference in self._inferences if opset < end), None)

    def on(self, backend: str) -> Callable[[Function], Function]:
        """Declare the function for one backend, "jax" say: the same, in that library's own terms.

        It holds where today's function would, and takes what that one takes.
        """

        def declare(function: Function) -> Function:
            self._native[backend] = function
            chosen = OnBackend(self._function, MappingProxyType(self._native))
            self._definition = replace(self._definition, function=chosen)
            return function

        return declare

    def at(self, opset: int) -> Definition:
        """Return the definition that holds at `opset`."""
        for until, definition in self._older:
            if opset < until:
                return definition
        return self._definition

    @property
    def definitions(self) -> tuple[tuple[int | None, Definition], ...]:
        """All definitions, oldest first, each with the opset that ended it."""
        return (*self._older, (None, self._definition))


@dataclass(frozen=True, eq=False, slots=True)
class OnBackend:
    """The function of an op, or another one for the backends that have their own."""

    function: Callable[..., Any]
    native: Mapping[str, Callable[..., Any]]

    def __call__(self, xp: Any, *arguments: Any, **attributes: Any) -> Any:
        return self.native.get(xp.name, self.function)(xp, *arguments, **attributes)


@overload
def op(function: Callable[..., R], /) -> Op[R]: ...
@overload
def op(*, domain: str) -> Callable[[Callable[..., R]], Op[R]]: ...
def op(
    function: Callable[..., R] | None = None, *, domain: str = ""
) -> Op[R] | Callable[[Callable[..., R]], Op[R]]:
    """Make an `Op` of a function whose name, parameters and defaults are the operator's.

    It refuses its inputs with a ValueError, which becomes `InvalidInput`; all else that it raises
    passes as it is, with a note that names the node.
    """
    if function is None:
        return lambda f: Op(f, domain)
    return Op(function, domain)


def _untold(function: Callable[..., Any], name: str) -> str:
    what = "The result" if name == "return" else f"The parameter '{name}'"
    return (
        f"{what} of the operator '{function.__name__}' has no annotation, which says where it "
        "lives: an Array on the device, a Host value known before, a Shaped of which no data is "
        "read; sardonyx.types has them all."
    )


_NEEDS = {
    Array: Need.ARRAY,
    Arrays: Need.ARRAY,
    Map: Need.ARRAY,
    Shaped: Need.SHAPED,
    Value: Need.VALUE,
    Statistic: Need.VALUE,
}


def _describe(parameter: inspect.Parameter, annotation: Any) -> Parameter:
    required = parameter.default is parameter.empty
    variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
    bare = _without_none(annotation)
    need = _NEEDS.get(bare, Need.STATIC)
    default = None if required else parameter.default
    return Parameter(parameter.name, need, bare, required and not variadic, variadic, default)


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, UnionType):
        options = [a for a in get_args(annotation) if a is not NoneType]
        if len(options) == 1:
            return options[0]
    return annotation
