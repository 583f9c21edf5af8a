"""`ptxgen assemble`: PTX -> cubin."""

from typing import Any

import click

from ptxgen.commands.choice import choice_options
from ptxgen.commands.grouped_options import GROUPED, grouped_options, select_grouped
from ptxgen.commands.options import (
    TARGETS,
    config_options,
    problem_options,
    refuse_options_of_problems,
    select,
)
from ptxgen.commands.output import (
    json_option,
    output_files,
    print_facts,
    print_json,
    print_table,
    read_text,
)


@click.command("assemble")
@click.argument("target", metavar="|".join((*TARGETS, GROUPED, "FILE", "-")))
@problem_options
@grouped_options
@config_options
@choice_options
@click.option("-o", "--output", metavar="PATH", help="Where to write the cubin; - is stdout.")
@click.option("--tool", type=click.Choice(["ptxas", "nvjitlink"]), help="Which assembler.")
@click.option("--strict", is_flag=True, help="Refuse spills and C75xx notes (exit code 4).")
@click.option("--no-cache", is_flag=True, help="Assemble even if the cubin is in the cache.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    target: str,
    output: str | None,
    tool: str | None,
    strict: bool,
    no_cache: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Turn PTX into a cubin, and report registers, spills and messages.

    TARGET is a PTX file, - for stdin, or gemm or grouped with the options of a config. Of a file,
    the arch is its own .target unless --arch is given.
    """
    if output == "-" and as_json:
        raise click.UsageError("-o - and --json both write to stdout; try -o PATH")
    with output_files(output) as (file,):
        from ptxgen.assembler import assemble
        from ptxgen.cache import assemble_cached

        arch: str | None = values["arch"]
        template_lines, launch = None, None
        if target in (*TARGETS, GROUPED):
            from ptxgen.renderer import render

            selection = select_grouped(values) if target == GROUPED else select(values)
            plan = selection.kernel.plan(selection.problem, selection.config)
            rendered, launch = render(plan), plan.launch
            text, template_lines = rendered.text, rendered.template_lines
        else:
            refuse_options_of_problems(values, "arch")
            text = read_text(target)
            if context.get_parameter_source("arch") is click.core.ParameterSource.DEFAULT:
                arch = None
        run = assemble if no_cache else assemble_cached
        cubin = run(text, arch, tool, template_lines)
        if strict:
            cubin.require_clean()
        if file is not None:
            file.write(cubin.code)
    if output == "-":
        return
    if as_json:
        from dataclasses import asdict

        print_json(
            "ptxgen.assembly/1",
            {
                "arch": cubin.arch,
                "assembler": cubin.assembler,
                "flags": cubin.flags,
                "cubin_bytes": len(cubin.code),
                "output": output,
                "registers": cubin.registers,
                "spill_bytes": cubin.spill_bytes,
                "smem_bytes": cubin.smem_bytes,
                "dynamic_smem_bytes": launch.dynamic_smem_bytes if launch else None,
                "entries": [asdict(e) for e in cubin.entries],
                "messages": [asdict(m) for m in cubin.messages],
            },
        )
        return
    facts: dict[str, object] = {
        "assembler": f"{cubin.assembler} {' '.join(cubin.flags)}",
        "cubin": f"{len(cubin.code)} B" + (f" in {output}" if output else ", not kept"),
    }
    if launch is not None:
        facts["dynamic smem"] = f"{launch.dynamic_smem_bytes} B"
    print_facts("", facts)
    print_table(
        "Entries",
        ("entry", "registers", "stack B", "spill stores B", "spill loads B", "static smem B"),
        [
            (e.name, e.registers, e.stack_bytes, e.spill_store_bytes, e.spill_load_bytes,
             e.smem_bytes)
            for e in cubin.entries
        ],
    )  # fmt: skip
    for message in cubin.messages:
        click.echo(f"{message.severity}: {message}")
