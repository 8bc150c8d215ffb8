"""The definition of an op: a function whose annotations say where each value lives.

An `Array` is on the device. Of a `Shaped`, the op reads only shape and dtype. `Ints`, `int`, `Host`
and the like are static. A `Value` is any value (an array, a sequence, an optional, strings) that
the op passes on without reading it. The annotation of the result says what the graph may assume: an
`Alias` is the input or a view of it; the shape of an `Unsized` result depends on data. `Definition`
holds all this, and the graph asks nothing else about an op.

`**others: Annotated[Any, f]` stands for the attributes of `f`, a function or an op that gets them.
So ops of one family, or an older version of an op, state only the attributes in which they differ.
"""

from __future__ import annotations

import inspect
import keyword
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, partial
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

import numpy as np

from sardonyx.backends.standard import Array
from sardonyx.ops.annotations import annotations_of
from sardonyx.ops.on_backend import OnBackend

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
# How many outputs the node has; and how many up to the last one that anything reads.
Outputs = NewType("Outputs", int)
OutputsRead = NewType("OutputsRead", int)
# Two numbers of 32 bits from which to draw others: new ones for each node and call.
Key: TypeAlias = Annotated[Any, "key"]
# What the device did ahead for a step on the host; None where it did nothing.
Begun: TypeAlias = Annotated[Any, "begun"]


class Shaped(Protocol):
    """A value of which an op reads the shape and the dtype, never the data."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...


class Body(Protocol):
    """A subgraph as a function of its inputs."""

    @property
    def outputs(self) -> int:
        """The number of its results."""

    @property
    def inputs(self) -> Sequence[Shaped]:
        """Its inputs as the model declares them; an unknown size of a shape is no integer."""

    def reads(self, number: int) -> bool:
        """Return whether a node of the subgraph reads the input of this number."""

    def __call__(self, *arguments: Any, iteration: Any = None) -> tuple[Any, ...]:
        """Return its results. Random numbers differ from one iteration to the next."""

    def specs(self, *arguments: Any, iteration: Any = None) -> tuple[Any, ...]:
        """Shape and dtype of each result."""

    def gradients(self, arrays: Sequence[Array], count: int) -> tuple[Array, ...]:
        """The derivatives of the sum of its first result by the first `count` arrays."""


class Walk(Protocol):
    """The tracer's walk: an op that runs subgraphs takes it in place of a backend.

    Such an op gets no arrays but their placeholders. It decides which subgraphs are traced step by
    step, and which run on the device as a whole.
    """

    def knows(self, value: Value) -> bool:
        """Whether the value can be read without waiting for the device."""

    def read(self, value: Value) -> Host:
        """Return the value. If it is not static, the rest of the program is valid for it alone."""

    def apply(self, function: Callable[..., Any], *values: Value, **options: Any) -> Any:
        """Record `function(xp, *arrays, **options)` as one more step, and return its results."""

    def look_up(self, function: Callable[..., Any], places: Value, names: Host) -> Value:
        """Record `function(xp, places, names=names)`, strings in the shape of the places.

        Devices leave it to the host, after all steps that do not need the strings.
        """

    def shapes(self, body: Body, *values: Any, iteration: Any = None) -> Any:
        """Shape and dtype of each result of a body for these values, or for values of their shapes.

        None if it cannot run on the device as a whole.
        """

    def on_device(self, function: Callable[..., Any], *values: Value, **options: Any) -> Any:
        """Like `apply`, for a function that also takes bodies to call.

        None if it cannot run on the device as a whole: the op then traces its steps itself.
        """

    def with_body(self, function: Callable[..., Any], *values: Value, **options: Any) -> Any:
        """Like `apply`, for a function that also takes bodies to call, and has no other form."""

    def renew(self, old: Value, new: Value) -> None:
        """Replace an input of the model by a new value for the following nodes."""

    def note(self, value: Value, fact: Any) -> None:
        """Attach a note to a value, for later nodes."""

    def noted(self, value: Value) -> Any:
        """Return the note attached to this value, or None."""

    def between(self, inputs: Strings, output: str) -> Body:
        """Return the part of the surrounding graph from some of its values to another."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The number of inputs of a subgraph, and the dtypes of its results, without a run."""

    inputs: int
    # None if the dtype is unknown.
    dtypes: tuple[DType | None, ...]


# From the dtypes of inputs, the number of outputs and the attributes to the dtypes of the results.
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
    VALUE = "any value, without reading it"


_NEEDS = {
    Array: Need.ARRAY,
    Arrays: Need.ARRAY,
    Map: Need.ARRAY,
    Shaped: Need.SHAPED,
    Value: Need.VALUE,
    Statistic: Need.VALUE,
}


def _without_none(annotation: Any) -> Any:
    """Return T for the annotation `T | None`."""
    options = [option for option in get_args(annotation) if option is not NoneType]
    is_union = get_origin(annotation) in (Union, UnionType)
    return options[0] if is_union and len(options) == 1 else annotation


