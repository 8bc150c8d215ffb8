"""What processors without AVX-512 compute; on others, in a process that has none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sardonyx.backends.fused_epilogue import NOTHING
from tests.support.kernels import NEEDS_ONEDNN, has_avx512
from tests.test_onednn import Window, assert_close, convolution, convolved, drawn

pytestmark = NEEDS_ONEDNN

# For all of the image oneDNN chooses weights in blocks that its kernels for a half cannot read.
DIVIDED = [
    Window((1, 64, 56, 56), (256, 64, 1, 1)),
    Window((1, 256, 14, 14), (256, 256, 3, 3), 1, (1, 1)),
    Window((3, 256, 14, 14), (256, 256, 3, 3), 1, (1, 1)),
]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("window", DIVIDED, ids=str)
def test_convolutions_whose_images_are_divided(window: Window) -> None:
    x, weight = drawn(*window.x), drawn(*window.weight)
    kernel = convolution(window)
    found = kernel.run(x, kernel.form.pack(weight))
    assert_close(found, convolved(window, NOTHING, x, weight))


@pytest.mark.skipif(not has_avx512(), reason="without AVX-512 the tests above are all of it")
def test_all_of_it_without_avx512() -> None:
    others = "test_panels.py", "test_winograd.py"
    files = __file__, *(str(Path(__file__).with_name(name)) for name in others)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *files]
    # Options of this run may be of plugins that the other one lacks.
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "PYTEST_ADDOPTS": ""}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:]
