"""Calls of operators on arrays: each operator becomes a model once, which later calls run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.graph.checking.audit import audit
from sardonyx.graph.loading.single_op import single_node
from sardonyx.graph.model.model import Model
from sardonyx.graph.model.shared import Options
from sardonyx.ops import OPS
from sardonyx.ops.definition import Need
from sardonyx.recording.active import BoundCall
from sardonyx.recording.eager_bodies import backend_for
from sardonyx.recording.literals import is_array, slot_at, with_arrays
from sardonyx.recording.operators import Operator

# The number of models that are kept, those used last.
MOST_MODELS = 1024
# Maximum bytes of an array in the key of a model: an attribute, or an input known while tracing.
LARGEST_IN_KEY = 2**16


class Models:
    """The models of operators that were called, by operator, attributes and kinds of inputs."""

    def __init__(self, most: int = MOST_MODELS) -> None:
        self._most = most
        self._by_key: OrderedDict[Any, Model] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: Any) -> Model | None:
        """Return the model of a key, and note that it was used."""
        with self._lock:
            model = self._by_key.get(key)
            if model is not None:
                self._by_key.move_to_end(key)
            return model

    def keep(self, key: Any, model: Model) -> None:
        """Keep a model; beyond the maximum the one that was not used for longest is dropped."""
        with self._lock:
            self._by_key[key] = model
            if len(self._by_key) > self._most:
                self._by_key.popitem(last=False)


MODELS = Models()


def run(call: BoundCall) -> Sequence[Any]:
    """Run a call on arrays, and return its results."""
    operator, given = call.operator, call.inputs
    inputs = with_arrays(operator.schema, given)
    inputs = [list(value) if type(value) is tuple else value for value in inputs]
    backend = _backend_for(inputs)
    constants = _constants(operator, given, inputs)
    kinds = tuple([_kind(value, i in constants) for i, value in enumerate(inputs)])
    key = (operator.name, operator.domain, operator.opset, call.results, backend, kinds,
           _attributes_key(call.attributes))  # fmt: skip
    model = MODELS.get(key)
    if model is None:
        model = _model(call, inputs, constants, backend)
        if _UNKNOWN not in key[-1]:
            MODELS.keep(key, model)
    passed = [v for i, v in enumerate(inputs) if v is not None and i not in constants]
    outputs = model(*passed)
    return (outputs,) if len(model.outputs) == 1 else outputs


def _model(
    call: BoundCall, inputs: Sequence[Any], constants: Mapping[int, Any], backend: Backend
) -> Model:
    operator = call.operator
    assert call.results is not None
    results = [name and f"output{i}" for i, name in enumerate(call.results)]
    source = single_node(
        operator.name,
        [_typed(operator, i, value, inputs) for i, value in enumerate(inputs)],
        call.attributes,
        operator.domain,
        operator.opset,
        results,
        constants=constants,
    )
    audit(source, strict=True)
    return Model(source, backend, Options(compile=None))


def _typed(operator: Operator, index: int, value: Any, inputs: Iterable[Any]) -> Any:
    """Return a value of the type of the input; an empty sequence has that of the other arrays."""
    if isinstance(value, list) and not value:
        arrays = (each for each in inputs if is_array(each))
        dtype = next((each.dtype for each in arrays), np.dtype(np.float32))
        slot = slot_at(operator.schema, index)
        return [np.zeros(0, dtype)] if slot.type.startswith(("S", "seq")) else value
    return value


def _backend_for(inputs: Iterable[Any]) -> Backend:
    """Return the backend of the first array that is not NumPy's."""
    for value in inputs:
        if type(value) is np.ndarray or value is None or isinstance(value, dict):
            continue
        if isinstance(value, list):
            backend = _backend_for(value)
            if backend is not HOST:
                return backend
        elif not isinstance(value, np.ndarray):
            return backend_for(value)
    return HOST


def _constants(
    operator: Operator, given: Sequence[Any], inputs: Sequence[Any]
) -> Mapping[int, np.ndarray[Any, Any]]:
    """Return the Python numbers and lists that the op must know while it is traced."""
    literal = [i for i, value in enumerate(given) if not (value is None or is_array(value))]
    op = OPS.get((operator.domain, operator.name)) if literal else None
    if op is None:
        return {}
    parameters = op.at(operator.opset).inputs
    return {
        i: inputs[i]
        for i in literal
        if i < len(parameters)
        and parameters[i].need is Need.STATIC
        and type(inputs[i]) is np.ndarray
        and inputs[i].nbytes <= LARGEST_IN_KEY
        and inputs[i].dtype != object
    }


def _kind(value: Any, is_constant: bool) -> Any:
    """Return what the model depends on of an input: whether it is an array, or its content."""
    if is_constant:
        return _frozen(value)
    if type(value) is list:
        return "sequence", str(value[0].dtype) if value else "empty"
    if isinstance(value, dict):
        key = type(next(iter(value))) if value else None
        return "map", key, np.asarray(list(value.values())).dtype
    return value is not None


_UNKNOWN: Any = object()


def _attributes_key(attributes: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a key of attributes, which has `_UNKNOWN` in it if one has no key."""
    if not attributes:
        return ()
    frozen = [(name, _frozen(attributes[name])) for name in sorted(attributes)]
    return (_UNKNOWN,) if any(value is _UNKNOWN for _, value in frozen) else tuple(frozen)


def _frozen(value: Any) -> Any:  # noqa: PLR0911  (one for each kind)
    """Return a key of a value that tells 1, 1.0 and True apart, and 0.0 from -0.0."""
    kind = type(value)
    if kind in (int, str, bool, bytes):
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind in (list, tuple):
        items = tuple([_frozen(each) for each in value])
        return _UNKNOWN if _UNKNOWN in items else (list, items)
    if isinstance(value, np.ndarray) and value.dtype != object and value.nbytes <= LARGEST_IN_KEY:
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    if isinstance(value, (type, np.dtype)):
        return np.dtype(value)
    return _UNKNOWN
