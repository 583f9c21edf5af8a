"""Descriptors of tcgen05: where an operand tile lies, and what one MMA does with it.

Offsets are in bytes and sizes in elements; only `encode` shifts them.

Source: PTX ISA 9.0, "Shared memory descriptor" and "Instruction descriptor" of the tcgen05 family.
"""

from dataclasses import dataclass

from ptxgen.descriptors import ADDRESS_MASK
from ptxgen.errors import ConfigError

LAYOUT_CODES = {"none": 0, "128B_ATOM_32B": 1, "128B": 2, "64B": 4, "32B": 6}
"""Swizzle of a tile, as tensor maps call it -> bits 63:61 of the shared-memory descriptor."""
VERSION_BITS = 0b001 << 46
"""Bits 48:46, which tell a tcgen05 descriptor from one of wgmma."""
D_CODES = {"f16": 0, "f32": 1, "s32": 2}
NARROW_CODES = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
TYPE_CODES = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "f8f6f4": NARROW_CODES,
    "i8": {"u8": 0, "s8": 1},
    "mxf8f6f4": NARROW_CODES,
    "mxf4": {"e2m1": 1},
    "mxf4nvf4": {"e2m1": 1},
}
"""kind -> operand format -> its code in the instruction descriptor."""
SCALE_CODES = {"ue4m3": 0, "ue8m0": 1}
N_SHIFT = 17
"""Lowest bit of the N field, which holds N / 8."""


@dataclass(frozen=True)
class SmemDescriptor:
    """Where tcgen05 finds an operand tile in shared memory."""

    leading_bytes: int
    """Leading byte offset (LBO)."""
    stride_bytes: int
    """Stride byte offset (SBO)."""
    layout: str
    """Swizzle: key of LAYOUT_CODES."""
    start_bytes: int = 0
    """Start address; 0 leaves the field to be filled at run time."""

    def encode(self) -> int:
        """The 64-bit descriptor.

        Raises: ConfigError if a field is not a multiple of 16 or does not fit.
        """
        word = LAYOUT_CODES[self.layout] << 61 | VERSION_BITS
        for name, value, shift in (
            ("start address", self.start_bytes, 0),
            ("leading byte offset", self.leading_bytes, 16),
            ("stride byte offset", self.stride_bytes, 32),
        ):
            if value % 16 or not 0 <= value <= ADDRESS_MASK:
                raise ConfigError(
                    f"{name} of a shared-memory descriptor must be a multiple of 16 up to "
                    f"{ADDRESS_MASK}, got {value}; try {min(value & ~15, ADDRESS_MASK & ~15)}"
                )
            word |= (value >> 4) << shift
        return word


@dataclass(frozen=True)
class InstructionDescriptor:
    """What one tcgen05.mma of kind f16, tf32, f8f6f4 or i8 multiplies."""

    kind: str
    a: str
    """Format of A."""
    b: str
    d: str
    """Format of the accumulator."""
    m: int
    """Rows of D over all CTAs that take part."""
    n: int
    a_k_major: bool = True
    """Whether K is the contiguous dimension of A in shared memory."""
    b_k_major: bool = True

    def encode(self) -> int:
        """The 32-bit descriptor."""
        return (
            D_CODES[self.d] << 4
            | TYPE_CODES[self.kind][self.a] << 7
            | TYPE_CODES[self.kind][self.b] << 10
            | (not self.a_k_major) << 15
            | (not self.b_k_major) << 16
            | _size_bits(self.m, self.n)
        )


@dataclass(frozen=True)
class BlockScaledDescriptor:
    """What one tcgen05.mma of kind mxf8f6f4, mxf4 or mxf4nvf4 multiplies."""

    kind: str
    a: str
    b: str
    scale: str
    """Format of the scales: ue8m0 or ue4m3."""
    m: int
    n: int
    sfa_id: int = 0
    """Which byte of a word of scales of A the instruction starts with: 0..3, or 0 and 2."""
    sfb_id: int = 0
    a_k_major: bool = True
    b_k_major: bool = True

    def encode(self) -> int:
        """The 32-bit descriptor."""
        return (
            self.sfb_id << 4
            | TYPE_CODES[self.kind][self.a] << 7
            | TYPE_CODES[self.kind][self.b] << 10
            | (not self.a_k_major) << 15
            | (not self.b_k_major) << 16
            | SCALE_CODES[self.scale] << 23
            | self.sfa_id << 29
            | _size_bits(self.m, self.n)
        )


def _size_bits(m: int, n: int) -> int:
    """The M and N fields: M in 16s at bit 24, N in 8s at bit 17."""
    return n >> 3 << N_SHIFT | m >> 4 << 24
