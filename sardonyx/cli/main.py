"""The command line: runs one command and returns the exit status; no error ends in a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from sardonyx.cli.group import PROGRAM, CommandGroup, PipeClosedError
from sardonyx.errors import SardonyxError
from sardonyx.printable import first_line, printable

FINE, FAILED, WRONG_USAGE = 0, 1, 2
# What a shell reports of a program that the signals SIGINT and SIGPIPE end.
INTERRUPTED, PIPE_CLOSED = 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status.

    0 says that all went well, 1 that the model or a comparison failed, 2 that the command was
    written wrongly; 130 that Ctrl-C ended it, and 141 that the reader of its output did.

    >>> main(["ops", "--quiet", "Softmax"])
    0
    """
    try:
        status = _status(None if arguments is None else list(arguments))
        sys.stdout.flush()
    except (PipeClosedError, BrokenPipeError):
        _discard_output()
        return PIPE_CLOSED
    return status


def _status(arguments: list[str] | None) -> int:
    try:
        result = CommandGroup().main(arguments, PROGRAM, standalone_mode=False)
        return result if isinstance(result, int) else FINE
    except SystemExit as request:  # Of click's answer to a shell that completes a word.
        return request.code if isinstance(request.code, int) else FINE
    except click.UsageError as error:
        return _complain(_usage(error), WRONG_USAGE)
    except click.ClickException as error:
        return _complain(error.format_message(), FAILED)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except SardonyxError as error:
        return _complain(str(error), FAILED)
    except MemoryError as error:
        return _complain(f"There is not enough memory: {first_line(error)}.", FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "" if error.filename is None else f" '{error.filename}'"
        return _complain(f"The system refuses{where}: {error.strerror or error}.", FAILED)


def _usage(error: click.UsageError) -> str:
    message = error.format_message().rstrip()
    path = PROGRAM if error.ctx is None else error.ctx.command_path
    message = message if message.endswith((".", "?", "!")) else f"{message}."
    return f"{message} See '{path} --help'."


def _complain(message: str, status: int) -> int:
    with suppress(BrokenPipeError):
        print(f"{PROGRAM}: {printable(message)}", file=sys.stderr)
    return status


def _discard_output() -> None:
    """Let Python end in silence: at its exit it writes what is left in the buffer."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
