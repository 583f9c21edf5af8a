"""Control flow of one function: register numbers, basic blocks and liveness."""

from collections.abc import Iterator

import numpy as np

from ptxgen.errors import UnknownInstructionError
from ptxgen.ptx.module import (
    Address,
    Function,
    Instruction,
    Negated,
    Operand,
    Register,
    Symbol,
    leaves,
)

ENDERS = ("bra", "brx", "ret", "exit", "trap")
"""Instructions after which control does not simply go on."""

NO_RESULT = frozenset(
    [
        "st",
        "stmatrix",
        "red",
        "bar",
        "barrier",
        "fence",
        "membar",
        "bra",
        "brx",
        "ret",
        "exit",
        "trap",
        "prefetch",
        "prefetchu",
        "cp",
        "griddepcontrol",
        "nanosleep",
        "setmaxnreg",
        "tensormap",
        "discard",
        "applypriority",
        "pmevent",
        "brkpt",
        "clusterlaunchcontrol",
    ]
)
"""Instructions whose first operand is not a destination (see `results`)."""


CARRY = "%cc"
"""The condition code flag, as a register of functions that use it."""
_CARRYING = ("add", "addc", "sub", "subc", "mad", "madc")


def registers_in(operand: Operand) -> Iterator[str]:
    """Names of all registers that an operand mentions."""
    for leaf in leaves(operand):
        if isinstance(leaf, Register):
            yield leaf.name
        elif isinstance(leaf, Negated):
            yield leaf.register.name


def num_results(instruction: Instruction) -> int:
    """How many leading operands an instruction writes."""
    name, modifiers = instruction.name, instruction.modifiers
    if name == "call":
        return 1
    if name == "mbarrier":
        return int(
            modifiers[0] in ("test_wait", "try_wait", "pending_count")
            or (modifiers[0] in ("arrive", "arrive_drop") and len(instruction.operands) > 1
                and not isinstance(instruction.operands[0], Address))
        )  # fmt: skip
    if name == "wgmma":
        return int(modifiers[0] == "mma_async")
    if name == "wmma":
        return int(modifiers[0] != "store")
    if name == "tcgen05":
        return int(modifiers[0] == "ld") + int("red" in modifiers[1:2])
    if name == "bar" or name == "barrier":
        return int("red" in modifiers)
    if name == "clusterlaunchcontrol":
        return int(modifiers[0] == "query_cancel")
    if name == "multimem":
        return int(modifiers[0] == "ld_reduce")
    if name in NO_RESULT:
        return 0
    return 1


def reads(instruction: Instruction) -> list[str]:
    """Registers that an instruction reads, its guard included."""
    skip = num_results(instruction)
    found: list[str] = []
    for index, operand in enumerate(instruction.operands):
        if index >= skip:
            found.extend(registers_in(operand))
    if instruction.name == "wgmma" and skip:
        found.extend(registers_in(instruction.operands[0]))
    if instruction.guard is not None:
        found.append(instruction.guard[0])
    if instruction.name in ("addc", "subc", "madc"):
        found.append(CARRY)
    return found


def writes(instruction: Instruction) -> list[str]:
    """Registers that an instruction writes."""
    found: list[str] = []
    for operand in instruction.operands[: num_results(instruction)]:
        found.extend(registers_in(operand))
    if sets_carry(instruction):
        found.append(CARRY)
    return found


def sets_carry(instruction: Instruction) -> bool:
    """Whether an instruction writes the carry flag."""
    return "cc" in instruction.modifiers and instruction.name in _CARRYING


