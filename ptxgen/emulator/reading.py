"""Reading operands while code is generated: registers in any form, literals, special registers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptxgen.emulator.special import special_register
from ptxgen.emulator.values import (
    TYPE_BITS,
    UNDEFINED,
    Code,
    Context,
    Form,
    Slab,
    Value,
    convert,
    domain,
    immediate,
    numpy_type,
    register_of,
    select_rows,
    to_unsigned,
)
from ptxgen.errors import UnknownInstructionError
from ptxgen.ptx.module import (
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Symbol,
)

if TYPE_CHECKING:
    from ptxgen.emulator.program import Program


class Reader:
    """Source text of one version, and operands as expressions in it."""

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
        self.ptx_line = 0
        self.at = position
        """Position of the instruction being written."""
        self.indent = 1
        self.guard: Code | None = None
        self.env: dict[int, Value] = {}
        """Registers that the code has read or written so far."""
        self.incoming: dict[int, Form] = dict(context)
        """Forms of the live registers at the start."""
        self._slabs: dict[int, Slab] = {}
        self._saved: dict[int, Value] | None = None
        """Values before the guard that is open."""
        self.dirty: set[int] = set()
        self._conditional: dict[tuple[int, str], str] | None = None
        self._count = 0
        self._specials: dict[str, str] = {}

    def lookup(self, number: int) -> Value | None:
        """The value of a register now; None where nothing is known of it."""
        value = self.env.get(number)
        if value is None:
            value = self.from_start(number)
            if value is not None:
                self.env[number] = value
                if self._saved is not None:
                    self._saved.setdefault(number, value)
        return value

    def from_start(self, number: int) -> Value | None:
        """The value that a register had at the start."""
        form = self.incoming.get(number)
        if form is None:
            return None
        if isinstance(form, tuple):
            kind, slot, row = form
            slab = self._slabs.get(slot)
            if slab is None:
                slab = self._slabs[slot] = self._load_slab(kind, slot)
            return Value("V", {}, slab, row)
        if form == "T":
            return Value("V", home=number, tid=True)
        return Value(form, home=number)

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
        value = self.lookup(number)
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
            return value.form, convert(code, value.form, domain(kind), wanted)
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
            code = convert(found, value.form, key, bits)
        else:
            source, have = next(iter(value.names.items()))
            if source != "u":
                have = to_unsigned(have, value.form, source, bits)
            code = have if key == "u" else convert(have, value.form, key, bits)
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
                have = to_unsigned(have, "V", source, bits)
            found = self.assign(have if key == "u" else convert(have, "V", key, bits))
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
            value = self.lookup(number)
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
