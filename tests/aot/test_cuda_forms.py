"""What XLA's compiler for CUDA recognizes: calls of cuDNN and cuBLASLt with bias and activation."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sardonyx.targets.worker import Worker
from tests.aot.patterns import PATTERNS, Pattern

pytestmark = pytest.mark.aot

# Without a device XLA does not measure its own products against cuBLASLt's: so it takes the latter.
WITHOUT_TRITON = "--xla_gpu_enable_triton_gemm=false"


def patterns(*names: str) -> list[Pattern]:
    found = [pattern for pattern in PATTERNS if pattern.name in names]
    assert {pattern.name for pattern in found} == set(names)
    return found


def calls_and_text(worker: Worker, pattern: Pattern) -> tuple[dict[str, int], str]:
    job = pattern.model("h100", keeps_text=True)
    record = worker.run(job)
    assert record.is_compiled, record.reason
    (program,) = record.programs
    assert program.facts is not None
    return dict(program.facts.custom_calls), program.text


@pytest.fixture(scope="module")
def plain_worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    """Compiles without XLA's own kernels for products."""
    request.getfixturevalue("target_worker")  # It skips the test where the extra is not installed.
    patch = pytest.MonkeyPatch()
    flags = os.environ.get("XLA_FLAGS", "")
    patch.setenv("XLA_FLAGS", f"{flags} {WITHOUT_TRITON}".strip())
    try:
        with Worker() as worker:
            yield worker
    finally:
        patch.undo()


@pytest.mark.parametrize(
    "pattern",
    patterns("Conv, bias and Relu", "Conv, bias, sum and Relu"),
    ids=lambda p: f"{p.name}-{p.dtype}",
)
def test_convolutions_take_bias_sum_and_relu(pattern: Pattern, target_worker: Worker) -> None:
    calls, text = calls_and_text(target_worker, pattern)
    assert calls == {"__cudnn$convBiasActivationForward": 1}
    assert '"activation_mode":"kRelu"' in text


@pytest.mark.parametrize(
    "pattern", patterns("MatMul, bias and Relu"), ids=lambda p: f"{p.name}-{p.dtype}"
)
def test_products_take_bias_and_relu(pattern: Pattern, plain_worker: Worker) -> None:
    calls, text = calls_and_text(plain_worker, pattern)
    assert calls == {"__cublas$lt$matmul": 1}
    assert '"epilogue":"BIAS_RELU"' in text


@pytest.mark.parametrize(
    "pattern", patterns("MatMul of float8"), ids=lambda p: f"{p.name}-{p.dtype}"
)
def test_products_of_float8_are_those_of_the_library(
    pattern: Pattern, plain_worker: Worker
) -> None:
    calls, _ = calls_and_text(plain_worker, pattern)
    assert calls == {"__cublas$lt$matmul$f8": 1}
