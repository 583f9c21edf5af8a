"""How rows of D go through shared memory where TMA cannot store them, as epilogue_rows prints it.

A warp stages its 16 rows of a block, up to 64 columns at a time. Each row lies as far behind a
multiple of 16 bytes as it does in global memory, so that all but its ends can be copied 16
bytes at a time.
"""

from dataclasses import dataclass

from ptxgen.layout import CHUNK_BYTES, CORE_ROWS, MMA_M, WARP_ROWS

MOST_COLUMNS = 64
"""Columns of one chunk: so few that a k-tile's wgmma outlast it."""
UNIT = CHUNK_BYTES // 2
"""Elements of 16 bits in the 16 bytes that a lane copies at once."""
ROWS_AT_ONCE = 4
"""Rows that a warp stores at once, each by eight lanes: of 16 bytes, or of an element."""


@dataclass(frozen=True)
class RowStaging:
    """The buffers of all warps, for tiles with so many columns of D."""

    columns: int
    """Columns of D in a tile."""

    @property
    def pitch_bytes(self) -> int:
        """From one row to the next: a chunk and 16 bytes that it may reach into; an odd number of
        them, so that eight rows lie in different banks."""
        return CHUNK_BYTES * (min(self.columns, MOST_COLUMNS) // UNIT + 1 | 1)

    @property
    def warp_bytes(self) -> int:
        """The rows of one warp."""
        return WARP_ROWS * self.pitch_bytes

    def chunks(self, num_blocks: int) -> list[dict[str, object]]:
        """All chunks, in the order in which they are stored: 64 rows x up to 64 columns each.

        num_blocks: blocks of 64 rows of a warpgroup. words: what a lane writes of a chunk; carried:
        of the chunk before, where that reaches into this one's first 16 bytes.
        """
        found: list[dict[str, object]] = []
        for block in range(num_blocks):
            for first in range(0, self.columns, MOST_COLUMNS):
                columns = min(MOST_COLUMNS, self.columns - first)
                groups = range(first // UNIT, (first + columns) // UNIT)
                found.append(
                    {
                        "index": len(found),
                        "rows": block * MMA_M,
                        "column_offset": first,
                        "columns": columns,
                        "is_first": first == 0,
                        "is_last": first + columns == self.columns,
                        "words": [
                            word
                            for i, group in enumerate(groups)
                            for word in self._words(block, group, CHUNK_BYTES * i)
                        ],
                        "carried": (
                            self._words(block, groups[0] - 1, -CHUNK_BYTES) if first else []
                        ),
                    }
                )
        return found

    def _words(self, block: int, group: int, first: int) -> list[dict[str, object]]:
        """Two registers of a lane, of 8 columns: of its row and the one 8 below.

        first: bytes from the start of the chunk's row to these columns.
        """
        offsets = [first + i * CORE_ROWS * self.pitch_bytes for i in range(2)]
        return [
            {
                "register": f"%held{block}_{2 * group + i}",
                "offset": offset,
                "second_offset": offset + 2,
            }
            for i, offset in enumerate(offsets)
        ]


def row_fields(columns: int) -> dict[str, object]:
    """What epilogue_rows prints of the buffers."""
    staging = RowStaging(columns)
    return {
        "row_pitch_bytes": staging.pitch_bytes,
        "warp_rows_bytes": staging.warp_bytes,
        "row_steps": [
            {"index": i, "offset": i * staging.pitch_bytes}
            for i in range(0, WARP_ROWS, ROWS_AT_ONCE)
        ],
        "unit_words": [f"%word{i}" for i in range(CHUNK_BYTES // 4)],
    }
