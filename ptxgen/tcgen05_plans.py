"""What plans of kernels on tcgen05 have in common: protocol tables, launch, printed fields."""

from ptxgen.arch import ONE_CTA_BYTES
from ptxgen.dtypes import dtype
from ptxgen.launch import Launch, Param
from ptxgen.layout import TILE_ALIGNMENT, SmemRegion, align_up
from ptxgen.operand_buffers import operand_buffers
from ptxgen.operand_maps import d_map_params, tensor_map
from ptxgen.plans import Barrier
from ptxgen.problem import Gemm
from ptxgen.raster import raster_fields, raster_height, raster_params
from ptxgen.tcgen05_config import (
    ANSWER_BYTES,
    ANSWERS,
    BARRIER_BYTES,
    CTA_THREADS,
    EPILOGUE_WARPS,
    Tcgen05Config,
)
from ptxgen.tcgen05_descriptors import N_SHIFT, SmemDescriptor
from ptxgen.tmem_chunks import (
    GROUP_REGISTERS,
    SwappedStaging,
    chunk_registers,
    chunks,
    swapped_chunk,
)

NUM_SMS = 148
"""SMs of a B200, when no device is given."""
ZERO_COLUMNS = 32
"""Columns that one tcgen05.st clears."""


def smem_map(config: Tcgen05Config) -> tuple[SmemRegion, ...]:
    """Every region of shared memory, in order."""
    regions, place = [], 0
    for stage in range(config.stages):
        for name, nbytes, what in config.stage_sizes:
            regions.append(SmemRegion(f"{name}[{stage}]", place, nbytes, what))
            place += align_up(nbytes, TILE_ALIGNMENT)
    offsets = config.offsets
    if config.staging_bytes:
        buffers = config.warp_staging_bytes // config.warp_buffer_bytes
        what = f"D staging, {buffers} buffers per epilogue warp"
        regions.append(SmemRegion("d", offsets["d"], config.staging_bytes, what))
    for name, (nbytes, what) in config.scheduling_sizes.items():
        regions.append(SmemRegion(name, offsets[name], nbytes, what))
    for name, count in config.barrier_counts.items():
        regions.append(SmemRegion(name, offsets[name], BARRIER_BYTES * count, "mbarriers"))
    regions.append(SmemRegion("tmem_slot", offsets["tmem_slot"], 4, "tensor memory address"))
    return tuple(regions)


def barriers(config: Tcgen05Config) -> tuple[Barrier, ...]:
    """The barrier protocol, in the order of `config.barrier_counts`."""
    issuers = config.cluster_rows // config.cta_group + config.cluster_columns - 1
    pair = " of the leader" if config.cta_group == 2 else ""
    both = " of both CTAs" if config.cta_group == 2 else ""
    mma_threads = config.cluster_ctas // config.cta_group
    readers = config.cluster_ctas * (1 + EPILOGUE_WARPS) + mma_threads + 1
    protocol = {
        "full": (config.cta_group, config.tx_bytes,
                 f"the producer{both}; TMA{both} counts the bytes down",
                 f"the MMA thread{pair}"),
        "empty": (issuers, 0,
                  "tcgen05.commit of every MMA thread whose stages this CTA loads into",
                  "the producer"),
        "tmem_full": (1, 0, "tcgen05.commit after a tile's last MMA", "all epilogue threads"),
        "tmem_empty": (EPILOGUE_WARPS * config.cta_group, 0,
                       f"one lane of every epilogue warp{both}, after its last load of the tile",
                       f"the MMA thread{pair}"),
        "scales_read": (1, 0, "tcgen05.commit after a k-tile's last MMA", f"the MMA thread{pair}"),
        "answered": (1, ANSWER_BYTES,
                     "the thread of CTA 0 that asks, by arrive.expect_tx; the answer's bytes",
                     "producer, MMA thread and epilogue of every CTA, and the thread that asks"),
        "work_full": (1, 0, "lane 0 of the scheduler, after writing a description",
                      "the producer, a thread of warp 1, all epilogue threads"),
        "work_empty": (EPILOGUE_WARPS + 2, 0,
                       "the producer, a thread of warp 1, one lane of every epilogue warp",
                       "the scheduler"),
        "read": (readers, 0, "everyone who waits for the answer, one lane of a warp",
                 "the thread that asks"),
    }  # fmt: skip
    return tuple(
        Barrier(name, count, *protocol[name]) for name, count in config.barrier_counts.items()
    )


