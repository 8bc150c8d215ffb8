"""Published peak rates of devices, by the names that JAX has for them.

They are those of one device as JAX counts devices: a TPU v4 and a TPU7x have two to a chip. Sources
are Google's pages of each TPU and NVIDIA's data sheets, without sparsity.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

GIB = 2**30

# How often the bfloat16 unit of a TPU multiplies for one product of float32, by precision.
_PASSES = (1, 3, 6)


@dataclass(frozen=True)
class Rates:
    """Operations per second by the type of a product, and memory. None is unknown, or absent."""

    # Bytes of the device's memory, and bytes per second to and from it.
    memory: float | None = None
    bandwidth: float | None = None
    # Bytes per second to and from all other devices, in both directions together.
    link: float | None = None
    # Multiplications and additions of bfloat16 or float16 with sums in float32.
    bfloat16: float | None = None
    int8: float | None = None
    float8: float | None = None
    # Of float32 at JAX's precisions default, high and highest.
    float32: tuple[float, float, float] | None = None
    float64: float | None = None


def _tpu(
    bfloat16: float,
    int8: float | None,
    memory: float,
    bandwidth: float,
    link: float,
    float8: float | None = None,
) -> Rates:
    """Return a TPU's rates from its teraoperations, GiB and GB per second."""
    default, high, highest = (bfloat16 * 1e12 / passes for passes in _PASSES)
    return Rates(
        memory=memory * GIB,
        bandwidth=bandwidth * 1e9,
        link=link * 1e9,
        bfloat16=bfloat16 * 1e12,
        int8=None if int8 is None else int8 * 1e12,
        float8=(float8 or bfloat16) * 1e12,
        float32=(default, high, highest),
    )


def _gpu(
    bfloat16: float,
    tensorfloat32: float,
    float32: float,
    float64: float,
    *,
    memory: float,
    bandwidth: float,
    link: float,
    float8: float | None = None,
) -> Rates:
    """Return a GPU's rates from its teraoperations, GB and GB per second."""
    return Rates(
        memory=memory * 1e9,
        bandwidth=bandwidth * 1e9,
        link=link * 1e9,
        bfloat16=bfloat16 * 1e12,
        int8=2 * bfloat16 * 1e12,
        float8=None if float8 is None else float8 * 1e12,
        float32=(tensorfloat32 * 1e12, tensorfloat32 * 1e12, float32 * 1e12),
        float64=float64 * 1e12,
    )


RATES = {
    "TPU v4": _tpu(137.5, 137.5, 16, 614, 300),
    "TPU v5 lite": _tpu(197, 393, 16, 819, 400),
    "TPU v5": _tpu(459, 918, 95, 2765, 1200),
    "TPU v6 lite": _tpu(918, 1836, 32, 1638, 800),
    "TPU7x": _tpu(1153.5, None, 96, 3690, 600, float8=2307),
    "NVIDIA H100 80GB HBM3": _gpu(
        989.4, 494.7, 66.9, 66.9, memory=80, bandwidth=3352, link=900, float8=1978.9
    ),
    "NVIDIA A100-SXM4-80GB": _gpu(312, 156, 19.5, 19.5, memory=80, bandwidth=2039, link=600),
}

_SIZE = re.compile(r"\bdevice_memory_size:\s*(\d+)")
_BANDWIDTH = re.compile(r"\bmemory_bandwidth:\s*(\d+)")


def rates_of(kind: str, specification: str = "") -> Rates:
    """Return the rates of a kind of device; of an unknown GPU what its specification has."""
    if kind in RATES:
        return RATES[kind]
    size, bandwidth = _SIZE.search(specification), _BANDWIDTH.search(specification)
    return Rates(
        memory=float(size[1]) if size else None,
        bandwidth=float(bandwidth[1]) if bandwidth else None,
    )
