"""What tracing leaves: steps in segments, compiled, replayed, kept on disk."""
