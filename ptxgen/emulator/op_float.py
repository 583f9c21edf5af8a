"""Floating point: add, sub, mul, fma, min, max, div, square roots and reciprocals."""

from typing import Any

import numpy as np

from ptxgen.emulator.double import double_operation
from ptxgen.emulator.lanes import F4, F8, U2, U4, Lanes, bf16_to_f32
from ptxgen.emulator.micro import Compute, Elementwise, Micro, lowers, unknown
from ptxgen.emulator.runtime import runtime
from ptxgen.ptx.module import Instruction

FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64")
IGNORED = ("rn", "approx", "full", "noftz")
"""Modifiers that change nothing here: rounding to nearest even is what numpy does."""


def lower_float(instruction: Instruction) -> list[Micro]:
    """An arithmetic instruction on floating point.

    Raises: UnknownInstructionError for roundings and forms that are not modelled.
    """
    kind = instruction.modifiers[-1]
    name = instruction.name
    rest = [m for m in instruction.modifiers[:-1] if m not in IGNORED]
    flush = "ftz" in rest
    saturate = "sat" in rest
    relu = "relu" in rest
    nan = "NaN" in rest
    variant = ""
    if name in ("min", "max") and "xorsign" in rest and "abs" in rest:
        variant = "xorsign"
        rest = [m for m in rest if m not in ("xorsign", "abs")]
    elif name == "fma" and "oob" in rest:
        variant = "oob"
        rest.remove("oob")
    left = [m for m in rest if m not in ("ftz", "sat", "relu", "NaN")]
    if name == "mad":
        name = "fma"
    arity = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "min": 2, "max": 2, "div": 2,
             "neg": 1, "abs": 1, "sqrt": 1, "rcp": 1}.get(name)  # fmt: skip
    if arity is None:
        raise unknown(instruction)
    if len(instruction.operands) == 4 and name in ("min", "max"):
        arity = 3
    if len(instruction.operands) != arity + 1:
        raise unknown(instruction, f"it must have {arity + 1} operands")
    if name in ("neg", "abs") and kind in ("f32", "f64") and not flush:
        return [_signed(instruction, name, kind)]
    packed = kind in ("f16", "f16x2", "bf16", "bf16x2", "f32x2")
    if left or packed or relu or variant or (kind == "f64" and name == "fma"):
        rounding = left[0] if left else "rn"
        if len(left) > 1 or rounding not in ("rn", "rz", "rm", "rp"):
            raise unknown(instruction, f"modifier {'.'.join(left)}")
        bits = {"f16": "b16", "bf16": "b16", "f64": "b64", "f32": "b32", "f32x2": "b64"}
        plain = bits.get(kind, "b32")
        arguments = ", ".join(f"{{{i}}}" for i in range(arity))
        flags = f"{kind!r}, {rounding!r}, {flush}, {saturate}, {relu}, {nan}, {variant!r}"
        text = f"float_operation({name!r}, {flags}, {arguments})"
        operation = Elementwise(plain, (plain,) * arity, text, f"int({text})")
    else:
        operation = _plain(name, kind, arity, flush, saturate, nan)
    return [Compute(instruction, operation, instruction.operands[0], instruction.operands[1:])]


def _signed(instruction: Instruction, name: str, kind: str) -> Compute:
    """neg and abs touch the sign bit of numbers; NaN becomes canonical, in f64 quiet (measured)."""
    plain = "b32" if kind == "f32" else "b64"
    text = f"signed_{kind}({{0}}, {name == 'abs'})"
    operation = Elementwise(plain, (plain,), text, f"int({text})")
    return Compute(instruction, operation, instruction.operands[0], instruction.operands[1:])


@runtime
def signed_f32(bits: Any, absolute: bool) -> Any:
    """neg or abs of f32 patterns."""
    raw = np.asarray(bits, U4)
    found = raw & U4(0x7FFFFFFF) if absolute else raw ^ U4(0x80000000)
    return np.where(raw & U4(0x7FFFFFFF) > 0x7F800000, U4(0x7FFFFFFF), found)


@runtime
def signed_f64(bits: Any, absolute: bool) -> Any:
    """neg or abs of f64 patterns."""
    raw = np.asarray(bits, np.uint64)
    top = np.uint64(1 << 63)
    found = raw & ~top if absolute else raw ^ top
    nan = raw & ~top > np.uint64(0x7FF << 52)
    return np.where(nan, raw | np.uint64(1 << 51), found)


_VECTOR = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "np.divide({0}, {1})",
    "neg": "-{0}", "abs": "np.abs({0})", "sqrt": "np.sqrt({0})", "rcp": "1 / {0}",
}  # fmt: skip
_SCALAR = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "neg": "-{0}", "abs": "abs({0})",
    "div": "float_quotient({0}, {1})", "sqrt": "float_root({0})", "rcp": "float_quotient(1.0, {0})",
}  # fmt: skip


