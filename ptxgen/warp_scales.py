"""Warp scales: the scales that mma.sync with .block_scale applies, from packed memory to registers.

A word of packed memory holds 4 scales along K of one row (ptxgen.scale_tiles). Threads copy the
words of a k-tile into its stage, one row after the other, and each lane reads one word for 32 rows
of its warp: lane 4 g + q has row 8 q + g. So one register serves two fragments of A (lanes of q 0
and 1, or of q 2 and 3, give rows g and g + 8) and four of B (lanes of one q give columns g).

Source: PTX ISA 9.0, "Block Scaling for mma.sync"; CUTLASS's layouts of SFA and SFB for SM120.
"""

from dataclasses import dataclass

from ptxgen.scale_tiles import ATOM_SCALES

WORD_BYTES = 4
REGISTER_ROWS = 32
"""Rows whose words one register of a warp holds."""
A_FRAGMENTS = 2
"""Fragments of A, of 16 rows, that one register serves."""
B_FRAGMENTS = 4
"""Fragments of B, of 8 columns, that one register serves."""


@dataclass(frozen=True)
class ScaleCopy:
    """One word that a thread copies."""

    index: int
    """Of the pass: which of the thread's rows."""
    word: int
    """Which word along K of the k-tile."""
    offset: int
    """From the thread's place in the stage, in bytes."""


@dataclass(frozen=True)
class ScaleLoad:
    """One register that a lane loads."""

    register: str
    offset: int
    """From the lane's place in the stage, in bytes."""


@dataclass(frozen=True)
class ScaleOperand:
    """What an MMA is told of the scales of one operand."""

    register: str
    byte: int
    """Byte of the register at which its scales begin."""
    lanes: int
    """Which lanes give them: a pair of A's, or one of B's, of every four."""


@dataclass(frozen=True)
class WarpScales:
    """The scales of A or B that one CTA needs for one k-tile."""

    name: str
    """sfa or sfb: the prefix of its registers."""
    operand: str
    """a or b."""
    rows: int
    """Rows of the tile (M or N)."""
    warp_rows: int
    """Of these, one warp's: 16, or a multiple of 32."""
    threads: int
    """Threads that copy them."""
    words: int
    """Words of one row in a k-tile."""
    scales_per_mma: int
    repeated: bool
    """Whether one scale serves a whole k-tile, so that a word serves four."""
    offset: int
    """Where they lie in a stage."""

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory in one stage."""
        return self.rows * self.words * WORD_BYTES

    @property
    def num_passes(self) -> int:
        """Rows that each thread copies."""
        return -(-self.rows // self.threads)

    @property
    def pass_rows(self) -> list[int]:
        """Rows from a thread's first row to that of each pass."""
        return [i * self.threads for i in range(self.num_passes)]

    @property
    def leaves_threads(self) -> bool:
        """Whether some threads have nothing to copy."""
        return self.rows < self.threads

    @property
    def copies(self) -> list[ScaleCopy]:
        """What one thread copies."""
        return [
            ScaleCopy(i, word, (word * self.rows + row) * WORD_BYTES)
            for word in range(self.words)
            for i, row in enumerate(self.pass_rows)
        ]

    @property
    def warp_bytes(self) -> int:
        """Bytes from one warp's words to the next warp's."""
        return self.warp_rows * WORD_BYTES

    @property
    def lane_mask(self) -> int:
        """Bits of q that pick rows: with 16 rows the upper lanes repeat the lower ones'."""
        return 3 if self.warp_rows >= REGISTER_ROWS else 1

    @property
    def registers_per_word(self) -> int:
        """Registers that hold one word of all rows of a warp."""
        return -(-self.warp_rows // REGISTER_ROWS)

    @property
    def num_registers(self) -> int:
        """Registers of one k-tile."""
        return self.words * self.registers_per_word

    @property
    def loads(self) -> list[ScaleLoad]:
        """What one lane loads for a k-tile."""
        return [
            ScaleLoad(
                f"{self.name}{word * self.registers_per_word + i}",
                (word * self.rows + i * REGISTER_ROWS) * WORD_BYTES,
            )
            for word in range(self.words)
            for i in range(self.registers_per_word)
        ]

    def operand_of(self, fragment: int, step: int) -> ScaleOperand:
        """What the MMA of k-step `step` on fragment `fragment` of this operand is told."""
        per_register = A_FRAGMENTS if self.operand == "a" else B_FRAGMENTS
        first = 0 if self.repeated else step * self.scales_per_mma
        word, byte = divmod(first, ATOM_SCALES)
        index, lanes = divmod(fragment, per_register)
        return ScaleOperand(f"%{self.name}{word * self.registers_per_word + index}", byte, lanes)
