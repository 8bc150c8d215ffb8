"""Checks and analyses of a whole model before any call."""
