"""NumPy's error state in which it warns of no numbers, such as of an overflow.

NumPy keeps its error state in a context variable. `np.errstate` makes the state anew at each call,
which takes as long as two operations on small arrays. Here it is made once, and a call sets the
variable to it, and back.
"""

from __future__ import annotations

from contextvars import Context, ContextVar
from functools import cache
from typing import Any, NamedTuple

import numpy as np


class ErrorState(NamedTuple):
    """NumPy's context variable, and its value for which NumPy gives no warnings."""

    variable: ContextVar[Any]
    quiet: Any


@cache
def error_state() -> ErrorState:
    """Return that of NumPy.

    >>> variable, quiet = error_state()
    >>> before = variable.set(quiet)
    >>> np.geterr()["over"]
    'ignore'
    >>> variable.reset(before)
    """
    context = Context()
    context.run(np.seterr, all="ignore")
    # In a context that was empty it is the only variable.
    ((variable, quiet),) = context.items()
    return ErrorState(variable, quiet)
