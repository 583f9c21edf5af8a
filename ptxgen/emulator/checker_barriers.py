"""mbarriers as the checker sees them: what their phases publish, their bytes, and who waits.

The clock of a phase is the join of what its arrivals released; the phase itself is a milestone of
the component that every mbarrier has. Source: PTX ISA 9.0, "mbarrier".
"""

from dataclasses import dataclass, field

from ptxgen.emulator import clocks
from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.checker_report import Reporter, warps_text
from ptxgen.emulator.clocks import Clock, Domain
from ptxgen.emulator.observer import AsyncOperation, BarrierEvent, BarrierKey, Origin


@dataclass(slots=True)
class Waiter:
    """One warp that waits on an mbarrier now and then."""

    last: int
    """Phase of its last successful wait."""
    epoch: int
    """Epoch of its warp in which that wait passed."""
    line: int
    skipped: int = -2
    """A phase that it had not waited for when the phase after it completed."""


@dataclass(slots=True, eq=False)
class BarrierState:
    """One live mbarrier."""

    key: BarrierKey
    component: int
    clock: Clock
    """What arrivals have released so far, those of earlier phases included."""
    owner: Agent
    """Warp that executed init."""
    epoch: int
    """Epoch of that warp in which it did."""
    line: int
    """PTX line of the init."""
    frozen: Clock | None = None
    """`clock` when the last phase completed."""
    phase: int = 0
    """Completed phases."""
    expected: int = 0
    """Arrivals of a phase."""
    pending: int = 0
    """Arrivals that the current phase still needs."""
    arrival_line: int = 0
    """Line of the last arrival."""
    tx: int = 0
    tx_line: int = 0
    """Line of the last expect_tx."""
    checked: set[Agent] = field(default_factory=set)
    """Warps that are known to come after the init."""
    signalled: set[Agent] = field(default_factory=set)
    """Warps whose copies are known to find it initialised."""
    waiters: dict[Agent, Waiter] = field(default_factory=dict)
    issued: dict[AsyncOperation, tuple[int, Clock]] = field(default_factory=dict)
    """Of each copy that still owes it bytes: phase at its issue, and what its thread knew."""
    caused: Clock | None = None
    """What threads knew whose copies have delivered: it came before, but is not published."""
    last_release: tuple[Agent, int, int, int] | None = None
    """(warp, its version, line, phase) of the last release that was joined."""


