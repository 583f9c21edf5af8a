"""What `ptxgen inspect` prints of a plan, dense or grouped."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ptxgen.commands.output import print_facts, print_table
from ptxgen.inspection.config_descriptors import config_descriptors
from ptxgen.plans import Plan, parts_text


def plan_data(plan: Plan, config: Any) -> dict[str, object]:
    """The plan as plain data."""
    tmem = getattr(config, "tmem", None)
    return {
        "kernel": plan.kernel,
        "config": str(config),
        "target": plan.target,
        "version": plan.version,
        "smem_map": [asdict(r) for r in plan.smem_map],
        "barriers": [asdict(b) for b in plan.barriers],
        "parts": plan.parts,
        "descriptors": {
            name: [asdict(f) for f in decoded]
            for name, decoded in config_descriptors(plan, config).items()
        },
        "tmem_map": [asdict(r) for r in tmem.regions] if tmem else [],
        "tmem_readers": [asdict(r) for r in config.accumulator.readers] if tmem else [],
        "scale_reads": [asdict(r) for r in getattr(config, "scale_reads", ())],
        "launch": asdict(plan.launch),
    }


def print_plan(plan: Plan, config: Any, facts: dict[str, object]) -> None:
    """Print the plan as tables; those that the kernel has nothing for are left out.

    facts: what there is to say of the problem beyond the config.
    """
    launch = plan.launch
    print_facts(
        "Config",
        {
            "name": str(config),
            "kernel": f"{plan.kernel} for {plan.target}, PTX .version {plan.version}",
            **facts,
            "parts": plan.fields.get("parts_text") or parts_text(plan.parts, {}),
        },
    )
    print_table(
        f"Shared memory: {launch.dynamic_smem_bytes} B",
        ("offset", "bytes", "region", "what"),
        [(r.offset, r.nbytes, r.name, r.what) for r in plan.smem_map],
    )
    for name, decoded in config_descriptors(plan, config).items():
        print_table(
            name,
            ("bits", "field", "raw", "meaning"),
            [(f.bits, f.name, f"{f.raw:#x}", f.meaning) for f in decoded],
        )
    if getattr(config, "tmem", None):
        _print_tensor_memory(config)
    maps = {p.name: p.value for p in launch.params if p.kind == "tensor_map"}
    if maps:
        print_table(
            "Tensor maps (innermost dimension first)",
            ("parameter", "buffer", "type", "dims", "strides B", "box", "swizzle"),
            [
                (name, m.buffer, m.element_type, sizes(m.dims), sizes(m.strides_bytes),
                 sizes(m.box), m.swizzle)
                for name, m in maps.items()
            ],
        )  # fmt: skip
    if plan.barriers:
        print_table(
            "mbarriers",
            ("name", "count", "arrivals", "bytes", "who arrives", "who waits"),
            [(b.name, b.count, b.arrivals, b.tx_bytes, b.who_arrives, b.who_waits)
             for b in plan.barriers],
        )  # fmt: skip
    print_facts(
        "Launch",
        {
            "grid": f"{sizes(launch.grid_ctas)} CTAs",
            "cluster": f"{sizes(launch.cluster_ctas)} CTAs",
            "CTA": f"{sizes(launch.cta_threads)} threads",
            **{
                f"parameter {p.name}": f"{p.kind} {p.value}"
                for p in launch.params
                if p.kind != "tensor_map"
            },
        },
    )


def sizes(values: Sequence[int]) -> str:
    """Sizes of an extent, joined by x."""
    return " x ".join(map(str, values))


def _print_tensor_memory(config: Any) -> None:
    """The map of tensor memory, and which epilogue warp reads what of an accumulator."""
    tmem, layout = config.tmem, config.accumulator
    overlap = (
        "Two accumulators: a tile's epilogue runs during the next tile"
        if config.accumulators > 1
        else "One accumulator: the next tile waits for a tile's epilogue; two need a narrower tile"
    )
    print_table(
        f"Tensor memory: {tmem.used_columns} of 512 columns used, {tmem.allocated_columns} "
        f"allocated. {overlap}",
        ("column", "columns", "region", "what"),
        [(r.column, r.columns, r.name, r.what) for r in tmem.regions],
    )
    print_table(
        f"Accumulator, layout {layout.letter}: what each epilogue warp reads",
        ("warp", "lanes", "rows of the MMA", "columns of the MMA"),
        [(r.warp + 4, r.lanes, r.rows, r.columns) for r in layout.readers],
    )
    if getattr(config, "scale_reads", ()):
        a, b = (operand.upper() for operand in config.operands)
        print_table(
            "Scales: row r of every 128 in lane r % 32 of each quarter, column r // 32. What each "
            "MMA of a k-tile reads of its slot",
            ("k", f"columns of {a}'s", f"columns of {b}'s", "bytes"),
            [(r.k, r.row_columns, r.column_columns, r.scale_bytes) for r in config.scale_reads],
        )
