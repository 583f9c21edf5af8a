"""What single parts of gemm_sm90 print: promotion, the scale mover, split K."""

from ptxgen.kernels.promotion_fields import mover_fields, promotion_fields, scale_block_fields
from ptxgen.kernels.sm90_config import GROUP_PARTIAL_BYTES, Config
from ptxgen.kernels.wgmma_config import WARPGROUP_THREADS
from ptxgen.layout import MMA_M
from ptxgen.problem import SCALE_BLOCK


def block_scale_fields(config: Config, regions: dict[str, int]) -> dict[str, object]:
    """What the main loops with promotion and the scale mover print."""
    entries_b = config.scale_b_entries
    offset_b = 4 * config.tile_m
    early = config.scale != "group"
    block_offsets = [4 * MMA_M * i for i in range(config.blocks_per_warpgroup)]
    return {
        **promotion_fields(block_offsets, config.tile_n, offset_b, early),
        **scale_block_fields(config.tile_n),
        "releases_prepared": early,
        **mover_fields((config.tile_m, entries_b), (0, offset_b)),
        "scales_bytes": config.scales_bytes,
        "scales_offset": regions.get("scales", 0),
        "scale_a": {
            "columns_per_entry": 1, "start": "%m_start", "extent": "%m", "shift": 0,
            "row_bytes": "%a_row_bytes", "matrix": "%scale_a", "k_bytes": "%a_k_bytes",
            "step": "%a_step",
            "entries": config.tile_m, "offset": 0,
        },
        "scale_b": {
            "columns_per_entry": config.columns_per_scale, "start": "%n_start", "extent": "%n",
            "shift": 0 if config.scale == "group" else SCALE_BLOCK.bit_length() - 1,
            "row_bytes": "%b_row_bytes", "matrix": "%scale_b", "k_bytes": "%b_k_bytes",
            "step": "%b_step",
            "entries": entries_b, "offset": offset_b,
        },
    }  # fmt: skip


def vector_fields(config: Config, regions: dict[str, int]) -> dict[str, object]:
    """What staging the scales of rows and columns prints."""
    num_rows = config.tile_m // config.warpgroups
    return {
        "stages_scales": config.stages_scales,
        # before the main loop, unless the tile before may still read its scales there
        "stages_scales_first": config.stages_scales and not config.defers,
        "vectors_bytes": config.vectors_bytes,
        "vectors_offset": regions.get("vectors", 0),
        "row_vector": _vector("%scale_a", "%m", num_rows, 0),
        "column_vector": _vector("%scale_b", "%n", config.tile_n, 4 * num_rows),
    }


def _vector(pointer: str, length: str, num_entries: int, offset: int) -> dict[str, object]:
    """A vector's part that a warpgroup stages, an entry per thread in each round of copies.

    offset: bytes to where it is staged. threads: that copy in this round, if not all.
    """
    return {
        "pointer": pointer,
        "length": length,
        "offset": offset,
        "rounds": [
            {
                "first": first,
                "offset": offset + 4 * first,
                "threads": num_entries - first,
                "is_partial": num_entries - first < WARPGROUP_THREADS,
                "if_copies": "@%copies " if num_entries - first < WARPGROUP_THREADS else "",
            }
            for first in range(0, num_entries, WARPGROUP_THREADS)
        ],
    }


def split_fields(config: Config, regions: dict[str, int]) -> dict[str, object]:
    """What the epilogue of a split K prints."""
    num_groups = config.tile_n // 8
    groups_per_part = -(-num_groups // config.split_k)
    totals = [f"%total{i}" for i in range(4)]
    full = regions.get("partials_full", 0)
    arrivals = 4 * config.warpgroups * config.split_k
    return {
        "splits_k": config.split_k > 1,
        "split_k": config.split_k,
        "extra_barriers": [
            {"offset": full + 8 * i, "arrivals": arrivals, "name": name}
            for i, name in enumerate(("partials_full", "partials_empty"))
            if config.split_k > 1
        ],
        "rank_mask": config.split_k - 1,
        "partials_offset": regions.get("partials", 0),
        "partials_full_offset": full,
        "warpgroup_partial_bytes": config.blocks_per_warpgroup * num_groups * GROUP_PARTIAL_BYTES,
        "group_partial_bytes": GROUP_PARTIAL_BYTES,
        "groups_per_part": groups_per_part,
        "num_groups": num_groups,
        "last_group": num_groups - 1,
        "totals": totals,
        "four": list(range(4)),
        "k_parts": [
            {
                "rank": rank,
                "add": "add.f32" if rank else "mov.f32",
                "addends": [
                    f"{t}, %part{i}" if rank else f"%part{i}" for i, t in enumerate(totals)
                ],
            }
            for rank in range(config.split_k)
        ],
    }


def pairs(values: list[str]) -> list[dict[str, str]]:
    """Registers of one group of 8 columns: two neighbours, and two in the row 8 below."""
    rows = (("%row_inside", "%row_pointer"), ("%second_row_inside", "%second_row_pointer"))
    return [
        {
            "first": values[2 * r],
            "second": values[2 * r + 1],
            "row_inside": inside,
            "row_pointer": pointer,
        }
        for r, (inside, pointer) in enumerate(rows)
    ]
