"""Tensor memory of one CTA: which columns hold what, and which lanes hold which rows of D.

Tensor memory has 128 lanes of 512 columns of 32 bits. An accumulator takes one column for each of
its columns of D (half as many where a pair of CTAs shares 128 rows).

Source: PTX ISA 9.0, "Tensor Memory" and the data path layouts of tcgen05.mma.
"""

from dataclasses import dataclass

from ptxgen.errors import ConfigError

TMEM_COLUMNS = 512
MIN_ALLOCATION = 32
"""tcgen05.alloc hands out a power of two of columns, at least this."""
LANE_SHIFT = 16
"""Tensor memory address: lane in bits 31:16, column in bits 15:0."""
LOAD_LANES = 16
"""Lanes of one tcgen05.ld.16x256b."""
QUARTER_LANES = 32
"""Lanes that one warp reaches: those of its number modulo 4."""
QUARTERS = 4


@dataclass(frozen=True)
class TmemRegion:
    """One line of the tensor memory map."""

    name: str
    column: int
    """First column, from the start of the allocation."""
    columns: int
    what: str


@dataclass(frozen=True)
class TmemMap:
    """The allocation of one CTA, as regions one after another."""

    regions: tuple[TmemRegion, ...]

    @classmethod
    def lay_out(cls, wanted: list[tuple[str, int, str]]) -> "TmemMap":
        """Place (name, columns, what) side by side.

        Raises: ConfigError if they do not fit.
        """
        regions, column = [], 0
        for name, columns, what in wanted:
            regions.append(TmemRegion(name, column, columns, what))
            column += columns
        if column > TMEM_COLUMNS:
            listed = ", ".join(f"{r.name} {r.columns}" for r in regions)
            raise ConfigError(
                f"tensor memory has {TMEM_COLUMNS} columns, {column} are needed ({listed}); "
                "try accumulators=1 or a smaller tile_n"
            )
        return cls(tuple(regions))

    @property
    def used_columns(self) -> int:
        """Columns that hold something."""
        return sum(r.columns for r in self.regions)

    @property
    def allocated_columns(self) -> int:
        """Columns that tcgen05.alloc is asked for."""
        allocated = MIN_ALLOCATION
        while allocated < self.used_columns:
            allocated *= 2
        return allocated

    def column(self, name: str) -> int:
        """First column of region `name`."""
        return next(r.column for r in self.regions if r.name == name)


@dataclass(frozen=True)
class LaneReader:
    """One epilogue warp's share of an accumulator."""

    warp: int
    """0..3; warps 4 to 7 of the CTA."""
    lanes: str
    """First and last lane."""
    rows: str
    """Rows of the MMA in these lanes, of this CTA's."""
    columns: str
    """Columns of the MMA in them."""


@dataclass(frozen=True)
class AccumulatorLayout:
    """Where a CTA's part of D stands in tensor memory, seen by the four warps that read it.

    Warp w (0..3) reads lanes 32 w .. 32 w + 31. They hold rows from `w % row_warps * warp_rows` on
    and columns from `w // row_warps * columns` on of the CTA's tile.
    """

    letter: str
    """Name of the data path layout in the PTX ISA."""
    warp_rows: int
    """Rows that one warp holds, from its first lane on: 32 or 16."""
    row_warps: int
    """Warps side by side along rows: 4, or 2 where the other two hold the second half of N."""
    columns: int
    """Tensor memory columns of one accumulator, and columns of D that one warp holds."""

    @classmethod
    def of(cls, cta_group: int, tile_m: int, tile_n: int) -> "AccumulatorLayout":
        """The layout for a CTA's part of tile_m x tile_n, cta_group CTAs working together."""
        if tile_m == 128:
            return cls("D" if cta_group == 1 else "A", 32, 4, tile_n)
        if cta_group == 1:
            return cls("F", 16, 4, tile_n)
        return cls("B", 32, 2, tile_n // 2)

    @property
    def readers(self) -> tuple["LaneReader", ...]:
        """What each of the four epilogue warps reads of one accumulator."""
        found = []
        for warp in range(QUARTERS):
            row = warp % self.row_warps * self.warp_rows
            column = warp // self.row_warps * self.columns
            lane = QUARTER_LANES * warp
            found.append(
                LaneReader(
                    warp, f"{lane}..{lane + self.warp_rows - 1}",
                    f"{row}..{row + self.warp_rows - 1}", f"{column}..{column + self.columns - 1}",
                )
            )  # fmt: skip
        return tuple(found)

    @property
    def halves(self) -> int:
        """Loads of 16 lanes that reach all rows of a warp."""
        return self.warp_rows // LOAD_LANES
