"""Makes Python import the modules of CuPy that were compiled again, in place of the wheel's.

Every Python that has this folder in PYTHONPATH imports this file as it starts.
"""

import importlib.util
import sys
import sysconfig
from importlib.machinery import ModuleSpec
from pathlib import Path

MODULES = Path(__file__).resolve().parent / "modules"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


class Finder:
    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        if not name.startswith(("cupy.", "cupy_backends.")):
            return None
        file = MODULES / f"{name}{SUFFIX}"
        return importlib.util.spec_from_file_location(name, file) if file.exists() else None


sys.meta_path.insert(0, Finder())
