"""What gemm_sm90 prints after its main loop: values and where they go."""

from ptxgen.dtypes import dtype
from ptxgen.epilogue import D_SCALE_BLOCK, GATE_COLUMNS
from ptxgen.kernels.row_chunks import RowStaging, row_fields
from ptxgen.kernels.sm90_config import GROUP_PARTIAL_BYTES, Config
from ptxgen.kernels.sm90_part_fields import pairs
from ptxgen.kernels.staged_chunks import staged_chunks
from ptxgen.layout import WARP_ROWS, DStaging

PAUSE_GROUPS = 4
"""Groups of 8 columns of D that ptxas may work on at once."""
LAST_ROW = (1 << 32) - 1
"""No tile starts at this row, nor at those some hundreds before."""
PACK = {
    "bf16": "cvt.rn.bf16x2.f32", "f16": "cvt.rn.f16x2.f32", "f32": "",
    "e4m3": "cvt.rn.satfinite.e4m3x2.f32",
}  # fmt: skip
"""dtype of D -> what rounds two floats into one register."""
CONVERT = {
    "bf16": "cvt.rn.bf16.f32 %rounded,", "f16": "cvt.rn.f16.f32 %rounded,",
    "f32": "mov.b32 %rounded,", "e4m3": "cvt.rn.satfinite.e4m3x2.f32 %rounded, 0f00000000,",
}  # fmt: skip
"""dtype of D -> what rounds one float, up to its register."""
ELEMENTS: dict[str, dict[str, object]] = {
    "f32": {"bytes": 4, "widen": ""},
    "bf16": {"bytes": 2, "widen": "cvt.f32.bf16"},
    "f16": {"bytes": 2, "widen": "cvt.f32.f16"},
}
"""dtype of C or of a bias -> its size, and what makes it a float32."""
OF_ROWS = {
    "scale_rowcol", "scale_rowcol_staged", "value_c", "value_bias_row", "value_amax",
    "quantize_rows",
}  # fmt: skip
"""Parts that read %row."""
OF_COLUMNS = {
    "scale_rowcol", "scale_rowcol_staged", "value_c", "value_bias_column", "value_amax"
}  # fmt: skip
"""Parts that read %column."""


def epilogue_fields(config: Config, results: list[str], d_offset: int) -> dict[str, object]:
    """What the epilogue and the parts of values print. results: prefix of each block's sums.
    d_offset: bytes from the start of shared memory to the staging buffers of D."""
    d = dtype(config.d)
    deferred = config.defers
    turns = 2 if config.gated else 1
    chunks = staged_chunks(d, config.d_tile_n, results, turns) if config.stores_by_tma else []
    stores = (
        RowStaging(config.d_tile_n).chunks(len(results))
        if config.stores_rows
        else _stores(chunks, d_offset, 1 if deferred else DStaging.NUM_BUFFERS)
    )
    deferred_stores = stores if deferred else []
    return {
        "defers_store": deferred,
        "publishes_late": config.publishes_late,
        "if_held": "@%holds_tile " if deferred else "",
        "issues": "%issues" if deferred else "%stores_d",
        "stores_in_mainloop": [
            {**store, "stages_scales": config.stages_scales and not i}
            for i, store in enumerate(deferred_stores)
        ],
        "spreads_stores": len(deferred_stores) > 1,
        "spread_k_tiles": config.k_tiles_before_loop,
        "stores_after_tile": [] if deferred else stores,
        "stores_after_kernel": deferred_stores,
        "chunks": _placed(chunks, d_offset, len(chunks)),
        "d_offset": d_offset,
        "held": [f"%held{i}_" for i in range(len(results))] if d.bytes < 4 else [],
        "held_registers": config.d_tile_n * d.bytes // 8,
        "d_bytes": d.bytes,
        "packed": d.bytes == 2,
        "packs_bytes": d.bytes == 1,
        "store_type": f"b{d.bits}",
        "pair_type": f"b{2 * d.bits}",
        "pair_mask": 2 * d.bytes - 1,
        "rounded_type": "b32" if d.bytes == 4 else "b16",
        "pack": PACK[config.d],
        "convert": CONVERT[config.d],
        "staging": DStaging(d, config.d_tile_n, WARP_ROWS),
        "warp_row_bits": WARP_ROWS.bit_length() - 1,
        "staging_bytes": config.staging_bytes // config.warpgroups,
        **row_fields(config.d_tile_n),
        **_values(config),
    }


def _placed(
    chunks: list[dict[str, object]], d_offset: int, buffers: int, first: int = 0
) -> list[dict[str, object]]:
    """Chunks with their buffers, in turns from that of chunk `first` on."""
    offsets = [DStaging.BUFFER_BYTES * ((first + i) % buffers) for i in range(len(chunks))]
    return [
        {**chunk, "buffer_offset": offset, "staging_offset": d_offset + offset}
        for chunk, offset in zip(chunks, offsets, strict=True)
    ]


def _stores(
    chunks: list[dict[str, object]], d_offset: int, at_once: int
) -> list[dict[str, object]]:
    """Chunks that are staged and handed to TMA together, `at_once` of them, in buffers in turns.

    unread: how many of the stores before may still read, which are of another buffer. None where a
    store takes all buffers, nor where the last one of a tile has the buffer of the next tile's
    first: where they are odd in number.
    """
    buffers = DStaging.NUM_BUFFERS
    parts = [chunks[first : first + at_once] for first in range(0, len(chunks), at_once)]
    return [
        {
            "chunks": _placed(part, d_offset, buffers, turn * at_once),
            "unread": int(at_once < buffers and (turn > 0 or len(parts) % buffers == 0)),
            "stages_scales": False,
        }
        for turn, part in enumerate(parts)
    ]


