"""The command line: registers the commands, and turns our errors into exit codes."""

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from ptxgen import __version__
from ptxgen.errors import PtxgenError

COMMANDS: dict[str, str] = {
    "emit": "Print the PTX of a problem and a config.",
    "assemble": "Turn PTX into a cubin, and report registers, spills and messages.",
    "inspect": "Show what is in a config, a PTX file or a cubin.",
    "run": "Run a kernel on the emulator or a GPU, and check its result.",
    "check": "Look for races, missing fences and waits, deadlocks and other hazards in a kernel.",
    "step": "Run a kernel on the emulator instruction by instruction.",
    "bench": "Measure kernels on this GPU beside the libraries that are here.",
    "selftest": "Compute and check products of every kind on this GPU, and measure some of them.",
    "tune": "Measure configs and remember the fastest.",
    "list": "List kernels, configs, dtypes, architectures or known GPUs.",
    "decode": "Explain a matrix descriptor or an instruction descriptor bit by bit.",
    "doctor": "Say which tools are here, where, and what to install.",
    "cache": "Show or clear the cache of cubins.",
    "completion": "Print the script that completes ptxgen in a shell.",
}
"""Command -> its one-line help. ptxgen/commands/NAME.py holds it, and is loaded when used."""


class UnreadError(BaseException):
    """Nobody reads what is printed. No OSError, which click would turn into exit code 1."""


@contextmanager
def _unread_noticed() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise UnreadError from error


class LazyGroup(click.Group):
    """A group whose commands are imported only when they are used, so that help is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"ptxgen.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _unread_noticed():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _unread_noticed():
            return self._invoke(ctx)

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PtxgenError as error:
            click.echo(f"error: {error}", err=True)
            ctx.exit(error.exit_code)
        except MemoryError as error:
            click.echo(f"error: not enough memory on this host: {error}; try less", err=True)
            ctx.exit(1)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 tool or driver missing, 4 PTX rejected, "
    "5 wrong result or hazard, 6 deadlock. Where nobody reads what is printed, it ends by SIGPIPE.",
)
@click.version_option(__version__, prog_name="ptxgen", message="%(prog)s %(version)s")
@click.pass_context
def group(ctx: click.Context) -> None:
    """Emit, assemble, inspect and run hand-written PTX for Tensor Core GEMMs."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"warning: {message}", err=True)


def main() -> None:
    """Run the command line, and exit with the code that the epilog documents; or by SIGPIPE, as
    other tools do, if nobody reads what it prints."""
    if sys.stdout is None:  # closed: what is printed fails as if it were open for reading alone
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe in a narrow encoding gets '?' and not a traceback.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
    warnings.showwarning = _show_warning
    try:
        try:
            group(prog_name="ptxgen")
        finally:
            sys.stdout.flush()
    except (BrokenPipeError, UnreadError):
        _end_by_sigpipe()
    except OSError as error:
        _end_unwritten(error)


def _end_unwritten(error: OSError) -> None:
    """End with exit code 1 and a message if what is printed cannot be written.

    Raises: the error if it is another.
    """
    from ptxgen.files import discard, is_write_error

    if not is_write_error(error):
        raise error
    with suppress(OSError):  # stderr may be the same place
        click.echo(
            f"error: cannot write to stdout: {error.strerror}; try another place for it", err=True
        )
    discard(sys.stdout)
    sys.exit(1)


def _end_by_sigpipe() -> None:
    """End at once. What was to be cleaned up has been, on the exception's way here."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)


if __name__ == "__main__":
    main()
