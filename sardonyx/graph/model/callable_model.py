"""What all models share: how people call them, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sardonyx.backends.base import Backend
from sardonyx.graph.calls.arguments import chosen_outputs, require_feeds
from sardonyx.graph.calls.results import results_type
from sardonyx.graph.ir import Source, ValueInfo
from sardonyx.printable import printable


@dataclass(frozen=True, eq=False, slots=True)
class CallOptions:
    """How to run one call: the key to draw at random from, and the inputs to donate."""

    key: Any = None
    donated: tuple[str, ...] = ()


PLAIN = CallOptions()


# Runs a call: from inputs by position and by name, and the options, to all outputs. They are arrays
# of the caller's library; with `to_numpy=True`, of NumPy.
RunCall: TypeAlias = Callable[..., Sequence[Any]]


class CallableModel:
    """A model, or a model that is bound to options."""

    _call_options = PLAIN

    def __init__(self, output_names: Sequence[str]) -> None:
        self._output_names = tuple(output_names)
        self._results = results_type(self._output_names)

    def __call__(self, /, *inputs: Any, **named_inputs: Any) -> Any:
        """Run the model: one output is returned as it is, several as a named tuple."""
        run_call = self._run_call_for(inputs, named_inputs)
        values = run_call(inputs, named_inputs, self._call_options)
        return values[0] if len(values) == 1 else self._results(*values)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the model on inputs by name, and return the named outputs as NumPy arrays.

        With None for the names it returns all outputs.

        >>> import numpy as np, sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
        >>> (name,) = [info.name for info in model.inputs]
        >>> [y.shape for y in model.run(None, {name: np.zeros((2, 5, 48), np.float32)})]
        [(2, 5, 48)]
        """
        require_feeds(feeds)
        names = chosen_outputs(output_names, self._output_names)
        run_call = self._run_call_for((), feeds)
        outputs = run_call((), feeds, self._call_options, to_numpy=True)
        values = dict(zip(self._output_names, outputs, strict=True))
        return [values[name] for name in names]

    def _run_call_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> RunCall:
        """The function that runs a call with these inputs."""
        raise NotImplementedError


class LoadedModel(CallableModel):
    """A model on a backend, with its inputs and outputs."""

    def __init__(
        self,
        inputs: tuple[ValueInfo, ...],
        outputs: tuple[ValueInfo, ...],
        backend: Backend,
        optional: tuple[ValueInfo, ...] = (),
    ) -> None:
        super().__init__([info.name for info in outputs])
        self._infos = inputs
        self._optional = optional
        self._output_infos = outputs
        self._backend: Any = backend

    @property
    def backend(self) -> str:
        """The name of the array library: "jax", "cupy" or "numpy"."""
        name: str = self._backend.name
        return name

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """The required inputs: name, dtype, and shape with names for free dimensions."""
        return self._infos

    @property
    def optional_inputs(self) -> tuple[ValueInfo, ...]:
        """The inputs with a default value; pass them by name, or after the required ones.

        Exported and sharded models have none: there they are among the params.
        """
        return self._optional

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """The outputs: name, dtype, and shape with names for free dimensions."""
        return self._output_infos

    def _text(self, title: str) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return printable(f"<{title} on {self.backend}: ({inputs}) -> ({outputs})>")


class OnnxModel(LoadedModel):
    """A model whose ONNX graph is at hand."""

    _source: Source
    _strict: bool

    @property
    def opsets(self) -> dict[str, int]:
        """The opset version of each domain; ONNX's own domain is the empty string."""
        return dict(self._source.opsets)

    @property
    def metadata(self) -> dict[str, str]:
        """The producer, the description, and the properties that the exporter wrote."""
        return dict(self._source.metadata)

    @property
    def is_strict(self) -> bool:
        """Whether operators refuse types that their schemas do not list."""
        return self._strict
