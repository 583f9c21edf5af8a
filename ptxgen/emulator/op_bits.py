"""Logic, shifts and bit fields: and, or, xor, not, shl, shr, shf, bfe, bfi, popc, prmt, lop3."""

from typing import Any

import numpy as np

from ptxgen.emulator.lanes import U4, Lanes
from ptxgen.emulator.micro import Elementwise, Micro, lowers, unknown
from ptxgen.emulator.op_integer import bits_of, compute
from ptxgen.emulator.runtime import runtime
from ptxgen.ptx.module import Immediate, Instruction


def _kind(instruction: Instruction, *allowed: str) -> str:
    kind = instruction.modifiers[-1] if instruction.modifiers else ""
    if kind not in allowed:
        raise unknown(instruction, f"type must be one of {', '.join(allowed)}")
    return kind


@lowers("and", "or", "xor")
def logic(instruction: Instruction) -> list[Micro]:
    """and, or, xor, also of predicates."""
    kind = _kind(instruction, "b16", "b32", "b64", "pred")
    sign = {"and": "&", "or": "|", "xor": "^"}[instruction.name]
    text = "{0} " + sign + " {1}"
    return compute(instruction, Elementwise(kind, (kind, kind), text, text))


@lowers("not", "cnot")
def inverse(instruction: Instruction) -> list[Micro]:
    """not and cnot."""
    kind = _kind(instruction, "b16", "b32", "b64", "pred")
    if instruction.name == "cnot":
        bits = bits_of(kind)
        vector = "({0} == 0)" + f".astype(U{bits // 8})"
        return compute(instruction, Elementwise(kind, (kind,), vector, "int({0} == 0)"))
    if kind == "pred":
        return compute(instruction, Elementwise(kind, (kind,), "{0} ^ FULL", "not {0}"))
    ones = (1 << bits_of(kind)) - 1
    return compute(instruction, Elementwise(kind, (kind,), "~{0}", "{0} ^ " + f"{ones:#x}"))


@lowers("shl", "shr")
def shift(instruction: Instruction) -> list[Micro]:
    """shl and shr; counts past the width give 0, or the sign."""
    kind = _kind(instruction, "b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64")
    bits = bits_of(kind)
    count = instruction.operands[-1]
    signed = kind[0] == "s"
    left = instruction.name == "shl"
    if isinstance(count, Immediate) and count.kind == "int":
        number = int(count.value) & 0xFFFFFFFF
        if number >= bits:
            number = bits - 1 if signed and not left else bits
        if number == bits:
            zero = "{0} & 0"
            return compute_unary(instruction, Elementwise(kind, (kind,), zero, zero))
        sign = "<<" if left else ">>"
        text = "{0} " + f"{sign} {number}"
        scalar = f"({text}) & {(1 << bits) - 1:#x}" if left else text
        return compute_unary(instruction, Elementwise(kind, (kind,), text, scalar))
    name = "shift_left" if left else "shift_right"
    vector = f"{name}({{0}}, {{1}}, {bits})"
    if not left and signed:
        vector = "{0} >> np.minimum({1}, " + f"{bits - 1})" + f".astype(I{bits // 8})"
        vector = f"shift_signed({{0}}, {{1}}, {bits})"
    if left:
        scalar = "({0} << {1}) & " + f"{(1 << bits) - 1:#x} if {{1}} < {bits} else 0"
    else:
        scalar = "{0} >> " + ("min({1}, 63)" if signed else "{1}")
    return compute(instruction, Elementwise(kind, (kind, "u32"), vector, f"({scalar})"))


def compute_unary(instruction: Instruction, operation: Elementwise) -> list[Micro]:
    """An operation whose other operands are part of its template."""
    from ptxgen.emulator.micro import Compute

    return [Compute(instruction, operation, instruction.operands[0], instruction.operands[1:2])]


@runtime
def shift_signed(values: Any, count: Any, width: int) -> Lanes:
    """Arithmetic shift right; past the width only the sign is left."""
    found: Lanes = values >> np.minimum(np.asarray(count).astype(np.int64), width - 1).astype(
        np.asarray(values).dtype
    )
    return found


