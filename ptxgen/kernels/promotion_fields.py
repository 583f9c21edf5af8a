"""What main loops on wgmma with promotion print, and the warp that moves block scales for them."""

from collections.abc import Sequence
from math import gcd

from ptxgen.kernels.wgmma_config import MOVER_LANES
from ptxgen.problem import SCALE_BLOCK


def promotion_fields(
    block_offsets: Sequence[int], columns: int, column_offset: int, releases_early: bool
) -> dict[str, object]:
    """Batches of wgmma, and which factor belongs to which register.

    block_offsets: bytes from a warpgroup's scales of rows to those of each block of 64 rows.
    columns: N of wgmma. column_offset: bytes to the scales of columns in a stage. releases_early:
    whether the factors are in registers, and the stage free, before the sums are added.
    """
    blocks = len(block_offsets)
    k_tiles = 2 if blocks % 2 else 1
    batches = [
        {
            "index": i,
            "block": {
                "index": i % blocks,
                "result": f"%sum{i % blocks}_",
                "scale_offset": block_offsets[i % blocks],
                "second_scale_offset": second_scale_offset(block_offsets[i % blocks]),
            },
            "accumulator": f"%acc{i % 2}_",
            "starts_k_tile": i % blocks == 0,
            "releases_early": releases_early and i % blocks == blocks - 1,
            "releases_late": not releases_early and i % blocks == blocks - 1,
        }
        for i in range(k_tiles * blocks)
    ]
    turns = []
    for i in [*range(1, len(batches)), 0]:
        whose = "previous" if batches[i]["starts_k_tile"] else "current"
        turns.append(
            {
                "issued": batches[i],
                "retired": batches[i - 1],
                "empty_bar": f"%{whose}_empty_bar",
                "scales": f"%{whose}_scales",
            }
        )
    groups = range(columns // 8)
    return {
        "first_batch": batches[0],
        "batch_turns": turns,
        "last_batches": [b for b in batches if b["releases_early"] or b["releases_late"]],
        "set_turns": [{"issued": f"%acc{1 - i}_", "retired": f"%acc{i}_"} for i in range(2)],
        "column_groups": [
            {
                "offset": column_offset + 32 * g,
                "registers": list(range(4 * g, 4 * g + 4)),
                "factors": ["%factor0", "%factor1", "%factor0", "%factor1"],
                "prepared": [f"%prepared{2 * g + i}" for i in range(2)],
                "prepared_pair": f"{{%prepared{2 * g}, %prepared{2 * g + 1}}}",
                "prepared_factors": [f"%prepared{2 * g + i % 2}" for i in range(4)],
            }
            for g in groups
        ],
    }


def scale_block_fields(tile_n: int) -> dict[str, object]:
    """How a tile's columns take the scales of blocks of 128 columns of B.

    The tile starts at a multiple of tile_n, so at a multiple of `step` columns behind a multiple of
    128; columns that cannot be parted by a multiple of 128 are a segment.
    """
    step = gcd(tile_n, SCALE_BLOCK)
    latest = SCALE_BLOCK - step
    num_blocks = (tile_n - step + latest) // SCALE_BLOCK + 1
    segments = []
    for first in range(0, tile_n, step):
        before, behind = first // SCALE_BLOCK, (first + latest) // SCALE_BLOCK
        sources = ["%factor_0", "%factor_8"]
        if before == behind:
            sources = [f"%promote_0_{before}", f"%promote_8_{before}"]
        segments.append(
            {
                "columns": f"{first}..{first + step - 1}",
                "may_cross": before != behind,
                "before": before,
                "behind": behind,
                "first_beyond": behind * SCALE_BLOCK - first,
                "sums": [
                    {"index": i, "factor": sources[i // 2 % 2]}
                    for i in range(first // 2, (first + step) // 2)
                ],
            }
        )
    return {
        "crosses_scale_blocks": step < tile_n,
        "num_scale_blocks": num_blocks,
        "scale_blocks": [{"index": i, "end": i * SCALE_BLOCK} for i in range(num_blocks)],
        "scale_segments": segments,
        "last_scale_column": tile_n - 8,
    }


def second_scale_offset(offset: int) -> int:
    """Bytes to the scale of a lane's second row, eight below its first."""
    return offset + 4 * 8


def mover_fields(entries: tuple[int, int], offsets: tuple[int, int]) -> dict[str, object]:
    """How scales of A and B come into a stage. entries: how many of each; offsets: to which byte.

    There is one round of copies per 32 entries, each with registers of its own.
    """
    found: dict[str, object] = {}
    for operand, count, offset in zip("ab", entries, offsets, strict=True):
        firsts = range(0, count, MOVER_LANES)
        found[f"num_{operand}_rounds"] = max(1, len(firsts))
        found[f"scale_{operand}_rounds"] = [
            {
                "index": i,
                "first": first,
                "offset": offset + 4 * first,
                "size_bit": 4 << i,
                "pointer": f"%{operand}_pointer{i}",
                "nbytes": f"%{operand}_bytes{i}",
                "used": f"%{operand}_used{i}",
                "inside": f"%{operand}_inside{i}",
                "next": f"%{operand}_next{i}",
            }
            for i, first in enumerate(firsts)
        ]
    return found
