"""cp.async: 4 to 16 bytes per thread from global to shared memory, in groups or by mbarrier."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.bulk import groups
from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.lanes import lane_indices
from ptxgen.emulator.memory import POISON
from ptxgen.emulator.micro import Effect, Micro, unknown
from ptxgen.emulator.observer import Access, AccessKind, AsyncOperation, Proxy, Space
from ptxgen.emulator.op_mbarrier import begin_lanes, located_address, per_lane
from ptxgen.emulator.op_memory import address_code, space_of
from ptxgen.emulator.pending import Pending
from ptxgen.emulator.runtime import runtime
from ptxgen.emulator.values import register_of
from ptxgen.errors import MisalignedError
from ptxgen.ptx.module import Address, Immediate, Instruction, Operand

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment


def lower_cp_async(instruction: Instruction) -> list[Micro]:
    """cp.async.{ca,cg}, commit_group, wait_group, wait_all, mbarrier.arrive."""
    modifiers = instruction.modifiers
    if modifiers[0] != "async" or len(modifiers) < 2:
        raise unknown(instruction)
    action = modifiers[1]
    if action in ("ca", "cg"):
        return [Effect(instruction, _copy)]
    if action == "commit_group":
        return [Effect(instruction, _commit)]
    if action in ("wait_group", "wait_all"):
        return [Effect(instruction, _wait, ends=True, splits=True)]
    if action == "mbarrier" and modifiers[2] == "arrive":
        return [Effect(instruction, _arrive)]
    raise unknown(instruction)


def _copy(em: Emitter, instruction: Instruction) -> None:
    destination, source, size, *rest = instruction.operands
    if not isinstance(size, Immediate):
        raise unknown(instruction, "the size must be a literal")
    rest = [o for o in rest if not isinstance(o, Address)]
    if any(m == "L2::cache_hint" for m in instruction.modifiers) and rest:
        rest.pop()
    d_form, d = address_code(em, destination, "shared")
    s_form, s = address_code(em, source, "global")
    d = d if d_form == "V" else f"np.full(32, {d}, I8)"
    s = s if s_form == "V" else f"np.full(32, {s}, I8)"
    valid = f"np.full(32, {int(size.value)}, I8)"
    if rest:
        valid = _valid_bytes(em, rest[0], int(size.value))
    em.line(
        f"copy_async(F, {d}, {s}, {int(size.value)}, {valid}, {em.active_mask()}, "
        f"{instruction.line})"
    )


def _valid_bytes(em: Emitter, operand: Operand, size: int) -> str:
    """Bytes that are copied per lane: src-size, or none where ignore-src holds."""
    register = register_of(operand)
    if register is not None and em.register_bits(register.name) == 1:
        form, code = em.read(operand, "pred")
        mask = em.spread(code, "pred") if form == "S" else code
        return f"np.where(lanes({mask}), 0, {size})"
    form, code = em.read(operand, "u32")
    return em.spread(code, "u32") if form == "S" else code


@runtime
def copy_async(
    F: "Fragment", destinations: Any, sources: Any, size: int, valid: Any, mask: int, line: int
) -> None:
    """cp.async of all active lanes; bytes past `valid` are zeros.

    Raises: MisalignedError, OutOfBoundsError.
    """
    mask &= F.mask
    if not mask:
        return
    lanes = lane_indices(mask)
    to = destinations[lanes].astype(np.int64)
    cta = F.cta
    if cta.smem_base:
        to = np.where(to >= cta.smem_base, to - cta.smem_base, to)
    come = sources[lanes].astype(np.int64)
    count = np.minimum(np.asarray(valid)[lanes].astype(np.int64), size)
    both = int(np.bitwise_or.reduce(to | come))
    if both & (size - 1):
        raise MisalignedError(f"cp.async of {size} B needs addresses that are multiples of it")
    memory = F.machine.memory
    for low in (int(to.min()), int(to.max())):
        cta.smem.require(low, size)
    places = to[:, None] + np.arange(size)
    cta.smem.u8[places] = POISON

    def finish() -> None:
        data = np.zeros((len(lanes), size), np.uint8)
        full = count == size
        if full.all() and size <= 8:
            data = np.ascontiguousarray(memory.load(come, size)).view(np.uint8).reshape(-1, size)
        elif full.all():
            halves = np.ascontiguousarray(memory.load_vector(come, 8, size // 8).T)
            data = halves.view(np.uint8).reshape(-1, size)
        else:
            for index, (address, length) in enumerate(zip(come, count, strict=True)):
                if length:
                    data[index, :length] = memory.read(int(address), int(length))
        cta.smem.u8[places] = data
        if cta.smem.initialised is not None:
            cta.smem.initialised[places] = True

    operation = None
    origin = F.origin(line, mask)
    if F.observer is not None:
        operation = AsyncOperation(
            "cp_async", origin,
            (Access(AccessKind.READ, Proxy.GENERIC, Space.GLOBAL, -1, come, size, origin),),
            (Access(AccessKind.WRITE, Proxy.GENERIC, Space.SHARED, cta.index, to, size, origin),),
            group="cp_async",
        )  # fmt: skip
    pending = Pending("cp_async", origin, F.warp, [finish], [], operation)
    groups(F, "cp_async").add(mask, pending)
    F.machine.issue(pending)


def _commit(em: Emitter, instruction: Instruction) -> None:
    em.line(f"commit_group(F, 'cp_async', {em.active_mask()}, {instruction.line})")


def _wait(em: Emitter, instruction: Instruction) -> None:
    if instruction.modifiers[1] == "wait_all":
        em.line(f"commit_group(F, 'cp_async', {em.active_mask()}, {instruction.line})")
        allowed = 0
    else:
        operand = instruction.operands[0]
        if not isinstance(operand, Immediate):
            raise unknown(instruction, "the number of groups must be a literal")
        allowed = int(operand.value)
    em.line(
        f"return wait_group(F, 'cp_async', {allowed}, False, {instruction.line}, {em.following()})"
    )


def _arrive(em: Emitter, instruction: Instruction) -> None:
    form, code = located_address(em, instruction.operands[0], space_of(instruction))
    code = em.assign(code)
    raises = "noinc" not in instruction.modifiers
    begin_lanes(em)
    em.line(f"arrive_after_copies(F, lane, {per_lane(form, code)}, {raises}, {instruction.line})")
    em.indent -= 1


@runtime
def arrive_after_copies(F: "Fragment", lane: int, address: int, raises: bool, line: int) -> None:
    """cp.async.mbarrier.arrive: arrive when this thread's earlier cp.async are done."""
    cta, offset = F.cta.peer(address)
    origin = F.origin(line, 1 << lane)
    operation = None
    if F.observer is not None:
        operation = AsyncOperation(
            "cp_async_arrive", origin, barriers=((cta.index, offset),), group="cp_async"
        )
    if raises:
        cta.mbarriers.add_pending(offset, 1, origin)
    machine = F.machine
    earlier = groups(F, "cp_async").outstanding(1 << lane)

    def finish() -> None:
        machine.complete([p for p in earlier if not p.done])
        arrival = cta.mbarriers.arrive(
            offset, semantics="release", origin=None, operation=operation
        )
        if arrival.completed:
            cta.phase_completed(offset)

    machine.issue(Pending("arrive", origin, F.warp, [finish], [(cta, offset)], operation))
