"""tensormap.replace and tensormap.cp_fenceproxy."""

from typing import TYPE_CHECKING

from ptxgen.emulator.access import report, uniform_target
from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.observer import AccessKind
from ptxgen.emulator.op_mbarrier import begin_lanes, per_lane
from ptxgen.emulator.op_memory import address_code, space_of
from ptxgen.emulator.runtime import runtime
from ptxgen.emulator.tensor_map import TENSOR_MAP_BYTES, replace
from ptxgen.ptx.module import Immediate, Instruction

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment


@lowers("tensormap")
def tensor_map(instruction: Instruction) -> list[Micro]:
    """tensormap instructions."""
    action = instruction.modifiers[0]
    if action == "replace":
        return [Effect(instruction, _replace)]
    if action == "cp_fenceproxy":
        return [Effect(instruction, _publish, joins=True)]
    raise unknown(instruction)


def _replace(em: Emitter, instruction: Instruction) -> None:
    field = instruction.modifiers[2]
    address, *rest = instruction.operands
    ordinal = 0
    if len(rest) == 2:
        if not isinstance(rest[0], Immediate):
            raise unknown(instruction, "the ordinal must be a literal")
        ordinal = int(rest[0].value)
    kind = "b64" if instruction.modifiers[-1] == "b64" else "b32"
    form, code = address_code(em, address, space_of(instruction))
    value_form, value = em.read(rest[-1], kind)
    code, value = em.assign(code), em.assign(value)
    begin_lanes(em)
    em.line(
        f"replace_field(F, {space_of(instruction)!r}, {per_lane(form, code)}, {field!r}, "
        f"{ordinal}, {per_lane(value_form, value)}, {instruction.line})"
    )
    em.indent -= 1


@runtime
def replace_field(
    F: "Fragment", space: str, address: int, field: str, ordinal: int, value: int, line: int
) -> None:
    """tensormap.replace: change one field of the map at an address."""
    target, where, owner, offset = uniform_target(F, space, address)
    F.machine.epoch += 1
    data = target.read(offset, TENSOR_MAP_BYTES).tobytes()
    target.write(offset, replace(data, field, value, ordinal))
    if F.observer is not None:
        report(F, AccessKind.WRITE, where, owner, offset, TENSOR_MAP_BYTES, line, "weak",
               1 << F.lane)  # fmt: skip


def _publish(em: Emitter, instruction: Instruction) -> None:
    destination, source, size = instruction.operands
    if not isinstance(size, Immediate) or int(size.value) != TENSOR_MAP_BYTES:
        raise unknown(instruction, "the size must be 128")
    to = address_code(em, destination, "global")
    come = address_code(em, source, "shared")
    texts = [c if f == "S" else f"int({em.assign(c)}[F.lead()])" for f, c in (to, come)]
    kind = ".".join(instruction.modifiers[3:])
    em.line(f"publish_map(F, {texts[0]}, {texts[1]}, {kind!r}, {instruction.line})")


@runtime
def publish_map(F: "Fragment", destination: int, source: int, kind: str, line: int) -> None:
    """tensormap.cp_fenceproxy: copy an edited map to global memory and fence it."""
    offset = F.cta.own(source)
    data = F.cta.smem.read(offset, TENSOR_MAP_BYTES).copy()
    F.machine.memory.write(destination, data)
    F.machine.epoch += 1
    if F.observer is not None:
        from ptxgen.emulator.observer import Space

        report(F, AccessKind.READ, Space.SHARED, F.cta.index, offset, TENSOR_MAP_BYTES, line,
               "weak", 1 << F.lane)  # fmt: skip
        report(F, AccessKind.WRITE, Space.GLOBAL, -1, destination, TENSOR_MAP_BYTES, line, "weak",
               1 << F.lane)  # fmt: skip
        F.observer.on_fence(F.origin(line), f"proxy.{kind}")
