"""What an observer is told: accesses, asynchronous operations, barriers, groups, registers."""

from collections.abc import Sequence

import numpy as np
from emulator_kernels import execute
from test_emulator_completion import STORE, TILE, WGMMA, WGMMA_TILE
from test_emulator_scheduler import DATA, RING, SHARED, WAIT_FULL

from ptxgen.emulator.observer import (
    Access,
    AccessKind,
    AsyncOperation,
    BarrierEvent,
    BarrierKey,
    Observer,
    Origin,
    Proxy,
    Rendezvous,
    Space,
)


class Recorder(Observer):
    """Keeps everything in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []
        self.accesses: list[Access] = []
        self.hazards: list[tuple[str, tuple[str, ...]]] = []

    def on_access(self, access: Access) -> None:
        self.accesses.append(access)
        self.events.append(("access", access))

    def on_issue(self, operation: AsyncOperation) -> None:
        self.events.append(("issue", operation))

    def on_finish(self, operation: AsyncOperation, milestone: str) -> None:
        self.events.append((milestone, operation))

    def on_barrier(self, event: BarrierEvent) -> None:
        self.events.append((event.kind, event))

    def on_rendezvous(self, event: Rendezvous) -> None:
        self.events.append((f"{event.barrier} {event.kind}", event))

    def on_fence(self, origin: Origin, kind: str) -> None:
        self.events.append((f"fence {kind}", origin))

    def on_commit(
        self, origin: Origin, group: str, operations: Sequence[AsyncOperation],
        barriers: Sequence[BarrierKey] = (),
    ) -> None:  # fmt: skip
        self.events.append((f"commit {group}", tuple(operations)))

    def on_wait_group(self, origin: Origin, group: str, pending: int, read_only: bool) -> None:
        self.events.append((f"wait {group}{' read' if read_only else ''}", origin))

    def on_undefined_register(self, origin: Origin, register: str) -> None:
        self.events.append(("undefined", register))

    def on_register_hazard(self, origin: Origin, kind: str, registers: tuple[str, ...]) -> None:
        self.hazards.append((kind, registers))

    def named(self, name: str) -> list[object]:
        """The events of a name."""
        return [e for n, e in self.events if n == name]

    def order(self, *names: str) -> list[str]:
        """Names of the events that have one of some names, in order."""
        return [n for n, _ in self.events if n in names]


def test_a_shared_store_is_reported_with_offsets_lanes_and_line() -> None:
    body = """
