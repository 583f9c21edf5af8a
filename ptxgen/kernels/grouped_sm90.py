"""grouped_sm90: many GEMMs of one shape on Hopper, whose rows are counted on the device.

Pairs with templates/grouped_sm90.ptx.j2. One warp walks the groups and describes tiles, one loads
by TMA, one moves block scales; one or two consumer warpgroups run wgmma and store D. The operands
may be swapped: then B takes the M of wgmma and the few rows of A its N. CTAs are persistent.
"""

from ptxgen.dtypes import dtype
from ptxgen.grouped_problem import GroupedGemm, one_group
from ptxgen.kernels.grouped_choice import configs, default_config
from ptxgen.kernels.grouped_config import (
    NAME,
    SWIZZLE_BYTES,
    TARGET,
    TARGETS,
    UNIT,
    VERSION,
    Config,
)
from ptxgen.kernels.grouped_fields import fields
from ptxgen.kernels.grouped_operands import check_operands, check_serves
from ptxgen.kernels.grouped_resources import barriers, smem_map
from ptxgen.kernels.sm90_config import NUM_SMS
from ptxgen.launch import Buffer, Launch, Param
from ptxgen.layout import DStaging
from ptxgen.operand_maps import tensor_map
from ptxgen.plans import Plan
from ptxgen.problem import Gemm

__all__ = [
    "NAME", "NUM_SMS", "TARGET", "TARGETS", "UNIT", "Config", "check_operands", "configs",
    "default_config", "plan",
]  # fmt: skip

RASTER_M_TILES = 8
"""Tiles along M that run side by side, so that their tiles of B are read from L2."""


def plan(problem: GroupedGemm | Gemm, config: Config | None = None, num_sms: int = NUM_SMS) -> Plan:
    """Everything that the template prints and a device needs. A dense problem is one group.

    num_sms: how many persistent CTAs may run at once (SMs of the device).

    Raises: ConfigError if the config is illegal or does not serve the problem.
    """
    problem = one_group(problem)
    config = config or default_config(problem)
    config.check()
    check_serves(problem, config)
    parts = _parts(config)
    return Plan(
        kernel=NAME,
        entry=str(config),
        target=TARGET,
        version=VERSION,
        launch=_launch(problem, config, num_sms),
        smem_map=smem_map(config),
        barriers=barriers(config),
        parts=parts,
        fields={**fields(config), "parts_shown": ", ".join(parts.values())},
    )


def _parts(config: Config) -> dict[str, str]:
    promotion = (
        "promotion_plain" if not config.block_scaled
        else "promotion_group" if config.scale == "group"
        else "promotion_block_swapped" if config.swap_ab
        else "promotion_block" if config.columns_per_scale == config.tile_n
        else "promotion_blocks"
    )  # fmt: skip
    return {
        "start": (
            "start_multicast" if config.cluster_ctas > 1
            else "start_all" if config.clears_a
            else "start_cta"
        ),
        "scheduler": "scheduler_rows" if config.index == "rows" else "scheduler_grouped",
        "groups": {
            "masked": "groups_masked", "contiguous": "groups_offsets",
            "kgrouped": "groups_kgrouped", "batched": "groups_batched",
        }[config.mode],
        "mainloop": (
            "mainloop_prepared" if config.promotion_tiles == 1
            else "mainloop_promoted" if config.accumulate == "promoted"
            else "mainloop_pipelined" if config.stages > 1
            else "mainloop_drained"
        ),
        "overlapped": "mainloop_overlapped",
        "ahead": "mainloop_ahead",
        "promotion": promotion,
        "prepared": (
            "promotion_block_swapped_prepared" if config.prepares_factors else promotion
        ),
        "scale": f"scale_grouped_{'none' if config.block_scaled else config.scale}",
        "epilogue": (
            "epilogue_grouped_global" if config.store == "global"
            else "epilogue_swapped" if config.swap_ab
            else "epilogue_grouped"
        ),
    }  # fmt: skip