def launch(
    problem: Gemm,
    config: Tcgen05Config,
    num_sms: int,
    operand_maps: list[Param],
) -> Launch:
    """The launch of a problem. operand_maps: the tensor maps of what is loaded."""
    rows, columns = (problem.n, problem.m) if config.swap_ab else (problem.m, problem.n)
    num_m_tiles = -(-rows // (config.rows * config.cluster_rows))
    num_n_tiles = -(-columns // (config.columns * config.cluster_columns))
    num_tiles = num_m_tiles * num_n_tiles
    clusters = max(1, num_tiles)
    if config.scheduler == "static":
        clusters = max(1, min(num_tiles, num_sms // config.cluster_ctas))
    params = list(operand_maps)
    staging = config.staging
    if staging:
        params += d_map_params(problem, staging)
    else:
        stride_bytes = problem.stride("d") * dtype(problem.d).bytes
        params.append(Param("d_pointer", "pointer", "d"))
        params.append(Param("d_stride_bytes", "u64", stride_bytes))
    if config.scale != "none" and not config.scale_tiles:
        names = ["scale_a", "scale_b"]
        sources = names[::-1] if config.swap_ab else names
        params += [
            Param(name, "pointer", source) for name, source in zip(names, sources, strict=True)
        ]
    params += [
        Param("m", "u32", rows),
        Param("n", "u32", columns),
        Param("num_k_tiles", "u32", -(-problem.k // config.tile_k)),
        Param("num_m_tiles", "u32", num_m_tiles),
        Param("num_n_tiles", "u32", num_n_tiles),
        Param("num_tiles", "u32", num_tiles),
        *raster_params(num_m_tiles, num_n_tiles, raster_height(config.cluster_rows)),
        Param("alpha", "f32", problem.alpha),
    ]
    return Launch(
        entry=str(config),
        grid_ctas=(clusters * config.cluster_ctas, 1, 1),
        cta_threads=(CTA_THREADS, 1, 1),
        cluster_ctas=(config.cluster_ctas, 1, 1),
        dynamic_smem_bytes=max(config.smem_bytes, ONE_CTA_BYTES),
        params=tuple(params),
        buffers=operand_buffers(problem),
    )


def operand_map_params(problem: Gemm, config: Tcgen05Config) -> list[Param]:
    """Tensor maps of the MMA's rows (a_map) and columns (b_map) as their tiles want them."""
    maps = [
        tensor_map(problem, operand, tile.box, tile.swizzle)
        for operand, tile in zip(
            config.operands, (config.row_tile, config.column_tile), strict=True
        )
    ]
    return [
        Param(name, "tensor_map", value)
        for name, value in zip(("a_map", "b_map"), maps, strict=True)
    ]


def epilogue_part(config: Tcgen05Config) -> str:
    """The part that takes accumulators to D."""
    return f"epilogue_{config.store}{'_swapped' if config.swap_ab else ''}_tcgen05"


def frame_fields(config: Tcgen05Config) -> dict[str, object]:
    """What the frame and the parts that are the same in all kernels print."""
    return {
        "config": config.view,
        "tile_text": f"{'up to ' if config.swap_ab else ''}{config.tile_m} x {config.tile_n} x "
        f"{config.tile_k}",
        "cluster_text": f"{config.cluster_m} x {config.cluster_n}",
        "swapped": config.swap_ab,
        "grouped": False,
        "counts_rows": False,
        "has_followers": False,
        "scales": config.d != "s32",
        "scales_groups": config.scale != "none",
        "scales_rows": config.scale == "rowcol",
        "reads_rank": config.cluster_ctas > 1,
        "reads_place": config.cluster_ctas > 1,
        "locates_lane": config.store == "global"
        or config.scale == "rowcol"
        or (dtype(config.d).bytes != 2 and not config.swap_ab),
        "reads_m": config.store == "global" or config.scale == "rowcol",
        "reads_n": config.store == "global" or config.scale == "rowcol" or config.swap_ab,
        "splits_columns": config.swap_ab and config.cta_group == 2,
        "counts_columns": config.swap_ab and config.cta_group == 2,
        "column_step_less_1": config.column_step - 1,
        "columns_unit": 1 << N_SHIFT >> 3,
        "column_step_mask": hex(0xFFFFFFFF & -config.column_step),
        "mma_m": config.mma_m,
        "cta_threads": CTA_THREADS,
        "stages": config.stages,
        "asks_for_tiles": config.scheduler == "clc",
        "has_scheduler": config.scheduler == "clc",
        "answers": ANSWERS,
        "tmem": config.tmem,
        "initialised_barriers": [
            {
                "name": f"{barrier.name}[{i}]",
                "offset": config.offsets[barrier.name] + BARRIER_BYTES * i,
                "arrivals": barrier.arrivals,
            }
            for barrier in barriers(config)
            for i in range(barrier.count)
        ],
        **{f"{name}_offset": at for name, at in config.offsets.items() if name != "end"},
        **_cluster_fields(config),
        **_operand_fields(config),
        **_epilogue_fields(config),
    }


def _cluster_fields(config: Tcgen05Config) -> dict[str, object]:
    """Ranks and masks. Rank = m rank + cluster_m * n rank; a pair is two neighbours along M."""
    group, cluster_m = config.cta_group, config.cluster_rows
    a_mask = sum(1 << (n * cluster_m) for n in range(config.cluster_columns))
    pair_bits = (1 << group) - 1
    return {
        **raster_fields(raster_height(cluster_m)),
        "cluster_ctas": config.cluster_ctas,
        "cluster_shift": config.cluster_ctas.bit_length() - 1,
        "cluster_ranks": list(range(config.cluster_ctas)),
        "clustered": config.cluster_ctas > 1,
        "paired": group == 2,
        "load_constant": "ld.global.nc",
        "cluster_m_mask": cluster_m - 1,
        "cluster_m_shift": cluster_m.bit_length() - 1,
        "shares_a": config.row_tile.is_shared,
        "shares_b": config.column_tile.is_shared,
        "a_mask": a_mask,
        "b_mask": sum(1 << (i * group) for i in range(cluster_m // group)),
        "multicasts_commit": config.cluster_ctas > 1,
        "a_free_mask": a_mask * pair_bits,
        "b_free_mask": (1 << cluster_m) - 1,
    }


def _operand_fields(config: Tcgen05Config) -> dict[str, object]:
    """Where operands are loaded to, and the descriptors through which the MMA reads them."""
    a, b = config.row_tile, config.column_tile
    descriptors = [
        SmemDescriptor(t.descriptor.leading_bytes, t.descriptor.stride_bytes, t.swizzle).encode()
        for t in (a, b)
    ]
    pair = ".cta_group::2" if config.cta_group == 2 else ""
    places = {r.name: r.offset for r in smem_map(config)}
    return {
        "a": a,
        "b": b,
        "b_rows": b.rows,
        "mma_k": a.mma_k,
        "k_tile_step": a.k,
        "stage_bytes": config.stage_bytes,
        "stage_units": config.stage_bytes >> 4,
        "b_offset": places[f"{config.operands[1]}[0]"],
        "tx_bytes": config.tx_bytes,
        "tx_operand": config.tx_bytes,
        "a_descriptor": hex(descriptors[0]),
        "b_descriptor": hex(descriptors[1]),
        "operands": [
            {
                "tile": tile,
                "map": f"%{name}_map",
                "smem": f"%{name}_smem",
                "row": f"%{name}_row",
                "k": f"%{name}_k",
                "qualifiers": (".multicast::cluster" if tile.is_shared else "") + pair,
                "mask": f", %{name}_mask" if tile.is_shared else "",
                "boxes": [{"part": copy, "guard": ""} for copy in tile.copies],
            }
            for name, tile in (("a", a), ("b", b))
        ],
        "block_scaled": bool(config.scale_tiles),
    }


def _epilogue_fields(config: Tcgen05Config) -> dict[str, object]:
    layout, staging, d = config.accumulator, config.staging, dtype(config.d)
    integer = config.a in ("s8", "u8") and config.d != "s32"
    return {
        "layout_letter": layout.letter,
        "accumulator_columns": layout.columns,
        "warp_rows": layout.warp_rows,
        "warp_columns": layout.columns,
        "row_warp_mask": layout.row_warps - 1,
        "row_warp_shift": layout.row_warps.bit_length() - 1,
        "integer": integer,
        **_chunk_fields(config, integer),
        "zero_columns": list(range(0, layout.columns, ZERO_COLUMNS)),
        "zero_registers": "{" + ", ".join(["%zero"] * ZERO_COLUMNS) + "}",
        "staging": staging,
        "staging_bytes": config.warp_staging_bytes,
        "staging_buffer_bytes": config.warp_buffer_bytes,
        "packed": d.bytes == 2,
        "d_bytes": d.bytes,
        "store_type": "b16" if d.bytes == 2 else "b32",
        "pack": {"bf16": "cvt.rn.bf16x2.f32", "f16": "cvt.rn.f16x2.f32"}.get(config.d, ""),
        "convert": {"bf16": "cvt.rn.bf16.f32", "f16": "cvt.rn.f16.f32"}.get(config.d, "mov.b32"),
    }


def _chunk_fields(config: Tcgen05Config, integer: bool) -> dict[str, object]:
    """In what pieces a warp takes its accumulator to D."""
    layout, staging = config.accumulator, config.staging
    if config.swap_ab:
        pieces = config.swapped_staging
        chunk = swapped_chunk(pieces, layout.halves, integer)
        registers = sum(load.repeat for load in chunk.loads) * GROUP_REGISTERS
        return {
            "chunk": chunk,
            "chunk_registers": registers,
            "chunk_rows": pieces.rows,
            "pack_registers": registers // 2,
            "staging_waits": pieces.NUM_BUFFERS - 1,
        }
    assert not isinstance(staging, SwappedStaging)
    return {
        "chunks": chunks(layout, staging, integer),
        "chunk_registers": chunk_registers(layout, staging),
    }
