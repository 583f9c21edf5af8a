"""Fragments: the lanes of a warp that share a program counter, with a register file of their own.

A register file is a list of uniform ints and arrays that are never changed in place, so parting is
a copy of the list, and inactive lanes may hold anything. Meeting again merges live registers only.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.lanes import FULL, UNSIGNED, lanes, lowest
from ptxgen.emulator.observer import Origin
from ptxgen.emulator.runtime import runtime
from ptxgen.emulator.values import TYPE_BITS, UNDEFINED, Context, Form
from ptxgen.ptx.module import Function

if TYPE_CHECKING:
    from ptxgen.emulator.program import Program, Version
    from ptxgen.emulator.warp import Warp


class Accumulator:
    """Holds the array (n, 32) of registers that a wgmma writes; replaced when the wait is over."""

    __slots__ = ("array", "operation")

    def __init__(self, array: Any, operation: Any = None) -> None:
        self.array = array
        self.operation = operation


@dataclass(slots=True, eq=False)
class Wait:
    """Why a fragment does not run."""

    kind: str
    """mbarrier, bar, cluster, join, tmem, registers, or a group: bulk, cp_async, wgmma, tcgen05."""
    line: int
    subject: Any = None
    """What it waits for, by kind."""
    register: int = -1
    """Register that receives the result of a try_wait."""
    peek: bool = False
    """The instruction may also return false: a try_wait or test_wait."""
    members: int = FULL
    """Lanes that must join."""
    varies: bool = False
    """The register holds a mask of lanes."""
    anywhere: str = ""
    """A join that lanes at another instruction of this kind complete, too."""
    missing: int = 0
    """Lanes that a join lacked when it began."""


@dataclass(slots=True, eq=False)
class Frame:
    """A caller, while its callee runs."""

    registers: list[Any]
    resume: "Version"
    local_base: int
    function: Function
    """The callee."""
    results: tuple[Any, ...]
    """Where its results go in the caller (op_call.py)."""


class Fragment:
    """Lanes of one warp that execute together."""

    __slots__ = (
        "count", "cta", "frames", "lane", "local_base", "machine", "mask", "mode", "next",
        "observer", "passes", "peek_epoch", "registers", "wait", "warp",
    )  # fmt: skip

    def __init__(self, warp: "Warp", mask: int, registers: list[Any]) -> None:
        self.warp = warp
        self.cta = warp.cta
        self.machine = warp.cta.machine
        self.observer = self.machine.observer
        self.registers = registers
        self.next: Any = None
        """Version to run next, where the fragment is not running."""
        self.wait: Wait | None = None
        self.peek_epoch = -1
        """Machine's epoch when a try_wait last returned false for lack of progress."""
        self.passes = False
        """Its join is complete though lanes are elsewhere."""
        self.count = 0
        """Instructions executed since the warp last added them up."""
        self.frames: list[Frame] = []
        self.local_base = 0
        self.set_mask(mask)

    def set_mask(self, mask: int) -> None:
        """Change the active lanes, and the mode with them."""
        self.mask = mask
        self.mode = "full" if mask == FULL else "part" if mask & (mask - 1) else "one"
        self.lane = lowest(mask)

    def lead(self) -> int:
        """The lowest active lane."""
        return self.lane

    def tid(self, axis: int) -> int:
        """%tid of the lowest lane."""
        return int(self.warp.tid[axis][self.lane])

    def origin(self, line: int, mask: int = -1) -> Origin:
        """Who executes, for observers and messages."""
        return Origin(self.cta.index, self.warp.index, self.mask if mask < 0 else mask, line)

    def block(self, wait: Wait, following: Any) -> None:
        """Stop until somebody clears `wait`, then go on with `following`."""
        self.wait = wait
        self.next = following

    def release(self, value: bool = True) -> None:
        """End the wait; a try_wait returns `value`."""
        wait = self.wait
        assert wait is not None
        if wait.register >= 0:
            self.registers[wait.register] = (FULL if value else 0) if wait.varies else value
        self.wait = None
        self.machine.wake(self.warp)

    def split(self, taken: int, yes: "Version", no: "Version") -> None:
        """Part: the lanes in `taken` go to `yes`, the others to `no`."""
        rest = self.mask & ~taken
        other = Fragment(self.warp, rest, list(self.registers))
        other.frames = list(self.frames)
        other.local_base = self.local_base
        other.go_to(no)
        self.set_mask(self.mask & taken)
        self.go_to(yes)
        self.warp.add(other)

    def part(self, lanes: int) -> "Fragment":
        """Lanes that go their own way: a fragment of them, which has no `next` yet."""
        other = Fragment(self.warp, lanes, list(self.registers))
        other.frames = list(self.frames)
        other.local_base = self.local_base
        self.set_mask(self.mask & ~lanes)
        self.warp.add(other)
        return other

    def go_to(self, target: Any) -> None:
        """Continue at a version made for another mode: adapt the register file, find ours."""
        program: Program = target.program
        context = target.context
        if self.mode == "one":
            context = self.scalarise(program, context)
        self.next = program.version(target.position, self.mode, context, target.guarded)

    def scalarise(self, program: "Program", context: Context) -> Context:
        """Take this fragment's only lane out of all live arrays."""
        registers = self.registers = list(self.registers)
        lane = self.lane
        types = program.flow.types
        forms: list[tuple[int, Form]] = []
        for number, form in context:
            if form == UNDEFINED:
                forms.append((number, form))
                continue
            if isinstance(form, tuple):
                kind, slot, row = form
                slab = registers[slot].array if kind == "A" else registers[slot]
                registers[number] = int(slab[row, lane])
            elif form != "S":
                value = registers[number]
                registers[number] = (
                    bool(value >> lane & 1) if types[number] == "pred" else _element(value, lane)
                )
            forms.append((number, "S"))
        return tuple(forms)

    def merge(self, other: "Fragment") -> None:
        """Take in a fragment that stands at the same position."""
        mine, theirs = self.next, other.next
        program: Program = mine.program
        types = program.flow.types
        registers = self.registers = list(self.registers)
        forms: list[tuple[int, Form]] = []
        for (number, left), (_, right) in zip(mine.context, theirs.context, strict=True):
            forms.append(
                (number, self._merge_register(number, types[number], left, right, other))
            )  # fmt: skip
        self.set_mask(self.mask | other.mask)
        self.registers = registers
        self.next = program.version(mine.position, self.mode, tuple(forms), mine.guarded)
        self.count += other.count

    def _merge_register(
        self, number: int, kind: str, left: Form, right: Form, other: "Fragment"
    ) -> Form:
        mine, theirs = self.registers, other.registers
        if right == UNDEFINED:
            return left
        if left == UNDEFINED:
            if isinstance(right, tuple):
                mine[number] = value_of(theirs, number, right)
                return "V"
            mine[number] = theirs[number]
            return right
        if left == right and isinstance(left, tuple) and mine[left[1]] is theirs[left[1]]:
            return left
        a, b = value_of(mine, number, left), value_of(theirs, number, right)
        if left == right and (a is b or (left == "S" and a == b)):
            return left
        if kind == "pred":
            if left == "S":
                a = FULL if a else 0
            if right == "S":
                b = FULL if b else 0
            mine[number] = (a & ~other.mask) | (b & other.mask)
            return "V"
        if right == "S" and other.mode == "one" and _same(a, other.lane, b):
            return left
        if left == "S" and self.mode == "one" and _same(b, self.lane, a):
            if isinstance(right, tuple):
                # A lone lane has no slabs, so theirs fits in; it may be a wgmma still in flight.
                mine[right[1]] = theirs[right[1]]
                return right
            mine[number] = b
            return right
        bits = TYPE_BITS[kind]
        if bits == 128:
            mine[number] = _merge_wide(a, b, other.mask)
            return "V"
        mine[number] = np.where(lanes(other.mask), _spread(b, bits), _spread(a, bits))
        return "V"


