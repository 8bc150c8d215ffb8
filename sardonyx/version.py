"""Which version of the package this is, and where its files lie."""

from pathlib import Path

__version__ = "0.1.0"

PACKAGE = Path(__file__).parent
