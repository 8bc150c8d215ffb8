"""What can be said of a model before any call."""
