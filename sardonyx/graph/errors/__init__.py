"""Errors of a call and of a trace: at which node, and whose fault."""
