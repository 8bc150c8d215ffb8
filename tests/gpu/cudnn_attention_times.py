"""`python -m tests.gpu.cudnn_attention_times`: attention on JAX, by default and without cuDNN.

Prints for each attention whether cuDNN computed it, how far the results are apart, and seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np
import onnx
from onnx import parser

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.jax.accelerators import cudnn_choice
from sardonyx.backends.jax.accelerators.cudnn_choice import SWITCH

CALLS = 30


@dataclass(frozen=True)
class Attention:
    """The sizes of an attention, and whether it is causal."""

    batch: int
    heads: int
    shared: int
    length: int
    size: int
    is_causal: bool
    dtype: str = "bfloat16"

    def __str__(self) -> str:
        sizes = f"{self.batch} x {self.heads} x {self.length} x {self.size}"
        shared = f", {self.shared} heads of keys" * (self.shared != self.heads)
        return f"{sizes}{shared}{', causal' * self.is_causal}, {self.dtype}"

    def model(self) -> onnx.ModelProto:
        shape = f"{self.length},{self.size}"
        inputs = ", ".join(
            f"{self.dtype}[{self.batch},{heads},{shape}] {name}"
            for name, heads in zip("qkv", (self.heads, self.shared, self.shared), strict=True)
        )
        node = f"y = Attention <is_causal = {int(self.is_causal)}> (q, k, v)"
        return parser.parse_model(
            f'<ir_version: 11, opset_import: ["": 24]> g ({inputs}) => (y) {{ {node} }}'
        )

    def inputs(self) -> dict[str, np.ndarray[Any, Any]]:
        draw = np.random.default_rng(0).standard_normal
        dtype = np.dtype(getattr(ml_dtypes, self.dtype, self.dtype))
        return {
            name: draw((self.batch, heads, self.length, self.size)).astype(dtype)
            for name, heads in zip("qkv", (self.heads, self.shared, self.shared), strict=True)
        }


# Whole blocks of 128, half a block more, and other rests; each has 16 MiB of scores or more.
ATTENTIONS = [
    Attention(8, 12, 12, 512, 64, False),
    Attention(8, 12, 12, 512, 64, False, "float16"),
    Attention(1, 12, 12, 1024, 64, True),
    Attention(1, 32, 8, 2048, 128, True),
    Attention(8, 12, 12, 448, 64, False),
    Attention(16, 12, 12, 197, 64, False),
    Attention(1, 12, 12, 1500, 64, True),
    Attention(1, 8, 8, 16384, 128, True),
]


@dataclass(frozen=True)
class Run:
    """One attention on JAX: its result, the calls of cuDNN, reasons and seconds."""

    result: np.ndarray[Any, Any]
    calls: int
    workarounds: Mapping[str, int]
    first: float
    least: float


@contextmanager
def switched(value: str) -> Iterator[None]:
    """Set the environment variable."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before


def run(attention: Attention, value: str, backend: Backend | None = None, calls: int = 1) -> Run:
    """Compile an attention with this value of the variable, and call it."""
    with switched(value):
        start = time.perf_counter()
        model: Any = sardonyx.load(attention.model(), backend=backend or "jax", compile="now")
        arrays = {name: jax.device_put(array) for name, array in attention.inputs().items()}
        result = jax.block_until_ready(model(**arrays))
        first, seconds = time.perf_counter() - start, []
        for _ in range(calls):
            start = time.perf_counter()
            jax.block_until_ready(model(**arrays))
            seconds.append(time.perf_counter() - start)
        texts = [stage.executable.listing() for stage in model.trace(**arrays).stages]
    count = sum(text.count('custom_call_target="__cudnn$fmha') for text in texts)
    return Run(np.asarray(result), count, model.stats().workarounds, first, min(seconds))


def difference(a: Run, b: Run) -> float:
    """Return the greatest difference of two results, relative where they are greater than 1."""
    x, y = a.result.astype(np.float32), b.result.astype(np.float32)
    return float(np.max(np.abs(x - y) / np.maximum(np.abs(y), 1)))


def main() -> None:
    device = jax.devices()[0]
    print(f"{device.device_kind}, cuDNN {cudnn_choice.version()}; ms by default / without cuDNN")
    for attention in ATTENTIONS:
        found, plain = run(attention, "", calls=CALLS), run(attention, "0", calls=CALLS)
        words = "cuDNN" if found.calls else next(iter(found.workarounds), "not cuDNN")
        times = f"{1e3 * found.least:.3f} / {1e3 * plain.least:.3f}"
        firsts = f"{found.first:.1f} / {plain.first:.1f} s to the first result"
        apart = f"apart by {difference(found, plain):.1e}"
        print(f"{attention}: {words}; {times}; {firsts}; {apart}", flush=True)


if __name__ == "__main__":
    main()
