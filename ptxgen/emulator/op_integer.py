"""Integer arithmetic: add, sub, mul, mad, div, rem, min, max, abs, neg, sad and carries."""

from ptxgen.emulator.micro import Compute, Elementwise, Micro, lowers, unknown
from ptxgen.emulator.op_float import lower_float
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
    if instruction.modifiers and instruction.modifiers[0] in ("cc", "sat"):
        return _saturating(instruction)
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
        raise unknown(instruction)
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
        if "sat" in instruction.modifiers or "cc" in instruction.modifiers:
            raise unknown(instruction)
        vector, scalar = vector + " + {2}", scalar + " + {2}"
        ins = (kind, kind, out)
    return compute(instruction, Elementwise(out, ins, vector, wrapped(scalar, out)))


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
    kind = integer_type(instruction)
    if "relu" in instruction.modifiers:
        raise unknown(instruction)
    numpy = "np.minimum" if instruction.name == "min" else "np.maximum"
    return compute(
        instruction,
        Elementwise(kind, (kind, kind), numpy + "({0}, {1})", instruction.name + "({0}, {1})"),
    )


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
