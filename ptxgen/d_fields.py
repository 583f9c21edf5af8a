"""How D leaves registers: what rounds and stores values, and which chunks stage them for TMA."""

from collections.abc import Sequence

from ptxgen.dtypes import dtype
from ptxgen.layout import CHUNK_BYTES, MMA_M, DStaging

PACK = {
    "bf16": "cvt.rn.bf16x2.f32", "f16": "cvt.rn.f16x2.f32", "e4m3": "cvt.rn.satfinite.e4m3x2.f32",
}  # fmt: skip
"""dtype of D -> what rounds two floats into one register; nothing for those of 32 bits."""
CONVERT = {"bf16": "cvt.rn.bf16.f32", "f16": "cvt.rn.f16.f32"}
"""dtype of D -> what rounds one float; those of 32 bits are moved."""


def d_fields(d: str) -> dict[str, object]:
    """What a template prints to store values of D."""
    nbytes = dtype(d).bytes
    return {
        "d_bytes": nbytes,
        "packed": nbytes == 2,
        "store_type": f"b{8 * nbytes}",
        "pack": PACK.get(d, ""),
        "convert": CONVERT.get(d, "mov.b32"),
    }


def straight_chunks(
    d: str, columns: int, results: Sequence[str], sums_per_value: int = 1
) -> list[dict[str, object]]:
    """Chunks of a warpgroup's part of D, 64 rows x up to 128 bytes each, in the order in which they
    are stored.

    columns: of D in a tile. results: the prefix of each block's sums. sums_per_value: 2 if two
    columns of sums make one of D, in turns of 8.
    """
    kind = dtype(d)
    chunks: list[dict[str, object]] = []
    for block, result in enumerate(results):
        for chunk in DStaging(kind, columns).chunks:
            stores = []
            for store in chunk.stores:
                group = store.groups[0]
                first = 4 * sums_per_value * group
                registers = {
                    1: f"%held{block}_{group}",
                    2: vector(f"%held{block}_", 2 * group, store.num_matrices),
                    4: vector(result, first, 2),
                }[kind.bytes]
                stores.append(
                    {
                        "chunk_xor": store.chunk_xor,
                        "num_matrices": store.num_matrices,
                        "registers": registers,
                        "second_registers": vector(result, first + 2, 2),
                    }
                )
            chunks.append(
                {
                    "index": len(chunks),
                    "rows": block * MMA_M,
                    "stores": stores,
                    "map": f"%{chunk.map.name}",
                    "column_offset": chunk.column_offset,
                    "num_pieces": chunk.map.columns * kind.bytes // CHUNK_BYTES,
                }
            )
    return chunks


def vector(prefix: str, first: int, count: int) -> str:
    """A vector operand of `count` registers."""
    return "{" + ", ".join(f"{prefix}{i}" for i in range(first, first + count)) + "}"
