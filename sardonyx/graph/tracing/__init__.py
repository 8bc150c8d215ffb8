"""Walks the graph once for each signature, and writes steps."""
