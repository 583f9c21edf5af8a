"""cvt of packed formats: several elements in a register, the first source on top."""

from typing import Any

import numpy as np

from ptxgen.emulator.formats import decode, encode, round_tf32, unpack_codes
from ptxgen.emulator.lanes import F4, F8, U2, U4, bf16_to_f32
from ptxgen.emulator.micro import Compute, Elementwise, unknown
from ptxgen.emulator.rounding import round_to
from ptxgen.emulator.runtime import runtime
from ptxgen.ptx.module import Instruction, Vector

SMALL = {"e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4, "ue8m0": 8}
"""Format -> bits of an element."""
SIZES = {"f16": (10, 5), "bf16": (7, 8), "f32": (23, 8)}
"""Format -> fraction and exponent bits."""


def compute(
    instruction: Instruction, out: str, ins: tuple[str, ...], text: str, scalar: str = ""
) -> Compute:
    """An elementwise conversion of an instruction's operands."""
    return Compute(
        instruction,
        Elementwise(out, ins, text, scalar or f"int({text})"),
        instruction.operands[0],
        instruction.operands[1:],
    )


@runtime
def f32_to_f16(values: Any) -> Any:
    """f32 rounded to f16 patterns; NaN is canonical."""
    found = values.astype(np.float16)
    nan = found != found
    patterns = found.view(U2)
    return np.where(nan, U2(0x7FFF), patterns) if nan.any() else patterns


@runtime
def pack_bf16x2(high: Any, low: Any) -> Any:
    """Two f32 rounded to bf16, the first in the upper half."""
    h, low_bits = np.asarray(high, F4).view(U4), np.asarray(low, F4).view(U4)
    h = h + (0x7FFF + (h >> 16 & 1))
    found = (h & 0xFFFF0000) | (low_bits + (0x7FFF + (low_bits >> 16 & 1))) >> 16
    nan_high, nan_low = np.isnan(high), np.isnan(low)
    if np.any(nan_high) or np.any(nan_low):
        found = np.where(nan_high, (found & 0xFFFF) | U4(0x7FFF0000), found)
        found = np.where(nan_low, (found & 0xFFFF0000) | U4(0x7FFF), found)
    return found


@runtime
def pack_f16x2(high: Any, low: Any) -> Any:
    """Two f32 rounded to f16, the first in the upper half."""
    h = f32_to_f16(np.asarray(high, F4)).astype(U4)
    return h << 16 | f32_to_f16(np.asarray(low, F4))


def packed_conversion(
    instruction: Instruction, out: str, source: str, rounding: str, flags: set[str]
) -> Compute:
    """Forms with several elements in a register."""
    out_base, _, out_count = out.partition("x")
    source_base, _, source_count = source.partition("x")
    operands = instruction.operands[1:]
    if out == "tf32" and source == "f32":
        text = f"round_to_tf32({{0}}, {rounding!r}, {'satfinite' in flags}, {'relu' in flags})"
        return compute(instruction, "b32", ("b32",), text)
    is_small = out_base in SMALL or source_base in SMALL
    if not is_small and out not in ("f16x2", "bf16x2"):
        raise unknown(instruction, f"cvt.{out}.{source}")
    count = int(out_count or 1)
    sources = operands
    if operands and isinstance(operands[0], Vector):
        sources = (*operands[0].items, *operands[1:])
    random = rounding == "rs"
    values = len(sources) - random
    bits = {"f32": 32, "f16x2": 32, "bf16x2": 32}.get(source, 0)
    if not bits:
        bits = 8 if source_base == "e2m1" else 16
        if source_base not in SMALL or source_count != "2" or values != 1:
            raise unknown(instruction, f"cvt.{out}.{source}")
    elif values != (count if source == "f32" else 1):
        raise unknown(instruction, f"it must have {count} source(s)")
    elif random and source != "f32":
        raise unknown(instruction)
    scaled = "scaled" in flags
    if scaled:
        raise unknown(instruction)
    element = SMALL.get(out_base, 16)
    width = {8: 8, 12: 16, 16: 16, 24: 32, 32: 32}[max(element * count, 8)] if (
        element in (4, 8, 16)
    ) else (16 if count == 2 else 32)  # fmt: skip
    kind = "b8" if width == 8 else f"b{width}"
    arguments = ", ".join(f"{{{i}}}" for i in range(len(sources)))
    text = (
        f"convert_packed({source!r}, {out!r}, {rounding or 'rn'!r}, {'satfinite' in flags}, "
        f"{'relu' in flags}, U{width // 8}, {arguments})"
    )
    ins = tuple(f"b{bits}" if i < values else "b32" for i in range(len(sources)))
    return Compute(
        instruction, Elementwise(kind, ins, text, f"int({text})"), instruction.operands[0], sources
    )


@runtime
def round_to_tf32(bits: Any, rounding: str, finite: bool, relu: bool) -> Any:
    """f32 patterns rounded to tf32, low 13 bits zero."""
    raw = np.atleast_1d(np.asarray(bits, U4))
    if relu:
        raw = np.where((raw >> 31 == 1) & ((raw & 0x7FFFFFFF) <= 0x7F800000), U4(0), raw)
    found = round_tf32(raw, rounding or "rn")
    if rounding == "rna":
        # Measured: NaN is truncated, and .satfinite lowers all above MAX by one step.
        nan = raw & U4(0x7FFFFFFF) > 0x7F800000
        found = np.where(nan, raw, raw + U4(0x1000)) & U4(0xFFFFE000)
        if finite:
            found = np.where(found & 0x7F800000 == 0x7F800000, found - U4(0x2000), found)
    elif finite:
        too_big = (found & 0x7FFFFFFF) == 0x7F800000
        found = np.where(too_big, (found & 0x80000000) | U4(0x7F7FE000), found)
    return found.reshape(np.shape(bits)) if np.ndim(bits) else found[0]


@runtime
def convert_packed(
    source: str, out: str, rounding: str, finite: bool, relu: bool, dtype: Any, *operands: Any
) -> Any:
    """Packed conversions: the first source is the most significant element."""
    out_base, _, out_count = out.partition("x")
    source_base = source.partition("x")[0]
    values: list[Any]
    random: list[Any] = []
    if source == "f32":
        count = int(out_count or 1)
        values = [np.asarray(v, U4).view(F4) for v in operands[:count]]
        if len(operands) > count:
            random = _random_fields(out, np.asarray(operands[count], U4), count)
    else:
        packed = np.asarray(operands[0])
        values = _elements(packed, source_base)
    if out_base in ("f16", "bf16"):
        codes = []
        for index, value in enumerate(values):
            x = value.astype(F8)
            if relu:
                x = np.where(x <= 0, 0.0, x)
            if rounding == "rs":
                codes.append(encode(out_base, x, rounding="rs", saturate=finite,
                                    random=random[index]))  # fmt: skip
                continue
            fraction, exponent = SIZES[out_base]
            if finite:
                largest = 65504.0 if out_base == "f16" else 3.3895313892515355e38
                x = np.where(np.isnan(x), x, np.clip(x, -largest, largest))
            codes.append(round_to(x, 0.0, fraction, exponent, rounding))
        bits = 16
    else:
        bits = 4 if out_base == "e2m1" else 8
        codes = [
            encode(out_base, v, rounding=rounding, saturate=finite, relu=relu,
                   random=random[i] if random else None)
            for i, v in enumerate(values)
        ]  # fmt: skip
    total = np.zeros(np.broadcast_shapes(*(np.shape(c) for c in codes)), np.uint32)
    for code in codes:
        total = total << np.uint32(bits) | np.asarray(code, np.uint32)
    return total.astype(dtype)


def _elements(packed: Any, kind: str) -> list[Any]:
    """The elements of a register, most significant first."""
    if kind in ("f16", "bf16"):
        words = np.asarray(packed, U4)
        halves = [(words >> 16).astype(U2), (words & 0xFFFF).astype(U2)]
        if kind == "bf16":
            return [bf16_to_f32(h) for h in halves]
        return [h.view(np.float16).astype(F4) for h in halves]
    if kind == "e2m1":
        both = unpack_codes(np.asarray(packed, np.uint8)[..., None], 4)
        return [decode(kind, both[..., 1]), decode(kind, both[..., 0])]
    words = np.asarray(packed, U2)
    return [
        decode(kind, (words >> 8).astype(np.uint8)), decode(kind, (words & 0xFF).astype(np.uint8)),
    ]  # fmt: skip


def _random_fields(out: str, bits: Any, count: int) -> list[Any]:
    """Random bits of each element, scaled to units of 2^-32 of a last place.

    Where in its field an element's bits sit is not documented; the upper ones are taken.
    """
    if out == "f16x2":
        fields = [(bits >> 16 & 0x1FFF, 13), (bits & 0x1FFF, 13)]
    elif out == "bf16x2":
        fields = [(bits >> 16, 16), (bits & 0xFFFF, 16)]
    elif out.startswith("e2m1"):
        high = [(bits >> 24, 8), (bits >> 24, 8)]
        fields = [*high, (bits >> 8 & 0xFF, 8), (bits >> 8 & 0xFF, 8)]
    else:
        fields = [(bits >> 16, 16)] * 2 + [(bits & 0xFFFF, 16)] * 2
    return [f.astype(np.uint64) << np.uint64(32 - width) for f, width in fields[:count]]
