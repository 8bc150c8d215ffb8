"""Measures calls: time, bytes and operations per segment and per node."""
