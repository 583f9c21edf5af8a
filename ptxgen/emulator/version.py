"""Writing one version: the instructions from one position to the next branch, label or wait."""

from typing import TYPE_CHECKING

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.flow import registers_in
from ptxgen.emulator.micro import Compute, Effect, unknown
from ptxgen.emulator.op_call import emit_return
from ptxgen.emulator.runtime import static
from ptxgen.emulator.segment import SegmentWriter, compute_now
from ptxgen.emulator.special import is_special
from ptxgen.emulator.touches import TouchRecorder, is_watched
from ptxgen.errors import PtxError
from ptxgen.ptx.module import Instruction

if TYPE_CHECKING:
    from ptxgen.emulator.program import Program

Guard = tuple[str, bool]


class VersionWriter:
    """Writes the code of one version into an emitter."""

    def __init__(self, program: "Program", emitter: Emitter) -> None:
        self.program = program
        self.flow = program.flow
        self.body = program.flow.body
        self.emitter = emitter
        self.segment = SegmentWriter(emitter)
        self.start = emitter.position
        self.count = 0
        self.touches: TouchRecorder | None = None
        if program.image.observed and program.watched_registers:
            self.touches = TouchRecorder(self.flow, program.watched_registers)

    def write(self) -> None:
        """Write everything.

        Raises: UnknownInstructionError.
        """
        program, emitter, flow = self.program, self.emitter, self.flow
        position = self.start
        if program.observes_instructions and position < len(self.body):
            emitter.ptx_line = self.body[position].line
            emitter.line(f"step(F, PROGRAM, {position}, CONTEXT)")
        while True:
            if position >= len(self.body):
                self._write_end()
                return
            if position != self.start and self._must_stop(position):
                self.segment.settle_all(flow.live_in(position))
                (name,) = emitter.exits_to(position)
                self._finish(f"return {name}")
                return
            instruction = self.body[position]
            emitter.ptx_line = instruction.line
            emitter.at = position
            guard = instruction.guard
            if emitter.guard_done and position == self.start:
                guard = None
            following = self._write_located(position, instruction, guard)
            if following is None:
                return
            position = following

    def _write_end(self) -> None:
        """Control falls off the end: a return."""
        if self.program.function.is_entry:
            self._finish("return leave(F)")
        else:
            self.segment.settle(self.flow.results)
            self._finish("pass")
            emit_return(self.emitter)

    def _must_stop(self, position: int) -> bool:
        if position in self.flow.leaders or self.program.observes_instructions:
            return True
        effect = self._effect(position)
        return effect is not None and effect.joins and self.emitter.mode != "full"

    def _effect(self, position: int) -> Effect | None:
        micros = self.program.micros(position)
        first = micros[0] if micros else None
        return first if isinstance(first, Effect) else None

    def _write_located(
        self, position: int, instruction: Instruction, guard: Guard | None
    ) -> int | None:
        try:
            return self._write_at(position, instruction, guard)
        except PtxError as error:
            if error.line is not None:
                raise
            raise unknown(instruction, str(error)) from error
        except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
            raise unknown(instruction, f"its operands do not fit ({error})") from error

    def _write_at(self, position: int, instruction: Instruction, guard: Guard | None) -> int | None:
        """Write one instruction or guarded run; the position after it, None after a return."""
        emitter, flow, segment = self.emitter, self.flow, self.segment
        self._check_registers(instruction)
        effect = self._effect(position)
        if guard is not None:
            return self._write_guarded(position, instruction, effect, guard)
        self.count += 1
        self._touch(position)
        if effect is None:
            segment.add([m for m in self.program.micros(position) if isinstance(m, Compute)])
            return position + 1
        segment.settle(flow.reads[position])
        emitter.ptx_line = instruction.line
        if effect.joins and emitter.mode != "full":
            members = "FULL"
            if effect.members is not None:
                form, members = emitter.read(effect.members, "b32")
                if form == "V":
                    members = f"any_of(F, {members})"
            check, kind = ("met", f", {effect.anywhere!r}") if effect.anywhere else ("joined", "")
            emitter.line(f"if not {check}(F, {members}, {instruction.line}{kind}): return None")
        if effect.ends:
            live = 0
            for follower in flow.successors(position):
                live |= flow.live_in(follower)
            for register in flow.writes[position]:
                live &= ~(1 << register)
            segment.settle_all(live)
            emitter.line(f"F.count += {self.count}")
            self._report_touches()
            effect.emit(emitter, instruction)
            return None
        if effect.merged is not None:
            last = self._independent_run(position, effect)
            if last > position + 1:
                for index in range(position + 1, last):
                    self.count += 1
                    self._touch(index)
                segment.settle([r for i in range(position, last) for r in flow.reads[i]])
                segment.forget([r for i in range(position, last) for r in flow.writes[i]])
                effect.merged(emitter, list(self.body[position:last]))
                return last
        segment.forget(flow.writes[position])
        effect.emit(emitter, instruction)
        return position + 1

    def _independent_run(self, position: int, effect: Effect) -> int:
        """Position after the run of instructions that may be executed with this one at once."""
        flow = self.flow
        modifiers = self.body[position].modifiers
        written = set(flow.writes[position])
        index = position + 1
        while index < len(self.body) and not self._must_stop(index):
            other = self._effect(index)
            if (
                other is None
                or other.merged is not effect.merged
                or self.body[index].modifiers != modifiers
                or self.body[index].guard is not None
                or not written.isdisjoint(flow.reads[index])
                or not written.isdisjoint(flow.writes[index])
            ):
                break
            written.update(flow.writes[index])
            index += 1
        return index

    def _check_registers(self, instruction: Instruction) -> None:
        """Raises: UnknownInstructionError for a special register that is not known.

        Here rather than where it is read, which may be written under another instruction's line.
        """
        for operand in instruction.operands:
            for name in registers_in(operand):
                if name not in self.flow.number and not is_special(name):
                    raise unknown(instruction, f"there is no register {name}")

    def _write_guarded(
        self, position: int, instruction: Instruction, effect: Effect | None, guard: Guard
    ) -> int | None:
        emitter, flow, segment = self.emitter, self.flow, self.segment
        segment.settle([flow.number[guard[0]]])
        form = emitter.guard_form(guard)
        if effect is not None and self._parts(effect, form):
            self.count += 1
            self._touch(position)
            after = position + 1
            if instruction.name == "bra":
                taken, flag = flow.target(instruction), False
            else:
                taken, flag = position, True
            segment.settle_all(flow.live_in(after) | self._live_at(taken, flag))
            emitter.ptx_line = instruction.line
            code = emitter.guard_code(guard)
            yes, no = emitter.exits_to(taken, after, guarded=(flag, False))
            if instruction.name == "bra" and flow.is_endless(position):
                lanes = f"F.mask if {code} else 0" if form == "S" else code
                self._finish(f"spin(F, {lanes}, {instruction.line})")
                emitter.line(f"return {no}")
                return None
            if form == "S":
                self._finish(f"return {yes} if {code} else {no}")
            else:
                self._finish(f"return branch(F, {code}, {yes}, {no})")
            return None
        last = self._guarded_run(position, guard, form)
        needed: list[int] = []
        for index in range(position, last):
            needed.extend(flow.reads[index])
            needed.extend(flow.writes[index])
        segment.settle(needed)
        emitter.ptx_line = instruction.line
        emitter.begin_guard(guard)
        for index in range(position, last):
            self.count += 1
            self._touch(index)
            emitter.ptx_line = self.body[index].line
            emitter.at = index
            micros = self.program.micros(index)
            compute_now(emitter, [m for m in micros if isinstance(m, Compute)])
            for micro in micros:
                if isinstance(micro, Effect):
                    micro.emit(emitter, self.body[index])
        emitter.end_guard()
        return last

    def _parts(self, effect: Effect, form: str) -> bool:
        """Whether lanes must part before a guarded effect, or control leaves it."""
        if effect.ends:
            return True
        if form == "S":
            return effect.joins and self.emitter.mode != "full"
        return effect.splits or effect.joins

    def _guarded_run(self, position: int, guard: Guard, form: str) -> int:
        index = position
        register = self.flow.number[guard[0]]
        while index < len(self.body):
            instruction = self.body[index]
            effect = self._effect(index)
            if instruction.guard != guard or (
                index != position and (index in self.flow.leaders or self._must_stop(index))
            ):
                break
            if effect is not None and self._parts(effect, form):
                break
            index += 1
            if register in self.flow.writes[index - 1]:
                break
        return index

    def _live_at(self, position: int, guarded: bool) -> int:
        live = self.flow.live_in(position)
        if guarded:
            for register in self.flow.reads[position]:
                live |= 1 << register
        return live

    def _touch(self, position: int) -> None:
        """Note what an instruction does to watched registers; what watches comes after that."""
        if self.touches is None:
            return
        if is_watched(self.body[position]):
            self._report_touches()
        else:
            self.touches.record(position)

    def _report_touches(self) -> None:
        found = None if self.touches is None else self.touches.take()
        if found is not None:
            self.emitter.line(f"registers_touched(F, {static(found)})")

    def _finish(self, text: str) -> None:
        self._report_touches()
        if self.count:
            self.emitter.line(f"F.count += {self.count}")
        self.emitter.line(text)
