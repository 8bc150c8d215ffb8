"""What tests of oneDNN's kernels share."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

NEEDS_ONEDNN = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="oneDNN is used on Linux on x86-64 alone",
)


def has_avx512() -> bool:
    """Whether oneDNN computes with the longest registers here."""
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "").startswith("AVX2"):
        return False
    processor = Path("/proc/cpuinfo")
    return processor.exists() and "avx512f" in processor.read_text(encoding="utf-8")
