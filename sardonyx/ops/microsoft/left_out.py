"""The operators of com.microsoft that sardonyx does not have, and why."""

from __future__ import annotations

from collections.abc import Mapping

# By name; `sardonyx check` and the error at load say it.
LEFT_OUT: Mapping[str, str] = {
    "EPContext": "it holds the compiled code of another execution provider",
    "QOrderedAttention": "its int8 matrices are in the tile order of an NVIDIA library",
    "QOrderedLongformerAttention": "its int8 matrices are in the tile order of an NVIDIA library",
    "Snpe": "it calls the library of a phone's processor",
}
