"""Arithmetic on lanes, called by generated code.

A value of a warp is either uniform, a Python int (bits, unsigned), or varies by lane, an unsigned
numpy array (32,), or (n, 32) for n registers at once. A predicate that varies is an int, bit i =
lane i.
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[Any]

FULL = 0xFFFFFFFF
LANES = np.arange(32, dtype=np.uint32)
U1, U2, U4, U8 = np.uint8, np.uint16, np.uint32, np.uint64
I1, I2, I4, I8 = np.int8, np.int16, np.int32, np.int64
F2, F4, F8 = np.float16, np.float32, np.float64
UNSIGNED = {8: U1, 16: U2, 32: U4, 64: U8}
FLOATS = {16: F2, 32: F4, 64: F8}

_BITS = (1 << np.arange(32, dtype=np.uint64)).astype(np.uint64)
_bools: dict[int, NDArray[np.bool_]] = {}
_indices: dict[int, NDArray[np.int64]] = {}
_lists: dict[int, tuple[int, ...]] = {}


def lanes(mask: int) -> NDArray[np.bool_]:
    """The mask as 32 booleans. Do not write to it."""
    found = _bools.get(mask)
    if found is None:
        found = (np.uint64(mask & FULL) & _BITS) != 0
        if len(_bools) > 4096:
            _bools.clear()
        _bools[mask] = found
    return found


def lane_indices(mask: int) -> NDArray[np.int64]:
    """Indices of the set bits, ascending. Do not write to it."""
    found = _indices.get(mask)
    if found is None:
        found = np.flatnonzero(lanes(mask)).astype(np.int64)
        if len(_indices) > 4096:
            _indices.clear()
        _indices[mask] = found
    return found


def lane_list(mask: int) -> tuple[int, ...]:
    """Indices of the set bits as Python ints."""
    found = _lists.get(mask)
    if found is None:
        found = tuple(i for i in range(32) if mask >> i & 1)
        if len(_lists) > 4096:
            _lists.clear()
        _lists[mask] = found
    return found


def mask_of(flags: Any) -> int:
    """32 booleans as a mask; one boolean stands for all."""
    if isinstance(flags, bool | np.bool_):
        return FULL if flags else 0
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def lowest(mask: int) -> int:
    """Index of the lowest set bit."""
    return (mask & -mask).bit_length() - 1


_pack_f = struct.Struct("<f").pack
_pack_i = struct.Struct("<I").pack
_unpack_f = struct.Struct("<f").unpack
_unpack_i = struct.Struct("<I").unpack
_pack_d = struct.Struct("<d").pack
_pack_q = struct.Struct("<Q").pack
_unpack_d = struct.Struct("<d").unpack
_unpack_q = struct.Struct("<Q").unpack


def bits_f32(bits: int) -> float:
    """The f32 of a bit pattern."""
    value: float = _unpack_f(_pack_i(bits))[0]
    return value


def f32_bits(value: float) -> int:
    """Bit pattern of a value rounded to f32 (nearest even); NaN becomes 0x7FFFFFFF."""
    if value != value:
        return 0x7FFFFFFF
    try:
        bits: int = _unpack_i(_pack_f(value))[0]
    except OverflowError:
        return 0x7F800000 if value > 0 else 0xFF800000
    return bits


def bits_f64(bits: int) -> float:
    """The f64 of a bit pattern."""
    value: float = _unpack_d(_pack_q(bits))[0]
    return value


def f64_bits(value: float) -> int:
    """Bit pattern of an f64."""
    bits: int = _unpack_q(_pack_d(value))[0]
    return bits


def bits_f16(bits: int) -> float:
    """The f16 of a bit pattern."""
    return float(np.uint16(bits).view(F2))


def f16_bits(value: float) -> int:
    """Bit pattern of a value rounded to f16."""
    if value != value:
        return 0x7FFF
    return int(F2(value).view(U2))


def bits_bf16(bits: int) -> float:
    """The bf16 of a bit pattern."""
    return bits_f32(bits << 16)


def bf16_bits(value: float) -> int:
    """Bit pattern of an f32 value rounded to bf16 (nearest even)."""
    if value != value:
        return 0x7FFF
    bits = f32_bits(value)
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def bf16_to_f32(bits: Lanes) -> Lanes:
    """bf16 patterns (uint16) as f32."""
    wide: Lanes = (bits.astype(U4) << 16).view(F4)
    return wide


def f32_to_bf16(values: Lanes) -> Lanes:
    """f32 rounded to bf16 patterns (nearest even) as uint16."""
    bits = values.view(U4)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    nan = values != values
    if nan.any():
        rounded = np.where(nan, U4(0x7FFF), rounded)
    return rounded.astype(U2)


def fma_f32(a: Any, b: Any, c: Any) -> Lanes:
    """a * b + c with one rounding, f32.

    The product is exact in f64. Rounding the sum twice (f64, then f32) only differs from one
    rounding when the f64 lies exactly between two f32; then the sum's own error decides.
    """
    product = np.multiply(a, b, dtype=F8)
    total: Lanes = product + c
    middle = (total.view(U8) & 0x1FFFFFFF) == 0x10000000
    if middle.any():
        wide = np.broadcast_to(np.asarray(c, F8), total.shape)
        part = total - product
        error = (product - (total - part)) + (wide - part)
        step = np.where(error > 0, np.inf, -np.inf)
        nudged = np.nextafter(total, step)
        total = np.where(middle & (error != 0), nudged, total)
    return total.astype(F4)


def fma_s32(a: float, b: float, c: float) -> float:
    """fma_f32 of three uniform values."""
    return float(fma_f32(np.array([a]), np.array([b]), np.array([c]))[0])


def shift_left(a: Any, count: Any, width: int) -> Lanes:
    """a << count, 0 where count >= width."""
    found: Lanes = np.where(count < width, a << (count & (width - 1)), 0)
    return found.astype(UNSIGNED[width])


def shift_right(a: Any, count: Any, width: int) -> Lanes:
    """a >> count; past the width the sign (or 0)."""
    return a >> np.minimum(count, width - 1) if _signed(a) else np.where(
        count < width, a >> (count & (width - 1)), 0
    )  # fmt: skip


def _signed(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.kind == "i"


def full(value: int, width: int) -> Lanes:
    """A uniform integer in every lane."""
    return np.full(32, value, UNSIGNED[width])


def truncate_division(a: Any, b: Any) -> Any:
    """Signed division towards zero; division by zero gives all ones."""
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            return -1
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    with np.errstate(all="ignore"):
        q = np.floor_divide(a, b)
        r = a - q * b
        q = q + ((r != 0) & ((r < 0) != (np.asarray(a) < 0)))
    return np.where(np.asarray(b) == 0, -1, q).astype(_dtype(a, b))


def truncate_remainder(a: Any, b: Any) -> Any:
    """Remainder with the sign of the dividend."""
    if isinstance(a, int) and isinstance(b, int):
        return a if b == 0 else a - truncate_division(a, b) * b
    with np.errstate(all="ignore"):
        return np.where(np.asarray(b) == 0, a, np.fmod(a, b)).astype(_dtype(a, b))


def divide_unsigned(a: Any, b: Any) -> Any:
    """Unsigned division; division by zero gives all ones."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else -1
    with np.errstate(all="ignore"):
        kind = _dtype(a, b)
        return np.where(np.asarray(b) == 0, np.iinfo(kind).max, np.floor_divide(a, b)).astype(kind)


