"""The interface that all models share: calls, options for calls, and descriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput
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
        if names == self._output_names:
            return list(outputs)
        values = dict(zip(self._output_names, outputs, strict=True))
        return [values[name] for name in names]

    def _run_call_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> RunCall:
        """Return the function that runs a call with these inputs."""
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

    def bind(self, *, key: Any = None, donate: str | Iterable[str] = ()) -> BoundModel:
        """The model with a random key, or with inputs to donate; call the result like the model.

        Random operators draw from `key`, alike at every call: a number, a pair of uint32, or one
        of JAX's keys, which may be traced. Without a key each call draws anew. Operators that have
        a seed of their own ignore it.

        `donate` has names of inputs, or patterns such as "past_*". Outputs of the same shape and
        dtype reuse their buffers, so that a decoder's cache is updated in place; the donated arrays
        are deleted. NumPy and CuPy ignore it; exported and sharded models refuse it.

        >>> import jax.numpy as jnp, sardonyx
        >>> from onnx import parser
        >>> text = '<ir_version: 10, opset_import: ["": 22]> g (float[2] past) => (float[2] now) '
        >>> text += "{ noise = RandomNormalLike (past) now = Add (past, noise) }"
        >>> model = sardonyx.load(parser.parse_model(text))
        >>> step = model.bind(key=7, donate="past*")
        >>> past = jnp.ones(2)
        >>> bool((step(past) == model.bind(key=7)(jnp.ones(2))).all()), past.is_deleted()
        (True, True)
        """
        drawn = None if key is None else self._backend.key(key)
        return BoundModel(self, CallOptions(drawn, self._donated(_patterns(donate))))

    def _donated(self, patterns: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the inputs that match these patterns."""
        raise NotImplementedError

    def _text(self, title: str) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return printable(f"<{title} on {self.backend}: ({inputs}) -> ({outputs})>")


class OnnxModel(LoadedModel):
    """A model with its ONNX graph, which exported programs lack."""

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


class BoundModel(CallableModel):
    """A model with a key or donated inputs, as `Model.bind` returns it; call it like the model."""

    def __init__(self, model: LoadedModel, options: CallOptions) -> None:
        super().__init__(model._output_names)
        self._model = model
        self._call_options = options

    def bind(self, *, key: Any = None, donate: str | Iterable[str] = ()) -> BoundModel:
        """The model with these options; those that are left out stay as they are."""
        before, new = self._call_options, self._model.bind(key=key, donate=donate)._call_options
        new_key = before.key if new.key is None else new.key
        return BoundModel(self._model, CallOptions(new_key, new.donated or before.donated))

    def __repr__(self) -> str:
        key = "" if self._call_options.key is None else ", with a key"
        donated = ", ".join(self._call_options.donated)
        return printable(f"<bound {self._model!r}{key}{donated and f', donates {donated}'}>")

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundModel, (self._model, self._call_options)

    def _run_call_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> RunCall:
        return self._model._run_call_for(inputs, named)


def _patterns(value: Any) -> tuple[str, ...]:
    """Return the argument `donate` as a tuple of names or patterns."""
    patterns = (value,) if isinstance(value, str) else value
    if isinstance(patterns, Iterable):
        patterns = tuple(patterns)
        if all(isinstance(pattern, str) for pattern in patterns):
            return patterns
    raise InvalidInput(
        f"The inputs to donate are {value!r}: pass their names or patterns, as in "
        'donate=["past_*"].'
    )
