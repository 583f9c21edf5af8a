"""The tensor cores' arithmetic, bit for bit: one truncated, fused sum per instruction.

Per output element: the exact products and the addend are aligned to the largest exponent among
them, each is truncated toward zero to F fractional bits there, the integers are added, and the sum
is rounded once. A product's exponent is the sum of its operands' exponents, its significand
lies in [1, 4). Source: MMA-Sim (arXiv 2511.10909), confirmed on an H200 for wgmma
(docs/hardware-findings.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.emulator.formats import FORMATS

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Exponents = NDArray[np.int16]

_ABSENT = -8192
"""Exponent of a zero operand: loses every maximum, and two of them still fit int16."""
_SLAB_ELEMENTS = 1 << 15
"""Products per numpy call: enough to hide the call, few enough for the L2 cache."""
_NARROW = 40
"""Operand exponents within +-this let products be scaled in float32 without rounding."""


@dataclass(frozen=True)
class FusedModel:
    """How one instruction adds."""

    fraction_bits: int
    """F: bits kept below the largest exponent."""
    output: str
    """f32 (toward zero), e8m13 (f32 with 13 mantissa bits, toward zero), or f16 (nearest-even)."""
    k_step: int = 256
    """Products of one fused sum; a longer K chains sums in order."""

    @property
    def zero_exponent(self) -> int:
        """Exponent that a zero addend has, below which nothing is aligned."""
        return -21 if self.output == "f16" else -133


def fused_model(unit: str, a_type: str, d_type: str) -> FusedModel:
    """The model of an instruction.

    `unit`: wgmma, tcgen05, or mma (mma.sync on sm_90 and later, except FP8 on sm_90, whose model
    is `mma_sync_fp8_sm90`). `d_type`: f32 or f16.
    """
    k_step = 32 // {"e4m3": 1, "e5m2": 1, "f16": 2, "bf16": 2, "tf32": 4}.get(a_type, 1)
    if unit == "wgmma" and a_type in ("e4m3", "e5m2"):
        return FusedModel(13, "f16" if d_type == "f16" else "e8m13", k_step)
    return FusedModel(25, d_type, k_step)


def exponents(values: F32, min_exponent: int) -> Exponents:
    """Unbiased exponents of float32 values, subnormals of the source format at `min_exponent`."""
    bits = np.ascontiguousarray(values).view(np.int32)
    found = ((bits >> 23) & 255).astype(np.int16) - np.int16(127)
    np.maximum(found, np.int16(min_exponent), out=found)
    found[values == 0] = _ABSENT
    return found


def min_exponent(type_name: str) -> int:
    """Exponent of a format's subnormals."""
    return -126 if type_name == "f32" else FORMATS[type_name].min_exponent


def fused_dot(
    a: F32, b: F32, c: F32, model: FusedModel, a_type: str, b_type: str,
    scale_a: F32 | None = None, scale_b: F32 | None = None,
) -> F32:  # fmt: skip
    """D = A @ B.T + C as the hardware computes it. A (M, K), B (N, K), C and D (M, N), as values.

    `scale_a` (M,) and `scale_b` (N,) are powers of two or NaN that multiply whole rows of A and B
    (block scaling with one block). Source: MMA-Sim's T-FDPA and ST-FDPA.
    """
    depth = a.shape[1]
    for first in range(0, depth, model.k_step):
        part = slice(first, first + model.k_step)
        c = _fused_step(a[:, part], b[:, part], c, model, a_type, b_type, scale_a, scale_b)
    return c


