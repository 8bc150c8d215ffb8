"""Translates a module of CuPy to C++. Run in the folder of CuPy's source:

translate.py MODULE MODULE.pyx TARGET.cpp
"""

import sys
from pathlib import Path

from Cython.Compiler.Main import CompilationOptions, compile_single
from Cython.Compiler.Options import get_directive_defaults

# What CuPy's own build tells Cython.
CONSTANTS = {
    "CUPY_CUDA_VERSION": 13000,
    "CUPY_HIP_VERSION": 0,
    "CUPY_USE_CUDA_PYTHON": False,
    "CUPY_CYTHON_VERSION": "3",
    "CUPY_CUFFT_STATIC": False,
    "CUPY_DONT_USE_GEN_HIP_CODE": 0,
}


def main(name: str, source: str, target: str) -> None:
    directives = {"language_level": 3, "embedsignature": True}
    options = CompilationOptions(
        output_file=target,
        cplus=True,
        compile_time_env=CONSTANTS,
        include_path=[str(Path.cwd())],
        compiler_directives=get_directive_defaults() | directives,
    )
    relative = str(Path(source).relative_to(Path.cwd()))
    sys.exit(compile_single(relative, options, full_module_name=name).num_errors)


if __name__ == "__main__":
    main(*sys.argv[1:])
