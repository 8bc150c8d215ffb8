"""The model that people hold, and what one call needs."""
