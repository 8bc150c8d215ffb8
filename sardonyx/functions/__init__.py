"""Operators as functions: `sardonyx.opset`."""