@lowers("shf")
def funnel_shift(instruction: Instruction) -> list[Micro]:
    """shf.{l,r}.{clamp,wrap}.b32: 64-bit shift of {hi, lo}."""
    direction, mode = instruction.modifiers[:2]
    text = f"funnel({{0}}, {{1}}, {{2}}, {direction == 'l'}, {mode == 'wrap'})"
    return compute(instruction, Elementwise("b32", ("b32", "b32", "u32"), text, f"int({text})"))


@runtime
def funnel(low: Any, high: Any, count: Any, left: bool, wraps: bool) -> Any:
    """The 32 bits that a funnel shift takes out of {high, low}."""
    low, high, count = (np.asarray(x, np.uint64) for x in (low, high, count))
    amount = count & np.uint64(31) if wraps else np.minimum(count, np.uint64(32))
    both = high << np.uint64(32) | low
    if left:
        found = np.where(amount == 32, low, (both << (amount & np.uint64(31))) >> np.uint64(32))
    else:
        found = both >> amount
    return (found & np.uint64(0xFFFFFFFF)).astype(U4)


@lowers("bfe")
def extract(instruction: Instruction) -> list[Micro]:
    """bfe: bit field extract."""
    kind = _kind(instruction, "u32", "s32", "u64", "s64")
    bits = bits_of(kind)
    text = f"bit_field({{0}}, {{1}}, {{2}}, {bits}, {kind[0] == 's'})"
    unsigned = f"b{bits}"
    return compute(
        instruction, Elementwise(unsigned, (unsigned, "u32", "u32"), text, f"int({text})")
    )


@runtime
def bit_field(values: Any, position: Any, length: Any, bits: int, signed: bool) -> Any:
    """`length` bits from `position` on, sign- or zero-extended."""
    x = np.asarray(values, np.uint64).astype(object)
    p = np.asarray(position).astype(object) & 0xFF
    n = np.asarray(length).astype(object) & 0xFF

    def one(value: int, start: int, count: int) -> int:
        value, start, count = int(value), int(start), int(count)
        field = value >> start & (1 << count) - 1 if start < bits else 0
        if signed and count:
            sign = value >> min(start + count - 1, bits - 1) & 1
            have = min(count, max(bits - start, 0))
            if sign:
                field |= -1 << have
        return field & (1 << bits) - 1

    found = np.frompyfunc(one, 3, 1)(x, p, n)
    return np.asarray(found).astype(np.uint64).astype(np.uint32 if bits == 32 else np.uint64)


@lowers("bfi")
def insert(instruction: Instruction) -> list[Micro]:
    """bfi: bit field insert."""
    kind = _kind(instruction, "b32", "b64")
    bits = bits_of(kind)
    text = f"insert_field({{0}}, {{1}}, {{2}}, {{3}}, {bits})"
    return compute(instruction, Elementwise(kind, (kind, kind, "u32", "u32"), text, f"int({text})"))


@runtime
def insert_field(field: Any, values: Any, position: Any, length: Any, bits: int) -> Any:
    """`values` with `length` bits of `field` at `position`."""

    def one(a: int, b: int, start: int, count: int) -> int:
        a, b, start, count = int(a), int(b), int(start) & 0xFF, int(count) & 0xFF
        mask = ((1 << count) - 1) << start & (1 << bits) - 1
        return b & ~mask | a << start & mask

    found = np.frompyfunc(one, 4, 1)(field, values, position, length)
    return np.asarray(found).astype(np.uint32 if bits == 32 else np.uint64)


@lowers("bmsk")
def bit_mask(instruction: Instruction) -> list[Micro]:
    """bmsk: a run of ones."""
    wraps = instruction.modifiers[0] == "wrap"
    text = f"run_of_ones({{0}}, {{1}}, {wraps})"
    return compute(instruction, Elementwise("b32", ("u32", "u32"), text, f"int({text})"))


@runtime
def run_of_ones(first: Any, count: Any, wraps: bool) -> Any:
    """`count` ones from bit `first` on, both taken modulo 32 or at most 32."""
    start, width = (np.asarray(v, np.int64) for v in (first, count))
    if wraps:
        start, width = start & 31, width & 31
    else:
        start, width = np.minimum(start, 32), np.minimum(width, 32)
    return (((np.int64(1) << width) - 1 << start) & 0xFFFFFFFF).astype(np.uint32)