def _fused_step(
    a: F32, b: F32, c: F32, model: FusedModel, a_type: str, b_type: str,
    scale_a: F32 | None, scale_b: F32 | None,
) -> F32:  # fmt: skip
    special = _special_values(a, b, c, scale_a, scale_b)
    if special is not None:
        a, b, c = _finite(a), _finite(b), _finite(c)
    exponent_a, exponent_b = exponents(a, min_exponent(a_type)), exponents(b, min_exponent(b_type))
    wide_a, wide_b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if scale_a is not None and scale_b is not None:
        scale_a, scale_b = _finite(scale_a), _finite(scale_b)
        wide_a, wide_b = wide_a * scale_a[:, None], wide_b * scale_b[:, None]
        exponent_a = _shift(exponent_a, scale_a)
        exponent_b = _shift(exponent_b, scale_b)
    narrow = _is_narrow(exponent_a) and _is_narrow(exponent_b)
    top = exponents(c, -14 if model.output == "f16" else -126)
    np.maximum(top, np.int16(model.zero_exponent), out=top)
    top = _largest(exponent_a, exponent_b, top)
    add = _add_narrow if narrow else _add_wide
    total = add(wide_a, wide_b, top, model.fraction_bits)
    total += np.trunc(c * power_of_two(model.fraction_bits - top))
    total *= power_of_two(top - model.fraction_bits)
    d = round_sum(total, model.output)
    if special is not None:
        mask, values = special
        d[mask] = values[mask]
    return d


def _largest(exponent_a: Exponents, exponent_b: Exponents, top: Exponents) -> Exponents:
    """Elementwise maximum of `top` and every sum of a row's and a column's exponents."""
    for rows, columns in _slabs(exponent_a, exponent_b, np.int16):
        np.maximum(top, np.maximum.reduce(rows + columns, axis=0), out=top)
    return top


def _add_narrow(a: F64, b: F64, top: Exponents, fraction_bits: int) -> F64:
    """Sum of truncated products, in units of 2^(top - fraction_bits).

    float32 holds every product and its power-of-two multiples exactly: at most 22 significand bits
    and exponents within +-2 * _NARROW. Sums of 16 terms below 2^27 fit int32.
    """
    # where top is lower than this every product is zero
    bounded = np.maximum(top, np.int16(-2 * _NARROW - 1)).astype(np.int32)
    scale = ((127 + fraction_bits - bounded) << 23).view(np.float32)
    total = np.zeros(top.shape, np.float64)
    for rows, columns in _slabs(a, b, np.float32):
        product = rows * columns
        product *= scale
        total += np.add.reduce(product.astype(np.int32), axis=0, dtype=np.int32)
    return total


def _add_wide(a: F64, b: F64, top: Exponents, fraction_bits: int) -> F64:
    """The same for any exponents, in float64."""
    scale = power_of_two(fraction_bits - top)
    total = np.zeros(top.shape, np.float64)
    for rows, columns in _slabs(a, b, np.float64):
        product = rows * columns
        product *= scale
        total += np.add.reduce(np.trunc(product, out=product), axis=0)
    return total


