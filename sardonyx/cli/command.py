"""A command: its options for logs, and options that several pairs may follow."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import click

from sardonyx.cli.logs import logs_on_stderr

# No argument of a process contains it.
_JOINT = "\0"
# Like a pair NAME=VALUE, and unlike a path behind an option.
_PAIR = re.compile(r"[^-].*=[^/\\.=]*", re.DOTALL)
# Several pairs in one argument, in quotes; names with blanks do not look so.
_QUOTED = re.compile(r"[^=\s]+=[^=\s]*(?:\s+[^=\s]+=[^=\s]*)+")


class Pairs(click.ParamType):
    """Pairs NAME=VALUE: those behind one writing of an option."""

    name = "pairs"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        return _pairs(value) if isinstance(value, str) else tuple(value)


class PairsOption(click.Option):
    """An option for pairs NAME=VALUE: repeated, with several pairs behind it, or in quotes.

    Its value is a list of pairs for each time that it is written.
    """

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **{**attributes, "multiple": True, "type": Pairs()})

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return record and (f"{record[0]}...", record[1])


class Command(click.Command):
    """A command whose log `--verbose` shows."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params.append(verbose_option())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [option for option in self.params if isinstance(option, PairsOption)]
        names = {name for option in options for name in option.opts}
        try:
            return super().parse_args(ctx, list(_joined(args, names)))
        except click.UsageError as error:
            # So that the message names the help of this command.
            error.ctx = error.ctx or ctx
            raise


def verbose_option() -> click.Option:
    """Return the option that shows the log while a command runs."""
    return click.Option(
        ["-v", "--verbose"],
        count=True,
        expose_value=False,
        callback=_show_logs,
        help="Show the log on the standard error; twice, all of it.",
    )


def command(name: str) -> Callable[[Callable[..., Any]], Command]:
    """Return the decorator that makes a function a command; its docstring is the help."""

    def decorate(function: Callable[..., Any]) -> Command:
        decorated: Command = click.command(name, cls=Command)(function)
        return decorated

    return decorate


def _joined(arguments: Iterable[str], options: Collection[str]) -> Iterator[str]:
    """Yield the arguments, with all pairs behind one of these options in one argument."""
    waiting = list(reversed(list(arguments)))
    while waiting:
        argument = waiting.pop()
        if argument == "--":
            yield argument
            yield from reversed(waiting)
            return
        group = [argument]
        if argument in options and waiting:
            yield argument
            group = [waiting.pop()]
        if argument.partition("=")[0] in options:
            while waiting and _PAIR.fullmatch(waiting[-1]):
                group.append(waiting.pop())
        yield _JOINT.join(group)


def _pairs(text: str) -> tuple[str, ...]:
    pairs: list[str] = []
    for part in text.split(_JOINT):
        pairs += part.split() if _QUOTED.fullmatch(part) else [part]
    return tuple(pairs)


def _show_logs(ctx: click.Context, option: click.Parameter, count: int) -> None:
    if count and not ctx.resilient_parsing:
        ctx.with_resource(logs_on_stderr(is_complete=count > 1))


def flattened(groups: Sequence[Sequence[str]]) -> list[str]:
    """Return the pairs of all groups."""
    return [pair for group in groups for pair in group]
