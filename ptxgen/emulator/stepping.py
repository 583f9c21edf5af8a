"""Stepping: a stop before every instruction, with registers, barriers and what is in flight."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptxgen.emulator.fragment import value_of
from ptxgen.emulator.lanes import lane_list
from ptxgen.emulator.mbarrier import Mbarrier
from ptxgen.emulator.observer import Observer, Origin
from ptxgen.emulator.values import UNDEFINED, Context
from ptxgen.ptx.module import Instruction

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment
    from ptxgen.emulator.machine import Machine


@dataclass(frozen=True)
class Stop:
    """A fragment of a warp that is about to execute an instruction."""

    origin: Origin
    """Who, with the lanes that execute together."""
    instruction: Instruction
    index: int
    """Of the instruction in its function."""
    function: str
    fragment: "Fragment"
    context: Context

    @property
    def machine(self) -> "Machine":
        """The launch that is running."""
        return self.fragment.machine

    def registers(self) -> Mapping[str, Any]:
        """Live registers: one int where all lanes agree, else a dict lane -> int. Predicates are
        bools; accumulators in flight show their poison."""
        program = self.machine.image.program_of(self.machine.image.module.functions[self.function])
        flow = program.flow
        found: dict[str, Any] = {}
        for number, form in self.context:
            if form == UNDEFINED:
                continue
            value = value_of(self.fragment.registers, number, form)
            found[flow.names[number]] = self._shown(value, flow.types[number], form == "S")
        return found

    def barriers(self) -> Iterator[tuple[int, int, Mbarrier]]:
        """(CTA, offset, state) of every live mbarrier of the resident clusters."""
        for cluster in self.machine.clusters:
            for cta in cluster.ctas:
                for offset, barrier in sorted(cta.mbarriers.live.items()):
                    yield cta.index, offset, barrier

    def in_flight(self) -> list[tuple[str, Origin]]:
        """(kind, issuer) of the asynchronous operations that are not done."""
        return [(p.kind, p.origin) for p in self.machine.pending]

    def _shown(self, value: Any, kind: str, uniform: bool) -> Any:
        if uniform:
            return bool(value) if kind == "pred" else int(value)
        lanes = lane_list(self.origin.lanes)
        if kind == "pred":
            return {i: bool(value >> i & 1) for i in lanes}
        if value.ndim == 2:
            return {i: int(value[0, i]) | int(value[1, i]) << 64 for i in lanes}
        return {i: int(value[i]) for i in lanes}


class Stepper(Observer):
    """An observer that is stopped before every instruction. Override `on_stop`."""

    wants_instructions = True

    def on_stop(self, stop: Stop) -> None:
        """An instruction is about to execute; raise to end the run."""
