"""Emitter: writes the Python source of one version of a piece of straight-line PTX.

A version is specialised on where it starts, on the mode (all 32 lanes, some lanes, one lane) and on
the form of every live register, so that generated code contains no dispatch.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from ptxgen.emulator.special import special_register
from ptxgen.errors import UnknownInstructionError
from ptxgen.ptx.module import (
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Sink,
    Symbol,
)

if TYPE_CHECKING:
    from ptxgen.emulator.program import Program

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


class Emitter:
    """Source of one version."""

    def __init__(
        self, program: "Program", position: int, mode: str, context: Context, guarded: bool
    ) -> None:
        self.program = program
        self.flow = program.flow
        self.mode = mode
        self.tid_is_linear = program.tid_is_linear
        self.position = position
        self.guard_done = guarded
        self.prologue: list[str] = []
        self.body: list[str] = []
        self.body_lines: list[int] = []
        self.exits: dict[str, tuple[int, bool, Context]] = {}
        self.ptx_line = 0
        self.at = position
        """Position of the instruction being written."""
        self.indent = 1
        self.guard: Code | None = None
        self.env: dict[int, Value] = {}
        self.dirty: set[int] = set()
        self._conditional: dict[tuple[int, str], str] | None = None
        self._saved: tuple[dict[int, Value], set[int]] | None = None
        self._count = 0
        self._specials: dict[str, str] = {}
        slabs: dict[int, Slab] = {}
        for register, form in context:
            if isinstance(form, tuple):
                kind, slot, row = form
                slab = slabs.get(slot)
                if slab is None:
                    slab = slabs[slot] = self._load_slab(kind, slot)
                self.env[register] = Value("V", {}, slab, row)
            elif form == "T":
                self.env[register] = Value("V", home=register, tid=True)
            else:
                self.env[register] = Value(form, home=register)

    # Source text

    def line(self, text: str) -> None:
        """Append one line at the current indentation."""
        self.body.append("    " * self.indent + text)
        self.body_lines.append(self.ptx_line)

    def name(self) -> str:
        """A fresh local variable."""
        self._count += 1
        return f"t{self._count}"

    def assign(self, code: str) -> str:
        """Evaluate an expression into a fresh variable, unless it is a name or literal."""
        if code.isidentifier() or code.isdigit():
            return code
        found = self.name()
        self.line(f"{found} = {code}")
        return found

    def unknown(self, instruction: Instruction, why: str) -> UnknownInstructionError:
        """The error for a form that cannot be executed."""
        return UnknownInstructionError(
            f"line {instruction.line}: `{instruction.text[:120]}`: {why}", instruction.line
        )

    # Reading

    def register_bits(self, name: str) -> int:
        """Width of a declared register."""
        return TYPE_BITS[self.flow.types[self.flow.number[name]]]

    def read(self, operand: Operand, kind: str) -> Code:
        """Form and expression of an operand, read as type `kind`."""
        if isinstance(operand, Register):
            number = self.flow.number.get(operand.name)
            if number is not None:
                return self._read_register(number, kind)
            form, code = special_register(operand.name, self.mode)
            if form == "V":
                code = self._special(operand.name, code)
            return form, code
        if isinstance(operand, Immediate):
            return "S", immediate(operand, kind)
        if isinstance(operand, Negated):
            form, code = self.read(operand.register, "pred")
            return (form, f"(not {code})") if form == "S" else (form, f"({code} ^ FULL)")
        if isinstance(operand, Symbol):
            return "S", self.program.symbol(operand)
        raise TypeError(f"cannot read {operand}")

    def read_uniform(self, operand: Operand, kind: str, lane: str = "F.lead()") -> str:
        """An operand as one number: of a varying one, the value in `lane`."""
        form, code = self.read(operand, kind)
        return code if form == "S" else f"int({self.assign(code)}[{lane}])"

    def read_lanes(self, operand: Operand, kind: str) -> str:
        """An operand as an array (32,)."""
        form, code = self.read(operand, kind)
        return self.spread(code, kind) if form == "S" else code

    def spread(self, code: str, kind: str) -> str:
        """A uniform expression of a type as an array or mask."""
        if kind == "pred":
            return f"(FULL if {code} else 0)"
        return f"full({code}, {TYPE_BITS[kind]})" if domain(kind) == "u" else (
            f"np.full(32, {code}, {numpy_type(kind)})"
        )  # fmt: skip

    def _read_register(self, number: int, kind: str) -> Code:
        value = self.env.get(number)
        if value is None or value.form == UNDEFINED:
            value = self.undefined(number)
        return self.read_value(number, value, kind)

    def read_value(self, number: int, value: Value, kind: str) -> Code:
        """A value that register `number` has or had, read as a type."""
        bits = TYPE_BITS[self.flow.types[number]]
        wanted = TYPE_BITS[kind]
        if kind == "pred" or bits == 1:
            return value.form, self._canonical(number, value)
        if wanted < bits:
            code = self._canonical(number, value)
            if value.form == "S":
                code = f"({code} & {(1 << wanted) - 1:#x})"
            else:
                code = f"{code}.astype(U{wanted // 8})"
            return value.form, _convert(code, value.form, domain(kind), wanted)
        return value.form, self._in_domain(number, value, domain(kind), bits)

    def undefined(self, number: int) -> Value:
        """What a read of a register finds that was never written."""
        kind = self.flow.types[number]
        if kind == "pred":
            code = "False"
        else:
            code = str((1 << TYPE_BITS[kind]) - 1)
        self.line(f"undefined(F, {self.flow.names[number]!r}, {self.ptx_line})")
        return Value("S", {"p" if kind == "pred" else "u": code})

    def _canonical(self, number: int, value: Value) -> str:
        """The bits (or truth) of a value."""
        key = "p" if self.flow.types[number] == "pred" else "u"
        return self._in_domain(number, value, key, TYPE_BITS[self.flow.types[number]])

    def _in_domain(self, number: int, value: Value, key: str, bits: int) -> str:
        found = value.names.get(key)
        if found is not None:
            return found
        if self._conditional is not None:
            found = self._conditional.get((id(value), key))
            if found is not None:
                return found
        if value.slab is not None:
            code = f"{self.slab_in_domain(value.slab, key, bits)}[{value.row}]"
        elif not value.names:
            found = f"r{value.home}"
            self.prologue.append(f"    {found} = R[{value.home}]")
            value.names["p" if key == "p" else "u"] = found
            if key in "pu":
                return found
            code = _convert(found, value.form, key, bits)
        else:
            source, have = next(iter(value.names.items()))
            if source != "u":
                have = _to_unsigned(have, value.form, source, bits)
            code = have if key == "u" else _convert(have, value.form, key, bits)
        found = self.assign(code)
        self._remember(value, key, found)
        return found

    def _remember(self, value: Value, key: str, name: str) -> None:
        if self._conditional is None:
            value.names[key] = name
        else:
            self._conditional[id(value), key] = name

    def slab_in_domain(self, slab: Slab, key: str, bits: int) -> str:
        """The variable that holds a whole slab, read in a domain."""
        found = slab.names.get(key)
        if found is None and self._conditional is not None:
            found = self._conditional.get((id(slab), key))
        if found is None:
            source, have = next(iter(slab.names.items()))
            if source != "u":
                have = _to_unsigned(have, "V", source, bits)
            found = self.assign(have if key == "u" else _convert(have, "V", key, bits))
            if self._conditional is None:
                slab.names[key] = found
            else:
                self._conditional[id(slab), key] = found
        return found

    def _load_slab(self, kind: str, slot: int) -> Slab:
        name = f"s{slot}"
        if kind == "R":
            self.prologue.append(f"    {name} = R[{slot}]")
            return Slab({"u": name}, slot)
        self.prologue.append(f"    h{slot} = R[{slot}]")
        self.prologue.append(f"    {name} = h{slot}.array")
        return Slab({"u": name}, slot, f"h{slot}")

    def _special(self, register: str, code: str) -> str:
        found = self._specials.get(register)
        if found is None:
            found = self._specials[register] = f"x{len(self._specials)}"
            self.prologue.append(f"    {found} = {code}")
        return found

    def read_as(self, value: Value | None, operand: Operand, kind: str) -> Code:
        """An operand that has a known value (None: a literal or special register)."""
        if value is None:
            return self.read(operand, kind)
        register = register_of(operand)
        assert register is not None
        form, code = self.read_value(self.flow.number[register.name], value, kind)
        if isinstance(operand, Negated):
            code = f"(not {code})" if form == "S" else f"({code} ^ FULL)"
        return form, code

    def gather(self, values: Sequence[Value | None], operands: Sequence[Operand], kind: str) -> str:
        """Expression of several registers of one type as (n, 32), or whatever broadcasts to it."""
        first = values[0]
        if self.all_same(values, operands):
            return self.read_as(first, operands[0], kind)[1]
        if first is not None and first.slab is not None:
            slab = first.slab
            if all(v is not None and v.slab is slab for v in values):
                register = operands[0]
                assert isinstance(register, Register)
                bits = self.register_bits(register.name)
                if TYPE_BITS[kind] == bits:
                    name = self.slab_in_domain(slab, domain(kind), bits)
                    return name + select_rows([v.row for v in values if v is not None])
        bits = TYPE_BITS[kind]
        plain = f"b{bits}"
        codes = [self.read_as(v, o, plain) for v, o in zip(values, operands, strict=True)]
        if all(form == "S" for form, _ in codes):
            items = ", ".join(code for _, code in codes)
            code = f"np.array(({items},), U{bits // 8})[:, None]"
        else:
            items = ", ".join(c if f == "V" else self.spread(c, plain) for f, c in codes)
            code = f"np.array(({items},))"
        return code if domain(kind) == "u" else f"{code}.view({numpy_type(kind)})"

    def gather_operands(self, operands: Sequence[Operand], kind: str) -> str:
        """Registers and literals as an array (n, 32) or (n, 1)."""
        values: list[Value | None] = []
        for operand in operands:
            register = register_of(operand)
            number = None if register is None else self.flow.number.get(register.name)
            if number is None:
                values.append(None)
                continue
            value = self.env.get(number)
            if value is None or value.form == UNDEFINED:
                value = self.undefined(number)
            values.append(value)
        code = self.gather(values, operands, kind)
        if self.all_same(values, operands):
            if self.read_as(values[0], operands[0], kind)[0] == "S":
                return f"np.full(({len(operands)}, 1), {code}, {numpy_type(kind)})"
            return f"np.broadcast_to({code}, ({len(operands)}, 32))"
        return code

    @staticmethod
    def all_same(values: Sequence[Value | None], operands: Sequence[Operand]) -> bool:
        """Whether all operands are one and the same value."""
        first = values[0]
        return all(v is first for v in values) and (
            first is not None or all(o == operands[0] for o in operands)
        )

    # Writing

    def write(self, operand: Operand, kind: str, form: str, code: str) -> None:
        """Give a register a value of type `kind`: form S or V and an expression."""
        if isinstance(operand, Sink):
            self.line(code) if "(" in code else None
            return
        if not isinstance(operand, Register):
            raise TypeError(f"cannot write {operand}")
        number = self.flow.number[operand.name]
        self.store_value(number, self.make_value(operand.name, kind, form, code))

    def make_value(self, name: str, kind: str, form: str, code: str) -> Value:
        """The value that a register holds after an expression of type `kind` is written to it."""
        number = self.flow.number[name]
        bits = TYPE_BITS[self.flow.types[number]]
        have = TYPE_BITS[kind]
        key = domain(kind)
        if self.flow.types[number] == "pred":
            return Value(form, {"p": self.assign(code)})
        if have < bits:
            if form == "S":
                code = f"({code}) & {(1 << bits) - 1:#x}"
            else:
                code = f"{code}.astype({'I' if key == 's' else 'U'}{bits // 8})"
            key = "u" if form == "S" or key == "f" else key
        elif form == "S" and key != "u":
            code = _to_unsigned(code, "S", key, bits)
            key = "u"
        return Value(form, {key: self.assign(code)})

    def store_value(self, number: int, value: Value) -> None:
        """Bind a register, merging with its old value where a varying guard is off."""
        if self.guard is not None and self.guard[0] == "V":
            value = self._merge_guarded(number, value, self.guard[1])
        self.env[number] = value
        self.dirty.add(number)

    def bind_home(self, operand: Operand, form: str) -> int:
        """A register that a run-time function stores into the register file itself: its number."""
        if not isinstance(operand, Register):
            return -1
        number = self.flow.number[operand.name]
        self.env[number] = Value(form, home=number)
        self.dirty.discard(number)
        return number

    def _merge_guarded(self, number: int, value: Value, mask: str) -> Value:
        old = self.env.get(number)
        kind = self.flow.types[number]
        key = "p" if kind == "pred" else "u"
        new_code = self._canonical(number, value)
        if old is None or old.form == UNDEFINED:
            return Value(value.form, {key: new_code})
        old_code = self._canonical(number, old)
        if kind == "pred":
            if value.form == "S":
                new_code = self.spread(new_code, "pred")
            if old.form == "S":
                old_code = self.spread(old_code, "pred")
            code = f"({new_code} & {mask}) | ({old_code} & ~{mask} & FULL)"
            return Value("V", {"p": self.assign(code)})
        if value.form == "S" and old.form == "S":
            old_code = self.spread(old_code, f"b{TYPE_BITS[kind]}")
        return Value("V", {"u": self.assign(f"np.where(lanes({mask}), {new_code}, {old_code})")})

    # Guards

    def active_mask(self) -> str:
        """Expression of the active lanes; `FULL` where all are."""
        if self.guard is not None and self.guard[0] == "V":
            return self.guard[1]
        return "FULL" if self.mode == "full" else "F.mask"

    def guard_form(self, guard: tuple[str, bool]) -> str:
        """Whether a guard is uniform (S) or varies by lane (V)."""
        return self.read(Register(guard[0]), "pred")[0]

    def guard_code(self, guard: tuple[str, bool]) -> str:
        """A guard as a truth value or a mask."""
        register = Register(guard[0])
        return self.read(Negated(register) if guard[1] else register, "pred")[1]

    def begin_guard(self, guard: tuple[str, bool]) -> None:
        """Start instructions under a guard: an `if`, or a mask."""
        form, code = self.guard_form(guard), self.guard_code(guard)
        if form == "V":
            if self.mode != "full":
                code = f"{code} & F.mask"
            code = self.assign(code)
        self.guard = form, code
        if form == "S":
            self._saved = dict(self.env), set(self.dirty)
            self._conditional = {}
            self.line(f"if {code}:")
            self.indent += 1
            self.line("pass")

    def end_guard(self) -> None:
        """End them; values that differ on the two paths are joined."""
        assert self.guard is not None
        if self.guard[0] == "S":
            assert self._saved is not None
            before, _ = self._saved
            changed = [n for n, v in self.env.items() if before.get(n) is not v]
            joined: list[tuple[int, str, str]] = []
            for number in changed:
                new = self.env[number]
                old = before.get(number)
                form = new.form if old is None or old.form == UNDEFINED else (
                    "S" if new.form == old.form == "S" else "V"
                )  # fmt: skip
                target = self.name()
                self.line(f"{target} = {self._as_form(number, new, form)}")
                joined.append((number, form, target))
            self._conditional = {}
            self.indent -= 1
            if joined:
                self.line("else:")
                self.indent += 1
                for number, form, target in joined:
                    old = before.get(number)
                    self.line(f"{target} = {self._as_form(number, old, form)}")
                self.indent -= 1
            self._conditional = None
            for number, form, target in joined:
                key = "p" if self.flow.types[number] == "pred" else "u"
                self.env[number] = Value(form, {key: target})
                self.dirty.add(number)
        self.guard = None

    def _as_form(self, number: int, value: Value | None, form: str) -> str:
        kind = self.flow.types[number]
        bits = TYPE_BITS[kind]
        if value is None or value.form == UNDEFINED:
            code = "False" if kind == "pred" else str((1 << bits) - 1)
            have = "S"
        else:
            code, have = self._canonical(number, value), value.form
        if have == "S" and form == "V":
            return self.spread(code, "pred" if kind == "pred" else f"b{bits}")
        return code

    # Leaving

    def following(self) -> str:
        """Save what is live after the current instruction; name of the version there."""
        return self.exits_to(self.at + 1)[0]

    def exits_to(self, *positions: int, guarded: Sequence[bool] = ()) -> list[str]:
        """Save what is live at the positions; names of the versions that continue there."""
        lives = [self.flow.live_in(p) for p in positions]
        if guarded:
            for index, flag in enumerate(guarded):
                if flag:
                    for register in self.flow.reads[positions[index]]:
                        lives[index] |= 1 << register
        union = 0
        for live in lives:
            union |= live
        self._save(union)
        names = []
        for index, (position, live) in enumerate(zip(positions, lives, strict=True)):
            flag = bool(guarded and guarded[index])
            key = (position, flag, self._context(live))
            for name, known in self.exits.items():
                if known == key:
                    names.append(name)
                    break
            else:
                name = f"n{len(self.exits)}"
                self.exits[name] = key
                names.append(name)
        return names

    def _save(self, live: int) -> None:
        taken = {v.slab.slot for n, v in self.env.items() if v.slab is not None and live >> n & 1}
        stored: set[int] = set()
        base = len(self.flow.names)
        for number in sorted(self.env):
            if not live >> number & 1:
                continue
            value = self.env[number]
            slab = value.slab
            if slab is not None:
                if slab.slot < 0:
                    slot = base + number
                    while slot in taken:
                        slot += 1
                    slab.slot = slot % (2 * base) if slot >= 2 * base else slot
                    taken.add(slab.slot)
                    stored.add(id(slab))
                    if slab.holder:
                        self.line(f"R[{slab.slot}] = {slab.holder}")
                    else:
                        code = self.slab_in_domain(slab, "u", TYPE_BITS[self.flow.types[number]])
                        self.line(f"R[{slab.slot}] = {code}")
            elif number in self.dirty and value.form != UNDEFINED:
                self.line(f"R[{number}] = {self._canonical(number, value)}")
                self.dirty.discard(number)

    def _context(self, live: int) -> Context:
        items: list[tuple[int, Form]] = []
        number = 0
        rest = live
        while rest:
            step = (rest & -rest).bit_length() - 1
            number += step
            rest >>= step
            value = self.env.get(number)
            form: Form
            if value is None:
                form = UNDEFINED
            elif value.slab is not None:
                form = ("A" if value.slab.holder else "R", value.slab.slot, value.row)
            elif value.tid:
                form = "T"
            else:
                form = value.form
            items.append((number, form))
            rest >>= 1
            number += 1
        return tuple(items)

    def source(self) -> tuple[str, list[int]]:
        """The function's text, and the PTX line of each of its lines."""
        head = ["def version(F, R):", *self.prologue]
        lines = [0] * len(head) + self.body_lines
        return "\n".join(head + self.body) + "\n", lines


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


def _convert(code: str, form: str, key: str, bits: int) -> str:
    """Unsigned bits read in another domain."""
    if key in "up":
        return code
    if form == "V":
        return f"{code}.view({'I' if key == 's' else 'F'}{bits // 8})"
    if key == "s":
        half = 1 << (bits - 1)
        return f"(({code} ^ {half:#x}) - {half:#x})"
    return f"bits_f{bits}({code})"


def _to_unsigned(code: str, form: str, key: str, bits: int) -> str:
    """A value of another domain as unsigned bits."""
    if form == "V":
        return f"{code}.view(U{bits // 8})"
    if key == "s":
        return f"({code}) & {(1 << bits) - 1:#x}"
    return f"f{bits}_bits({code})"
