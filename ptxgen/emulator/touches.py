"""Registers of wgmma and tcgen05.ld: touched in flight, or used without a fence. Only built for an
observer."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptxgen.emulator.flow import registers_in
from ptxgen.emulator.runtime import runtime
from ptxgen.ptx.module import Instruction, Vector

if TYPE_CHECKING:
    from ptxgen.emulator.flow import Flow
    from ptxgen.emulator.fragment import Fragment


@dataclass(frozen=True)
class Touches:
    """What a stretch of code does to registers that some wgmma or tcgen05.ld uses."""

    reads: int
    """Set of register numbers, bit i = register i."""
    writes: int
    lines: tuple[tuple[int, int], ...]
    """(register, PTX line of the first instruction that touches it)."""
    names: tuple[str, ...]
    """Name of every register of the function."""


def watched_registers(flow: "Flow") -> int:
    """All registers that a wgmma of the function has as accumulators or A, or that it loads from
    tensor memory."""
    found = 0
    for instruction in flow.body:
        if instruction.name == "wgmma" and instruction.modifiers[0] == "mma_async":
            accumulators, a = register_sets(flow, instruction)
            found |= accumulators | a
        elif instruction.name == "tcgen05" and instruction.modifiers[0] == "ld":
            found |= loaded_registers(flow, instruction)
    return found


def loaded_registers(flow: "Flow", instruction: Instruction) -> int:
    """Destinations of a tcgen05.ld."""
    found = 0
    for name in registers_in(instruction.operands[0]):
        found |= 1 << flow.number[name]
    return found


def is_watched(instruction: Instruction) -> bool:
    """Whether an instruction accounts for its registers itself."""
    name, modifiers = instruction.name, instruction.modifiers
    return name == "wgmma" or (name == "tcgen05" and modifiers[0] in ("ld", "wait::ld"))


def register_sets(flow: "Flow", instruction: Instruction) -> tuple[int, int]:
    """Accumulators, and A registers, of a wgmma.mma_async."""
    d, a = instruction.operands[:2]
    sets = []
    for operand in (d, a):
        found = 0
        if isinstance(operand, Vector):
            for name in registers_in(operand):
                found |= 1 << flow.number[name] if name in flow.number else 0
        sets.append(found)
    return sets[0], sets[1]


class TouchRecorder:
    """Collects touches in program order while a version is written."""

    def __init__(self, flow: "Flow", interesting: int) -> None:
        self._flow = flow
        self._interesting = interesting
        self._reads = 0
        self._writes = 0
        self._lines: dict[int, int] = {}

    def record(self, position: int) -> None:
        """An instruction that is not watched was passed."""
        line = self._flow.body[position].line
        for register in self._flow.reads[position]:
            if self._interesting >> register & 1:
                self._reads |= 1 << register
                self._lines.setdefault(register, line)
        for register in self._flow.writes[position]:
            if self._interesting >> register & 1:
                self._writes |= 1 << register
                self._lines.setdefault(register, line)

    def take(self) -> Touches | None:
        """What was collected since the last call; None for nothing."""
        if not self._reads | self._writes:
            return None
        found = Touches(
            self._reads, self._writes, tuple(sorted(self._lines.items())), tuple(self._flow.names)
        )
        self._reads = self._writes = 0
        self._lines = {}
        return found


@runtime
def registers_touched(F: "Fragment", touches: Touches) -> None:
    """Report touches of registers in flight; remember those that a fence must follow."""
    queue = F.warp.wgmma
    accumulators, everything = queue.in_flight()
    for kind, bad in (
        ("read", touches.reads & accumulators), ("write", touches.writes & everything),
    ):  # fmt: skip
        if bad:
            _report(F, kind, bad, _first_line(touches, bad), touches.names)
    bad = (touches.reads | touches.writes) & F.warp.tmem_loading
    if bad:
        _report(F, "load", bad, _first_line(touches, bad), touches.names)
    queue.unfenced |= touches.reads | touches.writes


def _first_line(touches: Touches, registers: int) -> int:
    return min(n for r, n in touches.lines if registers >> r & 1)


@runtime
def registers_loading(F: "Fragment", registers: int) -> None:
    """tcgen05.ld: its registers must not be touched before tcgen05.wait::ld."""
    F.warp.tmem_loading |= registers


@runtime
def fence_wgmma(F: "Fragment") -> None:
    """wgmma.fence: what was touched so far may be used."""
    F.warp.wgmma.unfenced = 0


@runtime
def check_fenced(
    F: "Fragment", accumulators: int, a: int, line: int, names: tuple[str, ...]
) -> None:
    """A wgmma is issued: its registers must have been fenced since they were touched."""
    queue = F.warp.wgmma
    queue.open_registers.append((accumulators, a))
    bad = queue.unfenced & (accumulators | a)
    if bad:
        _report(F, "fence", bad, line, names)


def _report(F: "Fragment", kind: str, registers: int, line: int, names: tuple[str, ...]) -> None:
    assert F.observer is not None
    found = tuple(n for i, n in enumerate(names) if registers >> i & 1)
    F.observer.on_register_hazard(F.origin(line), kind, found)
