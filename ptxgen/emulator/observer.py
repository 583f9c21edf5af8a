"""The seam between execution and checking: accesses, asynchronous operations and their events.

The executor reports everything that could order or conflict with something else to an `Observer`.
Without an observer nothing of this is built, so a plain run pays one `is None` test per access.
What a happens-before checker needs: docs/checking.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class AccessKind(Enum):
    """What an access does to the bytes."""

    READ = "read"
    WRITE = "write"
    ATOMIC = "atomic"


class Proxy(Enum):
    """The proxy through which an access is made. Source: PTX ISA 9.0, "Proxies"."""

    GENERIC = "generic"
    ASYNC = "async"
    TENSORMAP = "tensormap"
    TCGEN05 = "tcgen05"


class Space(Enum):
    """A state space after address translation."""

    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class Origin:
    """Who executes an instruction."""

    cta: int
    """Linear index of the CTA in the grid."""
    warp: int
    """Warp in the CTA."""
    lanes: int
    """Mask of the active lanes, bit i = lane i."""
    line: int
    """1-based PTX line."""


BarrierKey = tuple[int, int]
"""An mbarrier: (linear CTA index, offset in that CTA's shared memory)."""


@dataclass(slots=True, eq=False)
class Product:
    """What one wgmma or tcgen05.mma has computed."""

    origin: Origin
    k: int
    """Elements along K of its operands."""
    d: NDArray[Any]
    """The accumulator afterwards, shape (m, n) of the instruction, as numbers."""
    before: NDArray[Any] | None
    """The accumulator that it was added to; None where it overwrites."""


@dataclass(slots=True, eq=False)
class Access:
    """Bytes touched by one instruction, or by one part of an asynchronous operation."""

    kind: AccessKind
    proxy: Proxy
    space: Space
    owner: int
    """Linear index of the CTA whose shared, local or tensor memory it is; -1 for global."""
    addresses: NDArray[np.int64]
    """Start of each piece in bytes. Generic accesses: one piece per active lane, in lane order.
    Shared: offset in the owner's window. Tensor memory: (lane * 512 + column) * 4."""
    size: int
    """Bytes of each piece."""
    origin: Origin
    volatile: bool = False
    """A strong access (volatile, relaxed, acquire, release): does not race by itself."""
    semantics: str = "weak"
    """weak, relaxed, acquire, release or acq_rel."""
    scope: str = "cta"
    """cta, cluster, gpu or sys."""


@dataclass(slots=True, eq=False)
class AsyncOperation:
    """One asynchronous operation, reported when it is issued."""

    kind: str
    """tma_load, tma_store, tma_reduce, tma_prefetch, bulk_load, bulk_store, bulk_reduce,
    bulk_dsmem, cp_async, st_async, red_async, wgmma, tcgen05_mma, tcgen05_cp, tcgen05_shift,
    tcgen05_ld, tcgen05_st, tcgen05_commit, cp_async_arrive, try_cancel. The last but one and two
    touch no bytes: they arrive on mbarriers, when the thread's earlier operations are done."""
    origin: Origin
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()
    barriers: tuple[BarrierKey, ...] = ()
    """mbarriers that receive its bytes; `writes` of shared memory are retired by the barrier of
    the same owner."""
    tx_bytes: int = 0
    """Bytes of complete_tx on each of `barriers`."""
    group: str = ""
    """Group that retires it when no barrier does: bulk, cp_async, wgmma, tcgen05, tcgen05_ld,
    tcgen05_st."""
    finished: bool = field(default=False)
    """Set by the executor once its writes are in memory."""


@dataclass(frozen=True, slots=True)
class BarrierEvent:
    """One operation on an mbarrier, after it was applied."""

    kind: str
    """init, inval, arrive, arrive_drop, expect_tx, complete_tx, phase (a phase completed), wait
    (a successful wait), wait_failed."""
    barrier: BarrierKey
    origin: Origin | None
    """None when the hardware acts (complete_tx of a copy, arrive of a commit). Of an arrive, lanes
    holds all lanes that execute the instruction; each of them is reported."""
    phase: int
    """Phase before the operation; for `phase` the one that completed; for waits the one that the
    waiter found complete (or waits for)."""
    count: int = 0
    """Arrivals (arrive), bytes (expect_tx, complete_tx), expected arrivals (init)."""
    tx: int = 0
    """Transaction bytes outstanding after the operation."""
    pending: int = 0
    """Arrivals outstanding after the operation."""
    semantics: str = "release"
    scope: str = "cta"
    operation: AsyncOperation | None = None
    """The copy that completes bytes; the commit or cp.async.mbarrier.arrive that arrives."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """One step of a barrier that is not an mbarrier."""

    kind: str
    """arrive, wait (passes), or sync (arrives and later passes: reported as arrive, then wait)."""
    barrier: str
    """cta (bar, barrier.cta), cluster, warp (bar.warp.sync), grid (griddepcontrol: wait, or arrive
    for launch_dependents)."""
    index: int
    """Barrier id (cta), 0 otherwise."""
    generation: int
    """How often this barrier has completed before."""
    origin: Origin
    relaxed: bool = False
    """barrier.cluster.arrive.relaxed: orders nothing."""


class Observer:
    """Receives what happens, in execution order. Every method may be left as it is.

    A method may raise HazardError to stop the run.
    """

    wants_instructions = False
    """Ask for `on_instruction`."""
    wants_products = False
    """Ask for `on_product`."""

    def on_machine(self, machine: Any) -> None:
        """The Machine that runs from now on: its memories, clusters and source text."""

    def on_kernel(self, kind: str, entry: str, num_ctas: int, num_warps: int) -> None:
        """A kernel begins or ends (`kind`: start, end); `num_warps` is per CTA."""

    def on_warp(self, kind: str, origin: Origin) -> None:
        """A warp starts or exits (`kind`: start, exit); lanes says which lanes."""

    def on_instruction(self, origin: Origin, index: int) -> None:
        """Instruction `index` of the entry is about to execute."""

    def on_undefined_register(self, origin: Origin, register: str) -> None:
        """A register is read that nothing wrote."""

    def on_register_hazard(self, origin: Origin, kind: str, registers: tuple[str, ...]) -> None:
        """Registers are used against the rules of what computes them. `kind`: read (accumulators
        of a wgmma in flight), write (accumulators or A of one in flight), fence (one is issued on
        registers that were touched since the last wgmma.fence), load (of a tcgen05.ld that was not
        waited for)."""

    def on_access(self, access: Access) -> None:
        """A synchronous access was made."""

    def on_wgmma(self, origin: Origin) -> None:
        """One warp issued its part of a wgmma; `on_issue` follows when the fourth warp has."""

    def on_product(self, product: Product) -> None:
        """A wgmma or tcgen05.mma has been executed."""

    def on_issue(self, operation: AsyncOperation) -> None:
        """An asynchronous operation was issued; its accesses happen from now on."""

    def on_finish(self, operation: AsyncOperation, milestone: str) -> None:
        """The executor performed an operation: `read` (sources read) or `done` (writes made)."""

    def on_barrier(self, event: BarrierEvent) -> None:
        """An mbarrier operation was applied."""

    def on_rendezvous(self, event: Rendezvous) -> None:
        """A named, cluster or warp barrier was arrived at or passed."""

    def on_fence(self, origin: Origin, kind: str) -> None:
        """A fence; `kind` is its text without the leading `fence.`: proxy.async.shared::cta,
        mbarrier_init.release.cluster, acq_rel.gpu; or wgmma, tcgen05.before, tcgen05.after."""

    def on_commit(
        self, origin: Origin, group: str, operations: Sequence[AsyncOperation],
        barriers: Sequence[BarrierKey] = (),
    ) -> None:  # fmt: skip
        """`operations` now form the next group of `group`; tcgen05 commits name `barriers`."""

    def on_wait_group(self, origin: Origin, group: str, pending: int, read_only: bool) -> None:
        """A wait passed: at most `pending` most recent groups are outstanding. `group` is bulk,
        cp_async, wgmma, tcgen05_ld or tcgen05_st; `read_only` for wait_group.read."""

    def on_tensor_memory(self, origin: Origin, kind: str, column: int, num_columns: int) -> None:
        """Tensor memory was allocated, freed or given up (`kind`: alloc, dealloc, relinquish)."""

    def on_absent_lanes(self, origin: Origin, lanes: int) -> None:
        """An .aligned instruction waited for lanes of its warp, which have exited instead."""

    def on_setmaxnreg(self, origin: Origin, kind: str, registers: int) -> None:
        """setmaxnreg took effect (`kind`: inc, dec)."""
