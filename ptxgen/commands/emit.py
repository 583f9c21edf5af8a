"""`ptxgen emit`: the PTX of a problem and a config."""

from typing import Any

import click

from ptxgen.commands.choice import choice_options
from ptxgen.commands.grouped_options import (
    GROUPED,
    GroupedSelection,
    grouped_options,
    select_grouped,
)
from ptxgen.commands.options import TARGETS, config_options, problem_options, select
from ptxgen.commands.output import output_files


@click.command("emit")
@click.argument("target", type=click.Choice((*TARGETS, GROUPED)))
@problem_options
@grouped_options
@config_options
@choice_options
@click.option("-o", "--output", default="-", metavar="PATH", help="Where to write; - is stdout.")
@click.option("--launch-out", metavar="PATH", help="Write the launch description there, too.")
def command(target: str, output: str, launch_out: str | None, **values: Any) -> None:
    """Print the PTX of a problem and a config.

    The text depends on the config alone: M, N and K are parameters of the kernel. With
    --launch-out the launch of this problem, groups with their --rows, is written as JSON, which run
    and check take with the text.
    """
    with output_files(output, launch_out) as (text_file, launch_file):
        from ptxgen.renderer import render

        selection = select_grouped(values) if target == GROUPED else select(values)
        plan = selection.kernel.plan(selection.problem, selection.config)
        assert text_file is not None
        text_file.write(render(plan).text.encode())
        if launch_file is not None:
            launch = plan.launch
            if isinstance(selection, GroupedSelection):
                launch = launch.with_contents(selection.sizes_contents)
            launch_file.write(launch.to_json().encode() + b"\n")
