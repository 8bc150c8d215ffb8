from __future__ import annotations

from importlib.util import find_spec

# Only to run by itself.
collect_ignore = [] if find_spec("cupy") else ["captured.py"]
