"""A model as a pure function of its weights and inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.display.folding import fold
from sardonyx.display.markup import displayed
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls.arguments import by_name
from sardonyx.graph.calls.nested_values import map_arrays
from sardonyx.graph.calls.results import results_type
from sardonyx.graph.checking.initializer_dependencies import initializers_behind
from sardonyx.graph.ir import Source, ValueInfo
from sardonyx.graph.model.interface import CallableModel
from sardonyx.graph.model.not_an_array import NotAnArray
from sardonyx.graph.model.shared import Options
from sardonyx.graph.model.values_display import MOST_CHARACTERS, values_table, values_text
from sardonyx.graph.tracing.scope_names import function_name
from sardonyx.graph.values.kinds import spec_text
from sardonyx.graph.values.params_display import Entry, head_of, params_tree
from sardonyx.ops.training_mode import IN_TRAINING, is_statistic
from sardonyx.printable import printable
from sardonyx.progress import compiling
from sardonyx.to_jax.casting import Casting, narrowed
from sardonyx.to_jax.casting_tracer import CastingTracer, SymbolicCastingTracer
from sardonyx.to_jax.model_form import PureModel, is_float, weights_of, with_weights_as_inputs

if TYPE_CHECKING:
    from sardonyx.backends.jax.inside import InsideBackend


class PureFunction(NotAnArray):
    """A model as a pure function `fn(params, *inputs, **named)`, for JAX to transform.

    `sardonyx.to_jax` creates it. Between calls it keeps only the recordings, by signature.
    """

    _instead = (
        "let the function read it from outside and pass params, as in "
        "jax.jit(lambda params, x: fn(params, x))"
    )

    def __init__(
        self,
        source: Source,
        backend: InsideBackend,
        *,
        training: bool,
        strict: bool,
        casting: Casting | None = None,
    ) -> None:
        self._backend = backend
        self._casting = casting
        source = source if casting is None else casting.declared(source)
        self._infos = source.graph.required_inputs
        self._defaults = source.graph.optional_inputs
        self._outputs = source.graph.outputs
        self._results = results_type(tuple(info.name for info in self._outputs))
        self.weights = weights_of(source)
        """The initializers that are weights, by name, as NumPy arrays: `params` has these names."""
        self.specs = {name: _spec(name, array, casting) for name, array in self.weights.items()}
        self.statistics = _statistics_of(source).intersection(self.weights)
        """The names of the weights that training updates without gradients: running statistics."""
        self.is_training = training
        # `jax.jit` names the program after the function.
        self.__name__ = function_name(source.graph.name)
        self._renewed = sorted(self.statistics) if training else []
        form = with_weights_as_inputs(source, self.specs, self._renewed)
        options = Options(strict=strict, watch=compiling)
        if casting is not None:
            options = replace(options, tracer=partial(CastingTracer, casting=casting))
        self._form = PureModel(form, backend, options)
        arguments = ("params", *self._infos, *self._defaults)
        self._takes = f"it takes ({', '.join(map(str, arguments))})"

    # -- description ------------------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[ValueInfo, ...]:
        """The inputs after `params`: name, dtype, and shape."""
        return self._infos

    @property
    def outputs(self) -> tuple[ValueInfo, ...]:
        """The outputs: name, dtype, and shape."""
        return self._outputs

    @property
    def trainable(self) -> frozenset[str]:
        """The names of the weights to train: floats, except single numbers and statistics."""
        return frozenset(
            name
            for name, array in self.weights.items()
            if array.ndim and is_float(array) and name not in self.statistics
        )

    def __repr__(self) -> str:
        inputs = f"params, {values_text(self._infos)}".removesuffix(", ")
        text = f"<pure function ({inputs}) -> ({values_text(self._outputs)})>"
        return printable(text, MOST_CHARACTERS)

    def _repr_html_(self) -> str:
        return self._page("Pure function fn(params, *inputs)")

    def _page(self, title: str) -> str:
        entries = [Entry(name, spec) for name, spec in self.specs.items()]
        trained = f"{len(self.trainable):,} of them to train, {len(self.statistics):,} statistics"
        return displayed(
            title,
            values_table(self.inputs, self.outputs),
            *(
                [fold("params", params_tree(entries), note=f"{head_of(entries)}; {trained}")]
                if entries
                else []
            ),
        )

    # -- calls ------------------------------------------------------------------------------------

    def __call__(self, params: Mapping[str, Any], /, *inputs: Any, **named: Any) -> Any:
        """Run the model; with `training` the result is a pair: outputs, and renewed params.

        A model with random operators needs `key=`, unless each of them has a seed.
        """
        if "key" in named and all(info.name != "key" for info in (*self._infos, *self._defaults)):
            return self.bind(key=named.pop("key"))(params, *inputs, **named)
        return self._called(self._form, params, *inputs, **named)

    def bind(self, *, key: Any) -> Callable[..., Any]:
        """The function with a random key, for models that have an input called `key`."""
        return BoundFunction(self, partial(self._called, self._form.bind(key=key)))

    def _called(
        self, form: CallableModel, params: Mapping[str, Any], /, *inputs: Any, **named: Any
    ) -> Any:
        arrays, others = self._arranged(inputs, named)
        replaced = {name: others.pop(name) for name in list(others) if name in self.weights}
        weights = self._checked({**params, **replaced} if replaced else params)
        arrays = [map_arrays(self._cast, each) for each in arrays]
        others = {name: map_arrays(self._cast, each) for name, each in others.items()}
        taken = [map_arrays(self._backend.argument, each) for each in (*arrays, *weights)]
        others = {name: map_arrays(self._backend.argument, each) for name, each in others.items()}
        if _has_symbols(taken):
            results = self._at_symbolic_sizes(form, taken)
        else:
            results = form(*taken, **others)
        count = len(self._outputs)
        values = self._leaving((results,) if count + len(self._renewed) == 1 else results)
        outputs = values[0] if count == 1 else self._results(*values[:count])
        if not self.is_training:
            return outputs
        return outputs, dict(zip(self._renewed, values[count:], strict=True))

    def _at_symbolic_sizes(self, form: CallableModel, taken: Sequence[Any]) -> Any:
        """Run the model on arrays of which some sizes are symbols of `jax.export`."""
        options: dict[str, Any] = {}
        if self._casting is not None:
            options["kind"] = partial(SymbolicCastingTracer, casting=self._casting)
        run = import_module("sardonyx.exporting.inline").run_at_symbolic_sizes
        source, shared = self._form._source, self._form._shared
        key = self._form._plain.key(form._call_options)
        values = run(
            source,
            shared.weights,
            self._backend.of_form,
            taken,
            key,
            strict=shared.options.strict,
            **options,
        )
        return values[0] if len(values) == 1 else values

    def _arranged(
        self, inputs: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the inputs in order, and by name the values for inputs that have defaults."""
        infos = (*self._infos, *self._defaults)
        values = by_name(infos, inputs, named)
        if unknown := values.keys() - {info.name for info in infos}:
            raise InvalidInput(f"The function has no input '{min(unknown)}'; {self._takes}.")
        required = [info.name for info in self._infos if info.container != "optional"]
        if missing := [name for name in required if name not in values]:
            raise InvalidInput(f"The function also needs {', '.join(missing)}; {self._takes}.")
        return [values.pop(info.name, None) for info in self._infos], values

    def _checked(self, params: Mapping[str, Any]) -> list[Any]:
        """Return the weights in order; refuse params with other names, shapes or dtypes."""
        if not isinstance(params, Mapping):
            raise InvalidInput(
                f"The first argument is a {type(params).__name__}: pass params, a dict by name as "
                "sardonyx.to_jax returns it."
            )
        if params.keys() != self.weights.keys():
            missing, unknown = self.weights.keys() - params.keys(), params.keys() - self.weights
            differences = [
                f"{word} {_some(names)}"
                for word, names in (("lack", missing), ("have the unknown", unknown))
                if names
            ]
            raise InvalidInput(
                f"The params {' and '.join(differences)}: pass a dict with the names that "
                "sardonyx.to_jax returned."
            )
        return [self._fitting(name, params[name]) for name in self.weights]

    def _cast(self, value: Any) -> Any:
        """Return an argument in the type of the function, if it has a type of its own."""
        casting, backend = self._casting, self._backend
        if casting is None or not hasattr(value, "dtype"):
            return value
        on_host = isinstance(value, (np.ndarray, np.generic))
        if not on_host and not backend.owns(value):
            return value
        if backend.numpy_dtype(value.dtype) not in casting.replaced:
            return value
        if on_host:
            return casting.cast(np.asarray(value))
        return backend.within(value, casting.dtype)

    def _fitting(self, name: str, value: Any) -> Any:
        """Return a param in its type; of a function with a type, it may be in that of the model."""
        backend, array, spec_here = self._backend, self.weights[name], self.specs[name]
        dtype = spec_here.dtype
        if not hasattr(value, "dtype") or not hasattr(value, "shape"):
            try:
                value = np.asarray(value, dtype)
            except (TypeError, ValueError, OverflowError):
                raise InvalidInput(
                    f"The param '{name}' must be {spec_text(spec_here)}, and is a "
                    f"{type(value).__name__}: pass an array."
                ) from None
        spec = backend.spec(value)
        dtypes = (dtype, array.dtype, backend.narrowed(array.dtype))
        if spec.shape != array.shape or spec.dtype not in dtypes:
            raise InvalidInput(
                f"The param '{name}' must be {spec_text(spec_here)}, and is "
                f"{spec_text(spec)}: reshape it, or convert it with astype."
            )
        return self._cast(value) if spec.dtype != dtype and self._casting else value

    def _leaving(self, values: Sequence[Any]) -> tuple[Any, ...]:
        wide = self._backend.is_wide()

        def left(array: Any) -> Any:
            if not hasattr(array, "dtype") or array.dtype == object:
                return array
            array = self._cast(array)
            try:
                return self._backend.leaving(array, wide=wide)
            except OverflowError as error:
                raise InvalidInput(f"An output {_too_wide(error)}") from None

        with self._backend.scope():
            return tuple(map_arrays(left, value) for value in values)


