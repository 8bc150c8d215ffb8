"""ONNX's own suite, all categories, driven through the `onnx.backend` interface."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from sardonyx.backends.base import Backend
from tests.conftest import as_parameter
from tests.support.official import EXCLUDED, Case, backends, cases, eager_jax, label, run, runs_on


def parameters() -> list[object]:
    return [
        as_parameter(
            backend,
            case,
            name=f"{case.category}-{case.name}",
            label=label(backend),
            slow=is_slow(case, backend),
        )
        for case in cases()
        for backend in backends()
        if case.name not in EXCLUDED and runs_on(case, backend) and is_chosen(case, backend)
    ]


def is_chosen(case: Case, backend: Backend) -> bool:
    """JAX step by step runs what compiled JAX runs, but slowly: a fifth of it shows that it can."""
    if backend is not eager_jax():
        return True
    return case.category != "Real" and crc32(case.name.encode()) % 5 == 0


def is_slow(case: Case, backend: Backend) -> bool:
    """What can wait: JAX step by step, and nine in ten of compiled JAX and of the standard alone.

    Expansions wait too: they are made of operators that have cases of their own. So do whole
    networks, whose convolutions an emulated device computes in plain loops.
    """
    if case.name.endswith("_expanded") or backend is eager_jax():
        return True
    if backend.name == "cupy":
        return case.category == "Real"
    waits = crc32(case.name.encode()) % 10 > 0
    if backend.name == "strict":
        return waits or case.category == "Real"
    return backend.compiled and waits


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("case", "backend"), parameters())
def test_case(
    case: Case, backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNX_MODELS", str(tmp_path))
    run(case, backend)


def test_every_exclusion_names_a_case() -> None:
    assert set(EXCLUDED) <= {case.name for case in cases()}


def test_the_suite_is_all_there() -> None:
    assert len(cases()) >= 2033
    assert {case.category for case in cases()} == {
        "Node",
        "PyTorchConverted",
        "PyTorchOperator",
        "Real",
        "Simple",
    }