def _values(config: Config) -> dict[str, object]:
    """The parts that make values of sums, in order, and what they print."""
    used = {
        "value_c": config.c != "none",
        f"value_bias_{config.bias}": config.bias != "none",
        f"value_{config.activation}": config.activation != "none" and not config.gated,
    }
    parts = ["scale_none" if config.block_scaled else f"scale_{config.scale}"]
    if config.stages_scales:
        parts = ["scale_rowcol_staged"]
    parts += [name for name, needed in used.items() if needed]
    used_of_d = {"value_amax": config.amax, "value_d_scale": config.d_scale == "tensor"}
    d_parts = [name for name, needed in used_of_d.items() if needed]
    gates = ["gate_swiglu"] if config.gated else []
    quantises = ["quantize_rows"] if config.d_scale == "group" else []
    reads_rows = not OF_ROWS.isdisjoint([*parts, *d_parts, *quantises])
    reads_columns = not OF_COLUMNS.isdisjoint([*parts, *d_parts])
    repacks = dtype(config.d).bytes != 2
    stores_itself = not config.stores_by_tma
    return {
        "reads_rows": reads_rows,
        "reads_columns": reads_columns,
        "reads_m": reads_rows or stores_itself or config.block_scaled,
        "reads_n": reads_columns or bool(quantises) or stores_itself or config.block_scaled,
        "finds_lane_row": reads_rows or repacks or config.block_scaled or config.split_k > 1,
        "finds_lane_column": reads_columns or repacks or stores_itself or config.scale == "group",
        "joins_warpgroup": config.stages_scales or config.stores_rows or config.pad_bytes > 0,
        # what a kernel before may still write when this one starts is not constant
        "load_constant": "ld.global" if config.dependent_launch else "ld.global.nc",
        "value_parts": parts,
        "d_parts": d_parts,
        "values_text": ", ".join([*parts, *gates, *d_parts, *quantises]),
        "gated": config.gated,
        "quantizes_rows": config.d_scale == "group",
        "span_shift": (D_SCALE_BLOCK * config.tile_n // config.d_tile_n).bit_length() - 1,
        "c_element": ELEMENTS.get(config.c, ELEMENTS["f32"]),
        "bias_element": ELEMENTS[config.bias_dtype],
        "placed_values": [
            {"column": column, "row_inside": f"%in_d_{row}"}
            for row in (0, 8)
            for column in ("%column", "%next_column")
        ],
    }


def pause_of(config: Config, index: int) -> int:
    """Number of the pause before a group of columns of a warpgroup's part of D; 0 = none."""
    if not config.has_epilogue or not index or index % PAUSE_GROUPS:
        return 0
    return LAST_ROW - index


def groups_of(config: Config, block: int, result: str) -> list[dict[str, object]]:
    """Groups of 8 columns of D in a block: this lane's four values, where each belongs, and the
    sums that they are made of: those of 8 columns of the tile, or of gates and what they open."""
    turns = 2 if config.gated else 1
    packed = range(2 if dtype(config.d).bytes == 2 else 1)
    before = block * config.tile_n // GATE_COLUMNS
    return [
        {
            "d_column": 8 * index,
            "pause": pause_of(config, block * config.d_tile_n // 8 + index),
            "sources": [
                {"column": 8 * g, "sums": _four(result, g)}
                for g in range(turns * index, turns * index + turns)
            ],
            "results": _four(result, turns * index),
            "packed": [f"%held{block}_{len(packed) * index + i}" for i in packed],
            "partial_offset": (before + index) * GROUP_PARTIAL_BYTES,
            "pairs": pairs(_four(result, turns * index)),
        }
        for index in range(config.d_tile_n // 8)
    ]


def shares_of(config: Config, block: int) -> list[dict[str, object]]:
    """Groups of 8 columns of a block that one CTA of a split K adds up and stores."""
    count = -(-config.tile_n // (8 * config.split_k))
    totals = [f"%total{i}" for i in range(4)]
    return [
        {"index": i, "pause": pause_of(config, block * count + i), "pairs": pairs(totals)}
        for i in range(count)
    ]


def spans_of(config: Config, result: str) -> list[dict[str, object]]:
    """Runs of 128 columns of D in a block, which share a scale: this lane's values, by row."""
    if config.d_scale != "group":
        return []
    turns = 2 if config.gated else 1
    per_span = D_SCALE_BLOCK // 8
    spans: list[dict[str, object]] = []
    for first in range(0, config.d_tile_n // 8, per_span):
        values = [_four(result, turns * g) for g in range(first, first + per_span)]
        spans.append(
            {
                "block": len(spans),
                "upper": [v for four in values for v in four[:2]],
                "lower": [v for four in values for v in four[2:]],
            }
        )
    return spans


def _four(result: str, group: int) -> list[str]:
    """The registers of one group of 8 columns of the tile: two of a row, two of the row 8 below."""
    return [f"{result}{4 * group + i}" for i in range(4)]
