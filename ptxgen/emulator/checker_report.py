"""Reporter: turns hazards into findings, once per kind and pair of lines, with names and text."""

import re
from typing import Any

from ptxgen.emulator.findings import CODES, Finding
from ptxgen.emulator.observer import Access, BarrierKey, Origin, Space
from ptxgen.errors import HazardError, OutOfBoundsError

_VECTOR = re.compile(r"\{([^{},]+), [^{}]{60,}, ([^{},]+)\}")
"""Long register lists, of which first and last are kept."""

_ACTING = frozenset({
    "atom", "bar", "barrier", "clusterlaunchcontrol", "cp", "fence", "griddepcontrol", "ld",
    "ldmatrix", "ldu", "mbarrier", "membar", "multimem", "red", "setmaxnreg", "st", "stmatrix",
    "tcgen05", "tensormap", "wgmma", "wmma",
})  # fmt: skip
"""Base opcodes that touch memory or synchronise."""


class Reporter:
    """Collects the findings of one run."""

    def __init__(self, strict: bool, on_race: str = "report") -> None:
        self.strict = strict
        self.on_race = on_race
        self.machine: Any = None
        """Machine of the current launch."""
        self.found: dict[tuple[str, int | None, int | None], Finding] = {}
        self.freed: list[tuple[int, int, int]] = []
        """(CTA, first, end) of tensor memory columns that were freed."""
        self._texts: dict[int, list[str]] = {}
        """Instructions by line."""

    def attach(self, machine: Any) -> None:
        """The machine whose text and memories are spoken of from now on."""
        self.machine = machine
        self._texts = {}
        for function in machine.image.module.functions.values():
            for instruction in function.body:
                self._texts.setdefault(instruction.line, []).append(instruction.text)

    def severity(self, code: str) -> str:
        """Severity of a code; empty if it is not reported."""
        info = CODES[code]
        return info.strict if self.strict else info.tolerant

    def repeats(self, code: str, line: int | None, other_line: int | None = None) -> bool:
        """Whether nothing is left to do: not reported at all, or reported and now counted."""
        found = self.found.get((code, line, other_line))
        if found is not None:
            found.count += 1
            return True
        return not self.severity(code)

    def add(
        self,
        code: str,
        message: str,
        origin: Origin | None = None,
        *,
        line: int | None = None,
        other: Origin | None = None,
        access: Access | None = None,
        addresses: tuple[int, int] | None = None,
        barrier: BarrierKey | None = None,
        fix: str = "",
        severity: str = "",
    ) -> None:
        """Report a hazard that `repeats` has not answered for.

        Raises: HazardError for an error if on_race is raise.
        """
        line = line if line is not None else origin.line if origin is not None else None
        line = line or None
        finding = Finding(
            code,
            severity or self.severity(code),
            message,
            line,
            other.line if other is not None else None,
            origin.cta if origin is not None else -1,
            tuple(o.warp for o in (origin, other) if o is not None),
            access.space.value if access is not None else "shared" if barrier is not None else "",
            addresses,
            self.barrier_name(barrier) if barrier is not None else "",
            fix or CODES[code].fix,
            instruction=self.text(line),
            other_instruction=self.text(other.line if other is not None else None),
        )
        if not finding.severity:
            return
        self.found[finding.key] = finding
        if self.on_race == "raise" and finding.severity == "error":
            raise HazardError(f"{code}: {message}; {finding.fix}", finding.line)

    def text(self, line: int | None) -> str:
        """The instruction at a line; all of them where it has several."""
        text = " ".join(self._texts.get(line, ())) if line is not None else ""
        return _VECTOR.sub(r"{\1, ..., \2}", text)

    def brief(self, line: int | None) -> str:
        """Its opcode; where a line has several instructions, the opcodes that can be meant."""
        texts = self._texts.get(line, ()) if line is not None else ()
        opcodes = list(dict.fromkeys(_opcode(text) for text in texts))
        acting = [o for o in opcodes if o.split(".")[0] in _ACTING]
        return " or ".join(acting or opcodes) or "?"

    def barrier_name(self, barrier: BarrierKey) -> str:
        """Symbol and offset of an mbarrier, and its CTA."""
        return f"{self.shared_name(barrier[1])} of CTA {barrier[0]}"

    def shared_name(self, offset: int) -> str:
        """A shared address as the PTX names it."""
        best, start = "", -1
        if self.machine is not None:
            for name, address in self.machine.image.shared.items():
                if start < address <= offset:
                    best, start = name.split("::")[-1], address
        if start < 0:
            return f"shared {offset:#x}"
        return f"{best}+{offset - start:#x}" if offset > start else best

    def bytes_name(self, space: Space, owner: int, first: int, nbytes: int) -> str:
        """Bytes, as a person would name them."""
        if space is Space.TENSOR:
            lane, column = divmod(first >> 2, 512)
            return f"tensor memory of CTA {owner} from lane {lane} column {column} ({nbytes} B)"
        if space is Space.SHARED:
            return f"{nbytes} B at {self.shared_name(first)} of CTA {owner}"
        try:
            block = self.machine.memory.block(first, 1)
        except OutOfBoundsError:
            return f"{nbytes} B at {first:#x}"
        return f"{nbytes} B at {block.name}+{first - block.base:#x}"


def _opcode(text: str) -> str:
    """Opcode with modifiers of an instruction, which may have a guard."""
    words = text.split()
    return (words[1] if text.startswith("@") and len(words) > 1 else words[0]).rstrip(";")


def warps_text(origin: Origin) -> str:
    """Who, for messages."""
    lanes = origin.lanes
    lane = f" lane {lanes.bit_length() - 1}" if lanes and not lanes & (lanes - 1) else ""
    return f"CTA {origin.cta} warp {origin.warp}{lane}"
