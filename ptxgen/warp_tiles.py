"""Warp tiles: operand tiles in shared memory that threads copy and ldmatrix reads.

A tile lies as the operand does: one row of shared memory per stored row, contiguous elements in
16-byte chunks, which a swizzle permutes so that neither the copies nor ldmatrix meet a bank twice.
A thread's addresses are its own base with constants applied: `flip` is XORed into the base (it
moves between chunks of a row), then `offset` is added (it moves between rows). This works because
every swizzle here is linear over bits and each constant meets zero bits of the base.

Elements of 4 or 6 bits fill half or three quarters of a chunk, 16 of them, where ldmatrix is to
unpack them to bytes.

Source: PTX ISA 9.0, "ldmatrix" and "Matrix Fragments for mma.m16n8k16 and m16n8k32".
"""

from dataclasses import dataclass

from ptxgen.dtypes import Dtype

CHUNK_BYTES = 16
"""The unit that swizzling moves, and one row of an ldmatrix matrix."""
BANKS_BYTES = 128
"""What one access cycle of shared memory serves."""
BLOCK_ROWS = 16
"""Rows (M or N) of one ldmatrix.x4: one A fragment, or two B fragments."""
STEP_BYTES = 32
"""K of one mma.sync, in bytes, for every dtype."""
ASYNC_COPY_BYTES = (16, 8, 4)
"""Sizes that cp.async knows."""
WORD_BYTES = 4
"""What a thread puts together from smaller loads before it stores."""
LDMATRIX_WIDTH = 8
"""Rows of one ldmatrix matrix: those that must lie in different banks."""


@dataclass(frozen=True)
class SwizzleTerm:
    """Row bits that are XORed into the chunk index: (row >> shift) & mask."""

    shift: int
    mask: int


@dataclass(frozen=True)
class Place:
    """An address relative to a thread's base: (base ^ flip) + offset, in bytes."""

    flip: int
    offset: int


@dataclass(frozen=True)
class Load:
    """One load from global memory that yields a part of a unit."""

    part: int
    """Which part of the unit, lowest address first."""
    register: str
    """Where it is held until the unit is stored."""
    offset: int
    """Bytes from the start of the unit."""
    place_offset: int
    """Bytes from the thread's flipped base in shared memory, if it goes there itself."""


@dataclass(frozen=True)
class ThreadCopy:
    """One unit that a thread copies."""

    place: Place
    loads: tuple[Load, ...]
    """Its loads, lowest address first; a single one if cp.async copies the unit."""
    loads_backwards: tuple[Load, ...]


