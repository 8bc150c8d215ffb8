"""The group of all commands, each of which is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from sardonyx.cli.command import verbose_option
from sardonyx.version import __version__

PROGRAM = "sardonyx"

# The commands and what each does. They stand here so that help and completion import none of them.
COMMANDS: Mapping[str, str] = {
    "demo": "Run the example model and print a report.",
    "run": "Run a model on files or random inputs, on one backend or several.",
    "show": "Print the inputs, outputs and operators of a model.",
    "check": "Print whether a model runs, where, and what each part costs.",
    "bench": "Measure a model's load, first call and repeated calls.",
    "profile": "Measure where the time of a call goes.",
    "compare": "Compare two computations of a model, value by value.",
    "compile": "Compile a model ahead, into one file.",
    "export": "Write a portable program for CPUs, GPUs and TPUs.",
    "extract": "Write a part of a model as a model.",
    "save": "Write a model with other weights.",
    "ops": "Print all operators, or the details of one.",
    "info": "Print versions, backends, devices and caches.",
    "completion": "Print the script that completes commands in a shell.",
}
_MODULES = "sardonyx.cli.commands"


class PipeClosedError(Exception):
    """The reader of the output has closed the pipe."""


class CommandGroup(click.Group):
    """The command `sardonyx` itself."""

    def __init__(self) -> None:
        version = click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and end.",
        )
        super().__init__(
            PROGRAM,
            help="Runs ONNX graphs on JAX, CuPy and NumPy.",
            epilog="Exit status: 0 if all went well, 1 if the model or a comparison failed, 2 if "
            "the command was written wrongly.",
            invoke_without_command=True,
            callback=_help_alone,
            params=[version, verbose_option()],
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"{_MODULES}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Return the commands that begin so, without importing them."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415  (a shell alone asks)

        items = [CompletionItem(n, help=t) for n, t in COMMANDS.items() if n.startswith(incomplete)]
        return items or super().shell_complete(ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would end the process with the status of a failure.
            raise PipeClosedError from error


def _print_version(ctx: click.Context, option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not ctx.resilient_parsing:
        click.echo(f"{PROGRAM} {__version__}")
        ctx.exit()


@click.pass_context
def _help_alone(ctx: click.Context) -> int | None:
    """Print the help and return the status of wrong usage if there is no command."""
    if ctx.invoked_subcommand is not None:
        return None
    click.echo(ctx.get_help())
    return 2
