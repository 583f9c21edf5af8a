"""Tensor memory of one CTA: 128 lanes x 512 columns of 32 bits, its allocator, tcgen05.ld and st.

An address is lane << 16 | column; the hardware looks at 7 lane bits only. Tensor memory is per SM
there; here every CTA has its own, so an allocation never waits for another CTA. Source: PTX ISA
9.0, "Tensor Memory", "tcgen05.alloc" and "tcgen05.ld".
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.memory import POISON
from ptxgen.errors import EmulationError, OutOfBoundsError, UnknownInstructionError

Registers = NDArray[np.uint32]
"""Shape (registers, 32)."""
Cells = NDArray[np.intp]

LANES = 128
COLUMNS = 512
REGISTERS_PER_REPEAT = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
"""Registers of the .x1 form of each shape."""


class TensorMemory:
    """Cells, and which columns are allocated."""

    def __init__(self, *, cta: int = 0, track: bool = False) -> None:
        self.cta = cta
        self.cells: Registers = np.full((LANES, COLUMNS), POISON * 0x01010101, np.uint32)
        self.initialised: NDArray[np.bool_] | None = None
        """One flag per cell, or None when nobody asked."""
        if track:
            self.initialised = np.zeros((LANES, COLUMNS), bool)
        self.allocations: dict[int, int] = {}
        """First column -> columns of the live allocations."""
        self._smallest: int | None = None
        self._relinquished = False

    def allocate(self, num_columns: int) -> int | None:
        """tcgen05.alloc: the address, or None while the columns are not free (the warp waits).

        Raises: EmulationError for an illegal size, a growing allocation, or after relinquish.
        """
        if num_columns not in (32, 64, 128, 256, 512):
            raise EmulationError(
                f"tcgen05.alloc needs a power of two in [32, 512] columns, got {num_columns}"
            )
        if self._relinquished:
            raise EmulationError(
                "tcgen05.alloc after tcgen05.relinquish_alloc_permit of the same CTA"
            )
        if self._smallest is not None and num_columns > self._smallest:
            raise EmulationError(
                f"successive tcgen05.alloc of a CTA must not grow: {num_columns} columns after "
                f"{self._smallest}; allocate the largest first"
            )
        for column in range(0, COLUMNS - num_columns + 1, num_columns):
            if not self._overlaps(column, num_columns):
                self.allocations[column] = num_columns
                self._smallest = num_columns
                return column
        return None

    def deallocate(self, address: int, num_columns: int) -> None:
        """tcgen05.dealloc.

        Raises: EmulationError unless exactly this allocation lives.
        """
        column = address & 0xFFFF
        if self.allocations.get(column) != num_columns or lane_of(address):
            raise EmulationError(
                f"tcgen05.dealloc of {num_columns} columns at {address:#x} must match an "
                f"allocation, live ones: {self._names()}"
            )
        del self.allocations[column]

    def relinquish(self) -> None:
        """tcgen05.relinquish_alloc_permit: no further allocation by this CTA."""
        self._relinquished = True

    def require(self, first_column: int, last_column: int, what: str) -> None:
        """Check that the columns [first, last) lie in one live allocation.

        Raises: OutOfBoundsError.
        """
        for column, count in self.allocations.items():
            if column <= first_column and last_column <= column + count:
                return
        raise OutOfBoundsError(
            f"{what} uses tensor memory columns [{first_column}, {last_column}) of CTA {self.cta}, "
            f"which must lie in one allocation, live ones: {self._names()}"
        )

    def load(
        self, address: int, shape: str, repeat: int, warp: int, *, split: int = 0,
        pack: bool = False,
    ) -> Registers:  # fmt: skip
        """tcgen05.ld: the registers of one warp, shape (registers, 32).

        `split` is the immediate of 16x32bx2, `pack` .pack::16b.
        Raises: OutOfBoundsError (columns, or lanes of another warp), UnknownInstructionError.
        """
        cells = self.cells_of(address, shape, repeat, warp, split=split, wide=pack)
        found: Registers = self.cells.reshape(-1)[cells]
        if pack:
            low, high = found[0::2], found[1::2]
            found = low & np.uint32(0xFFFF) | high << np.uint32(16)
        return found

    def store(
        self, address: int, registers: Registers, shape: str, repeat: int, warp: int, *,
        split: int = 0, unpack: bool = False,
    ) -> None:  # fmt: skip
        """tcgen05.st: write the registers of one warp. `unpack` is .unpack::16b.

        Raises: as load.
        """
        cells = self.cells_of(address, shape, repeat, warp, split=split, wide=unpack)
        values = registers
        if unpack:
            values = np.empty((2 * len(registers), 32), np.uint32)
            values[0::2], values[1::2] = registers & 0xFFFF, registers >> 16
        self.cells.reshape(-1)[cells] = values
        if self.initialised is not None:
            self.initialised.reshape(-1)[cells] = True

    def cells_of(
        self, address: int, shape: str, repeat: int, warp: int, *, split: int = 0,
        wide: bool = False,
    ) -> Cells:  # fmt: skip
        """Cell (lane * 512 + column) of each register of each lane, shape (registers, 32).

        `wide`: 16-bit packing, which doubles the columns; rows 2 j and 2 j + 1 share register j.
        Raises: as load.
        """
        lane, column = lane_of(address), address & 0xFFFF
        relative, width = _register_cells(shape, repeat, wide, split)
        allowed = (0,) if shape == "32x32b" else (0, 16)
        first = 32 * (warp % 4)
        if lane - first not in allowed:
            raise OutOfBoundsError(
                f"warp {warp} reaches tensor memory lanes {first}..{first + 31}; tcgen05.ld and st "
                f".{shape} must start at lane {' or '.join(str(first + a) for a in allowed)}, got "
                f"lane {lane}"
            )
        cells = relative + (lane * COLUMNS + column)
        if shape == "16x32bx2" and split >> 16:
            lanes = cells // COLUMNS
            if int(lanes.max()) > first + 31:
                raise OutOfBoundsError(
                    f"the split {split:#x} of tcgen05 .16x32bx2 leaves the lanes of warp {warp}"
                )
        self.require(column, column + width, f"tcgen05.ld or st .{shape}.x{repeat}")
        return cells

    def _overlaps(self, column: int, count: int) -> bool:
        return any(c < column + count and column < c + n for c, n in self.allocations.items())

    def _names(self) -> str:
        live = sorted(self.allocations.items())
        return ", ".join(f"[{c}, {c + n})" for c, n in live) or "none"


def lane_of(address: int) -> int:
    """Lane field of an address; bits above the 128 lanes are ignored, as kernels rely on."""
    return address >> 16 & (LANES - 1)


@lru_cache(maxsize=512)
def _register_cells(shape: str, repeat: int, wide: bool, split: int) -> tuple[Cells, int]:
    """(cells relative to the address, columns that they span)."""
    per_repeat = REGISTERS_PER_REPEAT.get(shape)
    if per_repeat is None or repeat not in (1, 2, 4, 8, 16, 32, 64, 128):
        raise UnknownInstructionError(f"tcgen05.ld and st have no form .{shape}.x{repeat}")
    if per_repeat * repeat > 128:
        raise UnknownInstructionError(
            f"tcgen05 .{shape}.x{repeat} would need {per_repeat * repeat} registers, at most 128"
        )
    r = np.arange(per_repeat * repeat)[:, None]
    t = np.arange(32)[None, :]
    if shape == "32x32b":
        lane, column = t + 0 * r, r + 0 * t
    elif shape == "16x64b":
        lane, column = 8 * (t & 1) + (t >> 2) + 0 * r, 2 * r + (t >> 1 & 1)
    elif shape == "16x128b":
        lane, column = (t >> 2) + 8 * (r & 1), (t & 3) + 4 * (r >> 1)
    elif shape == "16x256b":
        lane = (t >> 2) + 8 * (r >> 1 & 1)
        column = 2 * (t & 3) + (r & 1) + 8 * (r >> 2)
    else:
        lane, column = t % 16 + 0 * r, r + 0 * t
    if wide:
        lane = np.repeat(lane, 2, axis=0)
        column = np.stack([2 * column, 2 * column + 1], axis=1).reshape(-1, 32)
    if shape == "16x32bx2":
        lane = lane + np.where(t >= 16, split >> 16, 0)
        column = column + np.where(t >= 16, split & 0xFFFF, 0)
    cells = np.asarray(lane * COLUMNS + column, np.intp)
    cells.flags.writeable = False
    return cells, int(column.max()) + 1
