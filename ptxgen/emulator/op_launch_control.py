"""clusterlaunchcontrol: take over the work of a cluster that has not started."""

from typing import TYPE_CHECKING

import numpy as np

from ptxgen.emulator.emitter import Emitter
from ptxgen.emulator.micro import Effect, Micro, lowers, unknown
from ptxgen.emulator.observer import Access, AccessKind, AsyncOperation, Proxy, Space
from ptxgen.emulator.op_mbarrier import begin_lanes, per_lane
from ptxgen.emulator.op_memory import address_code, space_of
from ptxgen.emulator.pending import Pending
from ptxgen.emulator.runtime import runtime
from ptxgen.errors import MisalignedError
from ptxgen.ptx.module import Instruction, Vector

if TYPE_CHECKING:
    from ptxgen.emulator.fragment import Fragment

CANCELLED = 1 << 127
"""Bit of a response that says a cluster was cancelled; its first CTA is x | y << 32 | z << 64.

The response is opaque in PTX, so this encoding is our own.
"""


@lowers("clusterlaunchcontrol")
def launch_control(instruction: Instruction) -> list[Micro]:
    """try_cancel and query_cancel."""
    action = instruction.modifiers[0]
    if action == "try_cancel":
        return [Effect(instruction, _try_cancel)]
    if action == "query_cancel":
        return [Effect(instruction, _query)]
    raise unknown(instruction)


def _try_cancel(em: Emitter, instruction: Instruction) -> None:
    response, barrier = instruction.operands
    space = space_of(instruction)
    texts = []
    for operand in (response, barrier):
        form, code = address_code(em, operand, space)
        texts.append((form, em.assign(code)))
    everywhere = "multicast::cluster::all" in instruction.modifiers
    begin_lanes(em)
    em.line(
        f"try_cancel(F, lane, {per_lane(*texts[0])}, {per_lane(*texts[1])}, {everywhere}, "
        f"{instruction.line})"
    )
    em.indent -= 1


@runtime
def try_cancel(
    F: "Fragment", lane: int, response: int, barrier: int, everywhere: bool, line: int
) -> None:
    """Ask for the next cluster of the grid; 16 bytes and their count arrive later."""
    machine = F.machine
    offset, signal = F.cta.own(response), F.cta.own(barrier)
    if offset % 16:
        raise MisalignedError(
            f"a try_cancel response needs 16-byte alignment, got offset {offset:#x}"
        )
    targets = F.cta.cluster.ctas if everywhere else [F.cta]
    for cta in targets:
        cta.mbarriers.at(signal)
        cta.smem.require(offset, 16)

    def finish() -> None:
        found = machine.take_cluster()
        value = 0
        if found is not None:
            x, y, z = found
            value = CANCELLED | x | y << 32 | z << 64
        for cta in targets:
            cta.smem.write(offset, value.to_bytes(16, "little"))
            if cta.mbarriers.complete_tx(signal, 16, None, operation):
                cta.phase_completed(signal)

    operation = None
    origin = F.origin(line, 1 << lane)
    if F.observer is not None:
        operation = AsyncOperation(
            "try_cancel", origin, (),
            tuple(
                Access(AccessKind.WRITE, Proxy.ASYNC, Space.SHARED, c.index, np.array([offset]),
                       16, origin)
                for c in targets
            ),
            tuple((c.index, signal) for c in targets), 16,
        )  # fmt: skip
    machine.issue(
        Pending("try_cancel", origin, F.warp, [finish], [(c, signal) for c in targets], operation)
    )


def _query(em: Emitter, instruction: Instruction) -> None:
    destination, source = instruction.operands
    form, code = em.read(source, "b128")
    name = em.assign(code)
    if form == "V":
        name = em.assign(f"wide_int({name}, F.lead())")
    what = instruction.modifiers[1]
    if what == "is_canceled":
        em.write(destination, "pred", "S", f"bool({name} >> 127)")
    elif what == "get_first_ctaid" and isinstance(destination, Vector):
        for index, item in enumerate(destination.items[:3]):
            em.write(item, "b32", "S", f"{name} >> {32 * index} & {0x7FFFFFFF:#x}")
    elif what.startswith("get_first_ctaid::"):
        index = "xyz".index(what[-1])
        em.write(destination, "b32", "S", f"{name} >> {32 * index} & {0x7FFFFFFF:#x}")
    else:
        raise unknown(instruction)


@runtime
def wide_int(value: "np.ndarray[tuple[int, ...], np.dtype[np.uint64]]", lane: int) -> int:
    """A 128-bit value of one lane."""
    return int(value[0, lane]) | int(value[1, lane]) << 64