@dataclass(frozen=True, slots=True)
class Parameter:
    """One input or attribute of an op."""

    name: str
    need: Need
    type: Any
    required: bool
    variadic: bool = False
    default: Any = None

    @classmethod
    def of(cls, parameter: inspect.Parameter, annotation: Any) -> Parameter:
        variadic = parameter.kind is parameter.VAR_POSITIONAL
        type_ = _without_none(annotation)
        # Python has no default before a parameter without one: an optional input that is followed
        # by a required one is only annotated with None.
        required = parameter.default is parameter.empty and type_ is annotation
        default = None if parameter.default is parameter.empty else parameter.default
        need = _NEEDS.get(type_, Need.STATIC)
        # An input with the name of a Python keyword is written with a line after it.
        bare = parameter.name.removesuffix("_")
        name = bare if keyword.iskeyword(bare) else parameter.name
        return cls(name, need, type_, required and not variadic, variadic, default)

    def convert(self, value: Any) -> Any:
        """Convert a NumPy array or the value of an attribute to the annotated type."""
        if value is None or type(value) is self.type or self._is_converted(value):
            return value
        if self.type in (Host, DType, Body, Value):
            return value
        array = np.asarray(value)
        if self.type in (int, Ints) and array.dtype.kind == "f":
            # The standard casts inputs of another type; attributes are whole numbers.
            self._check_whole(array, is_input=array is value)
        if self.type in (Ints, Floats, Strings):
            element = get_args(self.type)[0]
            return tuple(element(v) for v in array.ravel().tolist())
        if array.size != 1:
            raise ValueError(f"'{self.name}' has shape {array.shape}, but must be one element")
        return self.type(array.item())

    def _is_converted(self, value: Any) -> bool:
        """Whether it is a list of the annotated type; the elements of an attribute have one type.

        Then ops get the same object at each trace, and find the tables that they built from it.
        """
        if self.type not in (Ints, Floats, Strings) or type(value) is not tuple or not value:
            return False
        return type(value[0]) is get_args(self.type)[0]

    def _check_whole(self, array: np.ndarray[Any, Any], *, is_input: bool) -> None:
        for number in array.ravel().tolist():
            if not (number.is_integer() or (is_input and math.isfinite(number))):
                raise ValueError(f"'{self.name}' is {number}, but must be a whole number")


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
    # Whether the function leaves out the last results if nothing reads them.
    skips_unread: bool = False
    # Whether the shape of a result depends on data.
    is_unsized: bool = False
    makes_sequence: bool = False
    # The number of results; an op with `counts_outputs` may return more.
    outputs: int = 1
    draws: bool = False
    # A function of the same parameters that a device runs ahead, where this one is for the host.
    beginning: Callable[..., Any] | None = None
    # Whether the function takes a `Walk` in place of a backend.
    walks: bool = False
    # The attributes that nodes may have, but the function does not accept.
    ignored: frozenset[str] = frozenset()

    @property
    def runs_subgraphs(self) -> bool:
        """Whether the function decides how subgraphs run; those that take arrays have none."""
        return self.walks and all(p.need is not Need.ARRAY for p in self.inputs)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Definition:
        hints = annotations_of(function)
        signature = inspect.signature(function).parameters
        for name in (*signature, "return"):
            if name not in hints:
                raise TypeError(
                    f"'{name}' of the operator '{function.__name__}' has no annotation. Annotate "
                    "it with a type of sardonyx.types: Array on the device, Host if it is static."
                )
        first, *rest = signature.values()
        inputs: list[Parameter] = []
        attributes: dict[str, Parameter] = {}
        for parameter in rest:
            annotation = hints[parameter.name]
            if annotation in (Outputs, OutputsRead, Key, Begun):
                continue
            if parameter.kind is parameter.VAR_KEYWORD:
                attributes = {**_attributes_for(function, annotation), **attributes}
            elif parameter.kind is parameter.KEYWORD_ONLY:
                attributes[parameter.name] = Parameter.of(parameter, annotation)
            else:
                inputs.append(Parameter.of(parameter, annotation))
        result = hints["return"]
        return cls(
            function,
            tuple(inputs),
            attributes,
            is_view=result == Alias and any(p.need is Need.ARRAY for p in inputs),
            is_static=result == Host and not inputs,
            counts_outputs=any(each in hints.values() for each in (Outputs, OutputsRead)),
            skips_unread=OutputsRead in hints.values(),
            is_unsized=Unsized in (result, *get_args(result)),
            makes_sequence=result == Arrays,
            outputs=_count(result),
            draws=Key in hints.values(),
            walks=hints[first.name] is Walk,
        )


def _count(result: Any) -> int:
    """Return the number of results that an annotation declares."""
    return max(len(get_args(result)), 1) if get_origin(result) is tuple else 1


# Returns a definition, which it reads from annotations the first time.
Reader: TypeAlias = "Callable[[], Definition]"