class BoundFunction(NotAnArray):
    """A pure function with a random key, as `PureFunction.bind` returns it."""

    _instead = PureFunction._instead

    def __init__(self, function: PureFunction, call: Callable[..., Any]) -> None:
        self._function = function
        self._call = call

    def __call__(self, params: Mapping[str, Any], /, *inputs: Any, **named: Any) -> Any:
        """Run the model with the key."""
        return self._call(params, *inputs, **named)

    def __repr__(self) -> str:
        return f"<bound {self._function!r}, with a key>"

    def _repr_html_(self) -> str:
        return self._function._page("Pure function fn(params, *inputs), with a key")


def _spec(name: str, array: np.ndarray[Any, Any], casting: Casting | None) -> Spec:
    return Spec(array.shape, array.dtype if casting is None else casting.of_param(name, array))


def placed(
    name: str, array: Any, backend: InsideBackend, dtype: np.dtype[Any] | None = None
) -> Any:
    """Return the param as an array of JAX; its type is narrowed where the 64-bit mode is off."""
    try:
        if dtype is not None and backend.numpy_dtype(array.dtype) != dtype:
            array = narrowed(np.asarray(array), dtype)
        return backend.entering(array, wide=backend.is_wide())
    except OverflowError as error:
        raise InvalidInput(f"The param '{name}' {_too_wide(error)}") from None


def _statistics_of(source: Source) -> frozenset[str]:
    trained = replace(source, custom={**IN_TRAINING, **source.custom})
    return initializers_behind(trained, is_statistic)


def _has_symbols(values: Sequence[Any]) -> bool:
    """Return whether a size is a symbol of `jax.export`, which is no number."""
    arrays = [a for value in values for a in (value if isinstance(value, list) else [value])]
    return any(type(size) is not int for array in arrays for size in getattr(array, "shape", ()))


def _some(names: Any) -> str:
    shown = sorted(names)
    rest = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return ", ".join(f"'{name}'" for name in shown[:5]) + rest


def _too_wide(error: OverflowError) -> str:
    return (
        f"has a value that JAX's 32-bit mode cannot hold ({error}): switch the 64-bit mode on "
        "with jax.config.update('jax_enable_x64', True)."
    )
