"""Facts about number formats, as data. A new format is one row here."""

from dataclasses import dataclass

from ptxgen.errors import ProblemError, not_one_of


@dataclass(frozen=True)
class Dtype:
    """One number format."""

    name: str
    """Our name, and PTX's: e4m3, bf16, f32."""
    bits: int
    """Bits of one element in global memory; formats below 8 bits are packed, low bits first."""
    numpy_name: str
    """`numpy.dtype.name` of the array type (ml_dtypes for those that numpy lacks)."""
    tensor_map_type: str
    """Element type of a TMA tensor map: TMA has no FP8, whose bytes travel as uint8."""
    mantissa_bits: int
    """Stored fraction bits."""
    exponent_bias: int
    """IEEE-style exponent bias."""
    max_finite: float
    """Largest finite magnitude."""

    @property
    def bytes(self) -> int:
        """Bytes of one element of an array, and in a tile in shared memory.

        Formats below 8 bits take a whole byte in an array. TMA unpacks them so that 16 of them take
        16 bytes in shared memory, too.
        """
        return -(-self.bits // 8)

    def packed_bytes(self, elements: int) -> int:
        """Bytes of `elements` elements in a row in global memory, whole bytes."""
        return -(-elements * self.bits // 8)

    @property
    def is_packed(self) -> bool:
        """Whether elements share bytes in global memory."""
        return self.bits < 8

    def __str__(self) -> str:
        return self.name


# Source: OCP 8-bit Floating Point Specification 1.0 (e4m3 has no infinity), OCP Microscaling
# Formats 1.0 (e2m3, e3m2 and e2m1 have neither infinity nor NaN), IEEE 754, bfloat16; tf32 is a
# float32 that loses its 13 lowest bits. TMA rounds to tf32. Integers have no exponent.
DTYPES: dict[str, Dtype] = {
    d.name: d
    for d in (
        Dtype("e4m3", 8, "float8_e4m3fn", "uint8", 3, 7, 448.0),
        Dtype("e5m2", 8, "float8_e5m2", "uint8", 2, 15, 57344.0),
        Dtype("e2m3", 6, "float6_e2m3fn", "16u6_align16b", 3, 1, 7.5),
        Dtype("e3m2", 6, "float6_e3m2fn", "16u6_align16b", 2, 3, 28.0),
        Dtype("e2m1", 4, "float4_e2m1fn", "16u4_align16b", 1, 1, 6.0),
        Dtype("bf16", 16, "bfloat16", "bfloat16", 7, 127, 3.3895313892515355e38),
        Dtype("f16", 16, "float16", "float16", 10, 15, 65504.0),
        Dtype("tf32", 32, "float32", "tfloat32", 10, 127, 3.4011621342146535e38),
        Dtype("f32", 32, "float32", "float32", 23, 127, 3.4028234663852886e38),
        Dtype("s8", 8, "int8", "uint8", 7, 0, 127.0),
        Dtype("u8", 8, "uint8", "uint8", 8, 0, 255.0),
        Dtype("s32", 32, "int32", "int32", 31, 0, 2147483647.0),
    )
}

NAMES_BY_NUMPY_NAME: dict[str, str] = {
    d.numpy_name: d.name for d in DTYPES.values() if d.name not in ("tf32", "s8", "u8")
}
"""An array of float32 is f32, and one of bytes may be FP8: tf32, s8 and u8 must be asked for."""


def dtype(name: str) -> Dtype:
    """The format called `name`.

    Raises: ProblemError if there is none.
    """
    try:
        return DTYPES[name]
    except (KeyError, TypeError):  # TypeError: what has no hash
        raise ProblemError(not_one_of("dtype", name, DTYPES)) from None
