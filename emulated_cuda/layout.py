"""Where a build has what, and the variables by which CuPy finds it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Layout:
    """The folder of a build: self-contained, so that it can be moved as a whole."""

    folder: Path

    @property
    def libraries(self) -> Path:
        return self.folder / "lib"

    @property
    def driver(self) -> Path:
        """The emulated libcuda, to which the other libraries and the kernels are linked."""
        return self.libraries / "libcuda.so.1"

    @property
    def import_hook(self) -> Path:
        return self.folder / "import_hook"

    @property
    def modules(self) -> Path:
        return self.import_hook / "modules"

    @property
    def toolkit(self) -> Path:
        return self.folder / "toolkit"

    @property
    def environment(self) -> Path:
        """The virtual environment: a folder, or a link to one that was there."""
        return self.folder / "environment"

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def cupys_source(self) -> Path:
        return self.folder / "source"

    @property
    def cudnn_frontend(self) -> Path:
        """cuDNN's Python frontend, apart from the environment, so that CuPy runs without it too."""
        return self.folder / "cudnn_frontend"

    @property
    def finished(self) -> Path:
        """A file that the build writes at its end."""
        return self.folder / "finished"

    def is_complete(self) -> bool:
        return self.finished.exists()

    def variables(self, others: Mapping[str, str], *, with_cudnn: bool = False) -> dict[str, str]:
        """An environment for a process: `others`, and what makes CuPy use the emulated device."""
        searched = _joined(self.import_hook, others.get("PYTHONPATH"))
        return {
            **others,
            "PATH": _joined(self.environment / "bin", others.get("PATH")),
            "LD_LIBRARY_PATH": _joined(self.libraries, others.get("LD_LIBRARY_PATH")),
            "PYTHONPATH": _joined(self.cudnn_frontend, searched) if with_cudnn else searched,
            "CUDA_PATH": str(self.toolkit),
            # CuPy's own cache would give these kernels to a GPU.
            "CUPY_CACHE_DIR": str(self.folder / "kernel_cache"),
        }


def _joined(first: Path, rest: str | None) -> str:
    return os.pathsep.join([str(first), rest] if rest else [str(first)])
