"""Errors of calls and traces: the node where they occur, and who is at fault."""
