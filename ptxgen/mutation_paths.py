"""Paths through a kernel: what may be executed before and after an instruction."""

from collections.abc import Callable

from ptxgen.emulator.flow import Flow, reads, writes
from ptxgen.ptx.module import Function, Immediate, Instruction, Operand, Register

Test = Callable[[Instruction], bool]

VARIES = "varies"
"""A register that is not one constant."""
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b, "ls": lambda a, b: a <= b, "hi": lambda a, b: a > b,
    "hs": lambda a, b: a >= b,
}  # fmt: skip
Value = int | bool | str | None
"""A constant, VARIES, or None where nothing is known yet."""


class Paths:
    """The control flow graph of a function, both ways. Positions are indices into its body."""

    def __init__(self, function: Function) -> None:
        self.flow = Flow(function)
        self.body = function.body
        count = len(self.body)
        self.after = [[s for s in self.flow.successors(i) if s < count] for i in range(count)]
        self.before: list[list[int]] = [[] for _ in range(count)]
        for index, following in enumerate(self.after):
            for position in following:
                self.before[position].append(index)

    def backwards(self, start: int, stop: Test) -> tuple[list[Instruction], bool]:
        """Instructions that may precede `start` without one that `stop` holds for in between, the
        stopping ones included; and whether the entry is among the ways back."""
        found, ends = self._walk(start, stop, self.before)
        return found, 0 in ends

    def forwards(self, start: int, stop: Test) -> tuple[list[Instruction], bool]:
        """The same for what may follow; and whether the exit is among the ways on."""
        found, ends = self._walk(start, stop, self.after)
        return found, any(not self.after[e] for e in ends)

    def _walk(
        self, start: int, stop: Test, steps: list[list[int]]
    ) -> tuple[list[Instruction], set[int]]:
        seen: set[int] = set()
        ends = {start} if not steps[start] else set()
        waiting = list(steps[start])
        while waiting:
            position = waiting.pop()
            if position in seen:
                continue
            seen.add(position)
            if stop(self.body[position]):
                continue
            if not steps[position] or (steps is self.before and position == 0):
                ends.add(position)
            waiting += steps[position]
        return [self.body[i] for i in sorted(seen)], ends

    def most_groups(self, prefix: str) -> list[int]:
        """For each position, how many groups may be committed and not waited for; LIMIT and more
        count as LIMIT. `prefix`: wgmma, cp.async or cp.async.bulk."""
        most = [-1] * len(self.body)
        waiting = [(0, 0)]
        while waiting:
            position, count = waiting.pop()
            if count <= most[position]:
                continue
            most[position] = count
            instruction = self.body[position]
            if instruction.opcode.startswith(f"{prefix}.commit_group"):
                count = min(count + 1, LIMIT)
            elif instruction.opcode.startswith(f"{prefix}.wait_group") and not instruction.guard:
                allowed = instruction.operands[0]
                if isinstance(allowed, Immediate):
                    count = min(count, int(allowed.value))
            waiting += [(following, count) for following in self.after[position]]
        return most

    def constant(self, position: int, register: str) -> Value:
        """What a register holds at a position on every path: a constant, or VARIES."""
        wanted = self._sources(register)
        states: list[dict[str, Value]] = [{} for _ in self.body]
        waiting = [0]
        seen = {0}
        while waiting:
            at = waiting.pop()
            out = self._executed(self.body[at], states[at], wanted)
            for following in self.after[at]:
                merged = {
                    name: _merge(states[following].get(name), out.get(name), following in seen)
                    for name in wanted
                }
                if following not in seen or merged != states[following]:
                    seen.add(following)
                    states[following] = merged
                    waiting.append(following)
        found = states[position].get(register)
        return VARIES if found is None else found

    def _sources(self, register: str) -> set[str]:
        """The register and all that its values are made of by moves and comparisons."""
        wanted = {register}
        while True:
            more = {
                name
                for i in self.body
                if wanted.intersection(writes(i)) and i.name in ("mov", "setp")
                for name in reads(i)
            }
            if more <= wanted:
                return wanted
            wanted |= more

    def _executed(
        self, instruction: Instruction, state: dict[str, Value], wanted: set[str]
    ) -> dict[str, Value]:
        written = wanted.intersection(writes(instruction))
        if not written:
            return state
        value = _result(instruction, state)
        out = dict(state)
        for name in written:
            old = state.get(name)
            out[name] = value if instruction.guard is None else _merge(old, value, True)
        return out


LIMIT = 8
"""Groups are counted so far."""


def _merge(one: Value, other: Value, both: bool) -> Value:
    """What holds where two paths meet; None (undefined) is VARIES once both have been seen."""
    if not both:
        return VARIES if other is None else other
    if one is None or other is None or one != other:
        return VARIES
    return one


def _result(instruction: Instruction, state: dict[str, Value]) -> Value:
    """The constant that a move or comparison writes."""
    if instruction.name == "mov":
        return _value(instruction.operands[1], state)
    if instruction.name != "setp" or instruction.modifiers[0] not in _COMPARISONS:
        return VARIES
    left, right = (_value(o, state) for o in instruction.operands[1:3])
    if isinstance(left, str) or isinstance(right, str) or left is None or right is None:
        return VARIES
    holds = _COMPARISONS[instruction.modifiers[0]](int(left), int(right))
    if "and" in instruction.modifiers:
        return VARIES if holds else False
    if "or" in instruction.modifiers:
        return True if holds else VARIES
    return VARIES if "xor" in instruction.modifiers else holds


def _value(operand: Operand, state: dict[str, Value]) -> Value:
    if isinstance(operand, Immediate) and operand.kind == "int":
        return int(operand.value)
    return state.get(operand.name, VARIES) if isinstance(operand, Register) else VARIES
