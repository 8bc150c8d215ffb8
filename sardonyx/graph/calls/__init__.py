"""Inputs and outputs of a call: arguments, arrays of other libraries, results."""