def _plain(name: str, kind: str, arity: int, flush: bool, saturate: bool, nan: bool) -> Elementwise:
    """f32 and f64 with rounding to nearest even, which numpy does itself."""
    if name == "fma":
        vector, scalar = "fma_f32({0}, {1}, {2})", "fma_s32({0}, {1}, {2})"
    elif name in ("min", "max"):
        numpy = ("np.minimum" if name == "min" else "np.maximum") if nan else f"np.f{name}"
        vector = f"ordered_{name}({{0}}, {{1}}, {numpy})"
        if arity == 3:
            vector = f"ordered_{name}({vector}, {{2}}, {numpy})"
        scalar = f"float({vector})"
    else:
        vector, scalar = _VECTOR[name], _SCALAR[name]
    if flush:
        inputs = [f"flush({{{i}}})" for i in range(arity)]
        vector = f"flush({vector.format(*inputs)})"
        scalar = f"float(flush({scalar.format(*inputs)}))"
    if saturate:
        vector, scalar = f"saturate({vector})", f"float(saturate({scalar}))"
    if kind == "f32":
        vector = f"quiet({vector})"
    elif name in ("add", "sub", "mul", "min", "max") and arity == 2:
        vector = f"with_chosen_nan({vector}, {{0}}, {{1}})"
        scalar = f"float(with_chosen_nan({scalar}, {{0}}, {{1}}))"
    return Elementwise(kind, (kind,) * arity, vector, scalar)


@runtime
def quiet(values: Lanes) -> Lanes:
    """f32 results with NaN made canonical (0x7FFFFFFF)."""
    nan = values != values
    if nan.any():
        values = np.where(nan, _NAN, values)
    return values


_NAN = np.array(0x7FFFFFFF, U4).view(F4)[()]


@runtime
def flush(values: Any) -> Any:
    """f32 with subnormals replaced by zeros of their sign."""
    values = np.asarray(values, F4)
    return np.where(np.abs(values) < F4(2.0**-126), np.copysign(F4(0), values), values)


@runtime
def saturate(values: Any) -> Any:
    """Clamped to [+0, 1]; NaN becomes +0."""
    values = np.asarray(values)
    return np.where(values > 0, np.minimum(values, 1), 0).astype(
        F4 if values.dtype != F8 or values.ndim == 0 else F8
    )


def _chosen(function: Any, a: Any, b: Any) -> Any:
    """`function` of both, but numpy's fmin and fmax keep a signaling NaN now and then."""
    found = function(a, b)
    if function in (np.fmin, np.fmax) and np.isnan(found).any():
        found = np.where(np.isnan(a), b, np.where(np.isnan(b), a, found))
    return found


@runtime
def ordered_min(a: Any, b: Any, function: Any) -> Any:
    """min with -0 < +0; `function` decides about NaN."""
    found = _chosen(function, a, b)
    zero = (np.asarray(a) == 0) & (np.asarray(b) == 0)
    if np.any(zero):
        found = np.where(zero & (np.signbit(a) | np.signbit(b)), -np.abs(found), found)
    return found


@runtime
def ordered_max(a: Any, b: Any, function: Any) -> Any:
    """max with -0 < +0; `function` decides about NaN."""
    found = _chosen(function, a, b)
    zero = (np.asarray(a) == 0) & (np.asarray(b) == 0)
    if np.any(zero):
        found = np.where(zero & ~(np.signbit(a) & np.signbit(b)), np.abs(found), found)
    return found


@runtime
def float_quotient(a: float, b: float) -> float:
    """a / b with IEEE results for zero."""
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


@runtime
def float_root(a: float) -> float:
    """Square root; a negative NaN below zero."""
    return float(np.sqrt(a))


def unpack(kind: str, bits: Any) -> Any:
    """Bits of a type as float64, halves of packed types along a new last axis."""
    if kind == "f32":
        return np.asarray(bits, U4).view(F4).astype(F8)
    if kind == "f64":
        return np.asarray(bits, np.uint64).view(F8)
    if kind == "f32x2":
        wide = np.asarray(bits, np.uint64)
        parts = np.stack([wide & np.uint64(0xFFFFFFFF), wide >> np.uint64(32)], -1).astype(U4)
        return parts.view(F4).astype(F8)
    halves = unpack_words(kind, bits).astype(U2)
    if kind.startswith("bf16"):
        return bf16_to_f32(halves).astype(F8)
    return halves.view(np.float16).astype(F8)


OOB_NAN = 0x7FF7
"""What a tensor copy with NaN fill writes for elements outside (measured on an H200)."""


