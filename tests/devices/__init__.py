"""Tests of many devices: `tests/test_sharding.py` runs them in a process with eight of them."""
