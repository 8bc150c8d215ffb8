"""The scripts of this folder need exporters, which no test does."""

collect_ignore = ["make.py", "networks.py"]
