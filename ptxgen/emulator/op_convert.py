"""cvt: between integers and floats. Packed formats: op_convert_packed."""

from typing import Any

import numpy as np

from ptxgen.emulator.lanes import F4, F8, U2, U4, bf16_to_f32
from ptxgen.emulator.micro import Compute, Micro, lowers, unknown
from ptxgen.emulator.op_convert_packed import SIZES, compute, packed_conversion
from ptxgen.emulator.rounding import round_to
from ptxgen.emulator.runtime import runtime
from ptxgen.emulator.values import TYPE_BITS
from ptxgen.ptx.module import Instruction

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f16", "bf16", "f32", "f64")
ROUNDINGS = ("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "rna", "rs")


@lowers("cvt")
def convert(instruction: Instruction) -> list[Micro]:
    """cvt in all forms.

    Raises: UnknownInstructionError for types or modifiers that are not modelled.
    """
    modifiers = list(instruction.modifiers)
    if "pack" in modifiers:
        return _pack_integers(instruction)
    rounding = next((m for m in modifiers if m in ROUNDINGS), "")
    flags = {m for m in modifiers[:-2] if m not in ROUNDINGS}
    known = {"sat", "satfinite", "relu", "ftz", "scaled"}
    if flags - known or len(modifiers) < 2:
        raise unknown(instruction, f"modifiers {', '.join(sorted(flags - known))}")
    out, source = modifiers[-2:]
    if out in INTEGERS and source in INTEGERS:
        return [_integers(instruction, out, source, "sat" in flags)]
    if out in FLOATS and source in INTEGERS:
        return [_integer_to_float(instruction, out, source, rounding, "sat" in flags)]
    if out in INTEGERS and source in FLOATS:
        return [_float_to_integer(instruction, out, source, rounding, "ftz" in flags)]
    if out in FLOATS and source in FLOATS:
        return [_floats(instruction, out, source, rounding, flags)]
    if out in ("bf16x2", "f16x2") and source == "f32" and rounding in ("rn", "") and not flags:
        text = f"pack_{out}({{0}}, {{1}})"
        return [compute(instruction, "b32", ("f32", "f32"), text)]
    return [packed_conversion(instruction, out, source, rounding, flags)]


def _integers(instruction: Instruction, out: str, source: str, saturates: bool) -> Compute:
    bits = TYPE_BITS[out]
    low, high = (0, (1 << bits) - 1) if out[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    letter = "I" if out[0] == "s" else "U"
    vector, scalar = "{0}", "{0}"
    if saturates:
        s_bits = TYPE_BITS[source]
        s_low = 0 if source[0] == "u" else -(1 << s_bits - 1)
        s_high = (1 << s_bits) - 1 if source[0] == "u" else (1 << s_bits - 1) - 1
        low, high = max(low, s_low), min(high, s_high)
        vector, scalar = f"np.clip({{0}}, {low}, {high})", f"min(max({{0}}, {low}), {high})"
    if out[0] == "s":
        half = 1 << bits - 1
        scalar = f"((({scalar}) & {(1 << bits) - 1:#x} ^ {half:#x}) - {half:#x})"
    else:
        scalar = f"({scalar}) & {(1 << bits) - 1:#x}"
    return compute(instruction, out, (source,), f"{vector}.astype({letter}{bits // 8})", scalar)


def _integer_to_float(
    instruction: Instruction, out: str, source: str, rounding: str, saturates: bool
) -> Compute:
    if rounding in ("rn", "") and out in ("f32", "f64") and not saturates:
        return compute(
            instruction, out, (source,), f"np.asarray({{0}}).astype(F{TYPE_BITS[out] // 8})",
            "float({0})" if TYPE_BITS[source] <= 32 or out == "f64" else "float(F4({0}))",
        )  # fmt: skip
    plain = f"b{TYPE_BITS[out]}"
    if out == "f64":
        return compute(instruction, plain, (source,), f"integer_to_double({{0}}, {rounding!r})")
    text = f"integer_to_float({{0}}, {out!r}, {rounding or 'rn'!r}, {saturates})"
    return compute(instruction, plain, (source,), text)


@runtime
def integer_to_float(values: Any, out: str, rounding: str, saturates: bool) -> Any:
    """Integers rounded to f16, bf16 or f32 in any direction."""
    wide = np.asarray(values)
    high = (wide >> 32 << 32).astype(F8) if wide.dtype.itemsize == 8 else np.zeros(wide.shape)
    low = (wide & 0xFFFFFFFF if wide.dtype.itemsize == 8 else wide).astype(F8)
    x = high + low
    fraction, exponent = SIZES[out]
    found = round_to(x, low - (x - high), fraction, exponent, rounding)
    if saturates:
        found = _saturated(found, out)
    return found.astype(U4 if out == "f32" else U2)


def _saturated(patterns: Any, kind: str) -> Any:
    """Patterns clamped to [+0, 1]; NaN gives +0."""
    one = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}[kind]
    infinity = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000}[kind]
    # negative numbers and NaN have patterns above that of infinity
    return np.where(np.asarray(patterns) <= infinity, np.minimum(patterns, one), 0)


def _float_to_integer(
    instruction: Instruction, out: str, source: str, rounding: str, flushes: bool
) -> Compute:
    read = "b16" if source == "bf16" else source
    value = "widen_bf16({0})" if source == "bf16" else "flush({0})" if flushes else "{0}"
    text = f"float_to_integer({value}, {out!r}, {rounding!r}, {source == 'f64'})"
    return compute(instruction, out, (read,), text)


