"""`ptxgen step`: run a kernel on the emulator instruction by instruction."""

import sys
from typing import Any

import click

from ptxgen.commands.choice import choice_options
from ptxgen.commands.grouped_options import GROUPED, grouped_options
from ptxgen.commands.options import TARGETS, config_options, problem_options
from ptxgen.commands.output import note
from ptxgen.commands.subject import subject_of

PROMPT = "(ptx) "


@click.command("step")
@click.argument("target", metavar="|".join((*TARGETS, GROUPED, "FILE")))
@problem_options
@grouped_options
@config_options
@choice_options
@click.option("--launch", "launch_path", metavar="PATH", help="Launch description of a FILE.")
@click.option("--break", "breakpoints", multiple=True, type=click.IntRange(1), metavar="LINE",
              help="Run to a PTX line before the first prompt.")  # fmt: skip
@click.option("--schedule", type=click.Choice(["lazy", "eager", "run_to_block", "random"]),
              default="lazy", show_default=True, help="Who runs when.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True,
              help="Of the random schedule.")  # fmt: skip
@click.option("--exact", is_flag=True, help="Emulate Tensor Core sums bit for bit.")
def command(
    target: str,
    launch_path: str | None,
    breakpoints: tuple[int, ...],
    schedule: str,
    seed: int,
    exact: bool,
    **values: Any,
) -> None:
    """Run a kernel on the emulator instruction by instruction.

    TARGET is gemm or grouped with the options of a problem, or a PTX file with --launch. Commands
    come from the terminal, or one a line from stdin; help lists them. At the end of stdin the
    kernel runs on to its end.
    """
    from ptxgen.debugger import Debugger, QuitError
    from ptxgen.emulator import Options, run
    from ptxgen.errors import EmulationError, PtxError

    subject = subject_of(target, launch_path, values)
    debugger = Debugger(subject.ptx, _read, click.echo, breakpoints)
    options = Options(schedule=schedule, seed=seed, exact=exact)
    try:
        result = run(subject.ptx, subject.launch, subject.data, options, debugger)
    except QuitError:
        return
    except (PtxError, EmulationError) as error:
        raise subject.located(error) from error
    note(f"finished after {result.num_instructions} warp instructions")


def _read() -> str | None:
    """The next command: typed at a prompt, or a line of stdin, which is echoed."""
    if sys.stdin.isatty():
        try:
            return input(PROMPT)
        except EOFError:
            return None
    line = sys.stdin.readline()
    if not line:
        return None
    click.echo(f"{PROMPT}{line.rstrip()}")
    return line
