"""Number formats of the tensor cores and of cvt: decoding tables, encoding, rounding.

Written from the format facts alone, with numpy only. Small formats decode through tables of 256
float32 values; encoding works on float64, in which every source value is exact.
Source: OCP 8-bit and Microscaling Formats specifications 1.0, IEEE 754; PTX ISA 9.0,
"cvt" and "Alternate Floating-Point Data Formats".
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import UnknownInstructionError

F32 = NDArray[np.float32]
Bits8 = NDArray[np.uint8]
Bits16 = NDArray[np.uint16]
Bits32 = NDArray[np.uint32]


@dataclass(frozen=True)
class Format:
    """A floating-point format of at most 19 bits."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_code: int
    """Code of the largest finite magnitude."""
    nan_code: int | None
    """Canonical NaN; None if there is none."""
    infinity_code: int | None
    signed: bool = True

    @property
    def sign_bit(self) -> int:
        """The sign in a code, 0 when unsigned."""
        return 1 << (self.exponent_bits + self.mantissa_bits) if self.signed else 0

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number, which subnormals share."""
        return 1 - self.bias


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("e4m3", 4, 3, 7, 0x7E, 0x7F, None),
        Format("e5m2", 5, 2, 15, 0x7B, 0x7F, 0x7C),
        Format("e2m3", 2, 3, 1, 0x1F, None, None),
        Format("e3m2", 3, 2, 3, 0x1F, None, None),
        Format("e2m1", 2, 1, 1, 0x7, None, None),
        Format("ue4m3", 4, 3, 7, 0x7E, 0x7F, None, signed=False),
        Format("f16", 5, 10, 15, 0x7BFF, 0x7FFF, 0x7C00),
        Format("bf16", 8, 7, 127, 0x7F7F, 0x7FFF, 0x7F80),
        Format("tf32", 8, 10, 127, 0x3FBFF, 0x3FFFF, 0x3FC00),
    )
}
"""ue8m0 is not here: it has neither sign, mantissa nor zero (decode_table knows it)."""


@cache
def decode_table(name: str) -> F32:
    """float32 value of each of 256 codes of a format of at most 8 bits; unused high bits ignored.

    ue8m0 code 0 is 2^-127, a float32 subnormal.
    """
    if name == "ue8m0":
        table = np.full(256, np.nan, np.float32)
        table[:255] = np.ldexp(np.float64(1), np.arange(255) - 127)
    else:
        table = _decode(np.arange(256), FORMATS[name]).astype(np.float32)
    table.flags.writeable = False
    return table


def decode(name: str, codes: NDArray[Any]) -> F32:
    """float32 values of codes: uint8 for formats up to 8 bits, uint16 for f16 and bf16, uint32 for
    f32 and tf32 (whose low 13 bits the tensor core ignores)."""
    if name == "bf16":
        return bf16_to_f32(codes)
    if name == "f16":
        return np.asarray(codes.view(np.float16), np.float32)
    if name == "tf32":
        return np.asarray((codes & np.uint32(0xFFFFE000)).view(np.float32))
    if name == "f32":
        return np.asarray(codes.view(np.float32))
    return np.asarray(decode_table(name).take(codes))


def bf16_to_f32(codes: Bits16) -> F32:
    """float32 values of bf16 codes."""
    return (codes.astype(np.uint32) << 16).view(np.float32)


def f32_to_bf16(values: F32) -> Bits16:
    """bf16 codes, nearest-even; NaN becomes 0x7FFF."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = bits + (0x7FFF + (bits >> 16 & 1)).astype(np.uint32)
    codes = (rounded >> 16).astype(np.uint16)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    if nan.any():
        codes[nan] = 0x7FFF
    return codes


def f32_to_f16(values: F32) -> Bits16:
    """f16 codes, nearest-even; NaN becomes 0x7FFF."""
    with np.errstate(over="ignore", under="ignore"):
        half = np.asarray(values, np.float32).astype(np.float16)
    codes = half.view(np.uint16).copy()
    codes[np.isnan(half)] = 0x7FFF
    return codes


def encode(
    name: str,
    values: NDArray[Any],
    *,
    rounding: str = "rn",
    saturate: bool = False,
    relu: bool = False,
    random: NDArray[Any] | None = None,
) -> NDArray[np.uint32]:
    """Codes of `values` in a format, as cvt makes them.

    `rounding`: rn (nearest-even), rz, rna (nearest, ties away), rp, rm, or rs, which adds `random`
    (in units of 2^-32 of a last place) before truncating. `saturate` = .satfinite: too large
    becomes the largest finite, else infinity or NaN. NaN stays NaN where the format has one, else
    becomes the largest finite positive. `relu`: negative becomes +0.
    """
    if name == "ue8m0":
        return _encode_ue8m0(np.asarray(values, np.float64), rounding, saturate)
    fmt = FORMATS[name]
    x = np.asarray(values, np.float64)
    nan = np.isnan(x)
    negative = np.signbit(x)
    magnitude = np.where(nan, 0.0, np.abs(x))
    infinite = np.isinf(magnitude)
    magnitude = np.where(infinite, 0.0, magnitude)
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, fmt.min_exponent)
    exponent = np.where(magnitude == 0, fmt.min_exponent, exponent)
    last_places = np.ldexp(magnitude, fmt.mantissa_bits - exponent)
    steps = _round(last_places, rounding, negative, random)
    # with the implicit bit in `steps` one sum serves normals, subnormals and carries alike
    codes = ((exponent - fmt.min_exponent) << fmt.mantissa_bits) + steps.astype(np.int64)
    over = (codes > fmt.max_code) | infinite
    too_large = fmt.max_code
    if not saturate and fmt.infinity_code is not None:
        too_large = fmt.infinity_code
    elif not saturate and fmt.nan_code is not None:
        too_large = fmt.nan_code
    codes = np.where(over, too_large, codes)
    if fmt.signed:
        codes = np.where(negative, codes | fmt.sign_bit, codes)
    else:
        codes = np.where(negative, 0, codes)
    if relu:
        codes = np.where(negative, 0, codes)
    codes = np.where(nan, fmt.max_code if fmt.nan_code is None else fmt.nan_code, codes)
    return codes.astype(np.uint32)


