"""Python functions as models: `sardonyx.record`."""
