"""Integer arithmetic: add, sub, mul, mad, div, rem, min, max, abs, neg, sad and carries."""

from typing import Any

import numpy as np

from ptxgen.emulator.lanes import I2, U2, U4
from ptxgen.emulator.micro import Compute, Elementwise, Micro, lowers, unknown
from ptxgen.emulator.op_carry import lower_carry
from ptxgen.emulator.op_float import lower_float
from ptxgen.emulator.runtime import runtime
from ptxgen.ptx.module import Instruction

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")


def bits_of(kind: str) -> int:
    """Width of a plain type such as u32."""
    return int(kind[1:])


def wrapped(expression: str, kind: str) -> str:
    """Scalar expression reduced to the width; signed ones are reduced when stored."""
    return expression if kind[0] == "s" else f"({expression}) & {(1 << bits_of(kind)) - 1:#x}"


def compute(instruction: Instruction, operation: Elementwise) -> list[Micro]:
    """One result, all other operands being sources."""
    if len(instruction.operands) != 1 + len(operation.ins):
        raise unknown(instruction, f"it must have {1 + len(operation.ins)} operands")
    return [Compute(instruction, operation, instruction.operands[0], instruction.operands[1:])]


def integer_type(instruction: Instruction) -> str:
    """The last modifier, which must be an integer type."""
    kind = instruction.modifiers[-1] if instruction.modifiers else ""
    if kind not in INTEGERS:
        raise unknown(instruction, f"type must be one of {', '.join(INTEGERS)}")
    return kind


def is_float(instruction: Instruction) -> bool:
    """Whether an arithmetic instruction works on floating point."""
    return bool(instruction.modifiers) and instruction.modifiers[-1] in (
        "f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64",
    )  # fmt: skip


@lowers("add", "sub")
def add_or_sub(instruction: Instruction) -> list[Micro]:
    """add and sub."""
    if is_float(instruction):
        return lower_float(instruction)
    if "cc" in instruction.modifiers:
        return lower_carry(instruction)
    if "sat" in instruction.modifiers:
        return _saturating(instruction)
    if instruction.modifiers[-1:] in (("u16x2",), ("s16x2",)):
        return _pairs(instruction)
    kind = integer_type(instruction)
    sign = "+" if instruction.name == "add" else "-"
    vector = "{0} " + sign + " {1}"
    return compute(instruction, Elementwise(kind, (kind, kind), vector, wrapped(vector, kind)))


def _saturating(instruction: Instruction) -> list[Micro]:
    if instruction.modifiers != ("sat", "s32"):
        raise unknown(instruction, "carries are not supported in this form")
    sign = "+" if instruction.name == "add" else "-"
    vector = (
        "np.clip(np.add({0}, 0, dtype=I8) " + sign + " {1}, -0x80000000, 0x7FFFFFFF).astype(I4)"
    )
    scalar = "max(-0x80000000, min(0x7FFFFFFF, {0} " + sign + " {1}))"
    return compute(instruction, Elementwise("s32", ("s32", "s32"), vector, scalar))


def _pairs(instruction: Instruction) -> list[Micro]:
    """add, min and max of two 16-bit integers in a register."""
    kind = instruction.modifiers[-1]
    relu = "relu" in instruction.modifiers
    text = f"pair_operation({instruction.name!r}, {kind[0] == 's'}, {relu}, {{0}}, {{1}})"
    return compute(instruction, Elementwise("b32", ("b32", "b32"), text, f"int({text})"))


@runtime
def pair_operation(name: str, signed: bool, relu: bool, a: Any, b: Any) -> Any:
    """Both halves of packed 16-bit integers."""
    total = np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b)), U4)
    for shift in (0, 16):
        x, y = ((np.asarray(v, U4) >> shift & 0xFFFF).astype(U2) for v in (a, b))
        if signed:
            x, y = x.view(I2), y.view(I2)
        found: Any = {"add": np.add, "min": np.minimum, "max": np.maximum}[name](x, y)
        if relu:
            found = np.maximum(found, 0)
        total = total | found.astype(U2).astype(U4) << shift
    return total


@lowers("dp4a", "dp2a")
def dot_product(instruction: Instruction) -> list[Micro]:
    """dp4a and dp2a: sums of products of bytes."""
    *part, left, right = instruction.modifiers
    text = (
        f"byte_products({instruction.name!r}, {(part or [''])[0]!r}, {left[0] == 's'}, "
        f"{right[0] == 's'}, {{0}}, {{1}}, {{2}})"
    )
    return compute(instruction, Elementwise("b32", ("b32",) * 3, text, f"int({text})"))


@runtime
def byte_products(
    name: str, part: str, signed_a: bool, signed_b: bool, a: Any, b: Any, c: Any
) -> Any:
    """c + the dot product of the parts of a and b."""

    def piece(value: Any, shift: int, bits: int, signed: bool) -> Any:
        field = np.asarray(value, np.int64) >> shift & ((1 << bits) - 1)
        return np.where(field >> (bits - 1), field - (1 << bits), field) if signed else field

    total: Any = np.asarray(c, np.int64)
    for index in range(4 if name == "dp4a" else 2):
        if name == "dp4a":
            left = piece(a, 8 * index, 8, signed_a)
            right = piece(b, 8 * index, 8, signed_b)
        else:
            left = piece(a, 16 * index, 16, signed_a)
            right = piece(b, 8 * index + (16 if part == "hi" else 0), 8, signed_b)
        total = total + left * right
    return (total & 0xFFFFFFFF).astype(U4)


