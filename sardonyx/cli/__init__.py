"""The command line, and what is for a terminal."""
