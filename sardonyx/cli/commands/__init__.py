"""The commands, one per file: each file has a `command`, imported when it is used."""
