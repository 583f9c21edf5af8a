"""Layouts: operand tiles and D tiles in shared memory, and the map of shared memory.

An operand tile is filled by TMA boxes and read by wgmma through a matrix descriptor. Both views of
it are derived here, from one set of facts: dtype, majorness, swizzle, rows and k.

Source: PTX ISA 9.0, "Shared Memory Matrix Layout" and "Tensor Swizzling Modes"
(shared/reference/ptx.md A4, B2, B6).
"""

from dataclasses import dataclass

from ptxgen.descriptors import MatrixDescriptor
from ptxgen.dtypes import Dtype

CHUNK_BYTES = 16
"""The unit that swizzling moves, and one row of a core matrix."""
CORE_ROWS = 8
"""Rows of a core matrix."""
MMA_K_BYTES = 32
"""K of one wgmma, in bytes, for every dtype."""
MMA_M = 64
"""M of one wgmma."""
TILE_ALIGNMENT = 1024
"""Shared-memory alignment of a tile: the period of the widest swizzle."""


@dataclass(frozen=True)
class Copy:
    """One TMA box of an operand tile."""

    smem_offset: int
    """Bytes from the start of the tile (of the first slice)."""
    row_offset: int
    """Elements from the first row (M or N) of the tile."""
    k_offset: int
    """Elements from the first k of the tile."""