class Barriers:
    """All live mbarriers."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.live: dict[BarrierKey, BarrierState] = {}
        self.deliveries: dict[AsyncOperation, tuple[int, int, Clock]] = {}
        """Of a commit or cp.async.mbarrier.arrive: the milestone that its arrival says, and what
        its thread knew."""

    def init(self, event: BarrierEvent, agent: Agent, domain: Domain) -> bool:
        """mbarrier.init; False if it repeats one."""
        origin = event.origin
        assert origin is not None
        old = self.live.get(event.barrier)
        if old is not None and old.owner is agent and old.line == origin.line and not old.phase:
            return False
        component = domain.add()
        self.live[event.barrier] = BarrierState(
            event.barrier, component, Clock(domain), agent, agent.mark(), origin.line,
            expected=event.count, pending=event.count,
        )  # fmt: skip
        return True

    def inval(self, event: BarrierEvent) -> None:
        """mbarrier.inval."""
        state = self.live.pop(event.barrier, None)
        if state is not None:
            self.check_end(state)

    def check_end(self, state: BarrierState) -> None:
        """A barrier's life ends: no bytes may be outstanding, no phase be half arrived at."""
        if state.tx:
            self._check_bytes(state)
        elif state.pending != state.expected and self.reporter.strict:
            self._check_arrivals(state)

    def _check_arrivals(self, state: BarrierState) -> None:
        if self.reporter.repeats("OVER-ARRIVAL", state.arrival_line, state.line):
            return
        owner = state.owner
        self.reporter.add(
            "OVER-ARRIVAL",
            f"mbarrier {self.reporter.barrier_name(state.key)} ends in the middle of phase "
            f"{state.phase}: {state.expected - state.pending} of {state.expected} arrivals were "
            "made, so that its count is not what arrives in a phase",
            Origin(state.key[0], owner.warp, 0, state.arrival_line),
            other=Origin(owner.cta, owner.warp, 0, state.line), barrier=state.key,
        )  # fmt: skip

    def _check_bytes(self, state: BarrierState) -> None:
        if self.reporter.repeats("TX-MISSING", state.tx_line):
            return
        what = (
            f"{state.tx} B were announced more than copies delivered"
            if state.tx > 0
            else f"copies delivered {-state.tx} B more than were announced"
        )
        self.reporter.add(
            "TX-MISSING",
            f"mbarrier {self.reporter.barrier_name(state.key)} ends in phase {state.phase} with "
            f"{state.tx} transaction bytes outstanding: {what}",
            Origin(state.key[0], state.owner.warp, 0, state.tx_line), barrier=state.key,
        )  # fmt: skip

    def arrive(self, event: BarrierEvent, agent: Agent | None) -> None:
        """An arrival."""
        state = self.live.get(event.barrier)
        if state is None:
            return
        state.tx = event.tx
        state.pending = event.pending
        operation = event.operation
        source = operation.origin if operation is not None else event.origin
        if source is not None:
            state.arrival_line = source.line
        if operation is not None and operation in self.deliveries:
            component, value, published = self.deliveries[operation]
            state.clock.join(published)
            state.clock.set(component, value)
            state.clock.set(component, value, clocks.TENSOR)
            return
        origin = event.origin
        if agent is None or origin is None:
            return
        self.use(state, agent, origin)
        if event.semantics == "relaxed":
            return
        agent.mark()
        key = (agent, agent.version, origin.line, state.phase)
        if state.last_release == key:
            return
        agent.release(origin.lanes, state.clock)
        agent.mark()
        state.last_release = (agent, agent.version, origin.line, state.phase)

    def expect(self, event: BarrierEvent, agent: Agent) -> None:
        """expect_tx."""
        state = self.live.get(event.barrier)
        if state is not None and event.origin is not None:
            state.tx = event.tx
            state.tx_line = event.origin.line
            self.use(state, agent, event.origin)

    def complete_tx(self, event: BarrierEvent) -> None:
        """Bytes arrive."""
        state = self.live.get(event.barrier)
        if state is None:
            return
        state.tx = event.tx
        operation = event.operation
        found = state.issued.pop(operation, None) if operation is not None else None
        if operation is None or found is None:
            return
        issued, known = found
        if state.caused is None:
            state.caused = known
        else:
            state.caused.join(known)
        if issued == event.phase:
            return
        line = operation.origin.line
        if self.reporter.repeats("TX-LATE", line):
            return
        self.reporter.add(
            "TX-LATE",
            f"the {event.count} B of `{self.reporter.brief(line)}` by "
            f"{warps_text(operation.origin)} count in phase {event.phase} of mbarrier "
            f"{self.reporter.barrier_name(event.barrier)}, but it was issued for phase {issued}, "
            "which completed without them",
            operation.origin, barrier=event.barrier,
        )  # fmt: skip

    def phase(self, event: BarrierEvent) -> None:
        """A phase has completed."""
        state = self.live.get(event.barrier)
        if state is None:
            return
        done = event.phase
        state.phase = done + 1
        state.tx = event.tx
        state.expected = state.pending = event.pending
        state.clock.set(state.component, state.phase)
        for agent, waiter in state.waiters.items():
            if waiter.last < done - 1:
                waiter.skipped = max(waiter.skipped, done - 1)
            elif waiter.last == done - 1 and not any(
                c.knows(agent.domain, agent.first + clocks.ACCESSES, waiter.epoch)
                for c in (state.clock, state.caused)
                if c is not None
            ):
                self._lapped(state, agent, waiter, done - 1, waiter.line, seen=False)
        state.frozen = state.clock.copy()

    def wait(self, event: BarrierEvent, agent: Agent) -> None:
        """A wait passed."""
        state = self.live.get(event.barrier)
        origin = event.origin
        if state is None or origin is None:
            return
        self.use(state, agent, origin)
        found = event.phase
        if found >= 0 and state.frozen is not None and event.semantics != "relaxed":
            agent.acquire(origin.lanes, state.frozen)
        waiter = state.waiters.get(agent)
        epoch = agent.mark()
        if waiter is None:
            state.waiters[agent] = Waiter(found, epoch, origin.line)
            return
        if (found ^ waiter.last) & 1:
            wanted = waiter.last + 1
            if found > wanted:
                self._lapped(state, agent, waiter, wanted, origin.line, seen=True)
            elif waiter.skipped >= wanted:
                self._lapped(state, agent, waiter, wanted, origin.line, seen=False)
        if found != waiter.last:
            waiter.epoch = epoch
        waiter.last, waiter.line = found, origin.line

    def wait_failed(self, event: BarrierEvent, agent: Agent) -> None:
        """A wait did not pass."""
        state = self.live.get(event.barrier)
        if state is None or event.origin is None:
            return
        self.use(state, agent, event.origin)
        waiter = state.waiters.get(agent)
        if waiter is None:
            return
        wanted = waiter.last + 1
        if not (wanted ^ event.phase) & 1 and event.phase - wanted >= 2:
            self._lapped(state, agent, waiter, wanted, event.origin.line, seen=True)

    def _lapped(
        self, state: BarrierState, agent: Agent, waiter: Waiter, phase: int, line: int, seen: bool
    ) -> None:
        if self.reporter.repeats("PARITY-LAPPED", line):
            return
        name = self.reporter.barrier_name(state.key)
        if seen:
            text = (
                f"{agent.name} waits for phase {phase} of mbarrier {name}, which has completed "
                f"phase {state.phase - 1} already: the parity it asks for means another phase now"
            )
        else:
            text = (
                f"mbarrier {name} completed phase {phase + 1} though nothing says that "
                f"{agent.name} has seen phase {phase}: if the warp is late, the parity it waits "
                "for belongs to a later phase, and it hangs"
            )
        self.reporter.add(
            "PARITY-LAPPED", text, Origin(agent.cta, agent.warp, 0, line), barrier=state.key,
            severity="error" if seen else "",
        )  # fmt: skip

    def use(self, state: BarrierState, agent: Agent, origin: Origin) -> None:
        """A warp operates on a barrier: it must come after the init."""
        if agent in state.checked:
            return
        order = _init_order(state, agent, origin.lanes)
        remote = agent.cta != state.key[0]
        if order == "known" and (not remote or _init_published(state, agent, origin.lanes)):
            state.checked.add(agent)
            return
        self._init_missing(state, origin, order)

    def signal(self, state: BarrierState, agent: Agent, operation: AsyncOperation) -> None:
        """A copy will count bytes on a barrier."""
        known = Clock(agent.domain)
        agent.release(operation.origin.lanes, known)
        state.issued[operation] = (state.phase, known)
        if agent in state.signalled:
            return
        lanes = operation.origin.lanes
        order = _init_order(state, agent, lanes)
        if order == "known" and _init_published(state, agent, lanes):
            state.signalled.add(agent)
            return
        self._init_missing(state, operation.origin, order)

    def _init_missing(self, state: BarrierState, origin: Origin, order: str) -> None:
        code = "BARRIER-UNINIT" if order == "unordered" else "INIT-FENCE-MISSING"
        if self.reporter.repeats(code, origin.line, state.line):
            return
        name = self.reporter.barrier_name(state.key)
        why = {
            "unordered": f"nothing orders its init by {state.owner.name} before that",
            "relaxed": "only a relaxed barrier.cluster.arrive lies between, which publishes an "
            "init only after fence.mbarrier_init",
            "known": f"its init by {state.owner.name} was not followed by fence.mbarrier_init",
        }[order]
        # Copies signal through the generic proxy: within one CTA, a barrier is enough.
        lenient = order == "known" and origin.cta == state.key[0] and not self.reporter.strict
        self.reporter.add(
            code,
            f"`{self.reporter.brief(origin.line)}` by {warps_text(origin)} uses mbarrier {name}, "
            f"and {why}",
            origin, other=Origin(state.owner.cta, state.owner.warp, 0, state.line),
            barrier=state.key, severity="advice" if lenient else "",
        )  # fmt: skip


def _init_order(state: BarrierState, agent: Agent, lanes: int) -> str:
    """How the init is ordered before what a warp does now: known, relaxed or unordered."""
    owner = state.owner
    if owner is agent:
        return "known"
    clock = agent.clock_of(lanes)
    first = owner.first
    if clock.knows(owner.domain, first + clocks.ACCESSES, state.epoch) or clock.knows(
        owner.domain, first + clocks.INITS, state.epoch
    ):
        return "known"
    if clock.knows(owner.domain, first + clocks.ACCESSES, state.epoch, clocks.RELAXED):
        return "relaxed"
    return "unordered"


def _init_published(state: BarrierState, agent: Agent, lanes: int) -> bool:
    """Whether the initialising warp has executed a fence that covers remote and async uses."""
    owner = state.owner
    clock = agent.clock_of(lanes)
    if any(
        clock.knows(owner.domain, owner.first + c, state.epoch)
        for c in (clocks.INITS, clocks.PROXY_CTA)
    ):
        return True
    return any(
        component and clock.knows(owner.domain, component, state.epoch)
        for component in (owner.lane_component(n, clocks.PROXY_CTA) for n in range(32))
    )
