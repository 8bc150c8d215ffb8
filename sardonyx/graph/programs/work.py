"""The bytes and operations of a step, from its shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sardonyx.backends.executable import Spec
from sardonyx.backends.shape_arrays import NoShapeRule, shape_array
from sardonyx.backends.shape_backend import ShapeBackend
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.graph.tracing.steps import Embedded, Step
from sardonyx.graph.values.params import Weights
from sardonyx.ops.fused_products import packed, packed_product, product_chain


@dataclass(frozen=True, slots=True)
class Work:
    """What one run of a step reads, writes and computes."""

    bytes: int
    operations: int
    # The operations of each product of a chain.
    chained: tuple[int, ...] = ()

    def times(self, runs: int) -> Work:
        """Return the work of so many runs."""
        chained = tuple([runs * each for each in self.chained])
        return Work(runs * self.bytes, runs * self.operations, chained)


class _Counting(ShapeBackend):
    """Counts the operations of products and convolutions; an addition is one operation."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def matmul(self, a: Any, b: Any) -> Any:
        return self._counted(super().matmul(a, b), a.shape[-1])

    def integer_matmul(self, a: Any, b: Any) -> Any:
        return self._counted(super().integer_matmul(a, b), a.shape[-1])

    def float8_product(self, a: Any, columns: Any, *scales: Any, dtype: Any) -> Any:
        product = super().float8_product(a, columns, *scales, dtype=dtype)
        return self._counted(product, a.shape[-1])

    def tensordot(self, a: Any, b: Any, *, axes: Any = 2) -> Any:
        product = super().tensordot(a, b, axes=axes)
        inner = math.sqrt(a.size * b.size / product.size) if product.size else 0
        return self._counted(product, round(inner))

    def convolution(self, x: Any, weight: Any, **layout: Any) -> Any:
        result = super().convolution(x, weight, **layout)
        return self._counted(result, math.prod(weight.shape[1:]))

    def cond(self, predicate: Any, when_true: Any, when_false: Any) -> Any:
        """Count the branch with more operations."""
        before, counts = self.operations, []

        def counted(branch: Any) -> Any:
            self.operations = before
            results = branch()
            counts.append(self.operations)
            return results

        results = super().cond(predicate, partial(counted, when_true), partial(counted, when_false))
        self.operations = max(counts)
        return results

    def loop(self, condition: Any, body: Any, carry: Any) -> Any:
        raise NoShapeRule  # Only data say how often it runs.

    def scan(self, step: Any, carry: Any, inputs: Any, length: int, **options: Any) -> Any:
        before = self.operations
        results = super().scan(step, carry, inputs, length, **options)
        self.operations = before + length * (self.operations - before)
        return results

    def _counted(self, result: Any, inner: int) -> Any:
        self.operations += 2 * result.size * inner
        return result


def work_of(stage: Stage, weights: Weights) -> list[Work]:
    """Return the work of each step of a stage."""
    if stage.segment is None:
        return []
    specs = _specs(stage, weights)
    unpacked: dict[int, Spec | None] = {}
    for step in (step for group in stage.binding.prepared for step in group.steps):
        if _calls(step, packed) and isinstance(step.operands[0], int):
            unpacked.update(dict.fromkeys(step.results, specs.get(step.operands[0])))
    return [_work(step, specs, unpacked) for step in stage.segment.steps]


def _specs(stage: Stage, weights: Weights) -> dict[int, Spec]:
    """Return the shapes and dtypes of all registers of a stage that are known."""
    segment, binding = stage.segment, stage.binding
    specs: dict[int, Spec] = dict(binding.specs)
    if segment is not None:
        specs.update(zip(segment.inputs, stage.inputs, strict=True))
    hosts = {register: weights.host(name) for register, name in binding.weights.items()}
    for register, array in {**hosts, **binding.constants}.items():
        specs[register] = Spec(array.shape, array.dtype)
    for step in stage.steps:
        specs.update(zip(step.results, step.specs, strict=True))
    return specs


def _work(step: Step, specs: Mapping[int, Spec], unpacked: Mapping[int, Spec | None]) -> Work:
    if step.call.is_view:
        return Work(0, 0)
    read = [o.value.nbytes for o in step.operands if isinstance(o, Embedded)]
    read += [_nbytes(specs[r]) for r in dict.fromkeys(step.reads) if r in specs]
    elements = sum(math.prod(spec.shape) for spec in step.specs)
    chained = _of_kernels(step, unpacked)
    products = sum(chained) or _of_products(step, specs)
    return Work(sum(read) + sum(map(_nbytes, step.specs)), products + elements, chained)


def _nbytes(spec: Spec) -> int:
    return math.prod(spec.shape) * spec.dtype.itemsize


def _of_products(step: Step, specs: Mapping[int, Spec]) -> int:
    """Return the operations of the products in an op; 0 if there is no rule for its shapes."""
    counting = _Counting()
    try:
        operands = [specs[o] if isinstance(o, int) else o.value for o in step.operands]
        with counting.scope():
            step.call(counting, [shape_array(a.shape, a.dtype) for a in operands])
    except Exception:  # As for inference: whatever has no rule counts by its results alone.
        return 0
    return counting.operations


def _of_kernels(step: Step, unpacked: Mapping[int, Spec | None]) -> tuple[int, ...]:
    """Return the operations of a library's kernels for products with packed weights."""
    factors = [unpacked[r] for r in step.reads if r in unpacked]
    if _calls(step, product_chain) and isinstance(step.call, OpCall):
        results = [link.product.result for link in step.call.attributes["chain"].links]
    elif _calls(step, packed_product):
        results = list(step.specs)
    else:
        return ()
    pairs = zip(results, factors, strict=False)
    return tuple(2 * _multiplications(r, w) for r, w in pairs if w is not None)


def _multiplications(result: Spec, weight: Spec) -> int:
    """Return how many numbers are multiplied for a result with all of its channels."""
    channels = result.shape[1] if len(weight.shape) > 2 else result.shape[-1]
    return math.prod(result.shape) * math.prod(weight.shape) // max(channels, 1)


def _calls(step: Step, function: Any) -> bool:
    return isinstance(step.call, OpCall) and step.call.function is function


def weights_for_sharing(work: Sequence[Work]) -> list[float]:
    """Return the shares that steps have in an operation that they were fused into."""
    return [1.0 + each.operations for each in work]