@lowers("popc", "clz", "brev", "bfind")
def count_bits(instruction: Instruction) -> list[Micro]:
    """popc, clz, brev, bfind."""
    kind = _kind(instruction, "b32", "b64", "u32", "u64", "s32", "s64")
    bits = bits_of(kind)
    plain = f"b{bits}"
    out = plain if instruction.name == "brev" else "u32"
    if instruction.name == "bfind":
        shifts = "shiftamt" in instruction.modifiers
        text = f"find_bit({{0}}, {bits}, {kind[0] == 's'}, {shifts})"
    else:
        name = {"popc": "count_ones", "clz": "leading_zeros", "brev": "reverse"}[instruction.name]
        text = f"{name}({{0}}, {bits})"
    return compute(instruction, Elementwise(out, (plain,), text, f"int({text})"))


def _each(function: Any, values: Any, dtype: Any) -> Any:
    return np.asarray(np.frompyfunc(function, 1, 1)(values)).astype(dtype)


@runtime
def count_ones(values: Any, bits: int) -> Any:
    """Number of set bits."""
    return np.bitwise_count(np.asarray(values, np.uint64)).astype(np.uint32)


@runtime
def leading_zeros(values: Any, bits: int) -> Any:
    """Zeros above the highest set bit."""
    return _each(lambda v: bits - int(v).bit_length(), values, np.uint32)


@runtime
def reverse(values: Any, bits: int) -> Any:
    """Bits in reverse order."""
    kind = np.uint32 if bits == 32 else np.uint64
    return _each(lambda v: int(f"{int(v):0{bits}b}"[::-1], 2), values, kind)


@runtime
def find_bit(values: Any, bits: int, signed: bool, shifts: bool) -> Any:
    """Position of the highest bit that differs from the sign; all ones where there is none."""

    def one(value: int) -> int:
        value = int(value)
        if signed and value >> (bits - 1):
            value ^= (1 << bits) - 1
        if not value:
            return 0xFFFFFFFF
        found = value.bit_length() - 1
        return bits - 1 - found if shifts else found

    return _each(one, values, np.uint32)


@lowers("prmt")
def permute(instruction: Instruction) -> list[Micro]:
    """prmt.b32: pick four bytes of eight, by a selector or by one of the six named patterns."""
    if instruction.modifiers != ("b32",):
        mode = instruction.modifiers[-1]
        if instruction.modifiers[0] != "b32" or mode not in PERMUTE_MODES:
            raise unknown(instruction)
        text = f"permute_bytes({{0}}, {{1}}, permute_selector({mode!r}, {{2}}))"
        return compute(instruction, Elementwise("b32", ("b32",) * 3, text, f"int({text})"))
    control = instruction.operands[3]
    if isinstance(control, Immediate):
        terms = []
        for index in range(4):
            nibble = int(control.value) >> 4 * index & 0xF
            source = "{0}" if nibble & 7 < 4 else "{1}"
            byte = f"({source} >> {8 * (nibble & 3)} & 0xFF)"
            if nibble & 8:
                byte = f"(({byte} >> 7) * 0xFF)"
            terms.append(f"{byte} << {8 * index}" if index else byte)
        text = " | ".join(f"({t})" for t in terms)
        from ptxgen.emulator.micro import Compute

        return [
            Compute(
                instruction, Elementwise("b32", ("b32", "b32"), text, text),
                instruction.operands[0], instruction.operands[1:3],
            )
        ]  # fmt: skip
    text = "permute_bytes({0}, {1}, {2})"
    return compute(instruction, Elementwise("b32", ("b32",) * 3, text, f"int({text})"))


PERMUTE_MODES: dict[str, tuple[int, ...]] = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333), "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210), "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}  # fmt: skip
"""Selectors of the modes of prmt, by the low two bits of c. Source: PTX ISA 9.0, "prmt"."""


