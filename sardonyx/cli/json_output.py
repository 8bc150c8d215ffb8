"""Results as JSON for other programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import click
import numpy as np


def put_json(value: Any) -> None:
    """Print a value as JSON; NaN and infinities, which JSON lacks, as "nan", "inf" and "-inf"."""
    click.echo(json.dumps(plain(value), indent=2))


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it.

    >>> plain({"error": np.float32(0.5), "max": float("inf"), "shape": (2, 3)})
    {'error': 0.5, 'max': 'inf', 'shape': [2, 3]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    is_plain = isinstance(value, (str, int, bool, type(None))) or _is_finite(value)
    return value if is_plain else str(value)


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)
