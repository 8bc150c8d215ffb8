"""Epilogues: operations on the results of a product before these are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Function: TypeAlias = Literal[
    "relu",
    "leaky_relu",
    "clip",
    "gelu",
    "gelu_tanh",
    "swish",
    "tanh",
    "sigmoid",
    "hard_swish",
    "hard_sigmoid",
    "elu",
]


@dataclass(frozen=True)
class Activation:
    """A function of each element; what `alpha` and `beta` mean is the function's.

    They are the slope of `leaky_relu`, the bounds of `clip`, the factor within the sigmoid of
    `swish`, the line of `hard_swish` and `hard_sigmoid`, and the scale of `elu`.
    """

    function: Function
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class Epilogue:
    """A bias per channel, an activation, and an array that is added before or after that."""

    has_bias: bool = False
    activation: Activation | None = None
    addend: Literal["before", "after"] | None = None


NOTHING = Epilogue()
