"""Tables, folds and bars as HTML for notebooks, and as text for terminals, from plain data."""
