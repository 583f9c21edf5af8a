"""Checker: the observer that looks for hazards while a kernel runs.

It follows who knows what (clocks), who touched which bytes (shadow memory) and the rules of
barriers and tensor memory, and hands findings to a Reporter. The order of execution matters only
for what synchronises with what: every reordering that the observed synchronisation allows is
covered (docs/checking.md). Source: PTX ISA 9.0, "Memory Consistency Model" and "Async proxy".
"""

from collections.abc import Sequence
from typing import Any

from ptxgen.emulator import clocks
from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.checker_barriers import Barriers
from ptxgen.emulator.checker_exits import Exits
from ptxgen.emulator.checker_faults import current_line
from ptxgen.emulator.checker_flags import Flags
from ptxgen.emulator.checker_kernels import Kernels
from ptxgen.emulator.checker_memories import Memories
from ptxgen.emulator.checker_operations import Operations
from ptxgen.emulator.checker_order import View
from ptxgen.emulator.checker_races import Races
from ptxgen.emulator.checker_registers import Registers
from ptxgen.emulator.checker_rendezvous import Meetings
from ptxgen.emulator.checker_report import Reporter
from ptxgen.emulator.checker_tensor import TensorAllocations
from ptxgen.emulator.clocks import Domain
from ptxgen.emulator.findings import Finding
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
from ptxgen.emulator.proxies import check_tensor_map, fence_proxy
from ptxgen.emulator.shadow import Record


