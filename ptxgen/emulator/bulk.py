"""Run time of bulk and tensor copies: issue, poison, completion."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.fragment import Wait
from ptxgen.emulator.lanes import lane_list
from ptxgen.emulator.memory import POISON
from ptxgen.emulator.observer import Access, AccessKind, AsyncOperation, Proxy, Space
from ptxgen.emulator.pending import Pending, ThreadGroups
from ptxgen.emulator.reductions import reduce_values
from ptxgen.emulator.runtime import runtime
from ptxgen.errors import EmulationError, MisalignedError

if TYPE_CHECKING:
    from ptxgen.emulator.cta import Cta
    from ptxgen.emulator.fragment import Fragment
    from ptxgen.emulator.op_bulk import Copy


def receivers(
    F: "Fragment", destination: int, barrier: int, copied: "Copy", ctas: int
) -> "list[tuple[Cta, int, Cta, int]]":
    """(CTA, offset of the data, CTA of the barrier, its offset) for every CTA that receives.

    Raises: OutOfBoundsError, EmulationError for a multicast mask outside the cluster.
    """
    cta, offset = F.cta.peer(destination)
    barrier_cta, barrier_offset = F.cta.peer(barrier)
    if not copied.multicast:
        return [(cta, offset, barrier_cta, barrier_offset)]
    cluster = F.cta.cluster.ctas
    if not ctas or ctas >> len(cluster):
        raise EmulationError(
            f"multicast mask {ctas:#x} must name CTAs of the cluster, which has {len(cluster)}"
        )
    found = []
    for rank in lane_list(ctas):
        target = cluster[rank]
        signalled = target
        if copied.cta_group == 2:
            signalled = cluster[(rank & ~1) | (barrier_cta.rank & 1)]
        found.append((target, offset, signalled, barrier_offset))
    return found


@runtime
def load_bulk(
    F: "Fragment", lane: int, copied: "Copy", destination: int, source: int, size: int,
    barrier: int = 0, ctas: int = 0,
) -> None:  # fmt: skip
    """cp.async.bulk and cp.reduce.async.bulk that signal an mbarrier."""
    machine = F.machine
    memory = machine.memory
    check_bulk(size, destination, source)
    targets = receivers(F, destination, barrier, copied, ctas)
    for cta, offset, signalled, signal in targets:
        signalled.mbarriers.at(signal)
        cta.smem.require(offset, size)
    if copied.source == "global":
        memory.read(source, size)
    else:
        F.cta.smem.require(F.cta.own(source), size)
    if not copied.reduction:
        for cta, offset, _, _ in targets:
            cta.smem.u8[offset : offset + size] = POISON
    own = F.cta

    def finish() -> None:
        if copied.source == "global":
            data = memory.read(source, size)
        else:
            data = own.smem.read(own.own(source), size)
        for cta, offset, signalled, signal in targets:
            if copied.reduction:
                old = cta.smem.read(offset, size)
                old[:] = reduce_values(copied.reduction, copied.type, old, data, flush=False)
            else:
                cta.smem.write(offset, data)
            if signalled.mbarriers.complete_tx(signal, size, None, operation):
                signalled.phase_completed(signal)

    operation = None
    origin = F.origin(copied.line, 1 << lane)
    remote = copied.source != "global"
    if F.observer is not None:
        source_access = Access(
            AccessKind.READ, Proxy.ASYNC, Space.SHARED if remote else Space.GLOBAL,
            own.index if remote else -1,
            np.array([own.own(source) if remote else source]), size, origin,
        )  # fmt: skip
        kind = AccessKind.ATOMIC if copied.reduction else AccessKind.WRITE
        operation = AsyncOperation(
            "bulk_dsmem" if remote else "bulk_load", origin, (source_access,),
            tuple(
                Access(kind, Proxy.ASYNC, Space.SHARED, c.index, np.array([o]), size, origin)
                for c, o, _, _ in targets
            ),
            tuple((c.index, o) for _, _, c, o in targets), size,
        )  # fmt: skip
    machine.issue(
        Pending(
            "bulk_load", origin, F.warp, [finish], [(c, o) for _, _, c, o in targets], operation
        )
    )


@runtime
def store_bulk(
    F: "Fragment", lane: int, copied: "Copy", destination: int, source: int, size: int,
    mask: int = 0xFFFF,
) -> None:  # fmt: skip
    """cp.async.bulk and cp.reduce.async.bulk from shared to global memory."""
    machine = F.machine
    memory = machine.memory
    check_bulk(size, destination, source)
    cta = F.cta
    offset = cta.own(source)
    cta.smem.require(offset, size)
    memory.read(destination, size)
    data: list[Any] = []

    def take() -> None:
        data.append(cta.smem.read(offset, size).copy())

    def write() -> None:
        if copied.reduction:
            old = memory.read(destination, size)
            old[:] = reduce_values(copied.reduction, copied.type, old, data[0], flush=False)
        elif copied.byte_mask:
            chosen = np.array([mask >> i & 1 for i in range(16)], bool)
            old = memory.read(destination, size).reshape(-1, 16)
            old[:, chosen] = data[0].reshape(-1, 16)[:, chosen]
        else:
            memory.write(destination, data[0])

    operation = None
    origin = F.origin(copied.line, 1 << lane)
    if F.observer is not None:
        kind = AccessKind.ATOMIC if copied.reduction else AccessKind.WRITE
        operation = AsyncOperation(
            "bulk_reduce" if copied.reduction else "bulk_store", origin,
            (Access(AccessKind.READ, Proxy.ASYNC, Space.SHARED, cta.index, np.array([offset]),
                    size, origin),),
            (Access(kind, Proxy.ASYNC, Space.GLOBAL, -1, np.array([destination]), size, origin),),
            group="bulk",
        )  # fmt: skip
    pending = Pending("bulk_store", origin, F.warp, [take, write], [], operation)
    groups(F, "bulk").add(1 << lane, pending)
    machine.issue(pending)


@runtime
def prefetch_bulk(F: "Fragment", lane: int, copied: "Copy", _: int, source: int, size: int) -> None:
    """cp.async.bulk.prefetch: the address is checked, nothing moves."""
    check_bulk(size, source, source)
    F.machine.memory.read(source, size)


def check_bulk(size: int, destination: int, source: int) -> None:
    """1-D bulk copies move multiples of 16 bytes between multiples of 16.

    Raises: MisalignedError.
    """
    if size % 16 or destination % 16 or source % 16:
        raise MisalignedError(
            f"a bulk copy needs size, source and destination to be multiples of 16 B, got size "
            f"{size}, source {source:#x}, destination {destination:#x}"
        )


def groups(F: "Fragment", kind: str) -> ThreadGroups:
    """The bulk or cp.async groups of a warp's threads."""
    found = F.warp.groups.get(kind)
    if found is None:
        found = F.warp.groups[kind] = ThreadGroups()
    return found


@runtime
def commit_group(F: "Fragment", kind: str, mask: int, line: int) -> None:
    """commit_group: the operations so far of each thread form a group."""
    mask &= F.mask
    closed = groups(F, kind).commit(mask)
    if F.observer is not None:
        operations = [p.operation for p in dict.fromkeys(closed) if p.operation is not None]
        F.observer.on_commit(F.origin(line, mask), kind, operations)


@runtime
def wait_group(
    F: "Fragment", kind: str, allowed: int, read_only: bool, line: int, following: Any
) -> Any:
    """wait_group: wait until at most `allowed` groups of each thread are outstanding."""
    found = groups(F, kind)
    lanes = F.mask

    def passed() -> bool:
        if not found.satisfied(lanes, allowed, read_only):
            return False
        if F.observer is not None:
            F.observer.on_wait_group(F.origin(line), kind, allowed, read_only)
        return True

    if passed():
        return following
    F.block(Wait(kind, line, passed), following)
    return None
