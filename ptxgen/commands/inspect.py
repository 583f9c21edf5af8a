"""`ptxgen inspect`: what is in a config, a PTX file or a cubin."""

from dataclasses import asdict
from typing import Any

import click

from ptxgen.arch import arch
from ptxgen.commands.choice import choice_options, chosen_model
from ptxgen.commands.grouped_options import GROUPED, grouped_options
from ptxgen.commands.options import (
    TARGETS,
    config_options,
    problem_options,
    refuse_given,
    refuse_options_of_problems,
    select,
)
from ptxgen.commands.output import (
    as_text,
    json_option,
    print_facts,
    print_json,
    print_table,
    read_bytes,
)
from ptxgen.devices import GpuModel
from ptxgen.errors import ArgumentError, ConfigError


@click.command("inspect")
@click.argument("target", metavar="|".join((*TARGETS, GROUPED, "FILE", "-")))
@problem_options
@grouped_options
@config_options
@choice_options
@click.option(
    "--why",
    is_flag=True,
    help="How the package chooses on --gpu: a config for gemm, swapped or not for grouped.",
)
@click.option("--forms", is_flag=True, help="Of PTX: count opcodes with their modifiers.")
@click.option("--sass", is_flag=True, help="Of a cubin: print its machine code, too.")
@json_option
def command(target: str, why: bool, forms: bool, sass: bool, as_json: bool, **values: Any) -> None:
    """Show what is in a config, a PTX file or a cubin.

    Of gemm and grouped: the shared memory map, matrix descriptors, tensor maps, mbarriers and
    launch; of gemm the roofline, too. Of a file: its instructions and resources.
    """
    if target in (*TARGETS, GROUPED) and (forms or sass):
        raise click.UsageError(
            "--forms and --sass belong to a FILE; try emit -o FILE, or assemble -o FILE"
        )
    if target == GROUPED:
        from ptxgen.commands.grouped_inspect import inspect_grouped

        inspect_grouped(as_json, why, values)
    elif target in TARGETS:
        _inspect_config(as_json, why, values)
    else:
        refuse_options_of_problems(values)
        refuse_given(("why",), "a FILE has no config that was chosen; try inspect gemm")
        _inspect_file(target, sass, forms, as_json)


def _inspect_config(as_json: bool, why: bool, values: dict[str, Any]) -> None:
    from ptxgen.commands.gemm_reasons import print_reasons, reasons
    from ptxgen.commands.plan_report import plan_data, print_plan
    from ptxgen.inspection.roofline import rooflines

    selection = select({**values, "why": why})
    problem, config = selection.problem, selection.config
    plan = selection.kernel.plan(problem, config)
    found = reasons(problem, _explained_model(values), config) if why else None
    roofs = rooflines(problem, plan.target, (config.tile_m, config.tile_n))
    if as_json:
        print_json(
            "ptxgen.inspection/1",
            {
                **plan_data(plan, config),
                "flop": problem.flop,
                "compulsory_bytes": problem.compulsory_bytes,
                "roofline": [{**asdict(r), "limit": r.limit} for r in roofs],
                **({"why": found} if found else {}),
            },
        )
        return
    print_plan(plan, config, {"problem": f"{problem.m} x {problem.n} x {problem.k}"})
    if found is not None:
        print_reasons(found)
    intensity = problem.flop / max(1, problem.compulsory_bytes)
    facts = (
        f"{problem.flop:.4g} FLOP, {problem.compulsory_bytes} B at least, {intensity:.4g} FLOP/B"
    )
    if not roofs:
        print_facts("", {"work": facts, "roofline": f"no GPU of {plan.target} with known rates"})
        return
    print_table(
        f"Roofline from published rates: {facts}",
        ("GPU", "at least us", "limit", "arithmetic us", "DRAM us", "tile traffic B", "waves"),
        [
            (r.gpu, r.seconds * 1e6, r.limit, r.flop_seconds * 1e6, r.dram_seconds * 1e6,
             r.tile_bytes, r.waves)
            for r in roofs
        ],
    )  # fmt: skip