@runtime
def permute_selector(mode: str, control: Any) -> Any:
    """The selector that a mode of prmt stands for."""
    return np.array(PERMUTE_MODES[mode], np.uint32)[np.asarray(control, np.uint32) & 3]


@runtime
def permute_bytes(low: Any, high: Any, control: Any) -> Any:
    """prmt with a selector that is not constant."""

    def one(a: int, b: int, selector: int) -> int:
        both = int(b) << 32 | int(a)
        found = 0
        for index in range(4):
            nibble = int(selector) >> 4 * index & 0xF
            byte = both >> 8 * (nibble & 7) & 0xFF
            if nibble & 8:
                byte = 0xFF if byte >> 7 else 0
            found |= byte << 8 * index
        return found

    return np.asarray(np.frompyfunc(one, 3, 1)(low, high, control)).astype(np.uint32)


@lowers("lop3")
def logic_of_three(instruction: Instruction) -> list[Micro]:
    """lop3.b32: any function of three bits, given by its truth table."""
    table = instruction.operands[-1]
    if instruction.modifiers != ("b32",) or not isinstance(table, Immediate):
        raise unknown(instruction)
    terms = []
    for index in range(8):
        if int(table.value) >> index & 1:
            a = "{0}" if index & 4 else "({0} ^ 0xFFFFFFFF)"
            b = "{1}" if index & 2 else "({1} ^ 0xFFFFFFFF)"
            c = "{2}" if index & 1 else "({2} ^ 0xFFFFFFFF)"
            terms.append(f"{a} & {b} & {c}")
    text = " | ".join(terms) or "{0} & 0"
    from ptxgen.emulator.micro import Compute

    return [
        Compute(
            instruction, Elementwise("b32", ("b32",) * 3, text, text),
            instruction.operands[0], instruction.operands[1:4],
        )
    ]  # fmt: skip


@lowers("fns")
def find_nth_set(instruction: Instruction) -> list[Micro]:
    """fns.b32: where the n-th set bit is, counted from a base bit upwards or downwards."""
    if instruction.modifiers != ("b32",):
        raise unknown(instruction)
    text = "nth_set_bit({0}, {1}, {2})"
    operation = Elementwise("b32", ("b32", "b32", "s32"), text, f"int({text})")
    return compute(instruction, operation)


@runtime
def nth_set_bit(mask: Any, base: Any, offset: Any) -> Any:
    """The bit index, or all ones if there is none. Source: PTX ISA 9.0, "fns"."""

    def one(bits: int, start: int, nth: int) -> int:
        if nth == 0:
            return int(start) if start < 32 and int(bits) >> int(start) & 1 else 0xFFFFFFFF
        places = range(int(start), 32) if nth > 0 else range(min(int(start), 31), -1, -1)
        found = [place for place in places if int(bits) >> place & 1]
        return found[abs(nth) - 1] if len(found) >= abs(nth) else 0xFFFFFFFF

    return np.asarray(np.frompyfunc(one, 3, 1)(mask, base, offset)).astype(np.uint32)


@lowers("szext")
def extend_to_width(instruction: Instruction) -> list[Micro]:
    """szext: the low bits of a, as many as b says, extended by zeros or by their sign."""
    mode, kind = instruction.modifiers
    if mode not in ("clamp", "wrap") or kind not in ("u32", "s32"):
        raise unknown(instruction)
    text = f"extended_bits({{0}}, {{1}}, {mode == 'wrap'}, {kind == 's32'})"
    return compute(instruction, Elementwise("b32", ("b32", "b32"), text, f"int({text})"))


@runtime
def extended_bits(value: Any, width: Any, wraps: bool, signed: bool) -> Any:
    """Source: PTX ISA 9.0, "szext"; a width of 0 gives 0."""
    bits = np.asarray(width, np.int64)
    bits = bits & 31 if wraps else np.minimum(bits, 32)
    field = np.asarray(value, np.int64) & (np.int64(1) << bits) - 1
    if signed:
        top = np.where(bits > 0, field >> np.maximum(bits - 1, 0) & 1, 0)
        field = field - (top << bits)
    return (field & 0xFFFFFFFF).astype(np.uint32)
