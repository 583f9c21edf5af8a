"""Scales of block-scaled formats: how they lie in memory, in shared memory and in tensor memory.

Scales are kept in atoms of 512 bytes: 128 rows (of A, or columns of D) times 4 scales along K. Row
r and scale s stand at byte 16 (r % 32) + 4 (r // 32) + s. Atoms follow each other along K, then
along rows. One tcgen05.cp takes an atom to 4 columns of tensor memory, where an MMA finds it.

Source: CUTLASS 4.7, cutlass/detail/sm100_blockscaled_layout.hpp, whose layout cuBLAS shares.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

ATOM_ROWS = 128
ATOM_SCALES = 4
"""Scales along K of one atom: what one word of tensor memory holds."""
ATOM_BYTES = ATOM_ROWS * ATOM_SCALES
ATOM_COLUMNS = 4
"""Columns of tensor memory that an atom takes."""
COLUMN_ROWS = 32
"""Rows whose scales share a column of tensor memory."""


@dataclass(frozen=True)
class ScaleTile:
    """The scales that one CTA needs for one k-tile of one operand."""

    operand: str
    """a or b."""
    blocks: int
    """Blocks of 128 rows."""
    atoms: int
    """Atoms of each block along K."""

    @property
    def nbytes(self) -> int:
        """Bytes of the tile."""
        return self.blocks * self.atoms * ATOM_BYTES

    @property
    def columns(self) -> int:
        """Columns of tensor memory."""
        return self.blocks * self.atoms * ATOM_COLUMNS

    @property
    def box(self) -> tuple[int, int, int]:
        """TMA box: words of an atom, atoms along K, blocks of rows."""
        return ATOM_BYTES // 4, self.atoms, self.blocks

    def smem_offset(self, block: int, atom: int) -> int:
        """Where TMA puts an atom, in bytes from the start of the tile."""
        return (block * self.atoms + atom) * ATOM_BYTES

    def column(self, block: int, atom: int) -> int:
        """Where the MMA wants it: all rows of one atom along K side by side."""
        return (atom * self.blocks + block) * ATOM_COLUMNS


def num_atoms(extent: int, size: int) -> int:
    """Atoms that cover `extent` rows or scales, `size` in each."""
    return -(-extent // size)


def packed_scale_bytes(rows: int, scales: int) -> int:
    """Bytes of the packed scales of `rows` rows with `scales` scales each."""
    return num_atoms(rows, ATOM_ROWS) * num_atoms(scales, ATOM_SCALES) * ATOM_BYTES


def pack_scales(scales: "Array") -> "Array":
    """Scales of shape [rows, scales along K], one byte each -> uint8 bytes of their atoms.

    What pads the last atoms is zero, which is no NaN in any scale format.
    """
    import numpy as np  # only here: plans need the layout without it

    rows, count = scales.shape
    row_atoms, k_atoms = num_atoms(rows, ATOM_ROWS), num_atoms(count, ATOM_SCALES)
    padded = np.zeros((row_atoms * ATOM_ROWS, k_atoms * ATOM_SCALES), np.uint8)
    padded[:rows, :count] = np.ascontiguousarray(scales).view(np.uint8)
    atoms = padded.reshape(row_atoms, ATOM_COLUMNS, COLUMN_ROWS, k_atoms, ATOM_SCALES)
    return np.ascontiguousarray(atoms.transpose(0, 3, 2, 1, 4)).reshape(-1)