def remainder_unsigned(a: Any, b: Any) -> Any:
    """Unsigned remainder; by zero it is the dividend."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else a
    with np.errstate(all="ignore"):
        return np.where(np.asarray(b) == 0, a, np.remainder(a, b)).astype(_dtype(a, b))


def _dtype(a: Any, b: Any) -> Any:
    return a.dtype if isinstance(a, np.ndarray) else b.dtype


def choose(condition: Any, a: Any, b: Any, dtype: Any) -> Lanes:
    """np.where for operands that may all be uniform."""
    found: Lanes = np.where(condition, a, b)
    return found if found.dtype == dtype else found.astype(dtype)


def widen_bf16(values: Any) -> Any:
    """bf16 patterns, uniform or not, as f32."""
    return bits_bf16(values) if isinstance(values, int) else bf16_to_f32(values)


def multiply_high(a: Any, b: Any, signed: bool) -> Lanes:
    """High 64 bits of 64-bit products."""

    def high(x: int, y: int) -> int:
        return (int(x) * int(y)) >> 64

    found = np.frompyfunc(high, 2, 1)(a, b)
    return np.asarray(found).astype(np.int64 if signed else np.uint64)


def widen(values: Any, bits: int) -> Any:
    """Unsigned values in a wider type."""
    return values if isinstance(values, int) else values.astype(UNSIGNED[bits])


def in_space(addresses: Any, space: str, rank: int = 0) -> Any:
    """Whether generic addresses lie in a state space; `rank` is that of the CTA in its cluster."""
    wide = np.asarray(addresses).astype(np.uint64)
    window = wide >> np.uint64(32)
    if space in ("shared", "shared::cta"):
        return (window == 0x7F00) & (wide >> np.uint64(24) & np.uint64(0xFF) == rank)
    if space.startswith("shared"):
        return window == 0x7F00
    if space == "local":
        return window == 0x7E00
    return (window != 0x7F00) & (window != 0x7E00)