def _slabs(a: NDArray[Any], b: NDArray[Any], dtype: Any) -> Iterator[tuple[NDArray[Any], ...]]:
    """Columns of A (k, M, 1) and of B (k, 1, N), a few k at a time: at most 16, and as many as keep
    the products in a cache. One numpy call over several k costs far less than one per k."""
    rows = np.ascontiguousarray(a.T, dtype)[:, :, None]
    columns = np.ascontiguousarray(b.T, dtype)[:, None, :]
    step = max(1, min(16, _SLAB_ELEMENTS // (a.shape[0] * b.shape[0])))
    for first in range(0, len(rows), step):
        yield rows[first : first + step], columns[first : first + step]


def power_of_two(exponent: NDArray[Any]) -> F64:
    """2^exponent as float64, for exponents of normal numbers."""
    return ((exponent.astype(np.int64) + 1023) << 52).view(np.float64)


def round_sum(values: F64, output: str) -> F32:
    """Round exact sums to the output format; there is no NaN, and every zero is +0."""
    with np.errstate(over="ignore", under="ignore"):
        if output == "f16":
            return values.astype(np.float16).astype(np.float32) + np.float32(0)
        kept_bits = 13 if output == "e8m13" else 23
        bits = values.view(np.int64)
        truncated = (bits & -(1 << (52 - kept_bits))).view(np.float64)
        magnitude = np.abs(values)
        small = np.asarray((magnitude < 2.0**-126) & (magnitude > 0))
        if small.any():
            step = 2.0 ** (-126 - kept_bits)
            truncated = np.where(small, np.trunc(values / step) * step, truncated)
        return truncated.astype(np.float32) + np.float32(0)


def _is_narrow(found: Exponents) -> bool:
    real = found[found != _ABSENT]
    return real.size == 0 or bool(real.min() >= -_NARROW and real.max() <= _NARROW)


def _shift(found: Exponents, scale: F32) -> Exponents:
    powers = np.frexp(scale)[1].astype(np.int16) - np.int16(1)
    return np.where(found == _ABSENT, found, found + powers[:, None]).astype(np.int16)


def _finite(values: F32) -> F32:
    return np.where(np.isfinite(values), values, np.float32(0))


def _special_values(
    a: F32, b: F32, c: F32, scale_a: F32 | None, scale_b: F32 | None
) -> tuple[NDArray[np.bool_], F32] | None:
    """(where the result is not finite because of an operand, what it is there), or None."""
    if scale_a is not None and scale_b is not None:
        with np.errstate(invalid="ignore"):
            a = np.where(np.isnan(scale_a)[:, None], np.float32(np.nan), a)
            b = np.where(np.isnan(scale_b)[:, None], np.float32(np.nan), b)
    if np.isfinite(a).all() and np.isfinite(b).all() and np.isfinite(c).all():
        return None

    def meets(left: NDArray[np.bool_], right: NDArray[np.bool_]) -> NDArray[np.bool_]:
        counts: NDArray[Any] = left.astype(np.float32) @ right.astype(np.float32).T
        return np.asarray(counts > 0)

    nan_a, nan_b = np.asarray(np.isnan(a).any(axis=1)), np.asarray(np.isnan(b).any(axis=1))
    nan = nan_a[:, None] | nan_b[None, :] | np.isnan(c)
    inf_a, inf_b = np.isinf(a), np.isinf(b)
    nan |= meets(inf_a, b == 0) | meets(a == 0, inf_b)
    plus, minus = np.isposinf(c), np.isneginf(c)
    plus |= meets(inf_a & (a > 0), b > 0) | meets(inf_a & (a < 0), b < 0)
    plus |= meets(a > 0, inf_b & (b > 0)) | meets(a < 0, inf_b & (b < 0))
    minus |= meets(inf_a & (a > 0), b < 0) | meets(inf_a & (a < 0), b > 0)
    minus |= meets(a > 0, inf_b & (b < 0)) | meets(a < 0, inf_b & (b > 0))
    nan |= plus & minus
    values = np.where(plus, np.float32(np.inf), np.float32(-np.inf))
    values[nan] = CANONICAL_NAN
    return nan | plus | minus, values


CANONICAL_NAN = np.array(0x7FFFFFFF, np.uint32).view(np.float32)[()]
"""The NaN of every float32 result."""


def mma_sync_fp8_sm90(a: F32, b: F32, c: F32, d_type: str = "f32") -> F32:
    """mma.sync m16n8k32 on FP8 values as sm_90 runs it: A (M, 32), B (N, 32), C and D (M, N).

    ptxas converts to f16 and chains two f16 steps, first the k with k % 4 < 2, then the others,
    starting from zero; C is added by an ordinary addition of the type of D, f32 or f16. Measured
    with ptxas 13.0 on an H200 (docs/hardware-findings.md); another ptxas may do otherwise.
    """
    model = FusedModel(25, d_type, 16)
    total = np.zeros_like(c)
    lower = np.arange(a.shape[1]) % 4 < 2
    for part in (lower, np.logical_not(lower)):
        total = fused_dot(a[:, part], b[:, part], total, model, "f16", "f16")
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.asarray(total + c, np.float32)
    return np.where(np.isnan(found), np.uint32(0x7FFFFFFF).view(np.float32), found)
