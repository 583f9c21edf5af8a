"""`ptxgen inspect`: what is in a config, a PTX file or a cubin."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from ptxgen.commands.grouped_options import GROUPED, grouped_options
from ptxgen.commands.options import (
    TARGETS,
    config_options,
    problem_options,
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
from ptxgen.errors import ArgumentError


@click.command("inspect")
@click.argument("target", metavar="|".join((*TARGETS, GROUPED, "FILE", "-")))
@problem_options
@grouped_options
@config_options
@click.option("--why", is_flag=True, help="Of grouped: how swapping was decided, and for what.")
@click.option("--gpu", default="H200", show_default=True, help="GPU model that --why is about.")
@click.option("--forms", is_flag=True, help="Of PTX: count opcodes with their modifiers.")
@click.option("--sass", is_flag=True, help="Of a cubin: print its machine code, too.")
@json_option
def command(
    target: str, why: bool, gpu: str, forms: bool, sass: bool, as_json: bool, **values: Any
) -> None:
    """Show what is in a config, a PTX file or a cubin.

    Of gemm and grouped: the shared memory map, matrix descriptors, tensor maps, mbarriers, launch
    and roofline. Of a file: its instructions and resources.
    """
    if target in (*TARGETS, GROUPED) and (forms or sass):
        raise click.UsageError("--forms and --sass belong to a FILE")
    if target == GROUPED:
        from ptxgen.commands.grouped_inspect import inspect_grouped

        inspect_grouped(as_json, why, gpu, values)
    elif target in TARGETS:
        _inspect_config(as_json, values)
    else:
        refuse_options_of_problems(values)
        _inspect_file(target, sass, forms, as_json)


def _inspect_config(as_json: bool, values: dict[str, Any]) -> None:
    from ptxgen.inspection.config_descriptors import config_descriptors
    from ptxgen.inspection.roofline import rooflines

    selection = select(values)
    problem, config = selection.problem, selection.config
    plan = selection.kernel.plan(problem, config)
    launch = plan.launch
    maps = {p.name: p.value for p in launch.params if p.kind == "tensor_map"}
    fields = config_descriptors(plan, config)
    tmem = getattr(config, "tmem", None)
    roofs = rooflines(problem, plan.target, (config.tile_m, config.tile_n))
    if as_json:
        print_json(
            "ptxgen.inspection/1",
            {
                "kernel": plan.kernel,
                "config": str(config),
                "target": plan.target,
                "version": plan.version,
                "smem_map": [asdict(r) for r in plan.smem_map],
                "barriers": [asdict(b) for b in plan.barriers],
                "parts": plan.parts,
                "descriptors": {
                    name: [asdict(f) for f in decoded] for name, decoded in fields.items()
                },
                "tmem_map": [asdict(r) for r in tmem.regions] if tmem else [],
                "tmem_readers": [asdict(r) for r in config.accumulator.readers] if tmem else [],
                "launch": asdict(launch),
                "flop": problem.flop,
                "compulsory_bytes": problem.compulsory_bytes,
                "roofline": [{**asdict(r), "limit": r.limit} for r in roofs],
            },
        )
        return
    print_facts(
        "Config",
        {
            "name": str(config),
            "kernel": f"{plan.kernel} for {plan.target}, PTX .version {plan.version}",
            "parts": ", ".join(plan.parts.values()),
        },
    )
    print_table(
        f"Shared memory: {launch.dynamic_smem_bytes} B",
        ("offset", "bytes", "region", "what"),
        [(r.offset, r.nbytes, r.name, r.what) for r in plan.smem_map],
    )
    for name, decoded in fields.items():
        print_table(
            name,
            ("bits", "field", "raw", "meaning"),
            [(f.bits, f.name, f"{f.raw:#x}", f.meaning) for f in decoded],
        )
    if tmem:
        _print_tensor_memory(config)
    print_table(
        "Tensor maps (innermost dimension first)",
        ("parameter", "buffer", "type", "dims", "strides B", "box", "swizzle"),
        [
            (name, m.buffer, m.element_type, _sizes(m.dims), _sizes(m.strides_bytes),
             _sizes(m.box), m.swizzle)
            for name, m in maps.items()
        ],
    )  # fmt: skip
    print_table(
        "mbarriers",
        ("name", "count", "arrivals", "bytes", "who arrives", "who waits"),
        [(b.name, b.count, b.arrivals, b.tx_bytes, b.who_arrives, b.who_waits)
         for b in plan.barriers],
    )  # fmt: skip
    print_table(
        f"Launch of {problem.m} x {problem.n} x {problem.k}",
        ("", ""),
        [
            ("grid", f"{_sizes(launch.grid_ctas)} CTAs"),
            ("cluster", f"{_sizes(launch.cluster_ctas)} CTAs"),
            ("CTA", f"{_sizes(launch.cta_threads)} threads"),
            *(
                (f"parameter {p.name}", f"{p.kind} {p.value}")
                for p in launch.params
                if p.kind != "tensor_map"
            ),
        ],
    )
    intensity = problem.flop / max(1, problem.compulsory_bytes)
    print_table(
        f"Roofline from published rates: {problem.flop:.4g} FLOP, {problem.compulsory_bytes} B "
        f"at least, {intensity:.4g} FLOP/B",
        ("GPU", "at least us", "limit", "arithmetic us", "DRAM us", "tile traffic B", "waves"),
        [
            (r.gpu, r.seconds * 1e6, r.limit, r.flop_seconds * 1e6, r.dram_seconds * 1e6,
             r.tile_bytes, r.waves)
            for r in roofs
        ],
    )  # fmt: skip


def _print_tensor_memory(config: Any) -> None:
    """The map of tensor memory, and which epilogue warp reads what of an accumulator."""
    tmem, layout = config.tmem, config.accumulator
    print_table(
        f"Tensor memory: {tmem.used_columns} of 512 columns used, {tmem.allocated_columns} "
        "allocated. Two accumulators let a tile's epilogue run during the next tile",
        ("column", "columns", "region", "what"),
        [(r.column, r.columns, r.name, r.what) for r in tmem.regions],
    )
    print_table(
        f"Accumulator, layout {layout.letter}: what each epilogue warp reads",
        ("warp", "lanes", "rows of the MMA", "columns of the MMA"),
        [(r.warp + 4, r.lanes, r.rows, r.columns) for r in layout.readers],
    )


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
                "threads": _sizes(kernel.max_threads or kernel.required_threads or ()),
                "SASS instructions": kernel.instructions,
            },
        )
    if listing is not None:
        click.echo(listing)


def _sizes(values: Sequence[int]) -> str:
    return " x ".join(map(str, values))