class Op(Generic[R]):
    """An ONNX operator: today's function, and those of older opsets with another meaning."""

    def __init__(self, function: Callable[..., R], domain: str) -> None:
        self.name = function.__name__
        self.domain = domain
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self._function = function
        self._native: dict[str, Callable[..., Any]] = {}
        self._today = self._reader(function)
        self._older: list[tuple[int, Reader]] = []
        self._inferences: list[tuple[float, Inference]] = []

    def __call__(self, *arguments: Any, **attributes: Any) -> R:
        """Today's function itself, so that ops can be written in terms of others.

        With symbolic arrays of `sardonyx.record` in place of a backend, the call is recorded.
        """
        first: Any = arguments[0] if arguments else None
        if hasattr(type(first), "record_op"):
            recorded: R = first.record_op(self, arguments, attributes)
            return recorded
        return self._function(*arguments, **attributes)

    def __repr__(self) -> str:
        return f"<op {self.domain or 'ai.onnx'}::{self.name}>"

    def __reduce__(self) -> str:
        """An op is pickled by its name, as functions are."""
        return self._function.__qualname__

    @property
    def is_of_the_package(self) -> bool:
        """Whether it is an operator of sardonyx, not one that a user wrote."""
        return (self._function.__module__ or "").startswith("sardonyx.")

    def before(self, opset: int) -> Callable[[Function], Function]:
        """Declare the function that holds for opsets older than `opset`."""

        def declare(function: Function) -> Function:
            self._end(opset, self._reader(function))
            return function

        return declare

    def ignores(self, name: str, annotation: Any, default: Any = None, *, before: int) -> None:
        """Declare an attribute of nodes of older opsets that changes no result."""
        attribute = Parameter(name, Need.STATIC, annotation, required=False, default=default)
        self._end(before, cache(partial(_with_ignored, self._today, attribute)))

    def _reader(self, function: Callable[..., Any]) -> Reader:
        """Return the function that reads a definition from annotations, once.

        The package's own are read at their first use, since a process uses few of the operators. A
        user's are read now, so that a fault is reported where it is.
        """
        reader = cache(partial(Definition.of, function))
        if not self.is_of_the_package:
            reader()
        return reader

    def _end(self, opset: int, definition: Reader) -> None:
        self._older.append((opset, definition))
        self._older.sort(key=lambda entry: entry[0])

    def infers(self, *, before: float = math.inf) -> Callable[[Function], Function]:
        """Declare a function that infers the dtypes of results without a run, as at load.

        The function takes the dtypes of the inputs, None for each unknown one, the number of
        outputs, and the node's attributes as keywords, with outlines in place of subgraphs. It
        returns those of the results likewise, and raises ValueError for a node that never runs.
        """

        def declare(function: Function) -> Function:
            self._inferences.append((before, function))
            return function

        return declare

    def inference_at(self, opset: int) -> Inference | None:
        """Return the function declared by `infers` for nodes of this opset."""
        return next((inference for end, inference in self._inferences if opset < end), None)

    def on(self, backend: str) -> Callable[[Function], Function]:
        """Declare a function that replaces today's on one backend, such as "jax".

        It has the same parameters and opsets, and uses functions that only that library has.
        """

        def declare(function: Function) -> Function:
            self._native[backend] = function
            dispatching = OnBackend(self._function, MappingProxyType(self._native))
            today = self._today
            self._today = cache(lambda: replace(today(), function=dispatching))
            return function

        return declare

    def begins(self, function: Function) -> Function:
        """Declare what the device computes ahead for today's function, which gets it as `Begun`."""
        today = self._today
        self._today = cache(lambda: replace(today(), beginning=function))
        return function

    def at(self, opset: int) -> Definition:
        """Return the definition that holds at `opset`."""
        for until, definition in self._older:
            if opset < until:
                return definition()
        return self._today()

    @property
    def definitions(self) -> tuple[tuple[int | None, Definition], ...]:
        """All definitions, oldest first, each with the opset that ended it."""
        older = ((until, definition()) for until, definition in self._older)
        return (*older, (None, self._today()))


@overload
def op(function: Callable[..., R], /) -> Op[R]: ...
@overload
def op(*, domain: str) -> Callable[[Callable[..., R]], Op[R]]: ...
def op(
    function: Callable[..., R] | None = None, *, domain: str = ""
) -> Op[R] | Callable[[Callable[..., R]], Op[R]]:
    """Turn a function with the operator's name, parameters and defaults into an `Op`.

    The function raises ValueError for invalid inputs, which becomes `InvalidInput`. Its other
    errors pass unchanged, with a note that names the node.
    """
    if function is None:
        return lambda f: Op(f, domain)
    return Op(function, domain)


def _with_ignored(today: Reader, attribute: Parameter) -> Definition:
    definition = today()
    attributes = {**definition.attributes, attribute.name: attribute}
    ignored = definition.ignored | {attribute.name}
    return replace(definition, attributes=attributes, ignored=ignored)


def _attributes_for(function: Callable[..., Any], annotation: Any) -> Mapping[str, Parameter]:
    """Return the attributes of `f` for the annotation `Annotated[Any, f]`."""
    source = get_args(annotation)[-1] if get_origin(annotation) is Annotated else None
    if isinstance(source, Op):
        return source.at(sys.maxsize).attributes
    if not callable(source):
        raise TypeError(
            f"the operator '{function.__name__}' takes any keyword. Annotate its ** parameter as "
            "Annotated[Any, f], where f is the function whose attributes it takes."
        )
    return Definition.of(source).attributes