def unpack_words(kind: str, bits: Any) -> Any:
    """16-bit patterns, halves of packed types along a new last axis."""
    if kind.endswith("x2"):
        words = np.asarray(bits, U4)
        return np.stack([words & 0xFFFF, words >> 16], -1)
    return np.asarray(bits, U2)


def pack(kind: str, values: Any, rounding: str, error: Any) -> Any:
    """float64 values plus the sign of what they lack, rounded to a type, as bits."""
    from ptxgen.emulator.rounding import round_to

    if kind == "f64":
        return values.view(np.uint64)
    if kind in ("f32", "f32x2"):
        patterns = round_to(values, error, 23, 8, rounding)
        if kind == "f32":
            return patterns.astype(U4)
        wide = patterns.astype(np.uint64)
        return wide[..., 1] << np.uint64(32) | wide[..., 0]
    fraction, exponent = (7, 8) if kind.startswith("bf16") else (10, 5)
    halves = round_to(values, error, fraction, exponent, rounding)
    if kind.endswith("x2"):
        return (halves[..., 1] << 16 | halves[..., 0]).astype(U4)
    return halves.astype(U2)


@runtime
def float_operation(
    name: str,
    kind: str,
    rounding: str,
    flushes: bool,
    saturates: bool,
    relu: bool,
    nan: bool,
    variant: str,
    *bits: Any,
) -> Any:
    """Any float operation on bit patterns, with every rounding: exact, then rounded once.

    float64 holds sums and products of the small formats; what it lacks (fma, f32 sums) is kept as
    an error term that decides the rounding. f64 itself is computed in rational numbers.
    """
    if kind == "f64" and name not in ("min", "max"):
        return double_operation(name, rounding, *bits)
    a = [unpack(kind, b) for b in bits]
    tiny = 2.0**-14 if kind in ("f16", "f16x2") else 2.0**-126
    if flushes:
        a = [np.where(np.abs(x) < tiny, np.copysign(0.0, x), x) for x in a]
    error: Any = 0.0
    if name == "fma":
        product = a[0] * a[1]
        value = product + a[2]
        part = value - product
        error = (product - (value - part)) + (a[2] - part)
    elif name in ("add", "sub"):
        other = a[1] if name == "add" else -a[1]
        value = a[0] + other
        part = value - a[0]
        error = (a[0] - (value - part)) + (other - part)
    elif name == "mul":
        value = a[0] * a[1]
    elif name in ("min", "max"):
        negative = np.signbit(a[0]) ^ np.signbit(a[1])
        if variant == "xorsign":
            a = [np.abs(x) for x in a]
        function = {
            "min": np.minimum if nan else np.fmin,
            "max": np.maximum if nan else np.fmax,
        }[name]
        ordered = ordered_min if name == "min" else ordered_max
        value = ordered(a[0], a[1], function)
        if len(a) == 3:
            value = ordered(value, a[2], function)
        if variant == "xorsign":
            value = np.where(negative, -value, value)
    elif name == "div":
        value = a[0] / a[1]
        error = -np.sign(value * a[1] - a[0]) * np.sign(a[1]) if kind != "f64" else 0.0
    elif name == "rcp":
        value = 1.0 / a[0]
        error = -np.sign(value * a[0] - 1.0) * np.sign(a[0]) if kind != "f64" else 0.0
    elif name == "sqrt":
        value = np.sqrt(a[0])
        error = -np.sign(value * value - a[0]) if kind != "f64" else 0.0
    elif name == "neg":
        value = -a[0]
    else:
        value = np.abs(a[0])
    if relu:
        value = np.where(value <= 0, 0.0, value)
    if variant == "oob":
        filled = [unpack_words(kind, b) & 0x7FFF == OOB_NAN for b in bits[:2]]
        value = np.where(filled[0] | filled[1], 0.0, value)
    if rounding == "rm" and name in ("add", "sub", "fma"):
        addends = [product if name == "fma" else a[0], -a[-1] if name == "sub" else a[-1]]
        negative = np.signbit(addends[0]) | np.signbit(addends[1])
        value = np.where((value == 0) & negative, -0.0, value)
    error = np.where(np.isfinite(value) & np.isfinite(error), error, 0.0)
    found = pack(kind, np.asarray(value, F8), rounding, error)
    if saturates:
        rounded = unpack(kind, found)
        rounded = np.where(rounded > 0, np.minimum(rounded, 1.0), 0.0)
        found = pack(kind, np.asarray(rounded, F8), "rn", 0.0)
    if flushes:
        rounded = unpack(kind, found)
        flushed = np.where(np.abs(rounded) < tiny, np.copysign(0.0, rounded), rounded)
        found = pack(kind, np.asarray(flushed, F8), "rn", 0.0)
    return found if np.ndim(found) else int(found)


@lowers("fma")
def fused_multiply_add(instruction: Instruction) -> list[Micro]:
    """fma."""
    return lower_float(instruction)
