"""The interface that all models share: calls, options for calls, and descriptions."""

from __future__ import annotations

import contextvars
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from sardonyx.arguments import check_switches
from sardonyx.backends.base import Backend
from sardonyx.display.markup import Html, displayed
from sardonyx.display.tables import facts
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.arguments import chosen_outputs, require_feeds
from sardonyx.graph.calls.out_arrays import targets_of, written
from sardonyx.graph.calls.results import fresh, results_type
from sardonyx.graph.ir import Source, ValueInfo
from sardonyx.graph.model.call_threads import CallThreads
from sardonyx.graph.model.named_values import wanted_names
from sardonyx.graph.model.not_an_array import NotAnArray
from sardonyx.graph.model.values_display import MOST_CHARACTERS, values_table, values_text
from sardonyx.printable import printable


@dataclass(frozen=True, eq=False, slots=True)
class CallOptions:
    """How to run one call, and what to return of it."""

    key: Any = None
    donated: tuple[str, ...] = ()
    # Names and patterns of values; None if the call returns its outputs alone.
    captured: tuple[str, ...] | None = None
    # Arrays to write the outputs to, as a caller passed them.
    out: Any = None
    # Whether NumPy results are copies that the caller may change.
    writable: bool = False


PLAIN = CallOptions()


# Runs a call: from inputs by position and by name, and the options, to all outputs. They are arrays
# of the caller's library; with `to_numpy=True`, of NumPy.
RunCall: TypeAlias = Callable[..., Sequence[Any]]


