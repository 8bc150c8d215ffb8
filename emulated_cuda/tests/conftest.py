from __future__ import annotations

import pytest

from emulated_cuda import counts


def pytest_configure() -> None:
    """These tests would say nothing of the emulated device on a GPU, or on no device at all."""
    if not counts.available():
        raise pytest.UsageError(
            "There is no emulated device: python -m emulated_cuda run pytest emulated_cuda/tests"
        )
