"""``reactive-kafka completion``: the script with which a shell completes our commands."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

PROGRAM = "reactive-kafka"
VARIABLE = "_REACTIVE_KAFKA_COMPLETE"
"""The variable in which the shell asks. click makes its name from that of the program."""
SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


@click.command(name="completion", short_help="Print a script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in bash, zsh or fish.

    \b
    Add it to the shell's start file, or its folder of completions:
      bash   echo 'eval "$(reactive-kafka completion bash)"' >> ~/.bashrc
      zsh    echo 'eval "$(reactive-kafka completion zsh)"' >> ~/.zshrc
      fish   reactive-kafka completion fish > ~/.config/fish/completions/reactive-kafka.fish

    \b
    Examples:
      reactive-kafka completion bash
    """
    commands = click.get_current_context().find_root().command
    script = SHELLS[shell](commands, {}, PROGRAM, VARIABLE)
    # BashComplete's own method would start a bash to ask for its version.
    click.echo(ShellComplete.source(script))