def round_tf32(bits: Bits32, rounding: str = "rn") -> Bits32:
    """float32 bits rounded to tf32 (low 13 bits 0), as TMA's tf32 maps (rn) and cvt.rna.tf32 do.

    NaN becomes 0x7FFFE000, overflow infinity, subnormals are kept.
    """
    bits = np.ascontiguousarray(bits).view(np.uint32)
    if rounding == "rz":
        rounded = bits & np.uint32(0xFFFFE000)
    else:
        half = np.uint32(0x1000) if rounding == "rna" else 0xFFF + (bits >> 13 & 1)
        rounded = (bits + half).astype(np.uint32) & np.uint32(0xFFFFE000)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    special = magnitude >= 0x7F800000
    if special.any():
        rounded[special] = bits[special]
        rounded[magnitude > 0x7F800000] = 0x7FFFE000
    return rounded


def unpack_codes(packed: Bits8, bits: int) -> Bits8:
    """Codes of 4 or 6 bits, one per byte, from densely packed bytes (low bits first).

    Shape (..., n) -> (..., n * 8 / bits).
    """
    if bits == 4:
        pairs = np.stack([packed & 15, packed >> 4], axis=-1)
        return pairs.reshape(*packed.shape[:-1], -1)
    assert bits == 6, bits
    triples = packed.reshape(*packed.shape[:-1], -1, 3).astype(np.uint32)
    word = triples[..., 0] | triples[..., 1] << 8 | triples[..., 2] << 16
    codes = np.stack([word >> s & 63 for s in (0, 6, 12, 18)], axis=-1)
    return codes.reshape(*packed.shape[:-1], -1).astype(np.uint8)


def unpack_slot_codes(rows: Bits8, packed: str) -> Bits8:
    """One byte per element from 16-byte slots of 16 elements, as ldmatrix and tcgen05.cp unpack.

    `packed`: b6x16_p32 (12 bytes, then 4 of padding) or b4x16_p64 (8 bytes, then 8). Codes go to
    the low bits. Shape (rows, 16 n) is kept.
    Raises: UnknownInstructionError.
    """
    bits = {"b6x16_p32": 6, "b4x16_p64": 4}.get(packed)
    if bits is None:
        raise UnknownInstructionError(f"no packed format {packed}")
    slots = np.ascontiguousarray(rows.reshape(-1, 16)[:, : 2 * bits])
    return np.asarray(unpack_codes(slots, bits), np.uint8).reshape(rows.shape)


def _decode(codes: NDArray[Any], fmt: Format) -> NDArray[np.float64]:
    magnitude = codes & ((1 << (fmt.exponent_bits + fmt.mantissa_bits)) - 1)
    fraction = magnitude & ((1 << fmt.mantissa_bits) - 1)
    exponent = magnitude >> fmt.mantissa_bits
    significand = fraction + np.where(exponent > 0, 1 << fmt.mantissa_bits, 0)
    scale = np.maximum(exponent, 1) - fmt.bias - fmt.mantissa_bits
    values = np.ldexp(significand.astype(np.float64), scale)
    if fmt.infinity_code is not None:
        values[magnitude == fmt.infinity_code] = np.inf
        values[magnitude > fmt.infinity_code] = np.nan
    elif fmt.nan_code is not None:
        values[magnitude == fmt.nan_code] = np.nan
    return np.asarray(np.where((codes & fmt.sign_bit) != 0, -values, values), np.float64)


def _round(
    steps: NDArray[np.float64],
    rounding: str,
    negative: NDArray[np.bool_],
    random: NDArray[Any] | None,
) -> NDArray[np.float64]:
    if rounding == "rn":
        return np.asarray(np.rint(steps))
    if rounding == "rz":
        return np.asarray(np.floor(steps))
    if rounding == "rna":
        return np.asarray(np.floor(steps + 0.5))
    if rounding in ("rp", "rm"):
        up = negative if rounding == "rm" else ~negative
        return np.where(up, np.ceil(steps), np.floor(steps))
    assert rounding == "rs", rounding
    assert random is not None
    return np.asarray(np.floor(steps + np.asarray(random, np.float64) * 2.0**-32))


def _encode_ue8m0(x: NDArray[np.float64], rounding: str, saturate: bool) -> NDArray[np.uint32]:
    mantissa, exponent = np.frexp(np.abs(x))
    if rounding == "rp":
        exponent = exponent + (mantissa > 0.5)
    else:
        assert rounding == "rz", rounding
    codes = np.clip(exponent - 1 + 127, 0, 255)
    codes = np.where(x == 0, 0, codes)
    codes = np.where(np.isinf(x), 255, codes)
    if saturate:
        codes = np.minimum(codes, 254)
    return np.where(np.isnan(x), 255, codes).astype(np.uint32)
