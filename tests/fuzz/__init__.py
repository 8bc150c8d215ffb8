"""Random graphs, run by every runtime that there is, and compared: `python -m tests.fuzz`."""
