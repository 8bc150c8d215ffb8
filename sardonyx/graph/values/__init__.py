"""The values that the names of a graph refer to: static and device values, weights, constants."""
