"""What a main loop and the epilogue of grouped_sm90 print; these differ in wgmma's columns."""

from typing import Any

from ptxgen.dtypes import dtype
from ptxgen.kernels.grouped_config import SLOT_HEADER_BYTES, SWIZZLE_BYTES, Config
from ptxgen.kernels.promotion_fields import promotion_fields, second_scale_offset
from ptxgen.kernels.staged_chunks import staged_chunks, vector
from ptxgen.kernels.wgmma_config import WARPGROUP_THREADS
from ptxgen.layout import MMA_M, DStaging, align_up


def instance_fields(config: Config, index: int, columns: int) -> dict[str, object]:
    """Fields of the main loop and the epilogue of tiles of up to `columns` columns."""
    promoted = config.accumulate == "promoted"
    overlapped = config.overlaps_promotion(columns)
    results = [f"%sum{i}_" if promoted else f"%acc{i}_" for i in range(config.blocks_per_warpgroup)]
    types = (config.b, config.a) if config.swap_ab else (config.a, config.b)
    registers = columns // 2
    accumulators = [f"%acc{i}_" for i in range(config.num_accumulators(columns))]
    blocks = [
        {
            "index": i,
            "rows": i * MMA_M,
            "accumulator": f"%acc{i if config.num_accumulators(columns) > 1 else 0}_",
            "result": result,
            "scale_offset": _block_scale_offset(config, i),
            "second_scale_offset": second_scale_offset(_block_scale_offset(config, i)),
            "groups": [_group(result, f"%held{i}_", g) for g in range(columns // 8)],
        }
        for i, result in enumerate(results)
    ]
    return {
        "index": index,
        "next": index + 1,
        "is_last": columns == config.mma_columns[-1],
        "mma_columns": columns,
        "accumulators": accumulators,
        "cleared_first": accumulators if config.promotion_tiles != 1 else [],
        "overlapped": overlapped,
        "asks_ahead": config.asks_ahead(columns),
        "points_ahead": False,
        "mma": f"m64n{columns}k{config.a_tile.mma_k}.f32.{types[0]}.{types[1]}",
        "block_registers": registers,
        "register_indices": list(range(registers)),
        "blocks": blocks,
        "first_block": blocks[0],
        "other_blocks": blocks[1:],
        "releases_prepared": config.scale != "group" and len(blocks) == 1,
        "stores_in_mainloop": [],
        "spreads_stores": False,
        "defers_store": False,
        "chunks": _swapped_chunks(config, columns) if config.swap_ab else [],
        **_store_batches(config, results),
        "added_chunks": handed_chunks(config, results) if config.hands_over else [],
        "slot_groups": _slot_groups(config, results, registers) if config.stream_k else [],
        **_promotion_fields(config, columns),
    }  # fmt: skip


def _slot_groups(config: Config, results: list[str], registers: int) -> list[dict[str, object]]:
    """Sums of a thread four by four, and where they lie in its slot of the workspace."""
    return [
        {
            "offset": SLOT_HEADER_BYTES + (i * registers // 4 + quad) * 16 * WARPGROUP_THREADS,
            "sums": [f"{result}{4 * quad + j}" for j in range(4)],
            "registers": vector(result, 4 * quad, 4),
        }
        for i, result in enumerate(results)
        for quad in range(registers // 4)
    ]


def _block_scale_offset(config: Config, block: int) -> int:
    """Bytes from the warpgroup's scales of wgmma's rows to those of a block of 64."""
    if config.swap_ab and config.scale == "block":
        return 4 * block
    return 4 * MMA_M * block


def _promotion_fields(config: Config, columns: int) -> dict[str, object]:
    """Promotion with the scales of wgmma's columns where the stage has them."""
    rows = config.scale_entries[1 if config.swap_ab else 0]
    early = config.scale != "group" and not config.swap_ab
    offsets = [_block_scale_offset(config, i) for i in range(config.blocks_per_warpgroup)]
    return promotion_fields(offsets, columns, align_up(4 * rows, 16), early)


def _group(result: str, held: str, index: int) -> dict[str, object]:
    """One group of 8 columns of a block: this lane's four values, and where each belongs."""
    values = [f"{result}{4 * index + i}" for i in range(4)]
    rows = (("%row_inside", "%row_place"), ("%second_row_inside", "%second_row_place"))
    columns = (
        ("%column_inside", "%column_place"),
        ("%second_column_inside", "%second_column_place"),
    )
    return {
        "column": 8 * index,
        "results": values,
        "packed": [f"{held}{2 * index + i}" for i in range(2)],
        "placed": [
            {
                "register": values[2 * r + c],
                "row_inside": rows[r][0],
                "row_place": rows[r][1],
                "column_inside": columns[c][0],
                "column_place": columns[c][1],
            }
            for r in range(2)
            for c in range(2)
        ],
    }


def _store_batches(config: Config, results: list[str]) -> dict[str, object]:
    """Chunks of a straight tile that are staged at once, and then stored: where a tile fits the
    staging buffers, those of a block of 64 rows; else each for itself, the buffers taking turns.

    in_flight: stores before that may still read, which are of another buffer.
    """
    if config.store == "global" or config.swap_ab or config.hands_over:
        return {"store_batches": []}
    chunks = staged_chunks(dtype(config.d), config.tile_n, results)
    fits = config.stages_whole_tiles
    per_block = len(chunks) // len(results)
    size = per_block if fits else 1
    batches = []
    for first in range(0, len(chunks), size):
        at = first if fits else 0
        batches.append(
            {
                "rows": first // per_block * MMA_M,
                "waits": first == 0 or not fits,
                "in_flight": int(not fits or len(chunks) == 1),
                "turns": first + size == len(chunks) or not fits,
                "chunks": [
                    {**chunk, "buffer_offset": (at + i) * DStaging.BUFFER_BYTES}
                    for i, chunk in enumerate(chunks[first : first + size])
                ],
            }
        )
    return {"store_batches": batches}


def handed_chunks(config: Config, results: list[str]) -> list[dict[str, Any]]:
    """Chunks of a warpgroup's part of a tile that is handed over, and their staging buffers.

    results: prefix of the sums of each block of 64 rows.
    """
    return [
        {**chunk, "buffer_offset": i * DStaging.BUFFER_BYTES}
        for i, chunk in enumerate(staged_chunks(dtype(config.d), config.tile_n, results))
    ]


def _swapped_chunks(config: Config, columns: int) -> list[dict[str, object]]:
    """Chunks of a warpgroup's part of D, up to 64 rows x 64 columns each: for each block of wgmma's
    rows, runs of 64 of its columns."""
    if config.store == "global":
        return []
    chunks: list[dict[str, object]] = []
    for block in range(config.blocks_per_warpgroup):
        for first in range(0, columns, MMA_M):
            groups = range(first // 8, min(first + MMA_M, columns) // 8)
            stores = []
            for group in groups[::2]:
                count = min(2, groups[-1] + 1 - group)
                stores.append(
                    {
                        "offset": (8 * group - first) * SWIZZLE_BYTES,
                        "num_matrices": 2 * count,
                        "registers": vector(f"%held{block}_", 2 * group, 2 * count),
                    }
                )
            chunks.append(
                {
                    "index": len(chunks),
                    "columns": block * MMA_M,
                    "first_row": first,
                    "max_rows": 8 * len(groups),
                    "stores": stores,
                }
            )
    return chunks
