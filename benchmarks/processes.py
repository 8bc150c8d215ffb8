"""A measurement in a process that has done nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def measured_apart(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module with arguments, and return the JSON in the last line that it prints."""
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found
