"""`ptxgen completion`: the shell's side of completion."""

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that completes ptxgen in a shell.

    For bash, put this in ~/.bashrc: eval "$(ptxgen completion bash)"
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "ptxgen", "_PTXGEN_COMPLETE").source())
