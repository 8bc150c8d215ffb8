"""An assertion for errors: the class, the words, the form of the message, and the time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sardonyx.errors import SardonyxError


@contextmanager
def refused(
    error: type[SardonyxError] | tuple[type[SardonyxError], ...], *words: str, seconds: float = 5.0
) -> Iterator[None]:
    """What is inside soon raises exactly `error`, in one paragraph that has all of `words`."""
    start = time.process_time()
    with pytest.raises(SardonyxError) as caught:
        yield
    taken = time.process_time() - start
    message = str(caught.value)
    assert type(caught.value) in (error if isinstance(error, tuple) else (error,)), message
    assert not [word for word in words if word not in message], message
    assert "\n" not in message
    assert len(message) < 2000
    assert message.endswith(".")
    assert message[0].isupper() or message[0] in "'\""
    assert taken < seconds
