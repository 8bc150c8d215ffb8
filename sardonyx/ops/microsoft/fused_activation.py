"""The activation that onnxruntime's optimizer moved into the node before it, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import activation, elementwise
from sardonyx.ops.definition import Floats
from sardonyx.ops.options import require_one_of

# A function, and the attributes to call it with.
Applied: TypeAlias = tuple[Callable[..., Array], Mapping[str, Any]]

# Each function with the names of its parameters, in the order of the attribute activation_params.
_ACTIVATIONS: Mapping[str, tuple[Callable[..., Array], tuple[str, ...]]] = MappingProxyType(
    {
        "Celu": (activation.Celu, ("alpha",)),
        "Clip": (elementwise.clip_to_attributes, ("min", "max")),
        "Elu": (activation.Elu, ("alpha",)),
        "Gelu": (activation.Gelu, ()),
        "HardSigmoid": (activation.HardSigmoid, ("alpha", "beta")),
        "HardSwish": (activation.HardSwish, ()),
        "Hardmax": (activation.Hardmax, ("axis",)),
        "LeakyRelu": (activation.LeakyRelu, ("alpha",)),
        "LogSoftmax": (activation.LogSoftmax, ("axis",)),
        "Mish": (activation.Mish, ()),
        "Relu": (activation.Relu, ()),
        "Selu": (activation.Selu, ("alpha", "gamma")),
        "Sigmoid": (activation.Sigmoid, ()),
        "Silu": (activation.Swish, ()),
        "Softmax": (activation.Softmax, ("axis",)),
        "Softplus": (activation.Softplus, ()),
        "Softsign": (activation.Softsign, ()),
        "Tanh": (elementwise.Tanh, ()),
        "ThresholdedRelu": (activation.ThresholdedRelu, ("alpha",)),
    }
)


def activated(xp: Backend, x: Array, name: str | None, params: Floats | None = None) -> Array:
    """Apply the activation, with all of its parameters in a list; none if it has no name."""
    if not name:
        return x
    function, attributes = activation_of_params(name, params)
    return function(xp, x, **attributes)


def activated_by_attributes(xp: Backend, x: Array, name: str | None, **attributes: Any) -> Array:
    """Apply the activation, with each parameter as an attribute; the default for those of None."""
    if not name:
        return x
    function, present = activation_of_attributes(name, **attributes)
    return function(xp, x, **present)


def activation_of_params(name: str, params: Floats | None) -> Applied:
    """Return the function of an activation, and its attributes for a list of parameters."""
    function, names = _named(name)
    if params is None or not names:
        return function, {}
    if len(params) != len(names):
        raise ValueError(
            f"activation_params are {params}, but {name} has {len(names)}: {', '.join(names)}"
        )
    return function, dict(zip(names, params, strict=True))


def activation_of_attributes(name: str, **attributes: Any) -> Applied:
    """Return the function of an activation, and those of the attributes that it has."""
    function, names = _named(name)
    return function, {key: attributes[key] for key in names if attributes.get(key) is not None}


def _named(name: str) -> tuple[Callable[..., Array], tuple[str, ...]]:
    require_one_of("activation", name, _ACTIVATIONS)
    return _ACTIVATIONS[name]
