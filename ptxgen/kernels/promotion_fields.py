"""What main loops on wgmma with promotion print, and the warp that moves block scales for them."""

from collections.abc import Sequence

from ptxgen.kernels.wgmma_config import MOVER_LANES


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
        "row_factors": [f"%promote_{8 * (i // 2 % 2)}" for i in range(columns // 2)],
        "row_products": [f"%factor_{8 * (i // 2 % 2)}" for i in range(columns // 2)],
        "column_quads": [
            {
                "offset": column_offset + 4 * first,
                "groups": [list(range(4 * g, 4 * g + 4)) for g in groups[first : first + 4]],
            }
            for first in groups[::4]
        ],
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
                "first": first,
                "offset": offset + 4 * first,
                "pointer": f"%{operand}_pointer{i}",
                "nbytes": f"%{operand}_bytes{i}",
                "used": f"%{operand}_used{i}",
            }
            for i, first in enumerate(firsts)
        ]
    return found