def members(registers: int) -> list[int]:
    """The numbers in a set of registers, ascending."""
    if registers < 1 << 64:
        found = []
        while registers:
            low = registers & -registers
            found.append(low.bit_length() - 1)
            registers ^= low
        return found
    raw = np.frombuffer(
        registers.to_bytes((registers.bit_length() + 7) // 8, "little"), np.uint8
    )  # fmt: skip
    numbers: list[int] = np.flatnonzero(np.unpackbits(raw, bitorder="little")).tolist()
    return numbers


class Flow:
    """Registers are numbered, the body is cut into blocks, liveness is known at every position.

    A position is an index into the body; sets of registers are integers, bit i = register i.
    """

    def __init__(self, function: Function) -> None:
        """Raises: UnknownInstructionError for a branch to a label that is not there."""
        self.function = function
        self.body = function.body
        self.names: list[str] = list(function.registers)
        self.types: list[str] = [function.registers[n] for n in self.names]
        if any(i.name in ("addc", "subc", "madc") or sets_carry(i) for i in self.body):
            self.names.append(CARRY)
            self.types.append("pred")
        self.number: dict[str, int] = {n: i for i, n in enumerate(self.names)}
        self.results = self._numbers(
            [p.name for p in function.returns if p.is_register and not function.is_entry]
        )
        """Registers that a return hands to the caller."""
        self.reads = [
            self._numbers(reads(i)) + (self.results if i.name == "ret" else ()) for i in self.body
        ]
        self.writes = [self._numbers(writes(i)) for i in self.body]
        self.leaders = self._find_leaders()
        self._starts = sorted(self.leaders)
        self._live_out = self._solve()
        self._live_in: dict[int, int] = {}

    def successors(self, position: int) -> list[int]:
        """Positions that may follow the instruction at `position`."""
        if position >= len(self.body):
            return []
        instruction = self.body[position]
        after = [position + 1]
        if instruction.name == "bra":
            taken = self.target(instruction)
            return [taken] if instruction.guard is None else [*after, taken]
        if instruction.name == "brx":
            targets = [self.function.labels[t] for t in self.branch_list(instruction)]
            return targets if instruction.guard is None else after + targets
        if instruction.name in ENDERS:
            return [] if instruction.guard is None else after
        return after

    def target(self, instruction: Instruction) -> int:
        """Where a `bra` goes."""
        operand = instruction.operands[-1]
        if not isinstance(operand, Symbol) or operand.name not in self.function.labels:
            raise UnknownInstructionError(
                f"line {instruction.line}: `{instruction.text}` must name a label of "
                f"{self.function.name}",
                instruction.line,
            )
        return self.function.labels[operand.name]

    def is_endless(self, position: int) -> bool:
        """Whether whoever takes the `bra` there is back at it for ever: nothing but branches that
        were not taken lies between it and its target, and no label but the target's, so that
        nothing can change a condition."""
        target = self.target(self.body[position])
        labels = self.function.labels.values()
        return (
            target <= position
            and all(self.body[i].name == "bra" for i in range(target, position + 1))
            and not any(target < label <= position for label in labels)
        )

    def branch_list(self, instruction: Instruction) -> tuple[str, ...]:
        """Labels that a `brx.idx` chooses from."""
        operand = instruction.operands[-1]
        if isinstance(operand, Symbol) and operand.name in self.function.branch_targets:
            return self.function.branch_targets[operand.name]
        raise UnknownInstructionError(
            f"line {instruction.line}: `{instruction.text}` must name a .branchtargets list",
            instruction.line,
        )

    def live_in(self, position: int) -> int:
        """Registers whose value may still be read at or after `position`."""
        found = self._live_in.get(position)
        if found is None:
            end = position
            while end < len(self.body) and not self._ends_block(end):
                end += 1
            live = self._live_out.get(end, sum(1 << r for r in self.results))
            self._live_in[position] = live
            for index in range(min(end, len(self.body) - 1), position - 1, -1):
                live = self._live_in[index] = self._before(index, live)
            found = self._live_in[position]
        return found

    def _numbers(self, names: list[str]) -> tuple[int, ...]:
        number = self.number
        return tuple(number[n] for n in names if n in number)

    def _find_leaders(self) -> set[int]:
        leaders = {0, *self.function.labels.values()}
        for index, instruction in enumerate(self.body):
            if instruction.name in ENDERS:
                leaders.add(index + 1)
        return {i for i in leaders if i <= len(self.body)}

    def _ends_block(self, position: int) -> bool:
        return position + 1 in self.leaders

    def _before(self, position: int, live: int) -> int:
        if self.body[position].guard is None:
            for register in self.writes[position]:
                live &= ~(1 << register)
        for register in self.reads[position]:
            live |= 1 << register
        return live

    def _solve(self) -> dict[int, int]:
        """Live sets after each block end, by backwards iteration to the fixed point."""
        blocks: list[tuple[int, int, int, int, list[int]]] = []
        starts = [s for s in self._starts if s < len(self.body)]
        for start, stop in zip(starts, [*starts[1:], len(self.body)], strict=True):
            used = killed = 0
            for index in range(stop - 1, start - 1, -1):
                if self.body[index].guard is None:
                    for register in self.writes[index]:
                        killed |= 1 << register
                        used &= ~(1 << register)
                for register in self.reads[index]:
                    used |= 1 << register
            blocks.append((start, stop - 1, used, killed, self.successors(stop - 1)))
        at_end = sum(1 << r for r in self.results)
        live_in: dict[int, int] = {len(self.body): at_end}
        live_out: dict[int, int] = {}
        changed = True
        while changed:
            changed = False
            for start, end, used, killed, followers in reversed(blocks):
                out = 0
                for follower in followers:
                    out |= live_in.get(follower, 0)
                live_out[end] = out
                new = used | (out & ~killed)
                if live_in.get(start) != new:
                    live_in[start] = new
                    changed = True
        return live_out
