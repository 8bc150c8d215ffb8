"""Pictures of models and programs, for the graph view."""
