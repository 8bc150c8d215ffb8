"""`NodeArg` and `ModelMetadata`: what a session says of its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import TensorProto, TypeProto

# The version of a model that has none.
NO_VERSION = 2**63 - 1

Dimension = int | str | None


@dataclass(frozen=True, repr=False)
class NodeArg:
    """An input or output: its name, type and shape.

    A dimension is a number, a name, or None. Values that are no tensors have no dimensions, and
    neither have tensors without a declared shape.

    >>> NodeArg("x", "tensor(float)", ("N", 4))
    NodeArg(name='x', type='tensor(float)', shape=['N', 4])
    """

    name: str
    type: str
    dimensions: tuple[Dimension, ...]
    # Whether the model declares a shape.
    has_shape: bool = field(default=True, compare=False)

    @property
    def shape(self) -> list[Dimension]:
        """The sizes or names of the dimensions, in a list that the caller may change."""
        return list(self.dimensions)

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"

    @classmethod
    def of(cls, info: onnx.ValueInfoProto) -> NodeArg:
        """Return the description of a declared value."""
        shape = shape_of(info.type)
        return cls(info.name, type_text(info.type), shape or (), shape is not None)


@dataclass(frozen=True)
class ModelMetadata:
    """Who wrote a model, what for, and which version it is."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: Mapping[str, str]

    @classmethod
    def of(cls, proto: onnx.ModelProto) -> ModelMetadata:
        """Return the metadata of a model."""
        return cls(
            proto.producer_name,
            proto.graph.name,
            proto.domain,
            proto.doc_string,
            proto.graph.doc_string,
            proto.model_version if proto.HasField("model_version") else NO_VERSION,
            {entry.key: entry.value for entry in proto.metadata_props},
        )


@dataclass(frozen=True)
class Interface:
    """The inputs and outputs of a model, and the inputs that have a default."""

    inputs: tuple[NodeArg, ...]
    outputs: tuple[NodeArg, ...]
    overridable: tuple[NodeArg, ...]

    @classmethod
    def of(cls, proto: onnx.ModelProto, *, infers: bool = False) -> Interface:
        """Return the interface that a model declares.

        Shapes of outputs are inferred if it does not declare them, or if a caller set dimensions.
        """
        graph = proto.graph
        initial = {tensor.name for tensor in graph.initializer}
        initial.update(sparse.values.name for sparse in graph.sparse_initializer)
        args = [NodeArg.of(info) for info in graph.input]
        # Before the fourth version of the format, initializers had to be inputs.
        overridable = [arg for arg in args if arg.name in initial and proto.ir_version >= 4]
        return cls(
            tuple(arg for arg in args if arg.name not in initial),
            tuple(_outputs(proto, infers=infers)),
            tuple(overridable),
        )


def type_text(kind: TypeProto) -> str:
    """Return a type as onnxruntime writes it; empty if it is not declared.

    >>> type_text(onnx.helper.make_tensor_type_proto(TensorProto.INT64, None))
    'tensor(int64)'
    """
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        return f"tensor({_element(kind.tensor_type.elem_type)})"
    if which == "sparse_tensor_type":
        return f"sparse_tensor({_element(kind.sparse_tensor_type.elem_type)})"
    if which == "sequence_type":
        return f"seq({type_text(kind.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({type_text(kind.optional_type.elem_type)})"
    if which == "map_type":
        key = _element(kind.map_type.key_type)
        return f"map({key},{type_text(kind.map_type.value_type)})"
    return ""


def shape_of(kind: TypeProto) -> tuple[Dimension, ...] | None:
    """Return the declared shape of a tensor, optional or not; None if there is none.

    >>> shape_of(onnx.helper.make_tensor_type_proto(TensorProto.INT64, ["N", None, 4]))
    ('N', None, 4)
    """
    if kind.HasField("optional_type"):
        return shape_of(kind.optional_type.elem_type)
    if not (kind.HasField("tensor_type") and kind.tensor_type.HasField("shape")):
        return None
    return tuple(_size(dimension) for dimension in kind.tensor_type.shape.dim)


def _size(dimension: Any) -> Dimension:
    if dimension.HasField("dim_value"):
        # Some exporters write -1 for a free dimension.
        return int(dimension.dim_value) if dimension.dim_value >= 0 else None
    return dimension.dim_param or None


def _element(number: int) -> str:
    return TensorProto.DataType.Name(number).lower() if number else ""


def _outputs(proto: onnx.ModelProto, *, infers: bool) -> Sequence[NodeArg]:
    """Return the outputs, with what onnx infers of those that are not declared in full."""
    declared = [NodeArg.of(info) for info in proto.graph.output]
    is_complete = all(a.type and a.has_shape and None not in a.dimensions for a in declared)
    if is_complete and not infers:
        return declared
    # What cannot be inferred stays as it is declared.
    with suppress(Exception):
        inferred = onnx.shape_inference.infer_shapes(proto)
        known = {info.name: NodeArg.of(info) for info in inferred.graph.output}
        return [_merged(arg, known[arg.name]) for arg in declared]
    return declared


def _merged(declared: NodeArg, inferred: NodeArg) -> NodeArg:
    kind = declared.type or inferred.type
    if not declared.has_shape or len(declared.dimensions) != len(inferred.dimensions):
        return NodeArg(declared.name, kind, inferred.dimensions, inferred.has_shape)
    pairs = zip(declared.dimensions, inferred.dimensions, strict=True)
    return NodeArg(declared.name, kind, tuple(_more_exact(old, new) for old, new in pairs))


def _more_exact(declared: Dimension, inferred: Dimension) -> Dimension:
    # onnx makes up names for dimensions that it knows nothing of.
    is_made_up = isinstance(inferred, str) and inferred.startswith("unk__")
    if isinstance(inferred, int) or (declared is None and not is_made_up):
        return inferred
    return declared