@dataclass(frozen=True)
class WarpTile:
    """The part of A or B that one CTA needs for one k-tile."""

    name: str
    """a or b: the prefix of its registers."""
    dtype: Dtype
    k_major: bool
    """True: K is contiguous in memory; False: M or N is (MN-major)."""
    rows: int
    """Rows of the tile (M or N). Like all sizes here a power of two."""
    k: int
    """k of the tile, in elements."""
    copy_bytes: int
    """Bytes of one load from global memory."""
    threads: int
    """Threads that fill the tile."""
    warps: int
    """Warps side by side along the rows."""
    packing: tuple[int, int] = (1, 1)
    """K elements of the operand that fill so many bytes of global memory, where elements share
    bytes: (2, 1) of 4 bits, (4, 3) of 6 bits. `dtype` is then a byte, and elements are bytes."""
    slot_bytes: int = CHUNK_BYTES
    """Bytes of global memory that fill one chunk: 8 or 12 where ldmatrix unpacks 16 elements of 4
    or 6 bits to a byte each."""

    @property
    def transposed_bytes(self) -> bool:
        """Whether ldmatrix.trans, which moves pairs of bytes, must split them afterwards."""
        return not self.k_major and self.dtype.bytes == 1

    @property
    def is_packed(self) -> bool:
        """Whether elements of the operand share bytes."""
        return self.packing != (1, 1)

    @property
    def packing_shift(self) -> int:
        """log2 of the elements that share `packing[1]` bytes."""
        return self.packing[0].bit_length() - 1

    @property
    def unpacks(self) -> str:
        """How ldmatrix unpacks: its source format, or nothing."""
        return {8: "b4x16_p64", 12: "b6x16_p32"}.get(self.slot_bytes, "")

    @property
    def shifts_codes(self) -> bool:
        """Whether codes must move within their bytes: mma.sync wants e2m1 in bits 5:2."""
        return self.unpacks == "b4x16_p64"

    @property
    def inner(self) -> int:
        """Elements of the tile along the contiguous dimension."""
        return self.pitch_bytes // CHUNK_BYTES * self.slot_bytes // self.dtype.bytes

    @property
    def outer(self) -> int:
        """Stored rows of the tile."""
        return self.rows if self.k_major else self.k

    @property
    def pitch_bytes(self) -> int:
        """Bytes from one stored row to the next in shared memory."""
        return (self.k if self.k_major else self.rows) * self.dtype.bytes

    @property
    def tile_step(self) -> int:
        """K-major: elements of a row from one k-tile to the next. MN-major: rows."""
        return self.inner if self.k_major else self.k

    @property
    def tile_step_bytes(self) -> int:
        """K-major: bytes of a row from one k-tile to the next."""
        return self.inner * self.dtype.bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the tile."""
        return self.outer * self.pitch_bytes

    @property
    def swizzle(self) -> tuple[SwizzleTerm, ...]:
        """Which row bits are XORed into the chunk index.

        ldmatrix reads rows r..r+7 of 16 bytes at once; for transposed bytes (see `k_row` of
        parts/fragments_mma_bytes) rows r + {0, 1, 4, 5, 8, 9, 12, 13}. Rows that share a line of
        128 bytes differ anyway.
        """
        lines = min(LDMATRIX_WIDTH, self.pitch_bytes // CHUNK_BYTES)
        if lines < 2:
            return ()
        if self.transposed_bytes and self.pitch_bytes >= BANKS_BYTES:
            return SwizzleTerm(0, 1), SwizzleTerm(1, 6)
        per_line = max(1, BANKS_BYTES // self.pitch_bytes)
        shift = 2 if self.transposed_bytes else per_line.bit_length() - 1
        return (SwizzleTerm(shift, lines - 1),)

    def chunk_flip(self, row: int) -> int:
        """What is XORed into the chunk index in stored row `row`."""
        flip = 0
        for term in self.swizzle:
            flip ^= (row >> term.shift) & term.mask
        return flip

    # ---- filling

    @property
    def unit_bytes(self) -> int:
        """Bytes of shared memory that a thread fills: one copy, or a chunk that is unpacked."""
        return CHUNK_BYTES if self.unpacks else max(self.copy_bytes, WORD_BYTES)

    @property
    def source_bytes(self) -> int:
        """Bytes of global memory that fill one unit."""
        return self.slot_bytes if self.unpacks else self.unit_bytes

    @property
    def loads_per_unit(self) -> int:
        """Loads from global memory that make up one unit."""
        return self.source_bytes // self.copy_bytes

    @property
    def unit_elements(self) -> int:
        """Elements of one unit."""
        return self.source_bytes // self.dtype.bytes

    @property
    def copy_elements(self) -> int:
        """Elements of one load from global memory."""
        return self.copy_bytes // self.dtype.bytes

    @property
    def units_per_row(self) -> int:
        """Units of one stored row; thread t copies unit t % units_per_row of its rows."""
        return self.pitch_bytes // self.unit_bytes

    @property
    def row_shift(self) -> int:
        """log2(units_per_row): thread t starts at stored row t >> row_shift."""
        return self.units_per_row.bit_length() - 1

    @property
    def rows_per_pass(self) -> int:
        """Stored rows that all threads together copy at once."""
        return self.threads // self.units_per_row

    @property
    def last_unit(self) -> int:
        """Mask that takes a thread's unit from its number."""
        return self.units_per_row - 1

    @property
    def num_passes(self) -> int:
        """Units that each thread copies."""
        return self.outer // self.rows_per_pass

    @property
    def has_passes(self) -> bool:
        """Whether a thread copies more than one unit, and so steps from row to row."""
        return self.num_passes > 1

    @property
    def copies(self) -> tuple[ThreadCopy, ...]:
        """The units of one thread."""
        copies = []
        for i in range(self.num_passes):
            row = i * self.rows_per_pass
            loads = tuple(
                Load(
                    part,
                    f"%{self.name}_held{i * self.loads_per_unit + part}",
                    part * self.copy_bytes,
                    row * self.pitch_bytes + part * self.copy_bytes,
                )
                for part in range(self.loads_per_unit)
            )
            place = Place(self.chunk_flip(row) * CHUNK_BYTES, row * self.pitch_bytes)
            copies.append(ThreadCopy(place, loads, loads[::-1]))
        return tuple(copies)

    @property
    def held_registers(self) -> int:
        """Registers that hold one thread's loads of a tile."""
        return self.num_passes * self.loads_per_unit

    @property
    def cache(self) -> str:
        """Cache operator of cp.async: cg (L2 only) exists for 16 bytes alone."""
        return "cg" if self.copy_bytes == CHUNK_BYTES else "ca"

    @property
    def load_type(self) -> str:
        """PTX type of one load through registers."""
        return f"u{8 * self.copy_bytes}"

    @property
    def load_factor(self) -> int:
        """What a loaded part is multiplied with to move it one part up in a word."""
        return 1 << (8 * self.copy_bytes)

    # ---- reading

    @property
    def warp_rows(self) -> int:
        """Rows (M or N) of one warp."""
        return self.rows // self.warps

    @property
    def num_blocks(self) -> int:
        """Blocks of 16 rows that one warp reads."""
        return self.warp_rows // BLOCK_ROWS

    @property
    def num_steps(self) -> int:
        """mma.sync along k in one k-tile."""
        return self.k * self.dtype.bytes // STEP_BYTES

    @property
    def warp_bytes(self) -> int:
        """K-major: bytes from one warp's rows to the next warp's."""
        return self.warp_rows * self.pitch_bytes

    @property
    def warp_chunks(self) -> int:
        """MN-major: chunks from one warp's rows to the next warp's."""
        return self.warp_rows * self.dtype.bytes // CHUNK_BYTES

    @property
    def rows_bit(self) -> int:
        """Bit of the lane that picks the upper 8 rows of a block.

        ldmatrix fills registers in the order of its matrices, 8 lanes each: see FRAGMENT_ORDER.
        """
        return 3 if self.name == "a" else 4

    @property
    def k_bit(self) -> int:
        """Bit of the lane that picks the upper 16 bytes of k."""
        return 4 if self.name == "a" else 3

    def block(self, index: int, step: int) -> Place:
        """Where block `index` of k-step `step` starts, relative to a lane's base."""
        if self.k_major:
            return Place(step * STEP_BYTES, index * BLOCK_ROWS * self.pitch_bytes)
        block_bytes = BLOCK_ROWS * self.dtype.bytes
        step_rows = STEP_BYTES // self.dtype.bytes
        return Place(index * block_bytes, step * step_rows * self.pitch_bytes)
