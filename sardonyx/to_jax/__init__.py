"""Models as citizens of JAX: pure functions of their weights, to be transformed and trained."""
