"""What the template of grouped_sm90 and its parts print beyond the launch.

Swapped or not, wgmma has rows (its M) and columns (its N); here `rows` and `columns` are wgmma's.
There is one set of fields for the kernel, and one for each main loop (grouped_loop_fields).
"""

from ptxgen.dtypes import dtype
from ptxgen.kernels.grouped_config import (
    CONSUMER_REGISTERS,
    PRODUCER_REGISTERS,
    SLOT_HEADER_BYTES,
    TOKEN_ROWS,
    WORK_BYTES,
    WORK_SLOTS,
    Config,
)
from ptxgen.kernels.grouped_loop_fields import handed_chunks, instance_fields
from ptxgen.kernels.grouped_resources import smem_map
from ptxgen.kernels.grouped_schedule import LEAST_SAVED
from ptxgen.kernels.promotion_fields import mover_fields, scale_block_fields
from ptxgen.kernels.wgmma_fields import consumer_fields, rank_moves, ring_fields
from ptxgen.layout import CHUNK_BYTES, MMA_M, WARP_LANES, WARP_ROWS, DStaging, align_up
from ptxgen.plans import product_text
from ptxgen.problem import SCALE_BLOCK

PIECES_PER_ROW = DStaging.PITCH_BYTES // CHUNK_BYTES
"""What lanes store of a row of D where a group ends inside a box: 16 bytes each."""
STOP = 0xFFFFFFFF
"""Rows of the description that ends the work of a CTA."""
MATRIX = {
    "masked": ("%group", "%group", "%group"),
    "batched": ("%group", "%group", "%group"),
    "contiguous": ("", "%group", ""),
    "kgrouped": ("", "", "%group"),
}
"""Which matrix of A, B and D by mode: the group's, or the only one."""

SIZES = {
    "masked": ("sizes", "num_groups"),
    "contiguous": ("ends", "num_groups"),
    "kgrouped": ("starts", "num_groups"),
}
"""Parameters that say where the sizes of groups lie, and how many there are, by mode."""
SIZES_OF_ROWS = ("sizes", "m")
"""The same where each row names its group."""


def d_staging(config: Config) -> DStaging:
    """How D goes through shared memory to TMA: by warp, or where one warp stores what all others
    have staged, by blocks of 64 rows."""
    return DStaging(dtype(config.d), config.tile_n, MMA_M if config.hands_over else WARP_ROWS)


def fields(config: Config) -> dict[str, object]:
    """Fields of the plan, by name."""
    regions = {r.name: r.offset for r in smem_map(config)}
    common = _kernel_fields(config, regions)
    return {**common, "instances": [
        {**common, **instance_fields(config, i, columns)}
        for i, columns in enumerate(config.mma_columns)
    ]}  # fmt: skip


