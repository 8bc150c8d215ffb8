"""What tests of oneDNN's kernels share."""

from __future__ import annotations

import platform
import sys

import pytest

NEEDS_ONEDNN = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="oneDNN is used on Linux on x86-64 alone",
)
