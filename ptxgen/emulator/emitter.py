"""Emitter: writes the Python source of one version of a piece of straight-line PTX.

A version is specialised on where it starts, on the mode (all 32 lanes, some lanes, one lane) and on
the form of every live register, so that generated code contains no dispatch.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptxgen.emulator.flow import members
from ptxgen.emulator.reading import Reader
from ptxgen.emulator.values import (
    TYPE_BITS,
    UNDEFINED,
    Context,
    Form,
    Slab,
    Value,
    domain,
    to_unsigned,
)
from ptxgen.ptx.module import Negated, Operand, Register, Sink

if TYPE_CHECKING:
    from ptxgen.emulator.program import Program


class Emitter(Reader):
    """Source of one version."""

    def __init__(
        self, program: "Program", position: int, mode: str, context: Context, guarded: bool
    ) -> None:
        super().__init__(program, position, mode, context, guarded)
        self.exits: dict[str, tuple[int, bool, Context]] = {}
        """Name of a version that the code returns -> position, guard done, forms."""

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
            code = to_unsigned(code, "S", key, bits)
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
        old = self.lookup(number)
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
            self._saved = dict(self.env)
            self._conditional = {}
            self.line(f"if {code}:")
            self.indent += 1
            self.line("pass")

    def end_guard(self) -> None:
        """End them; values that differ on the two paths are joined."""
        assert self.guard is not None
        if self.guard[0] == "S":
            assert self._saved is not None
            before = self._saved
            changed = [n for n, v in self.env.items() if before.get(n) is not v]
            joined: list[tuple[int, str, str]] = []
            for number in changed:
                new = self.env[number]
                if number not in before:
                    start = self.from_start(number)
                    if start is not None:
                        before[number] = start
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
            self._saved = None
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
        if self.mode != "one" and any(self.program.general(p, self.mode) for p in positions):
            self._generalise(union)
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

    def _generalise(self, live: int) -> None:
        """Give all live registers the one general form, so that no further version is needed.

        Accumulators keep theirs: they may be in flight.
        """
        for number in members(live):
            value = self.lookup(number)
            if value is None or value.form == UNDEFINED:
                continue
            if value.slab is not None and value.slab.holder:
                continue
            if value.form == "S" or value.slab is not None or value.tid:
                kind = self.flow.types[number]
                if kind == "b128":
                    continue
                key = "p" if kind == "pred" else "u"
                code = self._as_form(number, value, "V")
                self.env[number] = Value("V", {key: self.assign(code)})
                self.dirty.add(number)

    def _save(self, live: int) -> None:
        for number in sorted(self.env):
            if not live >> number & 1:
                continue
            value = self.env[number]
            slab = value.slab
            if slab is not None:
                if slab.slot < 0:
                    self._give_slot(slab, number, live)
            elif number in self.dirty and value.form != UNDEFINED:
                self.line(f"R[{number}] = {self._canonical(number, value)}")
                self.dirty.discard(number)

    def _give_slot(self, slab: Slab, number: int, live: int) -> None:
        """Store a slab where no other one lives, by preference beside its first register."""
        taken = {v.slab.slot for n, v in self.env.items() if v.slab is not None and live >> n & 1}
        for register, form in self.incoming.items():
            if isinstance(form, tuple) and live >> register & 1 and register not in self.env:
                taken.add(form[1])
        base = len(self.flow.names)
        slot = base + number
        while slot in taken:
            slot = slot + 1 if slot + 1 < 2 * base else base
        slab.slot = slot
        if slab.holder:
            self.line(f"R[{slot}] = {slab.holder}")
        else:
            code = self.slab_in_domain(slab, "u", TYPE_BITS[self.flow.types[number]])
            self.line(f"R[{slot}] = {code}")

    def _context(self, live: int) -> Context:
        items: list[tuple[int, Form]] = []
        for number in members(live):
            value = self.env.get(number)
            form: Form
            if value is None:
                form = self.incoming.get(number, UNDEFINED)
            elif value.slab is not None:
                form = ("A" if value.slab.holder else "R", value.slab.slot, value.row)
            elif value.tid:
                form = "T"
            else:
                form = value.form
            items.append((number, form))
        return tuple(items)

    def source(self) -> tuple[str, list[int]]:
        """The function's text, and the PTX line of each of its lines."""
        head = ["def version(F, R):", *self.prologue]
        lines = [0] * len(head) + self.body_lines
        return "\n".join(head + self.body) + "\n", lines
