"""Everything that an op may ask of an array library: the array API standard, and more primitives.

Each file holds one subject. A primitive's method is written in the standard's own terms, and serves
every library; a backend overrides it where its library has something better.
"""

from __future__ import annotations

from sardonyx.backends.operations.attention import Attention
from sardonyx.backends.operations.control import Control
from sardonyx.backends.operations.convolution import Convolution
from sardonyx.backends.operations.indexing import Indexing
from sardonyx.backends.operations.memory import Memory
from sardonyx.backends.operations.normalization import Normalization
from sardonyx.backends.operations.numbers import Numbers
from sardonyx.backends.operations.products import Products


class Operations(
    Attention, Normalization, Numbers, Indexing, Memory, Products, Convolution, Control
):
    """One array library, as ops see it: they get it as `xp`."""
