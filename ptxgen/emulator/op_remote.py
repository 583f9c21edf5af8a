"""st.async and red.async: stores to another CTA's shared memory that signal its mbarrier."""

from typing import TYPE_CHECKING

import numpy as np

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.micro import Effect, Micro, unknown
from ptxgen.emulator.observer import Access, AccessKind, AsyncOperation, Proxy, Space
from ptxgen.emulator.op_atomic import OPERATIONS, combine
from ptxgen.emulator.op_mbarrier import begin_lanes, per_lane
from ptxgen.emulator.op_memory import address_code
from ptxgen.emulator.op_move import plain_type
from ptxgen.emulator.pending import Pending
from ptxgen.emulator.runtime import runtime
from ptxgen.emulator.values import TYPE_BITS
from ptxgen.ptx.module import Instruction, Vector

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment


def store_async(instruction: Instruction) -> list[Micro]:
    """st.async.shared::cluster.mbarrier::complete_tx::bytes."""
    if "shared::cluster" not in instruction.modifiers:
        raise unknown(instruction, "only to shared::cluster with an mbarrier")
    return [Effect(instruction, _store)]


def reduce_async(instruction: Instruction) -> list[Micro]:
    """red.async.shared::cluster.mbarrier::complete_tx::bytes."""
    if "shared::cluster" not in instruction.modifiers:
        raise unknown(instruction, "only to shared::cluster with an mbarrier")
    return [Effect(instruction, _store)]


def _store(em: Emitter, instruction: Instruction) -> None:
    kind = next(m for m in reversed(instruction.modifiers) if m in TYPE_BITS)
    operation = ""
    if instruction.name == "red":
        operation = next((m for m in instruction.modifiers if m in OPERATIONS), "")
        if not operation:
            raise unknown(instruction)
    address, source, barrier = instruction.operands
    items = source.items if isinstance(source, Vector) else (source,)
    plain = plain_type(kind)
    size = TYPE_BITS[kind] // 8
    form, code = address_code(em, address, "shared::cluster")
    b_form, b_code = address_code(em, barrier, "shared::cluster")
    values = [(f, em.assign(c)) for f, c in (em.read(i, plain) for i in items)]
    code, b_code = em.assign(code), em.assign(b_code)
    begin_lanes(em)
    texts = ", ".join(per_lane(*v) for v in values)
    em.line(
        f"store_remote(F, lane, {per_lane(form, code)}, ({texts},), {size}, {operation!r}, "
        f"{kind!r}, {per_lane(b_form, b_code)}, {instruction.line})"
    )
    em.indent -= 1


@runtime
def store_remote(
    F: "Fragment", lane: int, address: int, values: tuple[int, ...], size: int, operation: str,
    kind: str, barrier: int, line: int,
) -> None:  # fmt: skip
    """One lane's asynchronous store or reduction."""
    cta, offset = F.cta.peer(address)
    signalled, signal = F.cta.peer(barrier)
    nbytes = size * len(values)
    cta.smem.require(offset, nbytes)
    signalled.mbarriers.at(signal)

    def finish() -> None:
        for index, value in enumerate(values):
            place = offset + index * size
            if operation:
                value = combine(operation, kind, size, cta.smem.load_int(place, size), value, False)
            cta.smem.store_int(place, value, size)
        if signalled.mbarriers.complete_tx(signal, nbytes, None, described):
            signalled.phase_completed(signal)

    described = None
    origin = F.origin(line, 1 << lane)
    if F.observer is not None:
        access = Access(
            AccessKind.ATOMIC if operation else AccessKind.WRITE, Proxy.ASYNC, Space.SHARED,
            cta.index, np.array([offset]), nbytes, origin,
        )  # fmt: skip
        described = AsyncOperation(
            "red_async" if operation else "st_async", origin, (), (access,),
            ((signalled.index, signal),), nbytes,
        )  # fmt: skip
    F.machine.issue(Pending("st_async", origin, F.warp, [finish], [(signalled, signal)], described))