@runtime
def float_to_integer(values: Any, out: str, rounding: str, from_double: bool = False) -> Any:
    """Rounded and clamped to the integer type; NaN gives 0, but for 64-bit types and from f64 the
    top bit (measured)."""
    function = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding]
    x = function(np.asarray(values, F8))
    bits = int(out[1:])
    low = 0.0 if out[0] == "u" else -(2.0 ** (bits - 1))
    high = 2.0 ** (bits if out[0] == "u" else bits - 1)
    kind = np.dtype(f"{'i' if out[0] == 's' else 'u'}{bits // 8}")
    info = np.iinfo(kind)
    over, under, nan = x >= high, x <= low, np.isnan(x)
    found = np.where(over | under | nan, 0, x).astype(kind)
    found = np.where(over, info.max, np.where(under, info.min, found)).astype(kind)
    if nan.any() and (bits == 64 or (from_double and bits == 32)):
        top = np.uint64(1 << bits - 1).astype(kind) if out[0] == "u" else info.min
        found = np.where(nan, top, found).astype(kind)
    return found


def _floats(
    instruction: Instruction, out: str, source: str, rounding: str, flags: set[str]
) -> Compute:
    if not flags and rounding in ("rn", ""):
        simple = {
            ("f32", "f16"): ("f32", "f16", "quiet({0}.astype(F4))", "float(quiet(F4({0})))"),
            ("f32", "bf16"): ("b32", "b16", "{0}.astype(U4) << 16", "{0} << 16"),
            ("bf16", "f32"): ("b16", "f32", "f32_to_bf16({0})", "bf16_bits({0})"),
            ("f16", "f32"): ("b16", "f32", "f32_to_f16({0})", "f16_bits({0})"),
            ("f64", "f32"): ("f64", "f32", "{0}.astype(F8)", "{0}"),
            ("f32", "f64"): ("b32", "f64", "{0}.astype(F4).view(U4)", "int(F4({0}).view(U4))"),
        }.get((out, source))
        if simple is not None:
            return compute(instruction, simple[0], (simple[1],), *simple[2:])
    plain = f"b{TYPE_BITS[out]}"
    text = (
        f"convert_float({{0}}, {source!r}, {out!r}, {rounding!r}, {'sat' in flags}, "
        f"{'relu' in flags}, {'ftz' in flags}, {'satfinite' in flags})"
    )
    return compute(instruction, plain, (f"b{TYPE_BITS[source]}",), text)


@runtime
def convert_float(
    bits: Any, source: str, out: str, rounding: str, saturates: bool, relu: bool, flushes: bool,
    finite: bool,
) -> Any:  # fmt: skip
    """Between float types with any rounding, on bit patterns."""
    x = _widen(bits, source)
    if flushes:
        x = np.where(np.abs(x) < 2.0**-126, np.copysign(0.0, x), x)
    if rounding in ("rni", "rzi", "rmi", "rpi"):
        function = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding]
        x = function(x)
        rounding = "rn"
    if saturates:
        x = np.where(x > 0, np.minimum(x, 1.0), 0.0)
    if relu:
        x = np.where(x <= 0, 0.0, x)
    if out == "f64":
        nan = np.uint64(0x7FFFFFFFE0000000)
        quiet = x.view(np.uint64) | np.uint64(1 << 51)
        return np.where(np.isnan(x), nan if flushes else quiet, x.view(np.uint64))
    fraction, exponent = SIZES[out]
    if finite:
        largest = float((2 - 2.0**-fraction) * 2.0 ** ((1 << exponent - 1) - 1))
        x = np.where(np.isnan(x), x, np.clip(x, -largest, largest))
    found = round_to(x, 0.0, fraction, exponent, rounding or "rn")
    if source == "f64" and (out, rounding) != ("f32", "rn"):
        # The quiet NaN of these conversions, which are no single instruction, is another one.
        quiet = 0x7FC00000 if out == "f32" else 0x7E00
        sign = 1 << 31 if out == "f32" else 1 << 15
        found = np.where(np.isnan(x), np.where(np.signbit(x), quiet | sign, quiet), found)
    return found.astype(U4 if out == "f32" else U2)


def _widen(bits: Any, kind: str) -> Any:
    if kind == "f64":
        return np.asarray(bits, np.uint64).view(F8)
    if kind == "f32":
        return np.asarray(bits, U4).view(F4).astype(F8)
    if kind == "bf16":
        return bf16_to_f32(np.asarray(bits, U2)).astype(F8)
    return np.asarray(bits, U2).view(np.float16).astype(F8)


def _pack_integers(instruction: Instruction) -> list[Micro]:
    """cvt.pack.sat: two integers clamped and packed, with an optional third as upper half."""
    modifiers = instruction.modifiers
    if modifiers[:2] != ("pack", "sat") or modifiers[3] != "s32":
        raise unknown(instruction)
    out = modifiers[2]
    arguments = ", ".join(f"{{{i}}}" for i in range(len(instruction.operands) - 1))
    text = f"pack_integers({out!r}, {arguments})"
    ins = ("s32", "s32", "b32")[: len(instruction.operands) - 1]
    return [compute(instruction, "b32", ins, text)]


@runtime
def pack_integers(out: str, a: Any, b: Any, c: Any = 0) -> Any:
    """a and b clamped to `out`; b is lowest, then a, then the low bits of c."""
    bits = int(out[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if out[0] == "s" else (0, (1 << bits) - 1)
    mask = (1 << bits) - 1
    first = np.clip(np.asarray(a, np.int64), low, high) & mask
    second = np.clip(np.asarray(b, np.int64), low, high) & mask
    rest = np.asarray(c, np.int64) << 2 * bits if 2 * bits < 32 else 0
    return ((rest | first << bits | second) & 0xFFFFFFFF).astype(U4)