@lowers("mul", "mad", "mul24", "mad24")
def multiply(instruction: Instruction) -> list[Micro]:
    """mul and mad: .lo, .hi, .wide."""
    if is_float(instruction):
        return lower_float(instruction)
    kind = integer_type(instruction)
    bits = bits_of(kind)
    part = instruction.modifiers[0]
    adds = instruction.name.startswith("mad")
    if instruction.name.endswith("24"):
        return _narrow(instruction, part, kind, adds)
    if part == "lo":
        vector, scalar, out = "{0} * {1}", "{0} * {1}", kind
    elif part == "wide":
        out = f"{kind[0]}{2 * bits}"
        letter = "I" if kind[0] == "s" else "U"
        vector = "np.multiply({0}, {1}, dtype=" + f"{letter}{bits // 4})"
        scalar = "{0} * {1}"
    elif part == "hi":
        out = kind
        if bits == 64:
            vector = f"multiply_high({{0}}, {{1}}, {kind[0] == 's'})"
        else:
            letter = "I" if kind[0] == "s" else "U"
            vector = (
                "(np.multiply({0}, {1}, dtype=" + f"{letter}{bits // 4}) >> {bits})"
                f".astype({letter}{bits // 8})"
            )
        scalar = "({0} * {1} >> " + f"{bits})"
    else:
        raise unknown(instruction, "must say .lo, .hi or .wide")
    ins: tuple[str, ...] = (kind, kind)
    if adds:
        if "cc" in instruction.modifiers:
            return lower_carry(instruction)
        if "sat" in instruction.modifiers:
            if (part, kind) != ("hi", "s32"):
                raise unknown(instruction)
            total = "(np.multiply({0}, {1}, dtype=I8) >> 32) + {2}"
            vector = f"np.clip({total}, -0x80000000, 0x7FFFFFFF).astype(I4)"
            scalar = f"max(-0x80000000, min(0x7FFFFFFF, {scalar} + {{2}}))"
            return compute(instruction, Elementwise(kind, (kind,) * 3, vector, scalar))
        vector, scalar = vector + " + {2}", scalar + " + {2}"
        ins = (kind, kind, out)
    return compute(instruction, Elementwise(out, ins, vector, wrapped(scalar, out)))


def _narrow(instruction: Instruction, part: str, kind: str, adds: bool) -> list[Micro]:
    """mul24 and mad24: low or high 32 bits of the 48-bit product of 24-bit operands."""
    saturates = "sat" in instruction.modifiers
    if part not in ("lo", "hi") or (saturates and (part, kind) != ("hi", "s32")):
        raise unknown(instruction)
    flags = f"{part == 'hi'}, {kind[0] == 's'}, {saturates}"
    text = f"product_24({{0}}, {{1}}, {'{2}' if adds else '0'}, {flags})"
    ins = (kind,) * (3 if adds else 2)
    return compute(instruction, Elementwise("b32", ins, text, f"int({text})"))


@runtime
def product_24(a: Any, b: Any, c: Any, high: bool, signed: bool, saturates: bool) -> Any:
    """Bits 0..31 or 16..47 of the product of the low 24 bits, plus c."""
    x, y = (np.asarray(v, np.int64) & 0xFFFFFF for v in (a, b))
    if signed:
        x, y = (np.where(v >> 23, v - (1 << 24), v) for v in (x, y))
    total = (x * y >> 16 if high else x * y) + np.asarray(c, np.int64)
    if saturates:
        total = np.clip(total, -(2**31), 2**31 - 1)
    return (total & 0xFFFFFFFF).astype(U4)


@lowers("div", "rem")
def divide(instruction: Instruction) -> list[Micro]:
    """div and rem; division by zero gives all ones, as hardware does."""
    if is_float(instruction):
        return lower_float(instruction)
    kind = integer_type(instruction)
    if kind[0] == "s":
        name = "truncate_division" if instruction.name == "div" else "truncate_remainder"
    else:
        name = "divide_unsigned" if instruction.name == "div" else "remainder_unsigned"
    text = name + "({0}, {1})"
    return compute(instruction, Elementwise(kind, (kind, kind), text, wrapped(text, kind)))


@lowers("min", "max")
def extreme(instruction: Instruction) -> list[Micro]:
    """min and max."""
    if is_float(instruction):
        return lower_float(instruction)
    if instruction.modifiers[-1:] in (("u16x2",), ("s16x2",)):
        return _pairs(instruction)
    kind = integer_type(instruction)
    vector = ("np.minimum" if instruction.name == "min" else "np.maximum") + "({0}, {1})"
    scalar = instruction.name + "({0}, {1})"
    if "relu" in instruction.modifiers:
        vector, scalar = f"np.maximum({vector}, 0)", f"max({scalar}, 0)"
    return compute(instruction, Elementwise(kind, (kind, kind), vector, scalar))


@lowers("abs", "neg")
def unary(instruction: Instruction) -> list[Micro]:
    """abs and neg."""
    if is_float(instruction):
        return lower_float(instruction)
    kind = integer_type(instruction)
    if instruction.name == "neg":
        return compute(instruction, Elementwise(kind, (kind,), "-{0}", wrapped("-{0}", kind)))
    return compute(instruction, Elementwise(kind, (kind,), "np.abs({0})", "abs({0})"))


@lowers("sad")
def sum_of_differences(instruction: Instruction) -> list[Micro]:
    """sad: c + |a - b|."""
    kind = integer_type(instruction)
    vector = "np.where({0} < {1}, {1} - {0}, {0} - {1}) + {2}"
    return compute(
        instruction,
        Elementwise(kind, (kind,) * 3, vector, wrapped("abs({0} - {1}) + {2}", kind)),
    )
