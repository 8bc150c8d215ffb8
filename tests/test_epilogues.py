"""Products and what follows them in one step, on backends that have kernels for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.backends.fused_epilogue import Epilogue
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST, NumpyBackend
from sardonyx.graph.tracing.steps import Step
from sardonyx.ops.fused_products import product_and_more
from tests.support.onnx_builders import node
from tests.support.rewrite_cases import (
    RewriteCase,
    close,
    without_kernels,
    without_rewrites,
    working,
)

CONV, FUSED_CONV, FUSED_MATMUL = "Conv", "FusedConv", "FusedMatMul"
IMAGE, FILTERS = (2, 3, 6, 5), np.linspace(-1, 1, 4 * 3 * 3 * 3).reshape(4, 3, 3, 3)
CONVOLVE = node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1])
WEIGHTS = {"w": FILTERS, "b": np.arange(4.0)}
MATRIX = {"m": np.linspace(-1, 1, 12).reshape(3, 4), "b": np.arange(4.0)}
MULTIPLY = [node("MatMul", ["x", "m"], ["p"]), node("Add", ["b", "p"], ["c"])]


def followed(op: str, **attributes: Any) -> RewriteCase:
    last = node(op, ["c"], ["y"], **attributes)
    name = f"{op}{''.join(map(str, attributes.values()))}"
    return RewriteCase(name, [CONVOLVE, last], IMAGE, [FUSED_CONV], WEIGHTS, opset=24)


FUSED = [
    followed("Relu"),
    followed("LeakyRelu", alpha=0.2),
    followed("Gelu"),
    followed("Gelu", approximate="tanh"),
    followed("Swish", alpha=1.5),
    followed("Tanh"),
    followed("Sigmoid"),
    followed("HardSwish"),
    followed("HardSigmoid", alpha=0.3),
    followed("Elu", alpha=0.7),
    RewriteCase(
        "clipped",
        [CONVOLVE, node("Clip", ["c", "low", "high"], ["y"])],
        IMAGE, [FUSED_CONV], WEIGHTS | {"low": 0.0, "high": 6.0},
    ),
    RewriteCase(
        "added_before",
        [CONVOLVE, node("Add", ["other", "c"], ["a"]), node("Relu", ["a"], ["y"])],
        IMAGE, [FUSED_CONV], WEIGHTS, {"other": (2, 4, 6, 5)},
    ),
    RewriteCase(
        "added_after",
        [CONVOLVE, node("Relu", ["c"], ["r"]), node("Add", ["r", "other"], ["y"])],
        IMAGE, [FUSED_CONV], WEIGHTS, {"other": (2, 4, 6, 5)},
    ),
    RewriteCase(
        "padded_by_name",
        [node("Conv", ["x", "w"], ["c"], auto_pad="SAME_UPPER", strides=[2, 1]),
         node("Relu", ["c"], ["y"])],
        IMAGE, [FUSED_CONV], {"w": FILTERS},
    ),
    RewriteCase(
        "normalized",
        [CONVOLVE, node("BatchNormalization", ["c", "s", "s", "s", "s"], ["n"]),
         node("Relu", ["n"], ["y"])],
        IMAGE, [FUSED_CONV], WEIGHTS | {"s": np.linspace(1, 2, 4)},
    ),
    RewriteCase(
        "rows", [*MULTIPLY, node("Relu", ["c"], ["y"])], (2, 5, 3), [FUSED_MATMUL], MATRIX
    ),
    RewriteCase(
        "in_another_shape",
        [node("Gemm", ["x", "m", "b"], ["p"]), node("Reshape", ["p", "shape"], ["c"]),
         node("Tanh", ["c"], ["r"]), node("Add", ["other", "r"], ["y"])],
        (6, 3), ["Reshape", FUSED_MATMUL, "Reshape"],
        MATRIX | {"shape": np.array([2, 3, 4])}, {"other": (2, 3, 4)},
    ),
    RewriteCase(
        "reshaped_twice",
        [node("Gemm", ["x", "m", "b"], ["p"]), node("Unsqueeze", ["p", "axes"], ["u"]),
         node("Reshape", ["u", "shape"], ["c"]), node("Relu", ["c"], ["y"])],
        (6, 3), [FUSED_MATMUL, "Reshape"],
        MATRIX | {"axes": np.array([0]), "shape": np.array([2, 3, 4])},
    ),
    RewriteCase(
        "gemm",
        [node("Gemm", ["x", "t", "b"], ["c"], transB=1), node("Tanh", ["c"], ["r"]),
         node("Add", ["r", "other"], ["y"])],
        (5, 3), [FUSED_MATMUL], {"t": MATRIX["m"].T, "b": MATRIX["b"]}, {"other": (5, 4)},
    ),
]  # fmt: skip

LEFT = [
    RewriteCase(
        "read_twice",
        [CONVOLVE, node("Relu", ["c"], ["y"])],
        IMAGE, [CONV, "Relu"], WEIGHTS, outputs=("y", "c"),
    ),
    RewriteCase(
        "two_activations",
        [CONVOLVE, node("Relu", ["c"], ["r"]), node("Tanh", ["r"], ["y"])],
        IMAGE, [FUSED_CONV, "Tanh"], WEIGHTS,
    ),
    RewriteCase(
        "activation_after_all",
        [CONVOLVE, node("Relu", ["c"], ["r"]), node("Add", ["r", "other"], ["a"]),
         node("Relu", ["a"], ["y"])],
        IMAGE, [FUSED_CONV, "Relu"], WEIGHTS, {"other": (2, 4, 6, 5)},
    ),
    RewriteCase(
        "another_shape",
        [CONVOLVE, node("Add", ["c", "other"], ["y"])],
        IMAGE, [CONV, "Add"], WEIGHTS, {"other": (2, 1, 6, 5)},
    ),
    RewriteCase(
        "given_weight",
        [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])],
        IMAGE, [CONV, "Relu"], {}, {"w": (4, 3, 3, 3)},
    ),
    RewriteCase(
        "bounds_at_a_call",
        [CONVOLVE, node("Clip", ["c", "low"], ["y"])],
        IMAGE, [CONV, "Clip"], WEIGHTS, {"low": ()},
    ),
    RewriteCase(
        "scaled_gemm",
        [node("Gemm", ["x", "m"], ["c"], alpha=0.5), node("Relu", ["c"], ["y"])],
        (5, 3), ["Gemm", "Relu"], MATRIX,
    ),
]  # fmt: skip


class Fusing:
    """Says that it has kernels, and then has none for these shapes."""

    fuses = True


class FusingNumpy(Fusing, NumpyBackend):
    pass


class FusingJax(Fusing, JaxBackend):
    pass


@dataclass(frozen=True)
class Reversed:
    """A kernel that wants its weight backwards, as float64."""

    packed: Spec
    shape: tuple[int, ...]
    layout: tuple[tuple[str, Any], ...]

    @property
    def form(self) -> Reversed:
        return self

    def pack(self, weight: Any) -> Any:
        return np.asarray(weight, np.float64).reshape(-1)[::-1]

    def run(self, x: Any, packed: Any, *others: Any) -> Any:
        weight = packed[::-1].reshape(self.shape).astype(x.dtype)
        return product_and_more(HOST, x, weight, *others, **dict(self.layout))


class PackingNumpy(Fusing, NumpyBackend):
    def packed_matmul(
        self,
        x: Spec,
        weight: Spec,
        *,
        is_transposed: bool,
        epilogue: Epilogue,
        in_small_program: bool,
        single_rows: bool,
    ) -> Reversed:
        size = Spec((int(np.prod(weight.shape)),), np.dtype(np.float64))
        layout = (("is_transposed", is_transposed), ("epilogue", epilogue))
        return Reversed(size, weight.shape, layout)


def all_of(cases: Sequence[RewriteCase]) -> Any:
    return pytest.mark.parametrize("case", [case.parameter() for case in cases])


@pytest.mark.sampled(8)
@all_of([*FUSED, *LEFT])
@pytest.mark.parametrize("library", [FusingNumpy, FusingJax])
def test_what_follows_a_product_goes_with_it(case: RewriteCase, library: type[Backend]) -> None:
    backend, arrays = library(), case.arrays()
    loaded = sardonyx.load(case.model(), backend=backend)
    assert working(loaded.trace(*arrays)) == list(case.titles)
    expected = without_rewrites(case.model(), arrays, backend)
    for _ in range(2):
        found = loaded(*arrays)
        pairs = zip(found, expected, strict=True) if len(case.outputs) > 1 else [(found, expected)]
        for one, other in pairs:
            close(one, other, 8)


@all_of([case for case in FUSED if case.titles == [FUSED_MATMUL]])
def test_weights_are_packed_ahead_of_the_calls(case: RewriteCase) -> None:
    backend, arrays = PackingNumpy(), case.arrays()
    loaded = sardonyx.load(case.model(), backend=backend)
    program = loaded.trace(*arrays)
    assert working(program) == [FUSED_MATMUL]
    (stage,) = program.stages
    assert "PackedWeight" in titles(stage.steps)
    assert stage.segment is not None
    assert "PackedWeight" not in titles(stage.segment.steps)
    for _ in range(2):
        close(loaded(*arrays), without_rewrites(case.model(), arrays, backend), 8)
    name = next(name for name in case.weights if name != "b")
    loaded.params[name] = np.asarray(-case.weights[name], np.float32)
    flipped = RewriteCase(
        case.name,
        case.nodes,
        case.shape,
        case.titles,
        {**case.weights, name: -case.weights[name]},
        case.others,
    )
    close(loaded(*arrays), without_rewrites(flipped.model(), arrays, backend), 8)


def titles(steps: Sequence[Step]) -> list[str]:
    return [step.title for step in steps]


@all_of(FUSED[:1])
def test_a_backend_without_kernels_keeps_its_steps(case: RewriteCase, xp: Backend) -> None:
    program = sardonyx.load(case.model(), backend=without_kernels(xp)).trace(*case.arrays())
    assert working(program) == [node.op_type for node in case.nodes]
