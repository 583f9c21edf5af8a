"""Which registers decide how a function goes on.

The others (counters of polls, lengths of naps, a time that is only compared with a limit) may
change for ever without anything coming of it. Whether control reaches a trap does not count as
going on: a branch of which one side ends in a trap whatever happens decides nothing else.
"""

from ptxgen.emulator.flow import Flow
from ptxgen.ptx.module import Instruction, Symbol

_PURE = {
    "mov", "add", "addc", "sub", "subc", "mul", "mad", "madc", "mul24", "mad24", "sad", "div",
    "rem", "abs", "neg", "min", "max", "fma", "rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2",
    "tanh", "setp", "set", "selp", "slct", "and", "or", "xor", "not", "cnot", "lop3", "shl",
    "shr", "shf", "cvt", "cvta", "prmt", "bfe", "bfi", "bfind", "brev", "popc", "clz", "fns",
    "testp", "copysign", "dp2a", "dp4a", "isspacep", "szext", "bmsk", "mapa", "getctarank",
}  # fmt: skip
"""Instructions that do nothing but write registers."""


def deciding_registers(flow: Flow) -> int:
    """The registers, as a set of Flow's, on which branches, memory and other threads depend."""
    doomed = _doomed(flow)
    found = 0
    for position, instruction in enumerate(flow.body):
        if instruction.name not in _PURE and not _decides_nothing(flow, position, doomed):
            for register in flow.reads[position]:
                found |= 1 << register
    grown = -1
    while grown != found:
        grown = found
        for position in range(len(flow.body) - 1, -1, -1):
            if flow.body[position].name in _PURE and any(
                found >> r & 1 for r in flow.writes[position]
            ):
                for register in flow.reads[position]:
                    found |= 1 << register
    return found


def _decides_nothing(flow: Flow, position: int, doomed: set[int]) -> bool:
    instruction = flow.body[position]
    if instruction.name in ("nanosleep", "trap"):
        return True
    return instruction.name == "bra" and any(p in doomed for p in flow.successors(position))


def _doomed(flow: Flow) -> set[int]:
    """Positions from which every path ends in a trap."""
    found = {p for p, i in enumerate(flow.body) if i.guard is None and _ends(i)}
    before: dict[int, list[int]] = {}
    for position in range(len(flow.body)):
        for follower in flow.successors(position):
            before.setdefault(follower, []).append(position)
    waiting = list(found)
    while waiting:
        for position in before.get(waiting.pop(), ()):
            if position not in found and all(p in found for p in flow.successors(position)):
                found.add(position)
                waiting.append(position)
    return found


def _ends(instruction: Instruction) -> bool:
    """Whether it is a trap, or a call of one."""
    if instruction.name == "call":
        callee = instruction.operands[1]
        return isinstance(callee, Symbol) and callee.name == "__assertfail"
    return instruction.name == "trap"
