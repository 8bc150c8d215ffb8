"""Loggers of what happens beside the calls: traces, compiles, cache entries, kernels, buckets.

They are children of the logger `sardonyx`. Nothing is printed unless the user configures `logging`.
docs/logging.md lists the loggers, their levels and the fields of their records.

A message never fails a call. No handler runs while its thread holds a lock that a call may need,
since a handler may call the model, or wait for a thread that does: see `postponed`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import ContextVar, Token
from logging import DEBUG, INFO, WARNING
from threading import Lock
from types import TracebackType
from typing import TypeAlias

from sardonyx.printable import printable

# A word of a message, or a function that composes it if the message is to be written.
Word: TypeAlias = str | float | Callable[[], str | float]

_SILENT = logging.NullHandler()
# Without a handler of their own, warnings would reach the one that Python prints them with.
logging.getLogger("sardonyx").addHandler(_SILENT)


class Log:
    """A child of the logger `sardonyx`.

    Words and fields are texts and numbers, so that records hold no arrays; texts are escaped.

    >>> Log("tracing").info("Traced %s in %.2f s.", "encoder", 0.25, seconds=0.25)
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"sardonyx.{name}")

    def debug(self, message: str, *words: Word, **fields: Word) -> None:
        """Log a detail."""
        self._log(DEBUG, message, words, fields)

    def info(self, message: str, *words: Word, **fields: Word) -> None:
        """Log what takes time, or changes how calls run."""
        self._log(INFO, message, words, fields)

    def warning(self, message: str, *words: Word, **fields: Word) -> None:
        """Log what a user should act on."""
        self._log(WARNING, message, words, fields)

    def log(self, level: int, message: str, *words: Word, **fields: Word) -> None:
        """Log at a level that depends on what happened."""
        self._log(level, message, words, fields)

    def _log(
        self, level: int, message: str, words: tuple[Word, ...], fields: dict[str, Word]
    ) -> None:
        try:
            if not self._logger.isEnabledFor(level):
                return
            texts = tuple(map(_composed, words))
            extra = {name: _composed(word) for name, word in fields.items()}
            file, line, function, _ = self._logger.findCaller(stacklevel=3)
            record = self._logger.makeRecord(
                self._logger.name, level, file, line, message, texts, None, function, extra
            )
            waiting = _waiting.get()
            if waiting is None or not waiting.take(self._logger, record):
                _emit(self._logger, record)
        except Exception:  # Of a user's own class of loggers or factory of records.
            return


class Once:
    """Remembers what was logged, so that it is logged once.

    >>> once = Once()
    >>> once.is_new("a miss"), once.is_new("a miss")
    (True, False)
    """

    def __init__(self, most: int = 1024) -> None:
        self._known: dict[Hashable, None] = {}
        self._most = most

    def is_new(self, event: Hashable) -> bool:
        """Whether this is the first such event, as far as is remembered; remember it."""
        is_new = event not in self._known
        # Threads may come in between; then an event is logged twice.
        if len(self._known) >= self._most:
            self._known = {}
        self._known[event] = None
        return is_new

    def forget(self, event: Hashable) -> None:
        """Let the next such event be new."""
        self._known.pop(event, None)


def _composed(word: Word) -> str | float:
    try:
        value = word() if callable(word) else word
        return value if isinstance(value, (int, float)) else printable(str(value))
    except Exception as error:  # The text of a user's own object.
        return f"unknown, for its text raises {type(error).__name__}"


def _emit(logger: logging.Logger, record: logging.LogRecord) -> None:
    """Pass a record to the user's handlers; report their errors as `logging` does."""
    try:
        logger.handle(record)
    except Exception:
        with suppress(Exception):
            _SILENT.handleError(record)


class _Waiting:
    """Records that wait for the end of a block."""

    def __init__(self) -> None:
        self._records: list[tuple[logging.Logger, logging.LogRecord]] = []
        self.is_open = True
        # Threads that the block started may log, too.
        self._lock = Lock()

    def take(self, logger: logging.Logger, record: logging.LogRecord) -> bool:
        """Take a record; return False after the end of the block."""
        with self._lock:
            if self.is_open:
                self._records.append((logger, record))
            return self.is_open

    def emit(self) -> None:
        """Emit the records in their order, and take no more."""
        with self._lock:
            self.is_open = False
        for logger, record in self._records:
            _emit(logger, record)


# That of the outermost block which is open in this thread, or in the one that started it.
_waiting: ContextVar[_Waiting | None] = ContextVar("sardonyx_waiting_records", default=None)


class postponed:  # noqa: N801  # a context like those of contextlib
    """Postpone messages to the end of the outermost such block.

    Enter it before a lock under which something may log, as in `with postponed(), lock:`. Records
    bear the time and the place of the event.
    """

    __slots__ = ("_token", "_waiting")

    def __enter__(self) -> None:
        self._token: Token[_Waiting | None] | None = None
        outer = _waiting.get()
        # A thread can outlive the block that started it.
        if outer is None or not outer.is_open:
            self._waiting = _Waiting()
            self._token = _waiting.set(self._waiting)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token is not None:
            _waiting.reset(self._token)
            self._waiting.emit()
