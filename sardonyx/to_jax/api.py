"""What people call: a model made a function of JAX."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sardonyx.arguments import check_choice, check_switches
from sardonyx.graph.loading.read import Readable
from sardonyx.graph.model.model import Model
from sardonyx.graph.model.resolve import Opened
from sardonyx.ops.definition import Op
from sardonyx.ops.straight_through import STRAIGHT_THROUGH
from sardonyx.ops.training_mode import IN_TRAINING
from sardonyx.to_jax.backend import inside_backend
from sardonyx.to_jax.pure_function import PureFunction

_PRECISIONS = (None, "default", "high", "highest")


def to_jax(
    model: Readable | Model,
    *,
    training: bool = False,
    straight_through: bool = False,
    ops: Iterable[Op[Any]] = (),
    precision: str | None = None,
    strict: bool = True,
) -> tuple[PureFunction, dict[str, Any]]:
    """A model as `fn, params`: a pure function, and the weights that it takes first.

    `fn(params, *inputs, **named)` works under all of JAX's transformations. `params` is a dict from
    the names of initializers to arrays. Initializers that are small integers, or that decide
    shapes, are no params: they stay inside.

    With `training` a call returns a pair: the outputs, and a dict of the params that are renewed
    without gradients, such as running means; what drops out is drawn from `key=`. With
    `straight_through` what is quantized and at once undone has the derivatives of what it was.

    `ops` are operators of your own, as in `load`. `precision` is "default", "high" or "highest";
    None leaves products to `jax.default_matmul_precision`. With JAX's 64-bit mode off, 64-bit
    results leave as 32-bit ones; docs/jax.md says what becomes of values that do not fit.

    >>> import jax, numpy as np, sardonyx
    >>> fn, params = sardonyx.to_jax("examples/encoder.onnx")
    >>> jax.jit(fn)(params, np.zeros((1, 8, 48), np.float32)).shape
    (1, 8, 48)
    """
    check_switches(training=training, straight_through=straight_through, strict=strict)
    check_choice("precision", precision, _PRECISIONS)
    source, held, strict = Opened.of(model, strict=strict, ops=ops)
    changed = dict(IN_TRAINING) if training else {}
    changed |= STRAIGHT_THROUGH if straight_through else {}
    source = replace(source, custom=changed | dict(source.custom))
    fn = PureFunction(source, inside_backend(precision), training=training, strict=strict)
    return fn, fn.placed(held.__getitem__ if held.backend.name == "jax" else held.host)