def d_box(config: Config) -> tuple[tuple[int, int], str]:
    """TMA box of D, columns first, and its swizzle."""
    if config.swap_ab:
        return (SWIZZLE_BYTES // dtype(config.d).bytes, 8), "128B"
    staging = DStaging(dtype(config.d), config.tile_n)
    return staging.box, staging.swizzle


def _launch(problem: GroupedGemm, config: Config, num_sms: int) -> Launch:
    num_n_tiles = -(-problem.n // (config.tile_n * config.cluster_n))
    clusters = max(1, min(_most_tiles(problem, config), num_sms // config.cluster_ctas))
    swizzle = f"{SWIZZLE_BYTES}B"
    params = [
        Param(f"a_map{i}", "tensor_map", tensor_map(problem, "a", (config.tile_k, rows), swizzle))
        for i, rows in enumerate(config.token_boxes)
    ]
    params.append(
        Param("b_map", "tensor_map", tensor_map(problem, "b", config.b_tile.box, swizzle))
    )
    if config.store != "global":
        params.append(Param("d_map", "tensor_map", tensor_map(problem, "d", *d_box(config))))
    d_bytes = dtype(problem.d).bytes
    params += [
        Param("d_pointer", "pointer", "d"),
        Param("d_row_bytes", "u64", problem.stride("d") * d_bytes),
        Param("d_group_bytes", "u64", problem.group_stride("d") * d_bytes),
        *scale_params(problem, config),
        *size_params(problem, config),
        Param("num_groups", "u32", problem.groups),
        Param("m", "u32", problem.m),
        Param("n", "u32", problem.n),
        Param("num_k_tiles", "u32", -(-problem.k // config.tile_k)),
        Param("num_n_tiles", "u32", num_n_tiles),
        Param("raster_m_tiles", "u32", max(1, RASTER_M_TILES // config.cluster_m)),
        Param("alpha", "f32", problem.alpha),
    ]
    buffers = [
        Buffer("a", problem.extent_bytes("a"), "in", f"random:{problem.a}:0"),
        Buffer("b", problem.extent_bytes("b"), "in", f"random:{problem.b}:1"),
        Buffer("d", problem.extent_bytes("d"), "inout" if config.mode == "kgrouped" else "out"),
    ]
    if problem.sizes_length:
        nbytes = problem.sizes_length * problem.index_bits // 8
        buffers.append(Buffer("sizes", nbytes, "in", "zeros"))
    if config.scale != "none":
        buffers += [
            Buffer(name, 4 * problem.scale_length(name), "in", f"random:f32:{2 + i}")
            for i, name in enumerate(("scale_a", "scale_b"))
        ]
    return Launch(
        entry=str(config),
        grid_ctas=(clusters * config.cluster_ctas, 1, 1),
        cta_threads=(config.cta_threads, 1, 1),
        cluster_ctas=(config.cluster_ctas, 1, 1),
        dynamic_smem_bytes=config.smem_bytes,
        params=tuple(params),
        buffers=tuple(buffers),
    )


def _most_tiles(problem: GroupedGemm, config: Config) -> int:
    """Tiles, in units of clusters, if every group had as many rows as it can."""
    per_cluster = config.tile_m * config.cluster_m
    if problem.mode == "contiguous" and problem.index == "rows":
        m_tiles = problem.m  # any row may begin a run
    elif problem.mode == "contiguous":
        m_tiles = -(-problem.m // per_cluster) + problem.groups
    else:
        m_tiles = problem.groups * -(-problem.m // per_cluster)
    return m_tiles * -(-problem.n // (config.tile_n * config.cluster_n))


def scale_params(problem: GroupedGemm, config: Config) -> list[Param]:
    if config.scale == "none":
        return []
    params = []
    for name in ("scale_a", "scale_b"):
        group, row, k = getattr(problem, f"{name}_strides")
        params.append(Param(name, "pointer", name))
        params.append(Param(f"{name}_group_bytes", "u64", 4 * group))
        if config.block_scaled:
            params.append(Param(f"{name}_row_bytes", "u32", 4 * row))
            params.append(Param(f"{name}_k_bytes", "u32", 4 * k))
    return params


def size_params(problem: GroupedGemm, config: Config) -> list[Param]:
    if config.mode == "batched":
        return []
    size_bytes = problem.index_bits // 8
    if config.mode == "masked" or config.index == "rows":
        return [Param("sizes", "pointer", "sizes"), Param("size_bytes", "u32", size_bytes)]
    if config.mode == "kgrouped":
        return [
            Param("starts", "pointer", "sizes"),
            Param("size_bytes", "u32", size_bytes),
            Param("k", "u32", problem.k),
            Param("has_block_gaps", "u32", int(problem.has_block_gaps)),
        ]
    # The group's own start, or the end of the group before.
    starts, ends = (0, size_bytes) if problem.index == "offsets" else (-size_bytes, 0)
    return [
        Param("starts", "pointer", "sizes", starts),
        Param("ends", "pointer", "sizes", ends),
        Param("size_bytes", "u32", size_bytes),
        Param("alignment", "u32", problem.alignment if problem.index == "ends" else 1),
        Param("first_start", "u32", int(problem.index == "offsets")),
    ]