mov.u32 %r3, cells;
shl.b32 %r4, %r1, 2;
add.u32 %r3, %r3, %r4;
setp.lt.u32 %p1, %r1, 3;
@%p1 st.shared.u32 [%r3], %r1;
ld.volatile.shared.u32 %r5, [%r3+4];
"""
    seen = Recorder()
    execute(body, shared=".shared .align 4 .b8 cells[132];", observer=seen)
    stored, loaded = (a for a in seen.accesses if a.space is Space.SHARED)
    assert stored.kind is AccessKind.WRITE
    assert (stored.proxy, stored.owner, stored.size) == (Proxy.GENERIC, 0, 4)
    assert stored.addresses.tolist() == [1024, 1028, 1032]
    assert (stored.origin.lanes, stored.origin.warp) == (0b111, 0)
    assert loaded.kind is AccessKind.READ
    assert loaded.volatile
    assert loaded.origin.line == stored.origin.line + 1
    assert loaded.addresses.tolist() == list(range(1028, 1028 + 128, 4))


def test_an_atomic_is_one_access_per_lane() -> None:
    seen = Recorder()
    data = np.zeros(4, np.uint32)
    execute("red.release.gpu.global.add.u32 [%d0], 1;", data, observer=seen)
    found = [a for a in seen.accesses if a.kind is AccessKind.ATOMIC]
    assert [a.origin.lanes for a in found] == [1 << t for t in range(32)]
    assert {(a.semantics, a.scope) for a in found} == {("release", "gpu")}


def test_a_copy_is_issued_finished_and_signals_in_that_order() -> None:
    seen = Recorder()
    body = RING.replace("WAIT_FULL", WAIT_FULL)
    execute(body, DATA, shared=SHARED, threads=64, observer=seen)
    names = seen.order("issue", "complete_tx", "phase", "done")
    assert names[:3] == ["issue", "complete_tx", "phase"]
    operations = seen.named("issue")
    assert len(operations) == 6
    first = operations[0]
    assert isinstance(first, AsyncOperation)
    assert (first.kind, first.tx_bytes, first.finished) == ("bulk_load", 128, True)
    (write,) = first.writes
    assert (write.proxy, write.space, write.addresses.tolist()) == (
        Proxy.ASYNC, Space.SHARED, [1024],
    )  # fmt: skip
    completed = seen.named("complete_tx")[0]
    assert isinstance(completed, BarrierEvent)
    assert completed.operation is first
    assert completed.origin is None


def test_waits_are_reported_once_per_warp_and_phase() -> None:
    seen = Recorder()
    body = RING.replace("WAIT_FULL", WAIT_FULL)
    execute(body, DATA, shared=SHARED, threads=64, observer=seen)
    waits = [e for e in seen.named("wait") if isinstance(e, BarrierEvent)]
    consumer = [e.phase for e in waits if e.origin is not None and e.origin.warp == 0]
    assert consumer == list(range(6))


def test_a_store_reports_fence_barrier_groups_and_milestones() -> None:
    seen = Recorder()
    body = STORE.replace("WAIT", "cp.async.bulk.wait_group.read 0;\ncp.async.bulk.wait_group 0;")
    execute(body, shared=TILE, observer=seen)
    names = seen.order(
        "fence proxy.async.shared::cta", "cta arrive", "cta wait", "issue", "commit bulk", "read",
        "wait bulk read", "done", "wait bulk",
    )  # fmt: skip
    assert names[:9] == [
        "fence proxy.async.shared::cta", "cta arrive", "cta wait", "issue", "commit bulk", "read",
        "wait bulk read", "done", "wait bulk",
    ]  # fmt: skip
    fence = seen.named("fence proxy.async.shared::cta")[0]
    assert isinstance(fence, Origin)
    assert fence.lanes == 0xFFFFFFFF


def test_wgmma_reports_operands_group_and_wait_per_warp() -> None:
    seen = Recorder()
    body = WGMMA.replace("WAIT", "wgmma.wait_group.sync.aligned 0;")
    execute(body, shared=WGMMA_TILE, threads=128, observer=seen)
    operations = [o for o in seen.named("issue") if isinstance(o, AsyncOperation)]
    assert [o.kind for o in operations] == ["wgmma", "wgmma"]
    assert sum(a.size * len(a.addresses) for a in operations[0].reads) == 64 * 32 + 8 * 32
    assert len(seen.named("commit wgmma")) == len(seen.named("wait wgmma")) == 4
    assert seen.hazards == []


def test_accumulators_read_before_the_wait_are_reported() -> None:
    seen = Recorder()
    execute(WGMMA.replace("WAIT", ""), shared=WGMMA_TILE, threads=128, observer=seen)
    assert seen.hazards == [("read", ("%f1", "%f4"))] * 4


def test_registers_written_after_the_last_fence_are_reported() -> None:
    seen = Recorder()
    body = WGMMA.replace("WAIT", "wgmma.wait_group.sync.aligned 0;")
    execute(
        body.replace("wgmma.fence.sync.aligned;", ""), shared=WGMMA_TILE, threads=128, observer=seen
    )
    assert {kind for kind, _ in seen.hazards} == {"fence"}
    late = body.replace(
        "wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned;\nmov.f32 %f3, 0f40000000;"
    )
    seen = Recorder()
    execute(late, shared=WGMMA_TILE, threads=128, observer=seen)
    assert ("fence", ("%f3",)) in seen.hazards


def test_reading_a_register_that_nothing_wrote_is_reported() -> None:
    seen = Recorder()
    execute("add.u32 %r2, %r20, 1;\nst.global.u32 [%d1], %r2;", observer=seen)
    assert seen.named("undefined") == ["%r20"]
