"""Programs: segments of traced steps, which are compiled, replayed and cached on disk."""