class Checker(Observer):
    """Checks one run: launches of one device, in stream order."""

    def __init__(
        self,
        *,
        strict: bool = False,
        on_race: str = "report",
        uninitialised: bool = True,
        zeros: bool = False,
    ) -> None:
        """`zeros` fills shared memory with zeros at the start of a CTA, instead of poison."""
        self.reporter = Reporter(strict, on_race)
        self.strict = strict
        self.kernels = Kernels()
        self.races = Races(self.reporter, self.kernels, uninitialised)
        self.barriers = Barriers(self.reporter)
        self.memories = Memories()
        self.exits = Exits(self.reporter)
        self.meetings = Meetings()
        self.flags = Flags(strict)
        self.operations = Operations(self.barriers, self.exits)
        self.registers = Registers(self.reporter)
        self.tensor = TensorAllocations(self.reporter, self.memories, self.races)
        self.agents: dict[tuple[int, int], Agent] = {}
        self.domains: dict[int, Domain] = {}
        """Of every resident CTA, its cluster's."""
        self.machine: Any = None
        self.zeros = zeros

    @property
    def findings(self) -> list[Finding]:
        """What was found, in order of first occurrence."""
        return list(self.reporter.found.values())

    # Kernels, clusters, warps

    def on_machine(self, machine: Any) -> None:
        """A launch begins."""
        self.machine = machine
        self.reporter.attach(machine)
        self.memories.attach(machine)

    def on_kernel(self, kind: str, entry: str, num_ctas: int, num_warps: int) -> None:
        """A kernel begins or ends."""
        if kind == "start":
            if self.kernels.begin():
                self.memories.forget_global()
                self.flags.forget()
        else:
            self._drop_clusters(set(self.domains))
        self.registers.on_kernel(kind, self.machine)

    def on_warp(self, kind: str, origin: Origin) -> None:
        """A warp starts, or lanes exit."""
        if kind == "start":
            if origin.cta not in self.domains:
                self._begin_cluster(origin.cta)
            domain = self.domains[origin.cta]
            agent = Agent(domain, origin.cta, origin.warp, self.strict)
            agent.alive = origin.lanes
            self.agents[origin.cta, origin.warp] = agent
            return
        agent = self.agents[origin.cta, origin.warp]
        agent.alive &= ~origin.lanes
        if agent.alive:
            return
        ours = [a for (cta, _), a in self.agents.items() if cta == origin.cta]
        if all(not a.alive for a in ours):
            self.exits.cta_exited(origin.cta, ours)
            self.registers.cta_exited(origin.cta)

    def _begin_cluster(self, cta: int) -> None:
        resident = {c.index for cluster in self.machine.clusters for c in cluster.ctas}
        self._drop_clusters(set(self.domains) - resident)
        for cluster in self.machine.clusters:
            members = [c.index for c in cluster.ctas]
            if cta in members:
                domain = Domain()
                for member in members:
                    self.domains[member] = domain
                self.memories.begin_cluster(cluster.ctas)
                if self.zeros:
                    for one in cluster.ctas:
                        one.smem.u8[:] = 0
                return

    def _drop_clusters(self, ctas: set[int]) -> None:
        """Forget CTAs that are gone."""
        if not ctas:
            return
        for key, state in list(self.barriers.live.items()):
            if key[0] in ctas:
                self.barriers.check_end(state)
                del self.barriers.live[key]
        for key in [k for k in self.agents if k[0] in ctas]:
            del self.agents[key]
        for cta in ctas:
            del self.domains[cta]
        self.tensor.drop(ctas)
        self.memories.drop(ctas)
        self.exits.drop(ctas)
        self.meetings.drop(ctas)
        self.operations.drop(ctas)

    # Accesses

    def on_access(self, access: Access) -> None:
        """A synchronous access."""
        space = access.space
        if space is Space.LOCAL:
            return
        origin = access.origin
        agent = self.agents[origin.cta, origin.warp]
        strong = access.volatile or access.kind is AccessKind.ATOMIC
        if strong and access.kind is AccessKind.READ:
            poll = (origin.line, int(access.addresses[0]), self.races.num_writes, agent.version)
            if poll == agent.poll:
                return  # it polls, and nobody has written anything since
        shadow = self.memories.shadow(access)
        lanes = origin.lanes
        if access.proxy is Proxy.TENSORMAP:
            if shadow is not None:
                check_tensor_map(self.reporter, shadow, access, agent)
            return
        if strong:
            self.flags.before(access, agent)
        if shadow is not None:
            record = Record(
                access.kind, access.proxy, "", agent, origin, access,
                ((agent.first + clocks.ACCESSES, agent.mark()),), strong=strong,
                kernel=self.kernels.current,
            )  # fmt: skip
            region = shadow.region(access)
            view = View(agent, lanes, agent.clock_of(lanes))
            if access.kind is AccessKind.READ:
                self.races.read(shadow, region, record, (view,))
            else:
                self._guard(access, region, origin)
                self.races.write(shadow, region, record, (view,))
            if space is Space.SHARED and access.owner != origin.cta:
                self.exits.expose(access.owner, record)
        if strong:
            self.flags.after(access, agent)
            if access.kind is AccessKind.READ:
                agent.poll = (*poll[:3], agent.version)

    def out_of_bounds(self, message: str) -> None:
        """A global read outside of all buffers was let through."""
        warp = self.machine.current
        line = current_line()
        if not self.reporter.repeats("OUT-OF-BOUNDS", line):
            origin = Origin(warp.cta.index, warp.index, 0, line or 0)
            self.reporter.add("OUT-OF-BOUNDS", message, origin, severity="warning")

    def _guard(self, access: Access, region: Any, origin: Origin) -> None:
        """Data must not overwrite live mbarriers, nor buffers that are inputs."""
        if access.space is Space.SHARED:
            self._guard_barriers(access, region, origin)
            return
        name = self.memories.input_of(access)
        if name and not self.reporter.repeats("INPUT-WRITTEN", origin.line):
            first = int(access.addresses[0])
            self.reporter.add(
                "INPUT-WRITTEN",
                f"`{self.reporter.brief(origin.line)}` by CTA {origin.cta} warp {origin.warp} "
                f"writes {self.reporter.bytes_name(access.space, -1, first, access.size)}, whose "
                "role in the launch is in",
                origin, access=access, addresses=(first, access.size),
            )  # fmt: skip

    def _guard_barriers(self, access: Access, region: Any, origin: Origin) -> None:
        """Data must not overwrite live mbarriers."""
        offset = self.memories.barrier_in(access.owner, region)
        if offset is None:
            return
        key = (access.owner, offset)
        if self.reporter.repeats("BARRIER-OVERWRITTEN", origin.line):
            return
        self.reporter.add(
            "BARRIER-OVERWRITTEN",
            f"`{self.reporter.brief(origin.line)}` by CTA {origin.cta} warp {origin.warp} writes "
            f"over the live mbarrier {self.reporter.barrier_name(key)}",
            origin, access=access, addresses=(offset, 8), barrier=key,
        )  # fmt: skip

    # Asynchronous operations

    def on_wgmma(self, origin: Origin) -> None:
        """One warp issued its part of a wgmma."""
        agent = self.agents[origin.cta, origin.warp]
        clock = agent.clock_of(origin.lanes).copy()
        agent.wgmma_parts.append((clock, agent.wgmma_committed + 1))

    def on_issue(self, operation: AsyncOperation) -> None:
        """An asynchronous operation was issued."""
        origin = operation.origin
        agent = self.agents[origin.cta, origin.warp]
        lanes = origin.lanes
        if operation.kind == "wgmma":
            group = [self.agents[origin.cta, (origin.warp & ~3) + i] for i in range(4)]
            parts = [a.wgmma_parts.popleft() for a in group]
            views: Sequence[View] = [
                View(a, a.alive, clock) for a, (clock, _) in zip(group, parts, strict=True)
            ]
            values = [v for _, v in parts]
            milestones = tuple(
                (a.first + clocks.WGMMA, v) for a, v in zip(group, values, strict=True)
            )
            records = self.operations.wgmma(operation, agent, milestones, self.kernels.current)
        else:
            views = (View(agent, lanes, agent.clock_of(lanes)),)
            records = self.operations.records(operation, agent, self.kernels.current)
        for record in records:
            access = record.access
            shadow = self.memories.shadow(access)
            if shadow is None:
                continue
            region = self.memories.region(shadow, access)
            if access.space is Space.TENSOR and self.strict:
                self.tensor.follow_allocation(record, views)
            if record.kind is AccessKind.READ:
                self.races.read(shadow, region, record, views)
            else:
                self._guard(access, region, origin)
                self.races.write(shadow, region, record, views)
            if access.space is Space.SHARED:
                self.exits.expose(access.owner, record)

    def on_commit(
        self, origin: Origin, group: str, operations: Sequence[AsyncOperation],
        barriers: Sequence[BarrierKey] = (),
    ) -> None:  # fmt: skip
        """A group was closed."""
        self.operations.commit(self.agents[origin.cta, origin.warp], origin.lanes, group)

    def on_wait_group(self, origin: Origin, group: str, pending: int, read_only: bool) -> None:
        """Groups were waited for."""
        agent = self.agents[origin.cta, origin.warp]
        self.operations.waited(agent, origin.lanes, group, pending, read_only)

    # Synchronisation

    def on_barrier(self, event: BarrierEvent) -> None:
        """An mbarrier operation."""
        origin = event.origin
        agent = self.agents[origin.cta, origin.warp] if origin is not None else None
        kind = event.kind
        if kind == "complete_tx":
            self.barriers.complete_tx(event)
        elif kind == "phase":
            self.barriers.phase(event)
        elif kind in ("arrive", "arrive_drop"):
            self.barriers.arrive(event, agent)
            state = self.barriers.live.get(event.barrier)
            if agent is not None and origin is not None:
                self.exits.signal(event.barrier[0], agent, origin)
            elif event.operation is not None and state is not None:
                end = (state.component, event.phase + 1)
                self.exits.delivered(event.operation, event.barrier, end)
        elif agent is None or origin is None:
            return
        elif kind == "wait":
            self.barriers.wait(event, agent)
        elif kind == "wait_failed":
            self.barriers.wait_failed(event, agent)
        elif kind == "expect_tx":
            self.barriers.expect(event, agent)
        elif kind == "init":
            self._init_barrier(event, agent, origin)
        elif kind == "inval":
            self.barriers.inval(event)
            self.memories.mark_barrier(event.barrier, False)

    def _init_barrier(self, event: BarrierEvent, agent: Agent, origin: Origin) -> None:
        cta = event.barrier[0]
        if self.barriers.init(event, agent, self.domains[cta]):
            self.memories.mark_barrier(event.barrier, False)
            self.on_access(self.memories.barrier_access(event.barrier, origin))
            self.memories.mark_barrier(event.barrier, True)

    def on_rendezvous(self, event: Rendezvous) -> None:
        """A barrier that is not an mbarrier."""
        origin = event.origin
        agent = self.agents[origin.cta, origin.warp]
        if event.barrier == "grid":
            if event.kind == "wait":
                self.kernels.wait()
                agent.learn(origin.lanes, clocks.GRID, 1)
            else:
                self.kernels.let_dependents_in(agent.clock_of(origin.lanes).get(clocks.GRID) > 0)
        elif event.barrier == "warp":
            if event.kind == "arrive":
                agent.synchronise(origin.lanes)
        else:
            self.meetings.pass_through(event, agent, self.domains[origin.cta])

    def on_fence(self, origin: Origin, kind: str) -> None:
        """A fence."""
        agent = self.agents[origin.cta, origin.warp]
        lanes = origin.lanes
        if kind.startswith("proxy."):
            fence_proxy(agent, lanes, kind.removeprefix("proxy."))
        elif kind.startswith("mbarrier_init"):
            cut = agent.cut()
            agent.learn(lanes, agent.first + clocks.INITS, cut)
        elif kind == "tcgen05.before":
            agent.tensor_before(lanes)
        elif kind == "tcgen05.after":
            agent.tensor_promote(lanes)
        elif kind != "wgmma":
            self.flags.fence(agent, lanes, kind)

    # Registers and tensor memory

    def on_undefined_register(self, origin: Origin, register: str) -> None:
        """A register is read that nothing wrote."""
        self.registers.undefined(origin, register)

    def on_register_hazard(self, origin: Origin, kind: str, registers: tuple[str, ...]) -> None:
        """Registers of a wgmma are used against its rules."""
        self.registers.hazard(origin, kind, registers)

    def on_absent_lanes(self, origin: Origin, lanes: int) -> None:
        """Lanes have exited that an .aligned instruction waited for. Public kernels return early
        in some lanes, and hardware lets them."""
        if self.strict and not self.reporter.repeats("ALIGNED-DIVERGENT", origin.line):
            self.reporter.add(
                "ALIGNED-DIVERGENT",
                f"`{self.reporter.brief(origin.line)}` by CTA {origin.cta} warp {origin.warp} is "
                f"executed by lanes {origin.lanes:#010x} alone: lanes {lanes:#010x} of the warp "
                "went past it and exited",
                origin,
            )

    def on_setmaxnreg(self, origin: Origin, kind: str, registers: int) -> None:
        """setmaxnreg took effect."""
        self.registers.setmaxnreg(origin, kind, registers)

    def on_tensor_memory(self, origin: Origin, kind: str, column: int, num_columns: int) -> None:
        """Tensor memory was allocated or freed."""
        agent = self.agents[origin.cta, origin.warp]
        self.exits.tensor_memory(origin, kind, column, num_columns)
        self.tensor.allocated_or_freed(
            origin, agent, kind, column, num_columns, self.kernels.current
        )
