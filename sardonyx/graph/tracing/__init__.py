"""Walks the graph once for a signature, and writes steps."""
