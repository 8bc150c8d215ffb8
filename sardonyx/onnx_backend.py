"""The interface of `onnx.backend.base`, through which ONNX's own test runner uses sardonyx.

>>> from sardonyx import onnx_backend
>>> onnx_backend.supports_device("CPU")
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx.backend import base

from sardonyx.api import load, run_op
from sardonyx.backends import find
from sardonyx.backends.base import Backend
from sardonyx.errors import BackendUnavailable, SardonyxError
from sardonyx.graph.model.model import Model


class SardonyxRep(base.BackendRep):
    """A loaded model that runs on lists or mappings of NumPy arrays."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run on inputs in the graph's order, or by name."""
        names = [info.name for info in self.model.inputs]
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        feeds = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=False))
        values = self.model.run(None, feeds)
        fields = [info.name for info in self.model.outputs]
        outputs: tuple[Any, ...] = base.namedtupledict("Outputs", fields)(*values)
        return outputs


class SardonyxBackend(base.Backend):
    """Models on the best array library that is present; subclass it to choose one."""

    array_backend: ClassVar[str | Backend | None] = None

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether every operator of the model can be run."""
        try:
            cls._load(model, device)
        except SardonyxError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> SardonyxRep:
        """Load the model, so that it can be run many times."""
        return SardonyxRep(cls._load(model, device))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Load the model and run it once."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run a single node."""
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        result = run_op(
            node.op_type,
            *map(_decoded, inputs),
            domain=node.domain,
            opset=kwargs.get("opset_version"),
            outputs=len(node.output),
            **{name: _decoded(value) for name, value in attributes.items()},
        )
        return tuple(result) if len(node.output) > 1 else (result,)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models can run on "CPU", "CUDA" or a device such as "CUDA:1"."""
        if isinstance(cls.array_backend, Backend):
            return device.upper() == "CPU"
        try:
            find(cls.array_backend, device.lower())
        except BackendUnavailable:
            return False
        return True

    @classmethod
    def _load(cls, model: onnx.ModelProto, device: str) -> Model:
        wanted = None if device.upper() == "CPU" else device.lower()
        return load(model, backend=cls.array_backend, device=wanted)


def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [text.decode() for text in value]
    return value


is_compatible = SardonyxBackend.is_compatible
prepare = SardonyxBackend.prepare
run_model = SardonyxBackend.run_model
run_node = SardonyxBackend.run_node
supports_device = SardonyxBackend.supports_device
