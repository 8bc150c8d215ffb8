"""The command line: runs one command and returns the exit status; no error ends in a traceback."""

from __future__ import annotations

import io
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
    _accept_all_letters()
    try:
        return _status(None if arguments is None else list(arguments))
    except (PipeClosedError, BrokenPipeError):
        _discard_output()
        return PIPE_CLOSED


def _status(arguments: list[str] | None) -> int:
    try:
        if any("\0" in argument for argument in arguments or ()):
            raise click.UsageError("An argument has a NUL character, which no name of a file has.")
        result = CommandGroup().main(arguments, PROGRAM, standalone_mode=False)
        # Here, where a full disk can still be reported in a sentence.
        _flush_output()
        return result if isinstance(result, int) else FINE
    except SystemExit as request:  # Of click's answer to a shell that completes a word.
        return request.code if isinstance(request.code, int) else FINE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except (click.ClickException, SardonyxError, MemoryError, OSError) as error:
        return _complain(error)


def _complain(error: Exception) -> int:
    """Say in one sentence what is wrong, and return the status."""
    with suppress(BrokenPipeError):
        click.echo(f"{PROGRAM}: {printable(_sentence(error))}", err=True)
    return WRONG_USAGE if isinstance(error, click.UsageError) else FAILED


def _sentence(error: Exception) -> str:
    if isinstance(error, click.UsageError):
        return _usage(error)
    if isinstance(error, MemoryError):
        return f"There is not enough memory: {first_line(error)}."
    if isinstance(error, OSError) and not isinstance(error, SardonyxError):
        where = "" if error.filename is None else f" '{error.filename}'"
        return f"The system refuses{where}: {error.strerror or first_line(error)}."
    return str(error)


def _usage(error: click.UsageError) -> str:
    message = error.format_message().rstrip()
    path = PROGRAM if error.ctx is None else error.ctx.command_path
    message = message if message.endswith((".", "?", "!")) else f"{message}."
    return f"{message} See '{path} --help'."


def _accept_all_letters() -> None:
    """Let letters that the encoding of the output lacks appear as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush_output() -> None:
    if sys.stdout is None:  # As where a process was started without it.
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:
        _discard_output()
        raise


def _discard_output() -> None:
    """Let Python end in silence: at its exit it writes what is left in the buffer."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