class CallableModel(NotAnArray):
    """A model, or a model that is bound to options."""

    _call_options = PLAIN

    def __init__(self, output_names: Sequence[str]) -> None:
        self._output_names = tuple(output_names)
        self._results = results_type(self._output_names)

    def __call__(self, /, *inputs: Any, **named_inputs: Any) -> Any:
        """Run the model: one output is returned as it is, several as a named tuple.

        With `capture="blocks.0.*"`, a name or pattern of values inside the graph or a list of them,
        it returns a pair: the output, and an `OrderedDict` of these values by name. Names mean what
        they mean to `run`.

        With `out=array` the output is written into that NumPy array, which is returned. For several
        outputs pass a list with an array for each, or None, or a dict from names to arrays. Arrays
        may overlap inputs, but not each other. They must have the shape and dtype of the output.

        Where a model has an input called `capture` or `out`, bind the option instead:
        `model.bind(capture=...)`.

        >>> import numpy as np, sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
        >>> y, captured = model(np.zeros((1, 8, 48), np.float32), capture="layer_norm_[12]")
        >>> {name: value.shape for name, value in captured.items()}
        {'layer_norm_1': (1, 8, 48), 'layer_norm_2': (1, 8, 48)}
        """
        options = self._call_options
        if "capture" in named_inputs and not self._has_input("capture"):
            patterns = wanted_names(named_inputs.pop("capture"), "capture")
            options = replace(options, captured=patterns)
        if "out" in named_inputs and not self._has_input("out"):
            options = replace(options, out=named_inputs.pop("out"))
        if options.captured is not None:
            return self._called_capturing(options.captured, inputs, named_inputs, options)
        run_call = self._run_call_for(inputs, named_inputs)
        if options is PLAIN:  # As in most calls, of which a small model takes a few microseconds.
            values = run_call(inputs, named_inputs, options)
        else:
            values = _as_wanted(run_call, inputs, named_inputs, options, self._output_names)
        return values[0] if len(values) == 1 else self._results(*values)

    async def async_call(self, /, *inputs: Any, **named_inputs: Any) -> Any:
        """Run a call in a thread of the model, while the event loop goes on; return its result.

        At most as many of these calls run at a time as the process has processors; others wait for
        a thread. A call that is cancelled while it waits never runs; one that runs goes on to its
        end, and its result is dropped. Context variables are those of the caller.

        >>> import asyncio, numpy as np, sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
        >>> asyncio.run(model.async_call(np.zeros((1, 8, 48), np.float32))).shape
        (1, 8, 48)
        """
        import asyncio  # noqa: PLC0415  (whoever awaits a call has imported it)

        call = partial(contextvars.copy_context().run, partial(self, *inputs, **named_inputs))
        return await asyncio.wrap_future(self._threads_of_calls().submit(call))

    def _threads_of_calls(self) -> CallThreads:
        """Return the threads of `async_call`."""
        raise NotImplementedError

    def _called_capturing(
        self,
        patterns: tuple[str, ...],
        inputs: Sequence[Any],
        named: Mapping[str, Any],
        options: CallOptions,
    ) -> tuple[Any, OrderedDict[str, Any]]:
        """Return the output, and the values that these names and patterns mean, by name."""
        names, run_call = self._capturing_call(patterns, inputs, named)
        values = _as_wanted(run_call, inputs, named, options, self._output_names)
        count = len(self._output_names)
        output = values[0] if count == 1 else self._results(*values[:count])
        extra = [name for name in names if name not in self._output_names]
        by_name = dict(zip((*self._output_names, *extra), values, strict=True))
        return output, OrderedDict((name, by_name[name]) for name in names)

    def run(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, Any], *, out: Any = None
    ) -> list[Any]:
        """Run the model on inputs by name, and return the named values as NumPy arrays.

        With None for the names it returns all outputs. A name may also be that of any other value
        of the graph: of a node's output, an input or an initializer. What these values do not need
        is not computed, and such inputs need not be fed.

        A name that no value has is that of a node, whose outputs are meant; or else a pattern, as
        in `"blocks.0.*"`. It is matched with the values that nodes compute; if none matches, with
        the names of nodes; if none of these matches, with inputs and initializers.

        `out` has NumPy arrays to write the values to, as in a call.

        >>> import numpy as np, sardonyx
        >>> model = sardonyx.load("examples/encoder.onnx", backend="numpy")
        >>> (name,) = [info.name for info in model.inputs]
        >>> [y.shape for y in model.run(None, {name: np.zeros((2, 5, 48), np.float32)})]
        [(2, 5, 48)]
        >>> [y.shape for y in model.run(["layer_norm"], {name: np.zeros((2, 5, 48), np.float32)})]
        [(2, 5, 48)]
        """
        require_feeds(feeds)
        if output_names is None and out is None and self._call_options is PLAIN:
            # As in most calls, of which a small model takes a few microseconds.
            return list(self._run_call_for((), feeds)((), feeds, PLAIN, to_numpy=True))
        options = self._call_options if out is None else replace(self._call_options, out=out)
        inner = self._inner_call(output_names, feeds)
        if inner is not None:
            run_inner, feeds = inner
            names = tuple(output_names or ())

            def computed(*arguments: Any) -> Sequence[Any]:
                values = run_inner(*arguments, to_numpy=True)
                if options.out is not None and len(values) != len(names):
                    raise InvalidInput(
                        f"The names {', '.join(names)} mean {len(values)} values: with out= write "
                        "the name of each value."
                    )
                return values

            return list(_as_wanted(computed, (), feeds, options, names))
        names = tuple(chosen_outputs(output_names, self._output_names))
        run_call = self._run_call_for((), feeds)

        def chosen(*arguments: Any) -> Sequence[Any]:
            outputs = run_call(*arguments, to_numpy=True)
            if names == self._output_names:
                return outputs
            values = dict(zip(self._output_names, outputs, strict=True))
            return [values[name] for name in names]

        return list(_as_wanted(chosen, (), feeds, options, names))

    def _run_call_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> RunCall:
        """Return the function that runs a call with these inputs."""
        raise NotImplementedError

    def _has_input(self, name: str) -> bool:
        """Return whether the model has such an input."""
        raise NotImplementedError

    def _capturing_call(
        self, patterns: tuple[str, ...], inputs: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], RunCall]:
        """Return the names of the values to capture, and what runs a call for outputs and these."""
        raise NotImplementedError

    def _inner_call(self, names: Any, feeds: Mapping[str, Any]) -> tuple[RunCall, Any] | None:
        """Return what runs a call for other values than outputs, with its feeds; else None."""
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
        self._call_threads = CallThreads()

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

    def bind(
        self,
        *,
        key: Any = None,
        donate: str | Iterable[str] = (),
        capture: str | Iterable[str] | None = None,
        out: Any = None,
        writable: bool | None = None,
    ) -> BoundModel:
        """The model with a random key, inputs to donate, values to capture, or other results.

        Call the result like the model.

        Random operators draw from `key`, alike at every call: a number, a pair of uint32, or one
        of JAX's keys, which may be traced. Without a key each call draws anew. Operators that have
        a seed of their own ignore it.

        `donate` has names of inputs, or patterns such as "past_*". Outputs of the same shape and
        dtype reuse their buffers, so that a decoder's cache is updated in place; the donated arrays
        are deleted. NumPy and CuPy ignore it; exported and sharded models refuse it.

        With `capture` calls return a pair, as they do with `model(x, capture=...)`. With `out` all
        calls write their outputs into the same arrays, as with `model(x, out=...)`.

        With `writable=True` NumPy results are arrays that you may write to: they share memory with
        no input, weight or other result. Without it they may be read-only, or views.

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
        captured = None if capture is None else wanted_names(capture, "capture")
        if writable is not None:
            check_switches(writable=writable)
        if out is not None:
            targets_of(out, self._output_names)
        donated = self._donated(_patterns(donate))
        return BoundModel(self, CallOptions(drawn, donated, captured, out, bool(writable)))

    def _threads_of_calls(self) -> CallThreads:
        return self._call_threads

    def _has_input(self, name: str) -> bool:
        return any(info.name == name for info in (*self._infos, *self._optional))

    def _capturing_call(
        self, patterns: tuple[str, ...], inputs: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], RunCall]:
        raise InvalidInput(
            f"{type(self).__name__} has no values besides its outputs, so it cannot capture "
            f"{', '.join(map(repr, patterns))}: load the ONNX model itself."
        )

    def _inner_call(self, names: Any, feeds: Mapping[str, Any]) -> tuple[RunCall, Any] | None:
        return None

    def _donated(self, patterns: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the inputs that match these patterns."""
        raise NotImplementedError

    def _text(self, title: str) -> str:
        inputs, outputs = values_text(self.inputs), values_text(self.outputs)
        return printable(f"<{title} on {self.backend}: ({inputs}) -> ({outputs})>", MOST_CHARACTERS)

    def _repr_html_(self) -> str:
        title, *parts = self._parts()
        values = values_table(self.inputs, self.outputs)
        return displayed(title, values, *parts, picture=self._picture())

    def _picture(self) -> Html | None:
        """Return the picture of the graph for a notebook's display, if there is one."""
        return None

    def _parts(self) -> list[str]:
        """Return the title of a notebook's display, and what follows inputs and outputs."""
        return [repr(self).strip("<>").partition(":")[0]]


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
    """A model with options for its calls, as `Model.bind` returns it; call it like the model."""

    def __init__(self, model: LoadedModel, options: CallOptions) -> None:
        super().__init__(model._output_names)
        self._model = model
        self._call_options = options

    def bind(
        self,
        *,
        key: Any = None,
        donate: str | Iterable[str] = (),
        capture: str | Iterable[str] | None = None,
        out: Any = None,
        writable: bool | None = None,
    ) -> BoundModel:
        """The model with these options; those that are left out stay as they are."""
        before = self._call_options
        bound = self._model.bind(
            key=key, donate=donate, capture=capture, out=out, writable=writable
        )
        new = bound._call_options
        options = CallOptions(
            before.key if new.key is None else new.key,
            new.donated or before.donated,
            before.captured if new.captured is None else new.captured,
            before.out if new.out is None else new.out,
            before.writable if writable is None else new.writable,
        )
        return BoundModel(self._model, options)

    def _repr_html_(self) -> str:
        inner = self._model
        title = repr(self).strip("<>").partition(" <")[0]
        donated = ", ".join(self._call_options.donated)
        about = [("donates", donated)] if donated else []
        about += [("random key", "set")] if self._call_options.key is not None else []
        model_title, *parts = inner._parts()
        table_of_values = values_table(inner.inputs, inner.outputs)
        return displayed(
            f"{title} {model_title}",
            facts(about),
            table_of_values,
            *parts,
            picture=inner._picture(),
        )

    def __repr__(self) -> str:
        key = "" if self._call_options.key is None else ", with a key"
        donated = ", ".join(self._call_options.donated)
        captured = ", ".join(self._call_options.captured or ())
        text = f"{donated and f', donates {donated}'}{captured and f', captures {captured}'}"
        text += ", writes to arrays" if self._call_options.out is not None else ""
        text += ", writable results" if self._call_options.writable else ""
        return printable(f"<bound {self._model!r}{key}{text}>")

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundModel, (self._model, self._call_options)

    def _run_call_for(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> RunCall:
        return self._model._run_call_for(inputs, named)

    def _threads_of_calls(self) -> CallThreads:
        return self._model._threads_of_calls()

    def _has_input(self, name: str) -> bool:
        return self._model._has_input(name)

    def _capturing_call(
        self, patterns: tuple[str, ...], inputs: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], RunCall]:
        return self._model._capturing_call(patterns, inputs, named)

    def _inner_call(self, names: Any, feeds: Mapping[str, Any]) -> tuple[RunCall, Any] | None:
        return self._model._inner_call(names, feeds)


def _as_wanted(
    run_call: RunCall,
    inputs: Sequence[Any],
    named: Mapping[str, Any],
    options: CallOptions,
    names: Sequence[str],
) -> Sequence[Any]:
    """Run a call; return its values, written to the caller's arrays or copied if it wants so.

    The first values have the `names`, for which the caller may have passed arrays.
    """
    if options.out is None and not options.writable:
        return run_call(inputs, named, options)
    targets = {} if options.out is None else targets_of(options.out, names)
    values = written(run_call(inputs, named, options), targets, names)
    if not options.writable:
        return values
    return [value if i in targets else fresh(value) for i, value in enumerate(values)]


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