def _kernel_fields(config: Config, regions: dict[str, int]) -> dict[str, object]:
    a_tile, b_tile = config.a_tile, config.b_tile
    row_tile, column_tile = (b_tile, a_tile) if config.swap_ab else (a_tile, b_tile)
    row_offset, column_offset = regions["a[0]"], regions["b[0]"]
    if config.swap_ab:
        row_offset, column_offset = column_offset, row_offset
    a_matrix, b_matrix, d_matrix = MATRIX[config.mode]
    sizes, num_sizes = SIZES_OF_ROWS if config.index == "rows" else SIZES.get(config.mode, ("", ""))
    d = dtype(config.d)
    turn_rows = WARP_LANES // PIECES_PER_ROW
    widest = config.mma_columns[-1]
    reads_row_scales = config.block_scaled and not config.prepares_factors
    reads_places = config.scale == "rowcol" or config.store == "global" or d.bytes != 2
    # Known to overwrite, the first wgmma of a k-tile keeps accumulators dead between main loops.
    first = "0" if config.promotion_tiles == 1 else "%accumulate"
    return {
        "config": config,
        "what": product_text(config.scale, "A_g", "B_g^T"),
        "swapped": config.swap_ab,
        "b": b_tile,
        "cta_threads": config.cta_threads,
        "cluster_ctas": config.cluster_ctas,
        "cluster_mask": (1 << config.cluster_ctas) - 1,
        "clustered": config.cluster_ctas > 1,
        "multicasts": config.cluster_ctas > 1,
        "shares_a": config.cluster_n > 1,
        "shares_b": config.cluster_m > 1,
        "producer_registers": PRODUCER_REGISTERS[config.warpgroups],
        "consumer_registers": CONSUMER_REGISTERS[config.warpgroups],
        "moves_registers": config.warpgroups > 1,
        "moves_scales": config.block_scaled,
        **ring_fields(config, regions),
        "empty_arrivals": 4 * config.warpgroups * config.cluster_ctas,
        "a_offset": regions["a[0]"],
        "row_offset": row_offset,
        "column_offset": column_offset,
        "d_offset": regions.get("d", 0),
        "b_bytes": b_tile.nbytes,
        "k_row_bytes": a_tile.pitch_bytes,
        "a_boxes": [
            {"rows": n, "map": f"%a_map{i}", "param": f"a_map{i}", "row": f"%box_row{i}",
             "smem": f"%box_smem{i}", "used": f"%box_used{i}", "above": hex(2**32 - 2 * n)}
            for i, n in enumerate(config.token_boxes)
        ],
        "num_a_boxes": len(config.token_boxes),
        "a_matrix": a_matrix,
        "b_matrix": b_matrix,
        "d_matrix": d_matrix,
        "b_qualifiers": (".multicast::cluster" if b_tile.is_shared else "")
        + (".L2::cache_hint" if config.hint != "none" else ""),
        "b_operands": (", %both_ctas" if b_tile.is_shared else "")
        + (", %b_policy" if config.hint != "none" else ""),
        "hint": config.hint,
        "has_hint": config.hint != "none",
        "a_qualifiers": ".multicast::cluster" if config.cluster_n > 1 else "",
        "a_operands": ", %both_ctas" if config.cluster_n > 1 else "",
        "stop": hex(STOP),
        "publishes_late": False,
        "clears_a": config.clears_a,
        "clear_step": 16 * config.cta_threads,
        "cleared": {"offset": regions["a[0]"], "end": regions["a[0]"] + a_tile.nbytes},
        "trims_k": config.trims_k,
        "clips": config.mode in ("batched", "kgrouped"),
        "adds": config.mode == "kgrouped",
        "becomes": "+=" if config.mode == "kgrouped" else "=",
        "tile_k_less_one": config.tile_k - 1,
        "tile_k_bits": config.tile_k.bit_length() - 1,
        "cluster_m_less_one": config.cluster_m - 1,
        "cluster_m_bits": config.cluster_m.bit_length() - 1,
        "reads_sizes": config.mode != "batched",
        "sizes_param": sizes,
        "num_sizes_param": num_sizes,
        **_trimmer_fields(config, regions),
        **_handing_fields(config, regions),
        **unit_fields(TOKEN_ROWS if config.swap_ab else MMA_M),
        "token_rows": TOKEN_ROWS,
        "token_rows_less_one": TOKEN_ROWS - 1,
        "cluster_rows": config.tile_m * config.cluster_m,
        "cluster_rows_less_one": config.tile_m * config.cluster_m - 1,
        "scan_distances": [1, 2, 4, 8, 16],
        "token_mask": hex(2**32 - TOKEN_ROWS),
        "work_offset": regions["work"],
        "work_offset_second": regions["work"] + 16,
        "work_full_offset": regions["work_full"],
        "work_empty_offset": regions["work_empty"],
        "work_slots": WORK_SLOTS,
        "takes_k": True,
        "work_bytes": WORK_BYTES,
        "work_barriers": [{"offset": 8 * i} for i in range(WORK_SLOTS)],
        "work_readers": config.work_readers,
        "warpgroup_rows": config.mma_rows // config.warpgroups,
        "warpgroup_a_bytes": config.blocks_per_warpgroup * row_tile.mma_m_bytes,
        "a_descriptor": hex(row_tile.descriptor.encode()),
        "b_descriptor": hex(column_tile.descriptor.encode()),
        "mma_flags": "1, 1, 0, 0" if dtype(config.a).bytes == 2 else "1, 1",
        "k_steps": [
            {
                "index": step,
                "a_units": [
                    (step * row_tile.k_step_bytes + i * row_tile.mma_m_bytes) >> 4
                    for i in range(config.blocks_per_warpgroup)
                ],
                "b_units": step * column_tile.k_step_bytes >> 4,
                "accumulate": "1" if step else first,
                "fresh": int(step > 0),
            }
            for step in range(config.tile_k // row_tile.mma_k)
        ],
        "promotion_tiles": config.promotion_tiles,
        "reads_row_scales": reads_row_scales,
        "promotes_unprepared": not config.prepares_factors
        or any(config.overlaps_promotion(n) and not config.asks_ahead(n)
               for n in config.mma_columns),
        "scales_vectors": config.scale == "rowcol",
        "finds_lane_row": reads_places or reads_row_scales,
        "finds_lane_column": reads_places or config.scale == "group"
        or (config.swap_ab and config.block_scaled),
        "joins_warpgroup": (config.store != "global" and config.swap_ab) or config.stream_k,
        "stream_k": config.stream_k,
        "slot_bytes": config.slot_bytes,
        "slot_header": SLOT_HEADER_BYTES,
        "least_saved": LEAST_SAVED,
        "num_consumers": config.warpgroups,
        "prepares": config.prepares_factors,
        "num_prepared": widest // 4,
        "sums": [f"%sum{i}_" for i in range(config.blocks_per_warpgroup)]
        if config.accumulate == "promoted" else [],
        "held": [f"%held{i}_" for i in range(config.blocks_per_warpgroup)] if d.bytes == 2 else [],
        "held_registers": widest // 4,
        "consumers": consumer_fields(config),
        "rank_moves": rank_moves(config),
        "d_bytes": d.bytes,
        "piece_columns": 16 // d.bytes,
        "first_row": "%n_start" if config.swap_ab else "%m_start",
        "first_column": "%m_start" if config.swap_ab else "%n_start",
        "row_matrix": b_matrix if config.swap_ab else a_matrix,
        "column_matrix": a_matrix if config.swap_ab else b_matrix,
        **{
            f"{side}_{what}": f"{sigil}scale_{operand}{suffix}"
            for side, operand in zip(
                ("row", "column"), ("b", "a") if config.swap_ab else ("a", "b"), strict=True
            )
            for what, sigil, suffix in (("vector", "%", ""), ("group_bytes", "", "_group_bytes"))
        },
        "columns_shown": ", ".join(map(str, config.mma_columns)),
        "packed": d.bytes == 2,
        "store_type": "b16" if d.bytes == 2 else "b32",
        "pack": {"bf16": "cvt.rn.bf16x2.f32", "f16": "cvt.rn.f16x2.f32", "f32": ""}[config.d],
        "convert": {"bf16": "cvt.rn.bf16.f32", "f16": "cvt.rn.f16.f32", "f32": "mov.b32"}[config.d],
        "straight_piece_rows": turn_rows,
        "straight_piece_turns": WARP_ROWS // turn_rows,
        "straight_piece_bytes": turn_rows * DStaging.PITCH_BYTES,
        "straight_piece_swizzle": turn_rows * CHUNK_BYTES,
        "warp_row_bits": WARP_ROWS.bit_length() - 1,
        "straight_piece_bits": PIECES_PER_ROW.bit_length() - 1,
        "staging": d_staging(config),
        "staging_bytes": config.staging_bytes // config.warpgroups,
        "staging_buffer_bytes": DStaging.BUFFER_BYTES,
        **_scale_fields(config, regions),
    }  # fmt: skip


def unit_fields(rows: int) -> dict[str, object]:
    """Into units of how many rows a group is cut, each tile taking some."""
    return {
        "unit_rows": rows,
        "unit_rows_less_one": rows - 1,
        "unit_bits": rows.bit_length() - 1,
    }


def _trimmer_fields(config: Config, regions: dict[str, int]) -> dict[str, object]:
    """What the trimmer of K prints; without one, no barriers."""
    if not config.trims_k:
        return {}
    return {
        "landed_offset": regions["landed"],
        "landed_from_full": regions["landed"] - regions["full"],
        "a_bytes_per_element": dtype(config.a).bytes,
        "chunk_words": [{"register": f"%kept{i}", "first_byte": 4 * i} for i in range(4)],
        "trimmed_tiles": [
            {"rows": "%a_rows", "offset": regions["a[0]"]},
            {"rows": str(config.tile_n), "offset": regions["b[0]"]},
        ],
    }


def _handing_fields(config: Config, regions: dict[str, int]) -> dict[str, object]:
    """What handing tiles of D over prints, and the barriers beside the ring's and those of work."""
    landed = [
        {"offset": regions["landed"] + 8 * i, "arrivals": 1, "name": f"landed[{i}]"}
        for i in range(config.stages * config.trims_k)
    ]
    if not config.hands_over:
        return {"hands_over": False, "also_adds": "", "more_barriers": landed}
    part_bytes = config.staging_bytes // config.warpgroups
    rows = config.mma_rows // config.warpgroups
    chunks = handed_chunks(config, [""] * config.blocks_per_warpgroup)
    return {
        "hands_over": True,
        "also_adds": ", and lets TMA add staged tiles to D",
        "staged_offset": regions["staged"],
        "staging_free_offset": regions["staging_free"],
        "more_barriers": [
            *landed,
            {"offset": regions["staged"], "arrivals": 4 * config.warpgroups, "name": "staged"},
            {"offset": regions["staging_free"], "arrivals": 1, "name": "staging_free"},
        ],
        "staging_turn_bytes": config.handed_buffers // 2 * DStaging.BUFFER_BYTES,
        "all_added_chunks": [
            {
                **chunk,
                "first_row": w * rows + chunk["rows"],
                "staging_offset": regions["d"] + w * part_bytes,
            }
            for w in range(config.warpgroups)
            for chunk in chunks
        ],
    }


def _scale_fields(config: Config, regions: dict[str, int]) -> dict[str, object]:
    """Where the block scales lie in a stage, and how the mover brings them."""
    entries_a, entries_b = config.scale_entries
    bytes_a, bytes_b = (align_up(4 * n, 16) for n in (entries_a, entries_b))
    offset_a, offset_b = (bytes_b, 0) if config.swap_ab else (0, bytes_a)
    per_entry = config.columns_per_scale if config.block_scaled else 1
    shift = SCALE_BLOCK.bit_length() - 1 if config.scale == "block" else 0
    return {
        **mover_fields((entries_a, entries_b), (offset_a, offset_b)),
        "scales_bytes": config.scales_bytes,
        "scales_offset": regions.get("scales", 0),
        "scale_a": {"offset": offset_a},
        "scale_b": {"offset": offset_b},
        **scale_block_fields(config.tile_n),
        "entries_b": entries_b,
        "rows_per_entry_b": per_entry,
        "entry_shift_b": shift,
        "warpgroup_scale_bytes": 4 * config.blocks_per_warpgroup
        if config.swap_ab and config.scale == "block"
        else 4 * config.mma_rows // config.warpgroups,
    }
