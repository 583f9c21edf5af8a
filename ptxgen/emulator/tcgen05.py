"""Run time of tcgen05: allocation, asynchronous multiplication, loads and stores, commits.

mma, cp and shift of one thread are performed in order, as late as a commit is waited for. Loads
deliver at once (hardware guards registers by scoreboard), stores when wait::st asks for them.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ptxgen.emulator.access import report
from ptxgen.emulator.fragment import Wait
from ptxgen.emulator.lanes import F4, I4, U4, lane_indices, lane_list
from ptxgen.emulator.observer import (
    Access,
    AccessKind,
    AsyncOperation,
    Origin,
    Product,
    Proxy,
    Space,
)
from ptxgen.emulator.pending import Pending
from ptxgen.emulator.runtime import RUNTIME, runtime
from ptxgen.emulator.tcgen05_cp import (
    copy_cells,
    copy_reads,
    copy_to_tmem,
    shift_cells,
    shift_down,
)
from ptxgen.emulator.tcgen05_mma import (
    MmaOperands,
    Tcgen05Mma,
    accumulator_values,
    execute_tcgen05_mma,
    mma_cells,
    mma_k,
    mma_reads,
    mma_tmem_reads,
)
from ptxgen.errors import EmulationError

if TYPE_CHECKING:
    from ptxgen.emulator.cta import Cta
    from ptxgen.emulator.fragment import Fragment

RUNTIME["MmaOperands"] = MmaOperands


def pair_of(F: "Fragment", group: int) -> "list[Cta]":
    """The CTAs that an instruction of a cta_group works on, in rank order.

    Raises: EmulationError for cta_group::2 without a peer.
    """
    if group == 1:
        return [F.cta]
    ctas = F.cta.cluster.ctas
    first = F.cta.rank & ~1
    if first + 1 >= len(ctas):
        raise EmulationError(
            f".cta_group::2 needs a cluster with both CTAs of the pair {first}, {first + 1}; the "
            f"cluster has {len(ctas)} CTA(s)"
        )
    return [ctas[first], ctas[first + 1]]


@runtime
def same_address(addresses: Any, mask: int) -> int:
    """The one tensor memory address of a warp.

    Raises: EmulationError if the lanes differ.
    """
    chosen = addresses[lane_indices(mask)]
    if (chosen != chosen[0]).any():
        raise EmulationError("a tensor memory address must be the same in all lanes of the warp")
    return int(chosen[0])


@runtime
def allocate_tmem(
    F: "Fragment", address: int, columns: int, group: int, line: int, following: Any
) -> Any:
    """tcgen05.alloc: columns, or wait until another warp frees some."""
    cta = F.cta
    pair_of(F, group)
    found = cta.tmem.allocate(columns)
    if found is None:

        def passed() -> bool:
            column = cta.tmem.allocate(columns)
            if column is None:
                return False
            _publish(F, address, column, columns, line)
            return True

        F.block(Wait("tmem", line, passed), following)
        return None
    _publish(F, address, found, columns, line)
    return following


def _publish(F: "Fragment", address: int, column: int, columns: int, line: int) -> None:
    offset = F.cta.own(address)
    F.cta.smem.store_int(offset, column, 4)
    F.machine.epoch += 1
    if F.observer is not None:
        F.observer.on_tensor_memory(F.origin(line), "alloc", column, columns)
        report(F, AccessKind.WRITE, Space.SHARED, F.cta.index, offset, 4, line, "weak", 1 << F.lane)


@runtime
def free_tmem(F: "Fragment", address: int, columns: int, line: int) -> None:
    """tcgen05.dealloc."""
    F.cta.tmem.deallocate(address, columns)
    F.machine.epoch += 1
    if F.observer is not None:
        F.observer.on_tensor_memory(F.origin(line), "dealloc", address & 0xFFFF, columns)
    for warp in F.cta.warps:
        for fragment in warp.fragments:
            wait = fragment.wait
            if wait is not None and wait.kind == "tmem" and wait.subject():
                fragment.release()


@runtime
def relinquish_tmem(F: "Fragment", line: int) -> None:
    """tcgen05.relinquish_alloc_permit."""
    F.cta.tmem.relinquish()
    if F.observer is not None:
        F.observer.on_tensor_memory(F.origin(line), "relinquish", 0, 0)


def own_lanes(F: "Fragment", address: int) -> int:
    """An address with its lane quarter replaced by the warp's own.

    A warp reaches its own 32 lanes only, so the quarter in the address carries no information:
    DeepGEMM leaves it 0 in all warps, and runs on a B200.
    """
    lane = 32 * (F.warp.index % 4) + (address >> 16 & 31)
    return address & 0xFFFF | lane << 16


@runtime
def load_tmem(
    F: "Fragment", address: int, shape: str, repeat: int, split: int, packed: bool, line: int
) -> Any:
    """tcgen05.ld: registers (n, 32)."""
    tmem = F.cta.tmem
    address = own_lanes(F, address)
    found = tmem.load(address, shape, repeat, F.warp.index, split=split, pack=packed)
    if F.observer is not None:
        cells = tmem.cells_of(address, shape, repeat, F.warp.index, split=split, wide=packed)
        operation = AsyncOperation(
            "tcgen05_ld", F.origin(line), (_cells(AccessKind.READ, F.cta, cells, F.origin(line)),),
            (), group="tcgen05_ld",
        )  # fmt: skip
        F.observer.on_issue(operation)
        operation.finished = True
    return found


def _cells(kind: AccessKind, cta: "Cta", cells: Any, origin: Origin) -> Access:
    addresses = np.asarray(cells, np.int64).ravel() * 4
    return Access(kind, Proxy.TCGEN05, Space.TENSOR, cta.index, addresses, 4, origin)


@runtime
def reduce_rows(values: Any, operation: str, kind: str, absolute: bool, nan: bool) -> Any:
    """The extra result of tcgen05.ld.red: min or max over the registers of each lane."""
    typed = values.view({"f32": F4, "s32": I4}.get(kind, U4))
    if absolute:
        typed = np.abs(typed)
    pick: Any
    if kind == "f32" and not nan:
        pick = np.fmin if operation == "min" else np.fmax
    else:
        pick = np.minimum if operation == "min" else np.maximum
    return pick.reduce(typed, axis=0).view(U4)


@runtime
def store_tmem(
    F: "Fragment", address: int, values: Any, count: int, shape: str, repeat: int, split: int,
    packed: bool, line: int,
) -> None:  # fmt: skip
    """tcgen05.st: written when the warp waits for it."""
    tmem = F.cta.tmem
    address = own_lanes(F, address)
    warp = F.warp.index
    registers = np.broadcast_to(values, (count, 32))
    cells = tmem.cells_of(address, shape, repeat, warp, split=split, wide=packed)

    def finish() -> None:
        tmem.store(address, registers, shape, repeat, warp, split=split, unpack=packed)

    operation = None
    origin = F.origin(line)
    if F.observer is not None:
        operation = AsyncOperation(
            "tcgen05_st", origin, (), (_cells(AccessKind.WRITE, F.cta, cells, origin),),
            group="tcgen05_st",
        )  # fmt: skip
    pending = Pending("tcgen05_st", origin, F.warp, [finish], [], operation)
    F.warp.tmem_stores = [p for p in F.warp.tmem_stores if not p.done]
    F.warp.tmem_stores.append(pending)
    F.machine.issue(pending)


@runtime
def wait_tmem(F: "Fragment", kind: str, line: int, following: Any) -> Any:
    """tcgen05.wait::ld and ::st."""
    warp = F.warp

    def passed() -> bool:
        if kind == "st" and any(not p.done for p in warp.tmem_stores):
            return False
        if kind == "ld":
            warp.tmem_loading = 0
        if F.observer is not None:
            F.observer.on_wait_group(F.origin(line), f"tcgen05_{kind}", 0, False)
        return True

    if passed():
        return following
    F.block(Wait("tcgen05", line, passed), following)
    return None


def _queue(F: "Fragment", lane: int, pending: Pending) -> None:
    """Put an operation behind the earlier ones of its thread."""
    stream = F.warp.tensor_streams.setdefault(lane, [])
    stream[:] = [p for p in stream if not p.done]
    if stream:
        pending.after = stream[-1]
    stream.append(pending)
    F.machine.issue(pending)


@runtime
def issue_mma(
    F: "Fragment", lane: int, operation: Tcgen05Mma, operands: MmaOperands, line: int
) -> None:
    """tcgen05.mma of one thread."""
    ctas = pair_of(F, operation.cta_group)
    exact = F.machine.options.exact

    observer = F.observer
    origin = F.origin(line, 1 << lane)

    def finish() -> None:
        if observer is None or not observer.wants_products:
            execute_tcgen05_mma(operation, operands, ctas, exact=exact)
            return
        before = None
        if operands.accumulate:
            before = accumulator_values(operation, operands, ctas)
        execute_tcgen05_mma(operation, operands, ctas, exact=exact)
        after = accumulator_values(operation, operands, ctas)
        observer.on_product(Product(origin, mma_k(operation, operands), after, before))

    described = None
    if F.observer is not None:
        reads, writes = [], []
        for rank, cta in enumerate(ctas):
            pieces = mma_reads(operation, operands, cta)
            reads.append(
                Access(AccessKind.READ, Proxy.ASYNC, Space.SHARED, cta.index, pieces, 16, origin)
            )
            cells = mma_cells(operation, operands, rank)
            writes.append(_cells(AccessKind.WRITE, cta, cells, origin))
            if operands.accumulate:
                reads.append(_cells(AccessKind.READ, cta, cells, origin))
            cells = mma_tmem_reads(operation, operands)
            if len(cells):
                reads.append(_cells(AccessKind.READ, cta, cells, origin))
        described = AsyncOperation(
            "tcgen05_mma", origin, tuple(reads), tuple(writes), group="tcgen05"
        )
    _queue(F, lane, Pending("tcgen05_mma", origin, F.warp, [finish], [], described))


@runtime
def issue_copy(
    F: "Fragment", lane: int, address: int, descriptor: int, shape: str, multicast: str,
    packed: str, group: int, line: int,
) -> None:  # fmt: skip
    """tcgen05.cp of one thread."""
    ctas = pair_of(F, group)

    def finish() -> None:
        for cta in ctas:
            copy_to_tmem(descriptor, address, shape, multicast, cta.smem, cta.tmem, packed=packed)

    described = None
    origin = F.origin(line, 1 << lane)
    if F.observer is not None:
        described = AsyncOperation(
            "tcgen05_cp", origin,
            tuple(
                Access(AccessKind.READ, Proxy.ASYNC, Space.SHARED, c.index,
                       copy_reads(descriptor, shape, multicast, c.smem), 16, origin)
                for c in ctas
            ),
            tuple(
                _cells(AccessKind.WRITE, c, copy_cells(address, shape, multicast, c.tmem), origin)
                for c in ctas
            ),
            group="tcgen05",
        )  # fmt: skip
    _queue(F, lane, Pending("tcgen05_cp", origin, F.warp, [finish], [], described))


@runtime
def issue_shift(F: "Fragment", lane: int, address: int, group: int, line: int) -> None:
    """tcgen05.shift of one thread."""
    ctas = pair_of(F, group)

    def finish() -> None:
        for cta in ctas:
            shift_down(address, cta.tmem)

    described = None
    origin = F.origin(line, 1 << lane)
    if F.observer is not None:
        cells = shift_cells(address)
        described = AsyncOperation(
            "tcgen05_shift", origin, tuple(_cells(AccessKind.READ, c, cells, origin) for c in ctas),
            tuple(_cells(AccessKind.WRITE, c, cells, origin) for c in ctas), group="tcgen05",
        )  # fmt: skip
    _queue(F, lane, Pending("tcgen05_shift", origin, F.warp, [finish], [], described))


@runtime
def commit_mma(F: "Fragment", lane: int, address: int, mask: int, group: int, line: int) -> None:
    """tcgen05.commit: arrive on mbarriers when the thread's earlier operations are done."""
    cta, offset = F.cta.peer(address)
    targets = [cta]
    if mask:
        cluster = F.cta.cluster.ctas
        if mask >> len(cluster):
            raise EmulationError(
                f"multicast mask {mask:#x} must name CTAs of the cluster, which has {len(cluster)}"
            )
        targets = [cluster[rank] for rank in lane_list(mask)]
    for target in targets:
        target.mbarriers.at(offset)
    stream = F.warp.tensor_streams.get(lane, [])
    origin = F.origin(line, 1 << lane)
    described = None
    if F.observer is not None:
        barriers = tuple((t.index, offset) for t in targets)
        described = AsyncOperation("tcgen05_commit", origin, barriers=barriers, group="tcgen05")
        operations = [
            p.operation for p in stream if p.operation is not None and p.kind != "tcgen05_commit"
        ]
        F.observer.on_commit(origin, "tcgen05", operations, barriers)

    def finish() -> None:
        for target in targets:
            arrival = target.mbarriers.arrive(
                offset, semantics="release", scope="cluster", operation=described
            )
            if arrival.completed:
                target.phase_completed(offset)

    signals = [(t, offset) for t in targets]
    _queue(F, lane, Pending("tcgen05_commit", origin, F.warp, [finish], signals, described))