@dataclass(frozen=True)
class OperandTile:
    """The part of A or B that one CTA needs for one k-tile, in shared memory."""

    dtype: Dtype
    k_major: bool
    """True: K is contiguous in memory; False: M or N is (MN-major)."""
    swizzle_bytes: int
    """0 (none), 32, 64 or 128."""
    rows: int
    """Rows of the tile (M or N)."""
    k: int
    """k of the tile, in elements."""
    slices: int = 1
    """Equal parts, one loaded (and multicast) by each CTA of the cluster that shares the tile."""

    @property
    def is_shared(self) -> bool:
        """Whether the CTAs of the cluster share the tile, each loading one slice for all."""
        return self.slices > 1

    @property
    def chunk_elements(self) -> int:
        """Elements of the contiguous dimension in one box."""
        return (self.swizzle_bytes or CHUNK_BYTES) // self.dtype.bytes

    @property
    def pitch_bytes(self) -> int:
        """Bytes from one box row to the next in shared memory."""
        return self.swizzle_bytes or CHUNK_BYTES

    @property
    def swizzle(self) -> str:
        """Swizzle as tensor maps call it; tcgen05 transposes 4-byte elements in 32-byte atoms."""
        if not self.swizzle_bytes:
            return "none"
        in_atoms = not self.k_major and self.dtype.bytes == 4
        return "128B_ATOM_32B" if in_atoms else f"{self.swizzle_bytes}B"

    @property
    def group_rows(self) -> int:
        """Rows of the contiguous dimension that repeat as one: those of a core matrix."""
        return CORE_ROWS // 2 if self.swizzle == "128B_ATOM_32B" else CORE_ROWS

    @property
    def box(self) -> tuple[int, int]:
        """TMA box in elements, contiguous dimension first."""
        outer = self.rows if self.k_major else self.k
        return self.chunk_elements, outer // self.slices

    @property
    def num_chunks(self) -> int:
        """Boxes side by side along the contiguous dimension.

        MN-major: the last box may reach past the tile; wgmma never reads what lies there.
        """
        return -(-(self.k if self.k_major else self.rows) // self.chunk_elements)

    @property
    def chunk_bytes(self) -> int:
        """Bytes from one box to the next along the contiguous dimension, all slices included."""
        return self.pitch_bytes * (self.rows if self.k_major else self.k)

    @property
    def slice_bytes(self) -> int:
        """Bytes from one slice to the next."""
        return self.pitch_bytes * self.box[1]

    @property
    def slice_rows(self) -> int:
        """Rows (M or N) from one slice to the next: a K-major tile is sliced by rows."""
        return self.box[1] if self.k_major else 0

    @property
    def slice_k(self) -> int:
        """k from one slice to the next: an MN-major tile is sliced by k."""
        return 0 if self.k_major else self.box[1]

    @property
    def copies(self) -> tuple[Copy, ...]:
        """The boxes of one slice."""
        step = self.chunk_elements
        return tuple(
            Copy(
                i * self.chunk_bytes,
                0 if self.k_major else i * step,
                i * step if self.k_major else 0,
            )
            for i in range(self.num_chunks)
        )

    @property
    def nbytes(self) -> int:
        """Shared memory of the tile."""
        return self.num_chunks * self.chunk_bytes

    @property
    def tx_bytes(self) -> int:
        """What the full barrier counts down for this tile: packed formats count as in memory."""
        return self.nbytes * self.dtype.bits // (8 * self.dtype.bytes)

    @property
    def descriptor(self) -> MatrixDescriptor:
        """Descriptor fields for wgmma and tcgen05, without the start address."""
        core_bytes = self.group_rows * self.pitch_bytes
        if self.swizzle_bytes and self.k_major:
            return MatrixDescriptor(0, core_bytes, self.swizzle_bytes)
        if self.swizzle_bytes:
            return MatrixDescriptor(self.chunk_bytes, core_bytes, self.swizzle_bytes)
        if self.k_major:
            return MatrixDescriptor(self.chunk_bytes, core_bytes, 0)
        return MatrixDescriptor(core_bytes, self.chunk_bytes, 0)

    @property
    def mma_k(self) -> int:
        """k of one wgmma, in elements."""
        return MMA_K_BYTES // self.dtype.bytes

    @property
    def k_step_bytes(self) -> int:
        """What the start address grows by from one wgmma to the next along k."""
        if not self.k_major:
            return self.mma_k * self.pitch_bytes
        if self.swizzle_bytes:
            return MMA_K_BYTES
        return MMA_K_BYTES // CHUNK_BYTES * self.chunk_bytes

    @property
    def mma_m_bytes(self) -> int:
        """What the start address grows by from one block of 64 rows to the next."""
        if self.k_major:
            return MMA_M * self.pitch_bytes
        return MMA_M // self.chunk_elements * self.chunk_bytes


@dataclass(frozen=True)
class FragmentStore:
    """One stmatrix (or one pair of st.shared) of the accumulator fragment into a D box."""

    groups: tuple[int, ...]
    """Groups of 8 columns of the tile that it stores: two (x4), or one (x2, or f32)."""
    box_offset: int
    """Bytes from the start of the staging buffer to the box."""
    second_offset: int
    """The same for the lane's second row, 8 below (st.shared only)."""
    chunk_xor: int
    """Byte offset of the first 16-byte chunk inside a box row, to XOR with the lane's own."""

    @property
    def num_matrices(self) -> int:
        """8x8 matrices of the stmatrix."""
        return 2 * len(self.groups)


@dataclass(frozen=True)
class DBox:
    """One TMA store box of a D chunk."""

    smem_offset: int
    column_offset: int
    """Columns from the first column of the tile."""


@dataclass(frozen=True)
class DChunk:
    """The part of a block of rows of D that one staging buffer holds."""

    stores: tuple[FragmentStore, ...]
    boxes: tuple[DBox, ...]


@dataclass(frozen=True)
class DStaging:
    """How a warpgroup, or a warp, takes rows of D through shared memory to TMA stores.

    The box is as wide as the widest swizzle that divides the tile's row; a staging buffer holds as
    many boxes as make 128 bytes of each row.
    """

    dtype: Dtype
    tile_n: int
    rows: int = MMA_M
    """Rows of one box: 64 for a warpgroup of wgmma, 32 or 16 for a warp of tcgen05."""

    BUFFER_BYTES = MMA_M * 128
    """One staging buffer: 64 rows of 128 bytes."""
    NUM_BUFFERS = 2
    """Buffers of one warpgroup: one is filled while the other is stored."""

    @property
    def buffer_bytes(self) -> int:
        """One staging buffer: 128 bytes of each row."""
        return self.rows * 128

    @property
    def box_bytes(self) -> int:
        """Width of a box in bytes: 128, 64, 32 or 16 (not swizzled)."""
        return next(w for w in (128, 64, 32, 16) if self.tile_n * self.dtype.bytes % w == 0)

    @property
    def box(self) -> tuple[int, int]:
        """TMA box in elements, columns first."""
        return self.box_bytes // self.dtype.bytes, self.rows

    @property
    def swizzle(self) -> str:
        """Swizzle of the tensor map of D."""
        return {128: "128B", 64: "64B", 32: "32B", 16: "none"}[self.box_bytes]

    @property
    def row_shift(self) -> int:
        """Row bits that are dropped before they are XORed into the chunk index."""
        return {128: 0, 64: 1, 32: 2, 16: 0}[self.box_bytes]

    @property
    def row_mask(self) -> int:
        """Row bits (after the shift) that are XORed into the chunk index."""
        return self.box_bytes // CHUNK_BYTES - 1

    @property
    def chunks(self) -> tuple[DChunk, ...]:
        """The chunks of one block of rows, left to right."""
        columns_per_box = self.box[0]
        boxes_per_chunk = 128 // self.box_bytes
        num_boxes = self.tile_n // columns_per_box
        chunks = []
        for first in range(0, num_boxes, boxes_per_chunk):
            boxes = range(first, min(first + boxes_per_chunk, num_boxes))
            chunks.append(
                DChunk(
                    tuple(store for box in boxes for store in self._stores(box, box - first)),
                    tuple(
                        DBox((box - first) * self.rows * self.box_bytes, box * columns_per_box)
                        for box in boxes
                    ),
                )
            )
        return tuple(chunks)

    def _stores(self, box: int, place: int) -> list[FragmentStore]:
        """Fragment stores of one box, the `place`-th of its staging buffer."""
        groups_per_box = self.box[0] // 8
        per_store = 2 if self.dtype.bytes == 2 and groups_per_box > 1 else 1
        group_bytes = 8 * self.dtype.bytes
        return [
            FragmentStore(
                tuple(box * groups_per_box + g + i for i in range(per_store)),
                place * self.rows * self.box_bytes,
                place * self.rows * self.box_bytes + CORE_ROWS * self.box_bytes,
                g * group_bytes,
            )
            for g in range(0, groups_per_box, per_store)
        ]


@dataclass(frozen=True)
class SmemRegion:
    """One line of the smem map."""

    name: str
    offset: int
    """Bytes from the start of dynamic shared memory."""
    nbytes: int
    what: str


def align_up(value: int, alignment: int) -> int:
    """The smallest multiple of `alignment` that is >= value."""
    return -(-value // alignment) * alignment