def value_of(registers: list[Any], number: int, form: Form) -> Any:
    """What a register file holds for a register of some form."""
    if isinstance(form, tuple):
        kind, slot, row = form
        slab = registers[slot].array if kind == "A" else registers[slot]
        return slab[row]
    return registers[number]


def value_in_lane(form: str, value: Any, lane: int) -> Any:
    """A value of a form as one lane has it."""
    if form != "V":
        return value
    return bool(value >> lane & 1) if isinstance(value, int) else _element(value, lane)


def _same(values: Any, lane: int, value: int) -> bool:
    return not isinstance(values, int) and _element(values, lane) == value


def _element(values: Any, lane: int) -> int:
    if values.ndim == 2:
        return int(values[0, lane]) | int(values[1, lane]) << 64
    return int(values[lane])


def _spread(value: Any, bits: int) -> Any:
    return UNSIGNED[bits](value) if isinstance(value, int) else value


def wide(value: Any) -> Any:
    """A 128-bit value as (2, 32): low and high halves per lane."""
    if isinstance(value, int):
        halves = np.empty((2, 32), np.uint64)
        halves[0], halves[1] = value & (1 << 64) - 1, value >> 64
        return halves
    return value


def _merge_wide(a: Any, b: Any, mask: int) -> Any:
    return np.where(lanes(mask), wide(b), wide(a))


@runtime
def branch(F: Fragment, taken: int, yes: "Version", no: "Version") -> Any:
    """Continue at `yes` for the lanes in `taken`, at `no` for the others."""
    active = F.mask
    taken &= active
    if taken == active:
        return yes
    if not taken:
        return no
    F.split(taken, yes, no)
    return None


@runtime
def leave(F: Fragment) -> None:
    """The lanes exit."""
    F.warp.leave(F)


@runtime
def joined(F: Fragment, members: int, line: int) -> bool:
    """Whether all lanes that must execute an instruction together are here; else wait for them."""
    missing = F.warp.alive & members & ~F.mask
    if missing:
        F.wait = Wait("join", line, members=members, missing=missing)
        return False
    return True


@runtime
def met(F: Fragment, members: int, line: int, kind: str) -> bool:
    """As `joined`, for barriers of one kind that are not .aligned: lanes may stand at different
    ones."""
    if F.passes:
        F.passes = False
        return True
    if F.warp.alive & members & ~F.mask:
        F.wait = Wait("join", line, members=members, anywhere=kind)
        return False
    return True


@runtime
def any_of(F: Fragment, members: Any) -> int:
    """Lanes that any active lane names."""
    return int(np.bitwise_or.reduce(members[lanes(F.mask)]))


@runtime
def tid_bit(lane: int) -> int:
    """Mask of one lane; empty outside the warp."""
    return 1 << lane if 0 <= lane < 32 else 0


@runtime
def undefined(F: Fragment, register: str, line: int) -> None:
    """A register is read that was never written."""
    F.machine.undefined_register(F, register, line)


@runtime
def step(F: Fragment, program: "Program", index: int, context: Context) -> None:
    """An instruction is about to execute."""
    F.machine.before_instruction(F, program, index, context)
