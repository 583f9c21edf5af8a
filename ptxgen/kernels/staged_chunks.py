"""The chunks in which a warpgroup's part of D goes through shared memory, as parts print them."""

from collections.abc import Sequence

from ptxgen.dtypes import Dtype
from ptxgen.layout import CHUNK_BYTES, MMA_M, DStaging


def staged_chunks(
    d: Dtype, columns: int, results: Sequence[str], turns: int = 1
) -> list[dict[str, object]]:
    """All chunks, in the order in which they are stored: 64 rows x up to 128 bytes each.

    columns: of D, in one tile. results: prefix of the sums of each block of 64 rows. turns: groups
    of 8 columns of sums that become one of D. num_pieces: 16-byte pieces of a row, which threads
    store where a group ends inside a chunk.
    """
    chunks: list[dict[str, object]] = []
    for block, result in enumerate(results):
        for chunk in DStaging(d, columns).chunks:
            stores = []
            for store in chunk.stores:
                group = store.groups[0]
                first = 4 * turns * group
                registers = {
                    1: f"%held{block}_{group}",
                    2: vector(f"%held{block}_", 2 * group, store.num_matrices),
                    4: vector(result, first, 2),
                }[d.bytes]
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
                    "columns": chunk.map.columns,
                    "row_bytes": chunk.map.columns * d.bytes,
                    "is_narrow": chunk.map.columns * d.bytes < DStaging.PITCH_BYTES,
                    "num_pieces": chunk.map.columns * d.bytes // CHUNK_BYTES,
                }
            )
    return chunks


def vector(prefix: str, first: int, count: int) -> str:
    """A vector operand of registers with consecutive numbers."""
    return "{" + ", ".join(f"{prefix}{i}" for i in range(first, first + count)) + "}"
