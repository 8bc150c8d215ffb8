"""`sardonyx completion`: the script by which a shell completes commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from sardonyx.cli.command import command as as_command
from sardonyx.cli.group import PROGRAM, CommandGroup

SHELLS = ("bash", "zsh", "fish")


@as_command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script that completes commands in a shell.

    \b
    For bash, in ~/.bashrc:   eval "$(sardonyx completion bash)"
    For zsh, in ~/.zshrc:     eval "$(sardonyx completion zsh)"
    For fish:  sardonyx completion fish > ~/.config/fish/completions/sardonyx.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click knows no completion for {shell}.")
    written = kind(CommandGroup(), {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE")
    # Without `source()`, which runs the shell to ask for its version.
    click.echo(written.source_template % written.source_vars())
