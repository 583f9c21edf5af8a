"""Layouts: operand tiles and D tiles in shared memory, and the map of shared memory.

An operand tile is filled by TMA boxes and read by wgmma through a matrix descriptor. Both views of
it are derived here, from one set of facts: dtype, majorness, swizzle, rows and k.

Source: PTX ISA 9.0, "Shared Memory Matrix Layout" and "Tensor Swizzling Modes";
read back on an H200.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from ptxgen.descriptors import MatrixDescriptor
from ptxgen.dtypes import Dtype, dtype

CHUNK_BYTES = 16
"""The unit that swizzling moves, and one row of a core matrix."""
CORE_ROWS = 8
"""Rows of a core matrix."""
MMA_K_BYTES = 32
"""K of one wgmma, in bytes, for every dtype."""
MMA_M = 64
"""M of one wgmma."""
WARP_LANES = 32
WARP_ROWS = MMA_M // 4
"""Rows of a wgmma's accumulator fragment that each warp of the warpgroup holds."""
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

    @cached_property
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

    @cached_property
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


@lru_cache(maxsize=4096)
def operand_tile(
    name: str, k_major: bool, swizzle_bytes: int, rows: int, k: int, slices: int = 1
) -> OperandTile:
    """The tile of an operand of format `name`; configs of a grid share theirs."""
    return OperandTile(dtype(name), k_major, swizzle_bytes, rows, k, slices)


@dataclass(frozen=True)
class FragmentStore:
    """One stmatrix (or one pair of st.shared) of the accumulator fragment into a D box."""

    groups: tuple[int, ...]
    """Groups of 8 columns of the tile that it stores: two (x4), or one (x2, or f32)."""
    chunk_xor: int
    """Byte offset of the first 16-byte chunk inside a box row, to XOR with the lane's own."""

    @property
    def num_matrices(self) -> int:
        """8x8 matrices of the stmatrix."""
        return 2 * len(self.groups)


@dataclass(frozen=True)
class DMap:
    """A tensor map that stores D: its boxes are so many columns wide."""

    name: str
    """Of the kernel's parameter; the register that holds its address has the same."""
    columns: int


@dataclass(frozen=True)
class DChunk:
    """The part of a block of rows of D that one staging buffer holds, and one TMA store writes."""

    stores: tuple[FragmentStore, ...]
    map: DMap
    column_offset: int
    """Columns from the first column of the tile."""


@dataclass(frozen=True)
class DStaging:
    """How a warpgroup, or a warp, takes rows of D through shared memory to TMA stores.

    A chunk is 128 bytes of each row, with the 128B swizzle; the last one of a tile may be narrower,
    and has a tensor map of its own, since TMA takes as long for a row of 16 bytes as for one of
    128 (measured on an H200). Its rows lie 128 bytes apart, too.
    """

    dtype: Dtype
    tile_n: int
    rows: int = MMA_M
    """Rows of one box: 64 for a warpgroup, 32 or 16 for a warp."""

    PITCH_BYTES = 128
    """From one row of a staging buffer to the next."""
    BUFFER_BYTES = MMA_M * PITCH_BYTES
    """One staging buffer of a warpgroup."""
    NUM_BUFFERS = 2
    """Buffers of one warpgroup, or of one warp of tcgen05."""
    ROW_MASK = PITCH_BYTES // CHUNK_BYTES - 1
    """Row bits that are XORed into the index of a 16-byte chunk."""

    @property
    def swizzle(self) -> str:
        """Swizzle of the tensor maps of D."""
        return f"{self.PITCH_BYTES}B"

    @property
    def buffer_bytes(self) -> int:
        """One staging buffer."""
        return self.rows * self.PITCH_BYTES

    @property
    def second_row_bytes(self) -> int:
        """From a lane's first row of the accumulator fragment to its second one."""
        return CORE_ROWS * self.PITCH_BYTES

    @property
    def maps(self) -> tuple[DMap, ...]:
        """The tensor maps: of whole chunks, and of what is left of the tile's columns."""
        whole = min(self.tile_n, self.PITCH_BYTES // self.dtype.bytes)
        tail = self.tile_n % whole
        return (DMap("d_map", whole), *([DMap("d_tail_map", tail)] if tail else []))

    def box(self, d_map: DMap) -> tuple[int, int]:
        """TMA box in elements, columns first."""
        return d_map.columns, self.rows

    @property
    def chunks(self) -> tuple[DChunk, ...]:
        """The chunks of one block of rows, left to right."""
        whole, *tails = self.maps
        num_whole = self.tile_n // whole.columns
        maps = [whole] * num_whole + tails
        return tuple(
            DChunk(self._stores(i * whole.columns // 8, d_map.columns // 8), d_map,
                   i * whole.columns)
            for i, d_map in enumerate(maps)
        )  # fmt: skip

    def _stores(self, first: int, count: int) -> tuple[FragmentStore, ...]:
        """Fragment stores of a chunk of `count` groups of 8 columns from the `first` on."""
        per_store = 2 if self.dtype.bytes == 2 else 1
        group_bytes = 8 * self.dtype.bytes
        return tuple(
            FragmentStore(
                tuple(range(first + g, first + min(g + per_store, count))), g * group_bytes
            )
            for g in range(0, count, per_store)
        )


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
