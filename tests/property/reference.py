"""What onnxruntime can run, and what it makes of a case."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import defs
from onnxruntime.capi import onnxruntime_pybind11_state as native

from sardonyx.graph.standard.types import ELEMENT_TYPES, DType, dtype_of_type, number_of
from tests.property.case import Case

PROVIDER = "CPUExecutionProvider"
# An operator that each domain has had since its first version.
PROBES = {"": "Identity", "ai.onnx.ml": "Binarizer"}
HALF, SINGLE = "tensor(float16)", "tensor(float)"


class Refused(Exception):  # noqa: N818  (named for what it says, as sardonyx's errors are)
    """A runtime does not run the case, and says why."""


class Lacking(Exception):  # noqa: N818
    """onnxruntime has no kernel for the case."""


# -- what there is --------------------------------------------------------------------------------


@cache
def schemas(op: str) -> tuple[defs.OpSchema, ...]:
    """An operator's versions, oldest first; no name is of both domains."""
    found = [s for s in defs.get_all_schemas_with_history() if s.name == op and s.domain in PROBES]
    return tuple(sorted(found, key=lambda s: s.since_version))


def domain_of(op: str) -> str:
    return schemas(op)[0].domain


@cache
def newest_opset(domain: str) -> int:
    """The newest opset that onnxruntime has promised to run."""
    newest = defs.onnx_ml_opset_version() if domain else defs.onnx_opset_version()
    for opset in range(newest, 0, -1):
        try:
            run(Case(PROBES[domain], opset, (np.zeros(1, np.float32),), domain=domain))
        except (Refused, Lacking):
            continue
        return opset
    raise AssertionError(f"onnxruntime does not run {PROBES[domain]} at any opset")


@cache
def versions(op: str) -> list[int]:
    """The versions of an operator that onnxruntime runs: by a kernel, or by the standard's body."""
    return [
        schema.since_version
        for schema in schemas(op)
        if schema.since_version <= newest_opset(schema.domain) and _choices(schema)
    ]


def last_opset(op: str, version: int) -> int:
    """The last opset at which `version` of an operator is in force."""
    later = [s.since_version for s in schemas(op) if s.since_version > version]
    return min([newest_opset(domain_of(op)) + 1, *later]) - 1


Types = Mapping[str, tuple[DType, ...]]


@cache
def choices_of_types(op: str, opset: int) -> tuple[Types, ...]:
    """For each kernel of an operator the dtypes that a type variable may stand for."""
    return _choices(defs.get_schema(op, opset, domain_of(op)))


@cache
def _kernels() -> Mapping[str, list[tuple[int, int, Mapping[str, list[str]]]]]:
    found = defaultdict(list)
    for kernel in native.get_all_opkernel_def():
        if kernel.domain in PROBES and kernel.provider == PROVIDER:
            found[kernel.op_name].append((*kernel.version_range, kernel.type_constraints))
    return found


# The last version of a kernel that was made for one version and what may come after it, which
# onnxruntime then does not use: the newer version may mean something else.
_UNBOUNDED = 2**31 - 1


def _choices(schema: defs.OpSchema) -> tuple[Types, ...]:
    version = schema.since_version
    kernels = [
        types
        for first, last, types in _kernels()[schema.name]
        if first == version or first < version <= last < _UNBOUNDED
    ]
    if not kernels and (
        schema.has_function or schema.has_context_dependent_function or schema.name == "Constant"
    ):
        kernels = [{}]
    return tuple(_allowed(schema, kernel) for kernel in kernels)


def _allowed(schema: defs.OpSchema, kernel: Mapping[str, list[str]]) -> Types:
    """A kernel's types that the schema has, too; what a kernel does not name it does not limit."""
    allowed = {}
    variables = {v.type_param_str: v.allowed_type_strs for v in schema.type_constraints}
    for variable, by_schema in variables.items():
        slots = [p.name for p in (*schema.inputs, *schema.outputs) if p.type_str == variable]
        named = [kernel[name] for name in (variable, *slots) if name in kernel]
        texts = [text for text in by_schema if all(text in names for names in named)]
        if SINGLE in texts and HALF in by_schema and HALF not in texts:
            texts.append(HALF)  # It runs kernels of float32 on float16, between two casts.
        dtypes = (dtype_of_type(text) for text in texts)
        allowed[variable] = tuple(d for d in dtypes if d is not None and d.kind != "c")
    return allowed


# -- running it -----------------------------------------------------------------------------------


def run(case: Case) -> list[np.ndarray]:
    """onnxruntime's results, by its kernels as they are: nothing folded, nothing fused."""
    return Session(case.model).run(case.feeds)


class Session:
    """A model as onnxruntime loads it, with its optimizations or without."""

    def __init__(self, model: bytes, optimized: bool = False) -> None:
        with _telling_apart():
            self.session = onnxruntime.InferenceSession(
                model, _options(optimized), providers=[PROVIDER]
            )

    def run(self, feeds: Mapping[str, Any]) -> list[np.ndarray]:
        outputs = self.session.get_outputs()
        tensors = all(output.type.startswith("tensor") for output in outputs)
        with _telling_apart():
            if not tensors or any(_is_by_objects(value) for value in feeds.values()):
                return self.session.run(None, feeds)
            values = {name: _to_value(array) for name, array in feeds.items()}
            names = [output.name for output in outputs]
            return [_to_array(value) for value in self.session.run_with_ort_values(names, values)]


@contextmanager
def _telling_apart() -> Iterator[None]:
    """Turn onnxruntime's errors into what they say: no kernel, or not a valid case."""
    try:
        yield
    except native.NotImplemented as error:
        raise Lacking(str(error)) from None
    except Exception as error:
        if any(sign in str(error) for sign in _NOT_BUILT):
            raise Lacking(str(error)) from None
        raise Refused(f"{type(error).__name__}: {error}") from None


def _is_by_objects(value: Any) -> bool:
    """Whether Python's own objects are handed over: containers, and strings."""
    return isinstance(value, (list, dict)) or value.dtype == "O"


# What it says of types that it does not have, and of the casts by which it runs float16: they are
# not made before opset 6, nor always right within the body of a function.
_NOT_BUILT = (
    "MLDataType",
    "not currently registered",
    "Unsupported value attribute datatype",
    "InsertedPrecisionFreeCast",
    "Type parameter (T) of Optype",
    "data type is not supported with Scatter",
    "operator does not support double yet",
    "Non per-tensor quantization is not supported",
    "of input parameter (_inlfunc_",
)


@cache
def _options(optimized: bool) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    )
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return options


def _to_value(array: np.ndarray) -> onnxruntime.OrtValue:
    make = onnxruntime.OrtValue
    if _is_plain(array.dtype):
        return make.ortvalue_from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    bits = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
    return make.ortvalue_from_numpy_with_onnx_type(bits, number_of(array.dtype))


def _to_array(value: onnxruntime.OrtValue) -> np.ndarray:
    element = ELEMENT_TYPES[value.element_type()]
    if _is_plain(element.dtype):
        return value.numpy()
    shape = tuple(value.shape())
    tensor = onnx.TensorProto(data_type=element.number, dims=shape)
    tensor.raw_data = ctypes.string_at(value.data_ptr(), -(-prod(shape) * element.bits // 8))
    return onnx.numpy_helper.to_array(tensor)


def _is_plain(dtype: DType) -> bool:
    """Whether NumPy has the type by itself."""
    return dtype.isbuiltin == 1
