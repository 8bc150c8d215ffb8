"""The same names as in `onnxruntime_pybind11_state`, as onnxruntime has them here too."""

from sardonyx.compat.capi.onnxruntime_pybind11_state import *  # noqa: F403
