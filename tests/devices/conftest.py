"""What runs here needs eight devices, which a process has from its start or not at all."""

from __future__ import annotations

import os

if "--xla_force_host_platform_device_count=8" not in os.environ.get("XLA_FLAGS", ""):
    collect_ignore_glob = ["test_*.py"]
