"""The command line and its output in a terminal."""
