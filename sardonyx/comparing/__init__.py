"""Two computations of one graph, value by value: where they part, and by how much."""
