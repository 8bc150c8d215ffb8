"""The options of commands that write models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def external_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare `--external`: whether weights are in a second file."""
    return click.option(
        "--external/--inside",
        "external",
        default=None,
        help="Write the weights to FILE.data, or into FILE (default: to FILE.data from 1 GiB on).",
    )(function)
