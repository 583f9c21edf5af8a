"""Warp schedules: which mma.sync one warp runs per k-tile, on which registers, and what they hold.

Source: PTX ISA 9.0, "Matrix Fragments for mma.m16n8k16 and m16n8k32".
"""

from dataclasses import dataclass

from ptxgen.warp_scales import ScaleOperand, WarpScales
from ptxgen.warp_tiles import BLOCK_ROWS, Place, WarpTile

BLOCK_REGISTERS = 4
"""Registers of one ldmatrix.x4, of one A fragment, of two B fragments, of one accumulator."""
FRAGMENT_ORDER = {"a": (0, 1, 2, 3), "b": (0, 2, 1, 3)}
"""Registers of a block for (low k, rows 0-7), (low k, rows 8-15), (high k, rows 0-7), (high k, rows
8-15). An A fragment is all four in this order; a B fragment is low and high k of one half, and the
registers of a fragment must be neighbours."""


@dataclass(frozen=True)
class Block:
    """One ldmatrix: 16 rows (M or N) by 32 bytes of k."""

    place: Place
    """Relative to the lane's base."""
    prefix: str
    """Register prefix of the fragments that it belongs to."""
    first: int
    """Number of the first of its four registers."""

    @property
    def registers(self) -> tuple[str, ...]:
        """Its registers in the order in which ldmatrix fills them."""
        return tuple(f"{self.prefix}{self.first + i}" for i in range(BLOCK_REGISTERS))

    @property
    def held(self) -> tuple[str, ...]:
        """The registers in the order of FRAGMENT_ORDER."""
        order = FRAGMENT_ORDER[self.prefix[1]]
        return tuple(f"{self.prefix}{self.first + i}" for i in order)


@dataclass(frozen=True)
class Mma:
    """One mma.sync: first registers of its accumulator and fragments."""

    d: int
    a_prefix: str
    a: int
    b_prefix: str
    b: int
    scales: tuple[ScaleOperand, ...] = ()
    """Of A and of B, if it applies any."""


@dataclass(frozen=True)
class Step:
    """One k-step: its MMAs, and the fragments of the next one, loaded into the other registers."""

    ends_tile: bool
    """Whether the next step belongs to the next k-tile."""
    a_blocks: tuple[Block, ...]
    b_blocks: tuple[Block, ...]
    mmas: tuple[Mma, ...]


def fragment_prefix(name: str, step: int) -> str:
    """Register prefix of the fragments of operand a or b in k-step `step`."""
    return f"%{name}_fragment{step % 2}_"


def step(a: WarpTile, b: WarpTile, index: int, scales: tuple[WarpScales, ...] = ()) -> Step:
    """k-step `index`; -1 is the step before the first, which only loads.

    scales: of A and of B, if MMAs apply any.
    """
    return Step(
        index == a.num_steps - 1,
        _blocks(a, (index + 1) % a.num_steps),
        _blocks(b, (index + 1) % b.num_steps),
        _mmas(a, b, index, scales),
    )


def _blocks(tile: WarpTile, index: int) -> tuple[Block, ...]:
    return tuple(
        Block(tile.block(i, index), fragment_prefix(tile.name, index), BLOCK_REGISTERS * i)
        for i in range(tile.num_blocks)
    )


def _mmas(a: WarpTile, b: WarpTile, index: int, scales: tuple[WarpScales, ...]) -> tuple[Mma, ...]:
    """Columns run to and fro, so that two MMAs in a row share an operand."""
    num_columns = 2 * b.num_blocks
    mmas = []
    for row in range(a.num_blocks):
        columns = range(num_columns)
        for column in columns if row % 2 == 0 else reversed(columns):
            mmas.append(
                Mma(
                    BLOCK_REGISTERS * (row * num_columns + column),
                    fragment_prefix("a", index),
                    BLOCK_REGISTERS * row,
                    fragment_prefix("b", index),
                    BLOCK_REGISTERS // 2 * column,
                    tuple(
                        x.operand_of(fragment, index)
                        for x, fragment in zip(scales, (row, column), strict=False)
                    ),
                )
            )
    return tuple(mmas)


@dataclass(frozen=True)
class Pair:
    """Two neighbouring columns of a block of 16 rows: the four values that one lane has of them."""

    column: int
    """From the lane's first column of the CTA's tile."""
    values: tuple[int, int, int, int]
    """Accumulator registers: both columns of the lane's first row, then of its second."""


@dataclass(frozen=True)
class DBlock:
    """What one lane holds of 16 rows of D."""

    row: int
    """From the lane's first row of the CTA's tile."""
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class LaneMap:
    """Which part of the warp's D a lane holds: rows lane // 4 * rows and `second_row` below, and
    columns lane % 4 * columns and on."""

    rows: int
    second_row: int
    columns: int


def lane_map(a: WarpTile, b: WarpTile) -> LaneMap:
    """Rows and columns of D that a lane holds.

    Transposed bytes come in pairs of neighbours (parts/fragments_mma_bytes), which take the places
    of rows g and g + 8, so that a lane's two rows are neighbours; likewise B's two fragments of a
    block are its even and its odd columns.
    """
    return LaneMap(
        2 if a.transposed_bytes else 1,
        1 if a.transposed_bytes else 8,
        4 if b.transposed_bytes else 2,
    )


def d_blocks(a: WarpTile, b: WarpTile) -> tuple[DBlock, ...]:
    """All that one lane holds of D, by blocks of 16 rows."""
    num_columns = 2 * b.num_blocks
    return tuple(
        DBlock(
            BLOCK_ROWS * row,
            tuple(_pair(b, row * num_columns, column) for column in range(num_columns)),
        )
        for row in range(a.num_blocks)
    )


def _pair(b: WarpTile, first_mma: int, column: int) -> Pair:
    """Pair `column` of a block whose accumulators start with that of MMA `first_mma`."""
    if b.transposed_bytes:
        place, odd = divmod(column, 2)
        even_columns = BLOCK_REGISTERS * (first_mma + 2 * place) + odd
        odd_columns = even_columns + BLOCK_REGISTERS
        values = (even_columns, odd_columns, even_columns + 2, odd_columns + 2)
        return Pair(BLOCK_ROWS * place + 2 * odd, values)
    first = BLOCK_REGISTERS * (first_mma + column)
    return Pair(BLOCK_ROWS // 2 * column, (first, first + 1, first + 2, first + 3))
