"""Which operators unpack a weight for a product: rewrites unpack it once, not at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Op
from sardonyx.ops.microsoft.matmul_bnb4 import MatMulBnb4, bnb4_weight
from sardonyx.ops.microsoft.matmul_fpq4 import MatMulFpQ4, fpq4_weight
from sardonyx.ops.microsoft.matmul_nbits import MatMulNBits, nbits_weight
from sardonyx.ops.microsoft.quantized_experts import experts_weight


@dataclass(frozen=True, slots=True)
class Unpacking:
    """How an operator that returns `A @ weight + bias` gets its weight.

    The function takes the operator's inputs and attributes of the same names.
    """

    function: Callable[..., Array]
    inputs: tuple[str, ...]
    attributes: tuple[str, ...]


UNPACKING: Mapping[Op[Any], Unpacking] = {
    MatMulNBits: Unpacking(
        nbits_weight,
        ("B", "scales", "zero_points", "g_idx"),
        ("K", "N", "bits", "block_size"),
    ),
    MatMulBnb4: Unpacking(
        bnb4_weight, ("B", "absmax"), ("K", "N", "block_size", "quant_type", "transB")
    ),
    MatMulFpQ4: Unpacking(fpq4_weight, ("B",), ("B_shape", "blk_quant_type")),
}
# These may have results that are much larger than their inputs.
UNPACKS = frozenset([experts_weight, *(each.function for each in UNPACKING.values())])
