"""The modules of this folder need exporters, which the tests do without."""

collect_ignore_glob = ["*.py"]
