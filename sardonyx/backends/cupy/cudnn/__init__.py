"""cuDNN through its Python frontend, where both are installed."""
