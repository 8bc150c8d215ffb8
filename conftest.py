"""Modules whose library is not installed have no doctests to collect."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("cupy") else ["sardonyx/backends/cupy/*.py"]
