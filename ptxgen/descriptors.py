"""Matrix descriptors of wgmma: the 64 bits that tell it where an operand tile lies.

Source: PTX ISA 9.0, "Matrix Descriptor Format".
"""

from dataclasses import dataclass

from ptxgen.errors import ConfigError

SWIZZLE_CODES = {0: 0, 128: 1, 64: 2, 32: 3}
"""Swizzle width in bytes -> bits 63:62. The order is reversed: 1 is the widest."""
ADDRESS_MASK = 0x3FFFF
"""Address bits that a descriptor can hold (18 bits, of which the low four are dropped)."""


@dataclass(frozen=True)
class MatrixDescriptor:
    """An sm_90 matrix descriptor. Offsets are in bytes; only `encode` shifts them."""

    leading_bytes: int
    """Leading byte offset (LBO)."""
    stride_bytes: int
    """Stride byte offset (SBO)."""
    swizzle_bytes: int
    """0 (none), 32, 64 or 128."""
    start_bytes: int = 0
    """Start address; 0 leaves the field to be filled at run time."""

    def encode(self) -> int:
        """The 64-bit descriptor.

        Raises: ConfigError if a field is not a multiple of 16 or does not fit.
        """
        fields = (
            ("start address", self.start_bytes, 0),
            ("leading byte offset", self.leading_bytes, 16),
            ("stride byte offset", self.stride_bytes, 32),
        )
        word = SWIZZLE_CODES[self.swizzle_bytes] << 62
        for name, value, shift in fields:
            if value % 16 or not 0 <= value <= ADDRESS_MASK:
                raise ConfigError(
                    f"{name} of a matrix descriptor must be a multiple of 16 up to {ADDRESS_MASK}, "
                    f"got {value}; try {min(value & ~15, ADDRESS_MASK & ~15)}"
                )
            word |= (value >> 4) << shift
        return word
