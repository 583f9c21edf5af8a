"""Facts about number formats, as data. A new format is one row here."""

from dataclasses import dataclass

from ptxgen.errors import ProblemError


@dataclass(frozen=True)
class Dtype:
    """One number format."""

    name: str
    """Our name, and PTX's: e4m3, bf16, f32."""
    bits: int
    """Bits of one element in memory."""
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
        """Bytes of one element in memory."""
        return self.bits // 8

    def __str__(self) -> str:
        return self.name


# Source: OCP 8-bit Floating Point Specification 1.0 (e4m3 has no infinity), IEEE 754, bfloat16.
DTYPES: dict[str, Dtype] = {
    d.name: d
    for d in (
        Dtype("e4m3", 8, "float8_e4m3fn", "uint8", 3, 7, 448.0),
        Dtype("e5m2", 8, "float8_e5m2", "uint8", 2, 15, 57344.0),
        Dtype("bf16", 16, "bfloat16", "bfloat16", 7, 127, 3.3895313892515355e38),
        Dtype("f16", 16, "float16", "float16", 10, 15, 65504.0),
        Dtype("f32", 32, "float32", "float32", 23, 127, 3.4028234663852886e38),
    )
}

NAMES_BY_NUMPY_NAME: dict[str, str] = {d.numpy_name: d.name for d in DTYPES.values()}


def dtype(name: str) -> Dtype:
    """The format called `name`.

    Raises: ProblemError if there is none.
    """
    found = DTYPES.get(name)
    if found is None:
        raise ProblemError(f"dtype {name!r} is not known; must be one of {', '.join(DTYPES)}")
    return found
