"""A thread draws random numbers without a change to those that NumPy's global functions draw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Any

import numpy as np

_replacing = RLock()


@contextmanager
def own_draws() -> Iterator[None]:
    """Give `numpy.random.rand` of this thread numbers of its own: an import of JAX calls it.

    Saving and restoring the global state would repeat what other threads draw meanwhile.

    >>> before = np.random.get_state()[2]
    >>> with own_draws():
    ...     np.random.rand(3).shape
    (3,)
    >>> np.random.get_state()[2] == before
    True
    """
    with _replacing:
        everyones, own, thread = np.random.rand, np.random.RandomState(), get_ident()

        def rand(*shape: int) -> Any:
            return (own.rand if get_ident() == thread else everyones)(*shape)

        np.random.rand = rand
        try:
            yield
        finally:
            np.random.rand = everyones