def _explained_model(values: dict[str, Any]) -> GpuModel:
    """The GPU model that --why is about.

    Raises: ConfigError if there is none, or it is of another arch.
    """
    model = chosen_model(values["gpu"], arch(values["arch"]).name)
    if model is None:
        raise ConfigError(
            f"--why: no GPU model of {values['arch']} has known rates; try another --arch"
        )
    return model


def _inspect_file(path: str, sass: bool, forms: bool, as_json: bool) -> None:
    """Print what a cubin (by its first bytes) or a PTX text holds."""
    content = read_bytes(path)
    if content.startswith(b"\x7fELF"):
        _inspect_cubin(content, sass, as_json)
    elif sass:
        raise ArgumentError(f"--sass needs a cubin, and {path} is not one; try ptxgen assemble")
    else:
        _inspect_ptx(as_text(content, path), forms, as_json)


def _inspect_ptx(text: str, forms: bool, as_json: bool) -> None:
    from ptxgen.inspection.instruction_mix import instruction_mix
    from ptxgen.ptx.forms import check_forms, min_version
    from ptxgen.ptx.parser import parse

    module = parse(text)
    mix = instruction_mix(module)
    findings = check_forms(module)
    needed = None if findings else min_version(module, module.target).version
    entries = [
        {
            "entry": f.name,
            "line": f.line,
            "instructions": len(f.body),
            "parameters": len(f.params),
            "parameter_bytes": sum(p.nbytes for p in f.params),
            "static_smem_bytes": sum(v.nbytes for v in f.variables.values() if v.space == "shared"),
            "directives": " ".join(
                f".{name} {', '.join(map(str, values))}".rstrip()
                for name, values in f.directives.items()
            ),
        }
        for f in module.entries
    ]
    if as_json:
        print_json(
            "ptxgen.inspection/1",
            {
                "target": module.target,
                "version": module.version,
                "needed_version": needed,
                "findings": [asdict(f) for f in findings],
                "entries": entries,
                "instructions": mix.total,
                "families": dict(mix.families),
                "opcodes": dict(mix.opcodes),
                "forms": dict(mix.forms),
            },
        )
        return
    print_facts(
        "PTX",
        {
            "target": module.target,
            "version": module.version + (f", the instructions need {needed}" if needed else ""),
            "instructions": mix.total,
        },
    )
    if findings:
        print_table(
            "Not in this target or version",
            ("line", "what", "why"),
            [(f.line, f.what, f.message) for f in findings],
        )
    for entry in entries:
        print_facts(f"Entry {entry.pop('entry')}", entry)
    print_table("Families", ("family", "instructions"), list(mix.families.items()))
    if forms:
        print_table("Forms", ("form", "instructions"), list(mix.forms.items()))
    else:
        print_table("Opcodes", ("opcode", "instructions"), list(mix.opcodes.items()))


def _inspect_cubin(content: bytes, sass: bool, as_json: bool) -> None:
    from ptxgen.commands.plan_report import sizes
    from ptxgen.inspection.cubin import read_cubin
    from ptxgen.inspection.sass import disassemble

    report = read_cubin(content)
    listing = disassemble(content) if sass else None
    if as_json:
        print_json("ptxgen.inspection/1", {**asdict(report), "sass": listing})
        return
    print_facts(
        "Cubin",
        {"arch": report.arch, "assembler": report.assembler, "options": report.options},
    )
    for kernel in report.kernels:
        print_facts(
            f"Kernel {kernel.name}",
            {
                "registers": f"{kernel.registers} per thread at entry",
                "stack": f"{kernel.stack_bytes} B",
                "spills": f"{kernel.spill_store_bytes} B stores, {kernel.spill_load_bytes} B loads",
                "static smem": f"{kernel.static_smem_bytes} B",
                "named barriers": kernel.barriers,
                "parameters": f"{len(kernel.parameters)} in {kernel.parameter_bytes} B",
                "threads": sizes(kernel.max_threads or kernel.required_threads or ()),
                "SASS instructions": kernel.instructions,
            },
        )
    if listing is not None:
        click.echo(listing)
