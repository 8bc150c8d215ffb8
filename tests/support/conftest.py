from __future__ import annotations

# A command for the emulated device or a GPU, without tests.
collect_ignore = ["captured.py"]
