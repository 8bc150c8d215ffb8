"""The activation between the layers of an expert, which may gate a second product."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Gelu, Relu, Sigmoid, Swish
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import wide

_PLAIN: Mapping[str, Callable[[Backend, Array], Array]] = {
    "relu": Relu,
    "gelu": lambda xp, x: Gelu(xp, x, approximate="tanh"),
    "silu": Swish,
    "identity": lambda xp, x: x,
}


def activated(
    xp: Backend,
    x: Array,
    beside: Array | None = None,
    *,
    activation_type: str = "relu",
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
) -> Array:
    """Apply the activation to the result of the first layer, and multiply by the one beside it."""
    require_one_of("activation_type", activation_type, (*_PLAIN, "swiglu"))
    if activation_type != "swiglu":
        y = _PLAIN[activation_type](xp, x)
        return y if beside is None else y * beside
    gate, linear = (wide(xp, part) for part in _parts(xp, x, beside, swiglu_fusion))
    if swiglu_limit is not None:
        gate = xp.minimum(gate, swiglu_limit)
        linear = xp.minimum(xp.maximum(linear, -swiglu_limit), swiglu_limit)
    y = gate * Sigmoid(xp, activation_alpha * gate) * (linear + activation_beta)
    return xp.astype(y, x.dtype)


def is_fused(*, activation_type: str = "relu", swiglu_fusion: int = 0, **others: object) -> bool:
    """Return whether the first layer holds the one beside it too, for these attributes."""
    return activation_type == "swiglu" and swiglu_fusion != 0


def _parts(xp: Backend, x: Array, beside: Array | None, fusion: int) -> tuple[Array, Array]:
    """Return the gate and what it gates: of two layers, or of one that alternates or joins both."""
    require_one_of("swiglu_fusion", fusion, (0, 1, 2))
    if not fusion:
        if beside is None:
            raise ValueError("swiglu with swiglu_fusion 0 needs the input fc3_experts_weights")
        return x, beside
    if beside is not None or x.shape[-1] % 2:
        raise ValueError(
            f"with swiglu_fusion {fusion} the first layer holds two of equal size, and there is no "
            "fc3_experts_weights"
        )
    size = x.shape[-1] // 2
    if fusion == 1:
        pairs = xp.reshape(x, (*x.shape[:-1], size, 2))
        return pairs[..., 0], pairs[..., 1]
    return x[..., :size], x[..., size:]
