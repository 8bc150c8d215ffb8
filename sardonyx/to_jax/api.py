"""`sardonyx.to_jax`: a model as a pure function of JAX."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sardonyx.arguments import check_level, check_switches, precision_level
from sardonyx.errors import InvalidInput
from sardonyx.graph.loading.read import Readable
from sardonyx.graph.model.model import Model
from sardonyx.graph.model.named_values import computing, values_named, wanted_names
from sardonyx.graph.model.resolve import Opened
from sardonyx.ops.definition import Op
from sardonyx.ops.straight_through import STRAIGHT_THROUGH
from sardonyx.ops.training_mode import IN_TRAINING
from sardonyx.to_jax.backend import inside_backend
from sardonyx.to_jax.casting import FLOAT64, Casting, float_type
from sardonyx.to_jax.pure_function import PureFunction, placed


def to_jax(
    model: Readable | Model,
    *,
    training: bool = False,
    straight_through: bool = False,
    ops: Iterable[Op[Any]] = (),
    precision: str | None = None,
    strict: bool | None = None,
    outputs: str | Iterable[str] | None = None,
    dtype: Any = None,
) -> tuple[PureFunction, dict[str, Any]]:
    """Convert a model to a pure function `fn` of JAX and its weights `params`.

    `fn(params, *inputs, **named)` works under all of JAX's transformations. `params` is a dict from
    the names of initializers to arrays. Initializers that are small integers, or that decide
    shapes, are not params: they are constants of the function.

    With `training` a call returns a pair: the outputs, and a dict of the params that change without
    gradients, such as running means; dropout draws from `key=`. With `straight_through` the
    derivative of quantizing and dequantizing is that of the identity.

    With `outputs` the function returns these values in place of the model's outputs: names of any
    values of the graph, or patterns, as in `Model.run`. Inputs and params that they do not need are
    left out.

    With `dtype`, such as "bfloat16", params and inputs of floats are cast to that type, and the
    function computes and returns it. Products sum in float32. docs/jax.md says what stays as it is.

    `ops` are operators of your own, as in `load`. `precision` is a word of `load`; None
    leaves it to `jax.default_matmul_precision`. With JAX's 64-bit mode off,
    64-bit results are returned as 32-bit ones; docs/jax.md explains values that do not fit.

    >>> import jax, numpy as np, sardonyx
    >>> fn, params = sardonyx.to_jax("examples/encoder.onnx")
    >>> jax.jit(fn)(params, np.zeros((1, 8, 48), np.float32)).shape
    (1, 8, 48)
    """
    check_switches(training=training, straight_through=straight_through)
    check_level(strict)
    level = None if precision is None else precision_level(precision)
    chosen = None if dtype is None else float_type(dtype)
    source, store, checks_types, _ = Opened.of(model, strict=strict, ops=ops)
    if outputs is not None:
        source = computing(source, _present(values_named(source, wanted_names(outputs, "outputs"))))
    changed = dict(IN_TRAINING) if training else {}
    changed |= STRAIGHT_THROUGH if straight_through else {}
    source = replace(source, custom=changed | dict(source.custom))
    backend = inside_backend(level, chosen)
    casting = None if chosen is None else Casting.of(source, chosen)
    if chosen is FLOAT64 and not backend.is_wide():
        raise InvalidInput(
            "The dtype float64 needs JAX's 64-bit mode: switch it on with "
            "jax.config.update('jax_enable_x64', True), or pass dtype=\"float32\"."
        )
    fn = PureFunction(source, backend, training=training, strict=checks_types, casting=casting)
    weights = store.now()
    array_of = weights.in_library if weights.backend.name == "jax" else weights.content
    return fn, {
        name: placed(name, array_of(name), backend, spec.dtype) for name, spec in fn.specs.items()
    }


def _present(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise InvalidInput("'outputs' is empty: pass at least one name, or None for all outputs.")
    return names
