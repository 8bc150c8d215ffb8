"""Counts what the emulated device did: kernels, copies, allocations, synchronisations."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields


@dataclass
class Counts:
    """Numbers since the process began, or of one block. In the order of driver/counts.h."""

    kernels: int = 0
    library_calls: int = 0
    graph_launches: int = 0
    synchronizations: int = 0
    copies_to_device: int = 0
    bytes_to_device: int = 0
    copies_to_host: int = 0
    bytes_to_host: int = 0
    copies_on_device: int = 0
    bytes_on_device: int = 0
    fills: int = 0
    bytes_filled: int = 0
    allocations: int = 0
    bytes_allocated: int = 0
    frees: int = 0


NAMES = tuple(field.name for field in fields(Counts))


def available() -> bool:
    """Whether the process runs with the emulated device."""
    return _driver() is not None


def since_start() -> Counts:
    driver = _driver()
    if driver is None:
        raise RuntimeError(
            "This process has no emulated device; start it with: python -m emulated_cuda run"
        )
    values = (ctypes.c_uint64 * len(NAMES))()
    count = driver.emulated_cuda_counts(values, len(NAMES))
    if count != len(NAMES):
        raise RuntimeError(f"The driver has {count} counters, not {len(NAMES)}; build it again.")
    return Counts(*values)


@contextmanager
def counted() -> Iterator[Counts]:
    """Yield counts that at the end of the block hold what happened in it."""
    before = since_start()
    counts = Counts()
    yield counts
    after = since_start()
    for name in NAMES:
        setattr(counts, name, getattr(after, name) - getattr(before, name))


def _driver() -> ctypes.CDLL | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if hasattr(driver, "emulated_cuda_counts") else None
