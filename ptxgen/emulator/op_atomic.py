"""atom and red: one lane after the other, in lane order."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.access import report, uniform_target
from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.lanes import UNSIGNED
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.observer import AccessKind, Space
from ptxgen.emulator.op_mbarrier import begin_lanes, per_lane
from ptxgen.emulator.op_memory import address_code, semantics_of, space_of
from ptxgen.emulator.op_move import plain_type
from ptxgen.emulator.reductions import reduce_values
from ptxgen.emulator.runtime import runtime
from ptxgen.emulator.values import TYPE_BITS
from ptxgen.ptx.module import Instruction, Operand, Register, Sink, Vector

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment

OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")


@lowers("atom", "red")
def atomic(instruction: Instruction) -> list[Micro]:
    """atom and red; red.async is asynchronous."""
    if "async" in instruction.modifiers:
        from ptxgen.emulator.op_remote import reduce_async

        return reduce_async(instruction)
    if not any(m in OPERATIONS for m in instruction.modifiers):
        raise unknown(instruction, "no operation")
    return [Effect(instruction, _atomic)]


def _atomic(em: Emitter, instruction: Instruction) -> None:
    kind = next(m for m in reversed(instruction.modifiers) if m in TYPE_BITS)
    operation = next(m for m in instruction.modifiers if m in OPERATIONS)
    operands = list(instruction.operands)
    destination: Operand = operands.pop(0) if instruction.name == "atom" else Sink()
    space = space_of(instruction)
    form, code = address_code(em, operands[0], space)
    plain = plain_type(kind)
    order = semantics_of(instruction)
    if order == "weak":
        order = "relaxed.gpu"
    elif "." not in order:
        order += ".gpu"
    source = operands[1]
    items = source.items if isinstance(source, Vector) else (source,)
    results = destination.items if isinstance(destination, Vector) else (destination,)
    values = [em.read(i, plain) for i in items]
    compare = em.read(operands[2], plain) if operation == "cas" else ("S", "0")
    names = [(f, em.assign(c)) for f, c in values]
    code = em.assign(code)
    compare = compare[0], em.assign(compare[1])
    size = TYPE_BITS[kind] // 8
    one = em.mode == "one"
    outs = []
    for result in results:
        outs.append(em.name() if isinstance(result, Register) else "")
        if outs[-1]:
            em.line(f"{outs[-1]} = 0" if one else f"{outs[-1]} = np.zeros(32, U{size})")
    begin_lanes(em)
    for index, (value, out) in enumerate(zip(names, outs, strict=True)):
        call = (
            f"atomic_operation(F, lane, {space!r}, {per_lane(form, code)} + {index * size}, "
            f"{operation!r}, {kind!r}, {size}, {per_lane(*value)}, {per_lane(*compare)}, "
            f"{order!r}, {instruction.line})"
        )
        em.line(call if not out else f"{out if one else out + '[lane]'} = {call}")
    em.indent -= 1
    for result, out in zip(results, outs, strict=True):
        if out:
            em.write(result, plain, "S" if one else "V", out)


@runtime
def atomic_operation(
    F: "Fragment", lane: int, space: str, address: int, operation: str, kind: str, size: int,
    value: int, other: int, order: str, line: int,
) -> int:  # fmt: skip
    """One atomic operation of one lane: the old value."""
    target, where, owner, offset = uniform_target(F, space, address)
    old: int = target.load_int(offset, size)
    if operation == "cas":
        new = other if old == value else old
    else:
        new = combine(operation, kind, size, old, value, where is not Space.SHARED)
    if new != old:
        F.machine.epoch += 1
        target.store_int(offset, new, size)
    if F.observer is not None:
        report(F, AccessKind.ATOMIC, where, owner, offset, size, line, order, 1 << lane)
    return old


def combine(operation: str, kind: str, size: int, old: int, value: int, flush: bool) -> int:
    """The new bits of one element."""
    bits = 8 * size
    mask = (1 << bits) - 1
    if kind[0] in "ub" and kind not in ("bf16", "bf16x2"):
        if operation == "add":
            return old + value & mask
        if operation == "exch":
            return value
        if operation == "and":
            return old & value
        if operation == "or":
            return old | value
    old_bytes = np.array([old], UNSIGNED[bits]).view(np.uint8)
    new_bytes = np.array([value], UNSIGNED[bits]).view(np.uint8)
    found: Any = reduce_values(operation, kind, old_bytes, new_bytes, flush=flush)
    return int.from_bytes(found.tobytes(), "little")
