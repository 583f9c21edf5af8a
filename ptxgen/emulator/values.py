"""Values during code generation: the form of a register, and Python expressions for it."""

import struct
from dataclasses import dataclass, field
from itertools import pairwise

from ptxgen.ptx.module import Immediate, Negated, Operand, Register

UNIFORM, VARYING, UNDEFINED = "S", "V", "U"
Form = str | tuple[str, int, int]
"""S: uniform, a Python int. V: one value per lane. T: %tid.x. U: never written. (R, slot, row): a
row of the slab in a slot; (A, slot, row): a row of the accumulator that a slot holds."""
Context = tuple[tuple[int, Form], ...]
"""Forms of the live registers, by register number."""
Code = tuple[str, str]
"""(form S or V, Python expression)."""

TYPE_BITS = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "b64": 64, "u64": 64,
    "s64": 64, "f64": 64, "b128": 128, "u128": 128, "f32x2": 64, "tf32": 32,
    "e4m3x2": 16, "e5m2x2": 16,
}  # fmt: skip


def domain(kind: str) -> str:
    """How a type reads its bits: u(nsigned), s(igned), f(loat), p(redicate)."""
    if kind == "pred":
        return "p"
    if kind in ("f16", "f32", "f64"):
        return "f"
    return "s" if kind[0] == "s" else "u"


@dataclass(slots=True, eq=False)
class Slab:
    """An array (n, 32) whose rows are registers."""

    names: dict[str, str] = field(default_factory=dict)
    """Domain -> local variable."""
    slot: int = -1
    """Where it lives between versions; -1 = nowhere yet."""
    holder: str = ""
    """Variable of the accumulator that owns the array; empty for an ordinary slab."""


@dataclass(slots=True, eq=False)
class Value:
    """What is known about a register at one point."""

    form: str
    names: dict[str, str] = field(default_factory=dict)
    """Domain -> expression that is a name or a literal."""
    slab: Slab | None = None
    row: int = 0
    home: int = -1
    """Register whose place in the register file holds it, while it has no name."""
    tid: bool = False
    """It is %tid.x of 32 consecutive threads from a multiple of 32 on."""


def register_of(operand: Operand) -> Register | None:
    """The register of `%r` or `!%p`."""
    if isinstance(operand, Register):
        return operand
    if isinstance(operand, Negated):
        return operand.register
    return None


def select_rows(rows: list[int]) -> str:
    """Subscript that selects rows of a slab in order."""
    if len(rows) == 1:
        return f"[{rows[0]}:{rows[0] + 1}]"
    step = rows[1] - rows[0]
    if step > 0 and all(b - a == step for a, b in pairwise(rows)):
        return f"[{rows[0]}:{rows[-1] + 1}]" if step == 1 else f"[{rows[0]}:{rows[-1] + 1}:{step}]"
    if step == 0 and len(set(rows)) == 1:
        return f"[{rows[0]}]"
    return f"[{rows}]"


def immediate(operand: Immediate, kind: str) -> str:
    """A literal, read as a type, as a Python expression."""
    bits = TYPE_BITS[kind]
    if domain(kind) == "f":
        if operand.kind == "int":
            value = float(operand.value)
        else:
            value = float(operand.value)
        if value != value:
            return "NAN"
        if value in (float("inf"), float("-inf")):
            return "INF" if value > 0 else "(-INF)"
        return f"({value!r})"
    if operand.kind == "int":
        number = int(operand.value)
    elif bits == 32 and operand.kind == "f64":
        number = int.from_bytes(struct.pack("<f", float(operand.value)), "little")
    else:
        number = operand.bits
    number &= (1 << bits) - 1
    if kind == "pred":
        return "True" if number else "False"
    if domain(kind) == "s" and number >> (bits - 1):
        return f"({number - (1 << bits)})"
    return str(number)


def numpy_type(kind: str) -> str:
    """Name of the numpy type that holds a PTX type."""
    return {"u": "U", "s": "I", "f": "F"}[domain(kind)] + str(TYPE_BITS[kind] // 8)


def convert(code: str, form: str, key: str, bits: int) -> str:
    """Unsigned bits read in another domain."""
    if key in "up":
        return code
    if form == "V":
        return f"{code}.view({'I' if key == 's' else 'F'}{bits // 8})"
    if key == "s":
        half = 1 << (bits - 1)
        return f"(({code} ^ {half:#x}) - {half:#x})"
    return f"bits_f{bits}({code})"


def to_unsigned(code: str, form: str, key: str, bits: int) -> str:
    """A value of another domain as unsigned bits."""
    if form == "V":
        return f"{code}.view(U{bits // 8})"
    if key == "s":
        return f"({code}) & {(1 << bits) - 1:#x}"
    return f"f{bits}_bits({code})"
