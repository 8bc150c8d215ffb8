"""`sardonyx.record`: a Python function as a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from onnx import TypeProto

from sardonyx.api import load
from sardonyx.arguments import check_count
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.results import Results
from sardonyx.graph.loading.read import ReadModel
from sardonyx.graph.model.model import Model
from sardonyx.graph.standard.schema import refuse_future
from sardonyx.recording.active import recording_into
from sardonyx.recording.emission import model_of
from sardonyx.recording.literals import is_array, numpy_dtype
from sardonyx.recording.recorder import GraphRecorder
from sardonyx.recording.symbols import SymbolicArray
from sardonyx.recording.types import tensor_type, type_of_text


class Versioned(Protocol):
    """A namespace of operators, as `sardonyx.opset` returns it."""

    @property
    def version(self) -> int: ...


def record(
    function: Callable[..., Any],
    inputs: Mapping[str, Any] | Sequence[Any],
    *,
    weights: Mapping[str, Any] | None = None,
    opset: Versioned | int | None = None,
    name: str | None = None,
    **options: Any,
) -> Model:
    """Record a function written with the operators of `sardonyx.opset` as a model.

    The function is called once, with symbolic arrays. `inputs` has a type for each argument, by
    name or by position: a pair of a dtype and a shape, in which names stand for free sizes, the
    text of a type such as "seq(tensor(float))", or an example array. What the function returns
    becomes the outputs; a dict, or `Results`, names them.

    Arrays that the function reads become the model's weights, `model.params`. They have the names
    of the variables that hold them, or those of `weights`, as in `weights={"w": w}`. Calls of
    loaded models, and of operators of your own, are recorded too.

    `opset` is the opset of Python's operators on symbolic arrays, if the function itself uses
    none. `options` are those of `load`.

    >>> import numpy as np, sardonyx
    >>> O, w = sardonyx.opset(20), np.ones((3, 2), np.float32)
    >>> def layer(x):
    ...     return {"y": O.Relu(x @ w + 1)}
    >>> model = sardonyx.record(layer, {"x": ("float32", ["batch", 3])})
    >>> model
    <sardonyx model on jax: (x: tensor(float)[batch, 3]) -> (y: tensor(float)[batch, 2])>
    >>> list(model.params), model(np.zeros((1, 3), np.float32))
    (['w', 'constant'], array([[1., 1.]], dtype=float32))
    """
    if not callable(function):
        raise InvalidInput(f"A {type(function).__name__} cannot be recorded: pass a function.")
    opsets = {} if opset is None else {"": _version(opset)}
    recorder = GraphRecorder(opsets, _names(function, weights or {}))
    by_name = _named(function, inputs)
    with recording_into(recorder):
        symbols = {n: recorder.input(n, _type(n, spec)) for n, spec in by_name.items()}
        returned = _called(function, symbols)
        outputs = {n: recorder.symbol(value) for n, value in _outputs(returned).items()}
    title = name or getattr(function, "__name__", "") or type(function).__name__
    proto, given = model_of(recorder, outputs, title.strip("<>"))
    own = [*recorder.custom.values(), *options.pop("ops", ())]
    read: Any = ReadModel(proto, None, given, proto.SerializeToString())
    return load(read, ops=own, **options)


def _version(opset: Versioned | int) -> int:
    version = opset if isinstance(opset, int) else opset.version
    check_count(version, "An opset is a number from 1 on")
    refuse_future("", version, "the call")
    return version


def _called(function: Callable[..., Any], symbols: Mapping[str, SymbolicArray]) -> Any:
    """Call by name where the function has such parameters, or else by position."""
    try:
        inspect.signature(function).bind(**symbols)
    except (TypeError, ValueError):
        return function(*symbols.values())
    return function(**symbols)


def _named(function: Callable[..., Any], inputs: Any) -> Mapping[str, Any]:
    """Return the types of inputs by name; those by position have the parameters' names."""
    if isinstance(inputs, Mapping):
        for name in inputs:
            if not isinstance(name, str) or not name:
                raise InvalidInput(f"An input is called {name!r}: pass its name, a str.")
        return inputs
    if is_array(inputs) or not isinstance(inputs, (list, tuple)):
        raise InvalidInput(
            f"The inputs are a {type(inputs).__name__}: pass a dict from names to types, as in "
            '{"x": ("float32", ["batch", 3])}, or a list of example arrays.'
        )
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    names = names if len(names) >= len(inputs) else [f"input{i}" for i in range(len(inputs))]
    return dict(zip(names, inputs, strict=False))


def _type(name: str, spec: Any) -> TypeProto:
    if isinstance(spec, TypeProto):
        return spec
    if isinstance(spec, str) and "(" in spec:
        return type_of_text(spec)
    if is_array(spec):
        dtype = numpy_dtype(spec)
        if dtype is not None:
            return tensor_type(dtype, tuple(spec.shape))
    if isinstance(spec, (tuple, list)) and len(spec) == 2:
        return tensor_type(_dtype(name, spec[0]), _shape(name, spec[1]))
    raise InvalidInput(
        f"The type of '{name}' is {spec!r:.100}: pass a dtype and a shape, as in "
        '("float32", ["batch", 3]), or an array.'
    )


def _dtype(name: str, dtype: Any) -> np.dtype[Any]:
    try:
        return np.dtype(object) if dtype in ("string", str) else np.dtype(dtype)
    except TypeError:
        raise InvalidInput(
            f"The dtype of '{name}' is {dtype!r:.100}, which NumPy does not have: pass one such as "
            '"float32".'
        ) from None


def _shape(name: str, shape: Any) -> Sequence[int | str | None] | None:
    if shape is None:
        return None
    sizes = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    for size in sizes:
        is_size = isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size >= 0
        if not (size is None or isinstance(size, str) or is_size):
            raise InvalidInput(
                f"The shape of '{name}' has {size!r:.100}: pass sizes, names of free "
                "sizes, or None."
            )
    return [int(s) if isinstance(s, np.integer) else s for s in sizes]


def _outputs(returned: Any) -> Mapping[str, Any]:
    """Return the outputs by name: those of a dict or of `Results`, or else numbered."""
    if isinstance(returned, Mapping):
        found = dict(returned)
    elif isinstance(returned, Results):
        found = dict(zip(returned.keys(), returned, strict=True))
    elif isinstance(returned, (tuple, list)):
        found = {f"output{i}": value for i, value in enumerate(returned)}
    else:
        found = {"output": returned}
    for name, value in found.items():
        if value is None or not isinstance(name, str) or not name:
            raise InvalidInput(
                f"The function returned {value!r:.100} as output {name!r}: let it return arrays, "
                "alone, in a tuple, or in a dict with names."
            )
    if not found:
        raise InvalidInput("The function returned no arrays: a model has at least one output.")
    return found


def _names(function: Any, weights: Mapping[str, Any]) -> dict[int, str]:
    """Return names for the arrays that the function reads, by their identity."""
    found: dict[int, str] = {}
    code = getattr(function, "__code__", None)
    if code is not None:
        cells = zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False)
        around = {n: function.__globals__[n] for n in code.co_names if n in function.__globals__}
        for name, cell in cells:
            try:
                around[name] = cell.cell_contents
            except ValueError:  # The variable has no value yet.
                continue
        for name, value in around.items():
            for key, inner in value.items() if isinstance(value, dict) else ():
                if is_array(inner):
                    found[id(inner)] = f"{name}.{key}"
            if is_array(value):
                found[id(value)] = name
    found.update((id(array), name) for name, array in weights.items())
    return found
