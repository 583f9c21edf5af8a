"""The launch of a grouped kernel: what it is told of groups, and how many CTAs walk them."""

from typing import Any

from ptxgen.dtypes import dtype
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels.agreement import index_kind
from ptxgen.kernels.grouped_schedule import MOST_PARTS, least_part
from ptxgen.launch import Buffer, Launch, Param
from ptxgen.operand_buffers import operand_buffers
from ptxgen.problem import BLOCK_SCALES
from ptxgen.raster import raster_height


def grouped_launch(
    problem: GroupedGemm,
    config: Any,
    num_sms: int,
    maps: list[Param],
    cta_threads: int,
    smem_bytes: int,
) -> Launch:
    """The launch of `config`, whose tensor maps are `maps`, on a GPU of `num_sms` SMs."""
    most = _most_tiles(problem, config) * (MOST_PARTS if config.stream_k else 1)
    clusters = max(1, min(most, num_sms // config.cluster_ctas))
    d_bytes = dtype(problem.d).bytes
    params = [
        *maps,
        Param("d_pointer", "pointer", "d"),
        Param("d_row_bytes", "u64", problem.stride("d") * d_bytes),
        Param("d_group_bytes", "u64", problem.group_stride("d") * d_bytes),
        *_scale_params(problem),
        *_size_params(problem),
        Param("num_groups", "u32", problem.groups),
        Param("m", "u32", problem.m),
        Param("n", "u32", problem.n),
        Param("num_k_tiles", "u32", -(-problem.k // config.tile_k)),
        Param("num_n_tiles", "u32", -(-problem.n // (config.tile_n * config.cluster_n))),
        Param("raster_m_tiles", "u32", raster_height(config.cluster_m)),
        Param("alpha", "f32", problem.alpha),
    ]
    buffers = operand_buffers(problem)
    grid = clusters * config.cluster_ctas
    if config.stream_k:
        k_tiles = -(-problem.k // config.tile_k)
        params.append(Param("least_k_tiles", "u32", least_part(k_tiles)))
        params.append(Param("workspace", "pointer", "workspace"))
        nbytes = grid * config.warpgroups * config.slot_bytes
        buffers = (*buffers, Buffer("workspace", nbytes, "workspace", "zeros"))
    return Launch(
        entry=str(config),
        grid_ctas=(grid, 1, 1),
        cta_threads=(cta_threads, 1, 1),
        cluster_ctas=(config.cluster_ctas, 1, 1),
        dynamic_smem_bytes=smem_bytes,
        params=tuple(params),
        buffers=buffers,
    )


def _most_tiles(problem: GroupedGemm, config: Any) -> int:
    """Tiles, in units of clusters, if every group had as many rows as it can."""
    per_cluster = config.tile_m * config.cluster_m
    if index_kind(problem) == "rows":
        m_tiles = problem.m  # any row may begin a run
    elif problem.mode == "contiguous":
        m_tiles = -(-problem.m // per_cluster) + problem.groups
    else:
        m_tiles = problem.groups * -(-problem.m // per_cluster)
    return int(m_tiles * -(-problem.n // (config.tile_n * config.cluster_n)))


def _scale_params(problem: GroupedGemm) -> list[Param]:
    if problem.scale == "none":
        return []
    params = []
    for name in ("scale_a", "scale_b"):
        group, row, k = getattr(problem, f"{name}_strides")
        params.append(Param(name, "pointer", name))
        params.append(Param(f"{name}_group_bytes", "u64", 4 * group))
        if problem.scale in BLOCK_SCALES:
            params.append(Param(f"{name}_row_bytes", "u32", 4 * row))
            params.append(Param(f"{name}_k_bytes", "u32", 4 * k))
    return params


def _size_params(problem: GroupedGemm) -> list[Param]:
    if problem.mode == "batched":
        return []
    size_bytes = problem.index_bits // 8
    if problem.mode == "masked" or index_kind(problem) == "rows":
        return [Param("sizes", "pointer", "sizes"), Param("size_bytes", "u32", size_bytes)]
    if problem.mode == "kgrouped":
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
