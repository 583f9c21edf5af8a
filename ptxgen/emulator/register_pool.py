"""The registers of a CTA, which setmaxnreg moves between its warps.

Source: PTX ISA 9.0, "setmaxnreg"; an inc waited for the other warpgroup's dec, measured on an H200.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptxgen.emulator.fragment import Wait

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment

REGISTERS_PER_SM = 65536
MAX_REGISTERS = 256
"""Of a thread; ptxas gives it 255 at most, which take as many of the file."""
UNIT = 8
"""Registers of a thread are handed out in eights."""


@dataclass(slots=True)
class RegisterPool:
    """What dec has given back and no inc has taken. Counts are registers per thread, of one warp
    each."""

    entry: int
    """Of every warp at launch; 0 = not known, so that setmaxnreg has no effect."""
    free: int = 0
    _waiting: "list[Fragment]" = field(default_factory=list)

    def change(self, F: "Fragment", kind: str, count: int, line: int) -> bool:
        """setmaxnreg of one warp: whether it took effect; else it waits."""
        if not self._take(F, kind, count, line):
            self._waiting.append(F)
            F.wait = Wait("registers", line, (kind, count))
            return False
        while self._serve():
            pass
        return True

    def needed(self, F: "Fragment", count: int) -> int:
        """What a warp lacks to have `count` registers per thread."""
        return count - (F.warp.registers or self.entry)

    def _take(self, F: "Fragment", kind: str, count: int, line: int) -> bool:
        if self.entry:
            needed = self.needed(F, count)
            if needed > self.free:
                return False
            self.free -= needed
        F.warp.registers = count
        F.machine.epoch += 1
        if F.observer is not None:
            F.observer.on_setmaxnreg(F.origin(line), kind, count)
        return True

    def _serve(self) -> bool:
        """Let a warp go on that has waited; whether there was one."""
        for fragment in self._waiting:
            wait = fragment.wait
            assert wait is not None
            kind, count = wait.subject
            if self._take(fragment, kind, count, wait.line):
                self._waiting.remove(fragment)
                fragment.release()
                return True
        return False


def entry_registers(directives: Any, threads: int) -> int:
    """Registers per thread that ptxas gives an entry; 0 where it cannot know.

    `threads`: of a CTA as launched. Measured with ptxas 13.0: .maxntid 384 with .minnctapersm 1
    gives 168.
    """
    if "maxnreg" in directives:
        return -(-int(directives["maxnreg"][0]) // UNIT) * UNIT
    bound = directives.get("maxntid") or directives.get("reqntid")
    if not bound or "minnctapersm" not in directives:
        return 0
    most = 1
    for extent in bound:
        most *= int(extent)
    ctas = int(directives["minnctapersm"][0])
    return min(
        REGISTERS_PER_SM // (max(most, threads) * max(ctas, 1)) // UNIT * UNIT, MAX_REGISTERS
    )
