"""Registers: read before written, touched under a wgmma, and setmaxnreg's pool."""

from typing import Any

from ptxgen.emulator.checker_report import Reporter, warps_text
from ptxgen.emulator.observer import Origin
from ptxgen.emulator.register_pool import entry_registers

_SHOWN = 4
"""Register names that a message lists."""


class Registers:
    """Rules about registers that are not about memory."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self._entry = 0
        """Registers per thread at launch; 0 = not known."""
        self._num_warps = 0
        self._counts: dict[int, dict[int, tuple[int, Origin]]] = {}
        """CTA -> warp -> (count, last setmaxnreg)."""

    def on_kernel(self, kind: str, machine: Any) -> None:
        """A kernel begins or ends."""
        if kind != "start":
            return
        self._counts.clear()
        directives = machine.image.entry.directives
        threads = machine.launch.cta_threads
        total = threads[0] * threads[1] * threads[2]
        self._num_warps = -(-total // 32)
        self._entry = entry_registers(directives, total)

    def undefined(self, origin: Origin, register: str) -> None:
        """A register is read that nothing wrote."""
        if self.reporter.repeats("UNINIT-REGISTER", origin.line):
            return
        self.reporter.add(
            "UNINIT-REGISTER", f"{warps_text(origin)} reads {register}, which nothing wrote", origin
        )

    def hazard(self, origin: Origin, kind: str, registers: tuple[str, ...]) -> None:
        """Registers are used against the rules of a wgmma or tcgen05.ld."""
        code = {"fence": "WGMMA-FENCE-MISSING", "load": "WAIT-MISSING"}.get(
            kind, "ACCUMULATOR-IN-FLIGHT"
        )
        if self.reporter.repeats(code, origin.line):
            return
        more = f" and {len(registers) - _SHOWN} more" if len(registers) > _SHOWN else ""
        names = ", ".join(registers[:_SHOWN]) + more
        act = self.reporter.brief(origin.line)
        text = {
            "fence": f"uses {names}, which were touched since the last wgmma.fence",
            "read": f"reads {names}, accumulators of a wgmma that was not waited for",
            "write": f"writes {names}, registers of a wgmma that was not waited for",
            "load": f"uses {names}, which a tcgen05.ld may still be loading",
        }[kind]
        fix, severity = "", ""
        if kind == "load":
            fix = "execute tcgen05.wait::ld before the registers are used"
            # Hardware guards the registers, and tutorials of CUTLASS rely on it.
            severity = "" if self.reporter.strict else "warning"
        message = f"`{act}` by {warps_text(origin)} {text}"
        self.reporter.add(code, message, origin, fix=fix, severity=severity)

    def setmaxnreg(self, origin: Origin, kind: str, count: int) -> None:
        """setmaxnreg took effect."""
        mine = self._counts.setdefault(origin.cta, {})
        before = mine[origin.warp][0] if origin.warp in mine else self._entry
        mine[origin.warp] = (count, origin)
        text = ""
        if not self._entry:
            text = (
                "is ignored by ptxas, since the entry's register count is not known; it needs "
                ".maxnreg, or .maxntid with .minnctapersm"
            )
        elif (kind == "inc" and count < before < self._entry) or (kind == "dec" and count > before):
            text = f"asks for {count} registers by {kind}, but the warp has {before}"
        if text and not self.reporter.repeats("SETMAXNREG", origin.line):
            self.reporter.add(
                "SETMAXNREG", f"setmaxnreg.{kind} of {warps_text(origin)} {text}", origin,
                severity="" if self._entry else "advice",
            )  # fmt: skip

    def cta_exited(self, cta: int) -> None:
        """All warps have set what they will: did warpgroups agree?"""
        mine = self._counts.pop(cta, None)
        if not mine or not self._entry:
            return
        for group in range(0, self._num_warps, 4):
            warps = range(group, min(group + 4, self._num_warps))
            values = {mine[w][0] if w in mine else self._entry for w in warps}
            origin = next((mine[w][1] for w in warps if w in mine), None)
            if len(values) > 1 and origin is not None:
                self._report(
                    origin, f"warps {group} to {warps[-1]} of one warpgroup end with different "
                    f"register counts {sorted(values)}"
                )  # fmt: skip

    def _report(self, origin: Origin, text: str) -> None:
        if not self.reporter.repeats("SETMAXNREG", origin.line):
            self.reporter.add("SETMAXNREG", text, origin)
