"""CTAs and clusters: shared memory, mbarriers, named and cluster barriers, warps."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ptxgen.emulator.addresses import SMEM_UNIT_BYTES, STATIC_SMEM_OFFSET
from ptxgen.emulator.fragment import Fragment
from ptxgen.emulator.mbarrier import MbarrierTable
from ptxgen.emulator.memory import SharedMemory
from ptxgen.emulator.observer import Origin, Rendezvous
from ptxgen.emulator.register_pool import RegisterPool, entry_registers
from ptxgen.emulator.shared_layout import align
from ptxgen.emulator.tmem import TensorMemory
from ptxgen.emulator.warp import Warp
from ptxgen.emulator.warpgroup import Warpgroup
from ptxgen.errors import BarrierError, OutOfBoundsError
from ptxgen.launch import Launch

if TYPE_CHECKING:
    from ptxgen.emulator.machine import Machine

NUM_NAMED_BARRIERS = 16


@dataclass(slots=True)
class NamedBarrier:
    """One of the 16 barriers of bar.sync."""

    arrived: int = 0
    """Threads that have arrived, counted by whole warps."""
    count: int = 0
    """Threads that it takes; 0 = all that have not exited."""
    generation: int = 0
    waiting: list[tuple[Fragment, int]] = field(default_factory=list)
    """Who waits, with the PTX line."""
    reduction: list[tuple[Fragment, int, int, int]] = field(default_factory=list)
    """bar.red: who takes part, the lanes whose predicate holds, its lanes, and the register that
    receives the result."""
    parts: dict[Warp, int] = field(default_factory=dict)
    """Lanes that have arrived of warps whose others have not: barriers that are not .aligned."""


class Cta:
    """One CTA that is resident."""

    def __init__(self, machine: "Machine", cluster: "Cluster", index: int, rank: int) -> None:
        launch = machine.launch
        self.machine = machine
        self.cluster = cluster
        self.index = index
        """Linear index in the grid."""
        self.rank = rank
        """%cluster_ctarank."""
        self.ntid = launch.cta_threads
        self.nctaid = launch.grid_ctas
        gx, gy, _ = launch.grid_ctas
        self.ctaid = (index % gx, index // gx % gy, index // (gx * gy))
        self.cluster_nctaid = launch.cluster_ctas
        cx, cy, cz = launch.cluster_ctas
        self.cluster_size = cx * cy * cz
        self.explicit_cluster = int(self.cluster_size > 1)
        self.clusterid = (self.ctaid[0] // cx, self.ctaid[1] // cy, self.ctaid[2] // cz)
        self.nclusterid = (gx // cx, gy // cy, launch.grid_ctas[2] // cz)
        self.cluster_ctaid = (self.ctaid[0] % cx, self.ctaid[1] % cy, self.ctaid[2] % cz)
        self.smid = index % machine.num_sms
        self.dynamic_smem_bytes = launch.dynamic_smem_bytes
        image = machine.image
        self.smem = SharedMemory(
            image.smem_end, cta=index, first=image.smem_first, track=machine.tracks
        )
        self.aggr_smem_bytes = image.smem_end
        """%aggr_smem_size: with the reserved part."""
        self.total_smem_bytes = align(image.smem_end - STATIC_SMEM_OFFSET, SMEM_UNIT_BYTES)
        self.smem_base = rank << 24 if self.cluster_size > 1 else 0
        """What an address of this CTA's shared memory has above its offset."""
        self._tmem: TensorMemory | None = None
        self.mbarriers = MbarrierTable(self.smem, machine.observer)
        self.barriers = [NamedBarrier() for _ in range(NUM_NAMED_BARRIERS)]
        threads = self.ntid[0] * self.ntid[1] * self.ntid[2]
        self.num_threads = threads
        self.registers = RegisterPool(entry_registers(image.entry.directives, threads))
        self.warps = [Warp(self, i) for i in range(-(-threads // 32))]
        self.warpgroups = [
            Warpgroup(self, self.warps[i : i + 4]) for i in range(0, len(self.warps), 4)
        ]  # fmt: skip
        self.mbarrier_waiters: dict[int, list[Fragment]] = {}
        """Offset of an mbarrier -> fragments that wait on it."""

    @property
    def tmem(self) -> TensorMemory:
        """Tensor memory, made when first used."""
        if self._tmem is None:
            self._tmem = TensorMemory(cta=self.index, track=self.machine.tracks)
        return self._tmem

    def peer(self, address: int, must_live: bool = True) -> "tuple[Cta, int]":
        """CTA and offset of a shared::cluster address.

        Signals to a CTA that has exited are let through (`must_live` false): public kernels rely on
        it, and an observer can tell from the exit. Data accesses are not.
        Raises: OutOfBoundsError for a rank outside the cluster, or an exited CTA.
        """
        rank = address >> 24
        offset = address & 0xFFFFFF
        if rank == self.rank or (rank == 0 and self.cluster_size == 1):
            return self, offset
        ctas = self.cluster.ctas
        if rank >= len(ctas):
            raise OutOfBoundsError(
                f"shared::cluster address {address:#x} names CTA rank {rank}, but the cluster has "
                f"{len(ctas)} CTA(s)"
            )
        found = ctas[rank]
        if must_live and found.exited:
            raise OutOfBoundsError(
                f"shared::cluster address {address:#x} names CTA rank {rank}, which has exited; "
                "end kernels that use remote shared memory with a cluster barrier"
            )
        return found, offset

    def own(self, address: int) -> int:
        """Offset of an address that must lie in this CTA's shared memory.

        Raises: OutOfBoundsError.
        """
        offset = address & 0xFFFFFF
        if address != offset and address >> 24 != self.rank:
            raise OutOfBoundsError(
                f"address {address:#x} must lie in the shared memory of the executing CTA (rank "
                f"{self.rank}), but it names rank {address >> 24}; use a .shared::cluster form"
            )
        return offset

    @property
    def exited(self) -> bool:
        """Whether all threads have exited."""
        return all(not w.alive for w in self.warps)

    def phase_completed(self, offset: int) -> None:
        """An mbarrier phase has completed: go on with who waited for it."""
        waiting = self.mbarrier_waiters.pop(offset, None)
        if waiting is None:
            return
        left = []
        barrier = self.mbarriers.at(offset)
        for fragment in waiting:
            wait = fragment.wait
            if wait is None or wait.kind != "mbarrier" or wait.subject[0] != offset:
                continue
            if (barrier.phase & 1) != wait.subject[1]:
                if self.machine.observer is not None:
                    self.mbarriers.test(
                        offset, wait.subject[1], semantics=wait.subject[2], scope=wait.subject[3],
                        origin=fragment.origin(wait.line),
                    )  # fmt: skip
                fragment.release(True)
            else:
                left.append(fragment)
        if left:
            self.mbarrier_waiters[offset] = left

    def barrier_arrive(
        self, fragment: Fragment, index: int, count: int, line: int, waits: bool
    ) -> bool:
        """bar.sync or bar.arrive of one warp, or of lanes of one whose others are at such an
        instruction, too; True if the barrier completed.

        Raises: BarrierError.
        """
        if not 0 <= index < NUM_NAMED_BARRIERS:
            raise BarrierError(f"a named barrier must be in 0..15, got {index}")
        if count % 32 or count < 0:
            raise BarrierError(f"barrier {index}: the count must be a multiple of 32, got {count}")
        barrier = self.barriers[index]
        if barrier.arrived and barrier.count != count:
            raise BarrierError(
                f"barrier {index}: all participants of a phase must give the same thread count; "
                f"{barrier.count or 'all'} was given first, now {count or 'all'}"
            )
        barrier.count = count
        lanes = barrier.parts.pop(fragment.warp, 0) | fragment.mask
        if fragment.warp.alive & ~lanes:
            barrier.parts[fragment.warp] = lanes
        else:
            barrier.arrived += 32
        needed = count or 32 * self.num_live_warps()
        if self.machine.observer is not None:
            self.machine.observer.on_rendezvous(
                Rendezvous("arrive", "cta", index, barrier.generation, fragment.origin(line))
            )
        if barrier.arrived > needed:
            raise BarrierError(
                f"barrier {index}: {barrier.arrived} threads arrived, but it takes {needed}"
            )
        if waits:
            barrier.waiting.append((fragment, line))
        if barrier.arrived == needed:
            self._complete_barrier(index)
            return True
        return False

    def _complete_barrier(self, index: int) -> None:
        barrier = self.barriers[index]
        waiting, barrier.waiting = barrier.waiting, []
        barrier.arrived = 0
        self.machine.epoch += 1
        self.machine.meetings += not barrier.reduction
        barrier.reduction = []
        generation = barrier.generation
        barrier.generation += 1
        for fragment, line in waiting:
            if self.machine.observer is not None:
                self.machine.observer.on_rendezvous(
                    Rendezvous("wait", "cta", index, generation, fragment.origin(line))
                )
            if fragment.wait is not None:
                fragment.release()

    def num_live_warps(self) -> int:
        """Warps with threads that have not exited."""
        return sum(1 for w in self.warps if w.alive)

    def lanes_left(self, warp: Warp, mask: int) -> None:
        """Threads have exited: barriers may complete without them."""
        machine = self.machine
        machine.epoch += 1
        if machine.observer is not None:
            machine.observer.on_warp("exit", Origin(self.index, warp.index, mask, 0))
        self.cluster.check_barrier()
        if not warp.alive:
            for index, barrier in enumerate(self.barriers):
                if (
                    barrier.waiting
                    and not barrier.count
                    and barrier.arrived == 32 * self.num_live_warps()
                ):
                    self._complete_barrier(index)
            if self.exited:
                self.cluster.cta_exited()


class Cluster:
    """CTAs that run concurrently and see each other's shared memory."""

    def __init__(self, machine: "Machine", index: int, cta_indices: list[int]) -> None:
        self.machine = machine
        self.index = index
        self.ctas: list[Cta] = []
        for rank, cta in enumerate(cta_indices):
            self.ctas.append(Cta(machine, self, cta, rank))
        self.generation = 0
        """Completed phases of the cluster barrier."""
        self.arrived: dict[Warp, int] = {}
        """Lanes of each warp that have arrived in this phase."""
        self.waiting: list[tuple[Fragment, int]] = []
        """Fragments at barrier.cluster.wait, with the phase they wait for."""
        self.arrival_phase: dict[Warp, int] = {}
        """Phase of each warp's latest arrival."""
        self.exited = False

    def barrier_arrive(self, fragment: Fragment) -> None:
        """barrier.cluster.arrive.

        Raises: BarrierError for a second arrival in one phase.
        """
        warp = fragment.warp
        before = self.arrived.get(warp, 0)
        if before & fragment.mask:
            raise BarrierError(
                "barrier.cluster.arrive: these threads have arrived already in this phase; they "
                "must execute barrier.cluster.wait first"
            )
        self.arrived[warp] = before | fragment.mask
        self.arrival_phase[warp] = self.generation
        self.check_barrier()

    def barrier_passed(self, fragment: Fragment) -> bool:
        """Whether the phase that a warp arrived in has completed.

        Raises: BarrierError without an arrival.
        """
        phase = self.arrival_phase.get(fragment.warp)
        if phase is None:
            raise BarrierError("barrier.cluster.wait needs a barrier.cluster.arrive before it")
        return self.generation > phase

    def check_barrier(self) -> None:
        """Complete the cluster barrier if all threads that have not exited have arrived."""
        if not self.arrived:
            return
        arrived = self.arrived
        for cta in self.ctas:
            for warp in cta.warps:
                if warp.alive & ~arrived.get(warp, 0):
                    return
        self.arrived = {}
        self.generation += 1
        self.machine.epoch += 1
        self.machine.meetings += 1
        waiting, self.waiting = self.waiting, []
        for fragment, phase in waiting:
            if self.machine.observer is not None and fragment.wait is not None:
                self.machine.observer.on_rendezvous(
                    Rendezvous("wait", "cluster", 0, phase, fragment.origin(fragment.wait.line))
                )
            fragment.release()

    def cta_exited(self) -> None:
        """One CTA is done; the cluster may be."""
        if all(c.exited for c in self.ctas):
            self.exited = True
            self.machine.cluster_exited(self)


def clusters_in_order(launch: Launch) -> Iterator[list[int]]:
    """Linear indices of the CTAs of each cluster, as they start."""
    gx, gy, gz = launch.grid_ctas
    cx, cy, cz = launch.cluster_ctas
    for z in range(0, gz, cz):
        for y in range(0, gy, cy):
            for x in range(0, gx, cx):
                yield [
                    (z + k) * gx * gy + (y + j) * gx + x + i
                    for k in range(cz)
                    for j in range(cy)
                    for i in range(cx)
                ]
