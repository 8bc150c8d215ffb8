"""The errors of the six networks if the factors of all products are rounded, computed on the CPU.

Run it: `python -m benchmarks.precision`; it fills the table of docs/precision.md. The first run
exports the networks with torch. No accelerator is needed or asked: the factors are rounded here as
each kind of arithmetic rounds them, and their products are summed in float32.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

import sardonyx
from benchmarks.models import NETWORKS
from sardonyx.backends.numpy import NumpyBackend

PAGE = Path(__file__).parents[1] / "docs" / "precision.md"
BEGIN, END = "<!-- errors: python -m benchmarks.precision -->", "<!-- end of errors -->"

Array: TypeAlias = np.ndarray[Any, Any]
# The product of two factors of float32.
Product: TypeAlias = Callable[[Array, Array], Array]


def to_tf32(x: Array) -> Array:
    """Round to the 10 bits after the point that TF32 has, ties to even."""
    bits = x.view(np.uint32)
    rounded = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    result: Array = (rounded & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(x), result, x)


def to_bfloat16(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def parts(x: Array, count: int) -> list[Array]:
    """Return numbers of bfloat16 whose sum is near `x`, the largest first."""
    found = []
    for _ in range(count):
        found.append(to_bfloat16(x))
        x = x - found[-1]
    return found


def in_float64(a: Array, b: Array) -> Array:
    return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.float32)


def in_tf32(a: Array, b: Array) -> Array:
    product: Array = np.matmul(to_tf32(a), to_tf32(b))
    return product


def by_parts(count: int) -> Product:
    """Return the product by `count` parts of each factor, without the products of small parts."""

    def multiply(a: Array, b: Array) -> Array:
        left, right = parts(a, count), parts(b, count)
        pairs = [(i, j) for i in range(count) for j in range(count) if i + j < count]
        # The small ones first, so that none is lost.
        pairs.sort(key=lambda pair: -sum(pair))
        return np.sum([np.matmul(left[i], right[j]) for i, j in pairs], axis=0, dtype=np.float32)

    return multiply


ARITHMETIC: Mapping[str, Product] = {
    "float32": np.matmul,
    "bfloat16, 6 products": by_parts(3),
    "bfloat16, 3 products": by_parts(2),
    "TF32": in_tf32,
    "bfloat16, 1 product": by_parts(1),
}


class RoundingBackend(NumpyBackend):
    """NumPy with another product of float32; its convolutions are products of columns."""

    def __init__(self, multiply: Product) -> None:
        super().__init__()
        self._multiply = multiply

    def matmul(self, a: Any, b: Any) -> Any:
        if not a.dtype == b.dtype == np.float32:
            return super().matmul(a, b)
        return self._multiply(np.ascontiguousarray(a), np.ascontiguousarray(b))

    def tensordot(self, a: Any, b: Any, *, axes: Any = 2) -> Any:
        raise NotImplementedError("no operator of these networks has a product of this form")


def errors(path: Path, feeds: Mapping[str, Array]) -> dict[str, float]:
    """The largest error of a network's first output, as a fraction of its largest element."""

    def result(multiply: Product) -> Array:
        model = sardonyx.load(path, backend=RoundingBackend(multiply))
        first: Array = model.run(None, feeds)[0].astype(np.float64)
        return first

    exact = result(in_float64)
    return {
        name: float(np.abs(result(multiply) - exact).max() / np.abs(exact).max())
        for name, multiply in ARITHMETIC.items()
    }


def rows(found: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield _row(["", *ARITHMETIC])
    yield _row(["---", *["---:"] * len(ARITHMETIC)])
    for name, each in found.items():
        title = NETWORKS[name].title
        yield _row([title, *(f"{each[kind]:.1e}" for kind in ARITHMETIC)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    from benchmarks.exports import export  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__)
    folder = Path(tempfile.gettempdir()) / "sardonyx-benchmarks"
    parser.add_argument("--folder", type=Path, default=folder, help="where the networks lie")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    options = parser.parse_args()
    found = {}
    for name in options.networks:
        found[name] = errors(export(name, options.folder), NETWORKS[name].feeds(1))
        print(name, found[name], flush=True)
    if list(found) == list(NETWORKS):
        before, rest = PAGE.read_text().split(BEGIN)
        after = rest.split(END)[1]
        PAGE.write_text("\n".join([before + BEGIN, "", *rows(found), "", END + after]))


if __name__ == "__main__":
    main()
