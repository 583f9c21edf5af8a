"""`ptxgen inspect`: what is in a config, a PTX file or a cubin."""

from dataclasses import asdict
from typing import Any

import click

from ptxgen.commands.options import TARGETS, config_options, problem_options, select
from ptxgen.commands.output import json_option, print_facts, print_json, print_table


@click.command("inspect")
@click.argument("target", metavar="|".join((*TARGETS, "FILE", "-")))
@problem_options
@config_options
@json_option
def command(target: str, as_json: bool, **values: Any) -> None:
    """Show what is in a config, a PTX file or a cubin.

    Of gemm: the shared memory map, matrix descriptors, tensor maps, mbarriers, launch and
    roofline. Of a file: its instructions and resources.
    """
    if target in TARGETS:
        _inspect_config(as_json, values)
    else:
        _inspect_file(target, as_json)


def _inspect_config(as_json: bool, values: dict[str, Any]) -> None:
    from ptxgen.inspection.roofline import rooflines

    selection = select(values)
    problem, config = selection.problem, selection.config
    plan = selection.kernel.plan(problem, config)
    launch = plan.launch
    maps = {p.name: p.value for p in launch.params if p.kind == "tensor_map"}
    descriptors = {"A": config.a_tile.descriptor, "B": config.b_tile.descriptor}
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
                    name: {"value": f"{d.encode():#018x}", **asdict(d)}
                    for name, d in descriptors.items()
                },
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
    print_table(
        "Matrix descriptors (start address filled in at run time)",
        ("operand", "value", "leading B", "stride B", "swizzle B"),
        [
            (name, f"{d.encode():#018x}", d.leading_bytes, d.stride_bytes, d.swizzle_bytes)
            for name, d in descriptors.items()
        ],
    )
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


def _inspect_file(path: str, as_json: bool) -> None:
    raise NotImplementedError


def _sizes(values: tuple[int, ...]) -> str:
    return " x ".join(map(str, values))
