"""What the names of a graph stand for: static values, device values, weights, constants."""
