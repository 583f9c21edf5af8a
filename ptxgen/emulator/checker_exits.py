"""Exits: what must be over before a CTA is gone, since its memories go with it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ptxgen.emulator import clocks
from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.checker_classification import LOADS, STORES
from ptxgen.emulator.checker_report import Reporter, warps_text
from ptxgen.emulator.observer import AsyncOperation, BarrierKey, Origin
from ptxgen.emulator.shadow import Record

NEVER = 1 << 30
"""A milestone that does not come: nothing tells the end of the operation."""
SIGNAL = "signal"
"""What an arrival of a thread is, beside the kinds of asynchronous operations and "", which is an
ordinary access."""


@dataclass(slots=True)
class Exposure:
    """The last use of a CTA's shared memory of one kind, by one warp."""

    agent: Agent
    milestones: tuple[tuple[int, int], ...]
    what: str
    origin: Origin
    alternative: tuple[int, int] | None = None


class Exits:
    """Uses of shared memory that a CTA must outlive, and tensor memory that it must give back."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self._exposed: dict[int, dict[tuple[Agent, int, int], Exposure]] = {}
        self._commits: dict[int, dict[tuple[AsyncOperation, BarrierKey], Exposure]] = {}
        """Of each CTA, arrivals of tcgen05.commits that are still to come."""
        self._gone: set[int] = set()
        self._allocated: dict[int, dict[int, tuple[int, Origin]]] = {}

    def expose(self, cta: int, record: Record) -> None:
        """A CTA's shared memory is used from outside, or asynchronously."""
        key = (record.agent, record.milestones[0][0], record.origin.line)
        found = Exposure(
            record.agent, record.milestones, record.what, record.origin, record.alternative
        )
        self._add(cta, key, found)

    def signal(self, cta: int, agent: Agent, origin: Origin) -> None:
        """A warp arrived on an mbarrier of a CTA."""
        if cta == agent.cta:
            return
        component = agent.first + clocks.ACCESSES
        found = Exposure(agent, ((component, agent.epoch - 1),), SIGNAL, origin)
        self._add(cta, (agent, component, origin.line), found)

    def commit(self, operation: AsyncOperation, agent: Agent, milestone: tuple[int, int]) -> None:
        """A tcgen05.commit, which is `milestone` of its thread, will arrive on mbarriers. A later
        commit says that the tensor core has come so far, which public kernels take for enough;
        only a wait for its phase says that the arrival is there."""
        origin = operation.origin
        never = (milestone[0], NEVER)
        for barrier in operation.barriers:
            cta = barrier[0]
            other = None if self.reporter.strict else milestone
            found = Exposure(agent, (never,), "tcgen05_commit", origin, other)
            if cta in self._gone:
                self._report(cta, found, "has exited")
            elif cta != agent.cta:
                self._commits.setdefault(cta, {})[operation, barrier] = found

    def delivered(
        self, operation: AsyncOperation, barrier: BarrierKey, milestone: tuple[int, int]
    ) -> None:
        """An arrival of a commit has come, in a phase that `milestone` ends."""
        cta = barrier[0]
        found = self._commits.get(cta, {}).pop((operation, barrier), None)
        if found is not None:
            found.milestones = (milestone,)
            self._add(cta, (found.agent, milestone[0], found.origin.line), found)

    def _add(self, cta: int, key: tuple[Agent, int, int], exposure: Exposure) -> None:
        if cta in self._gone:
            self._report(cta, exposure, "has exited")
            return
        self._exposed.setdefault(cta, {})[key] = exposure

    def cta_exited(self, cta: int, agents: Sequence[Agent]) -> None:
        """All threads of a CTA are gone."""
        self._gone.add(cta)
        commits = self._commits.pop(cta, {}).values()
        for exposure in (*self._exposed.pop(cta, {}).values(), *commits):
            other = exposure.alternative
            if not all(_known(agents, exposure, m) for m in exposure.milestones) and not (
                other is not None and _known(agents, exposure, other)
            ):
                self._report(cta, exposure, "may exit")
        for column, (count, origin) in self._allocated.pop(cta, {}).items():
            if self.reporter.repeats("TMEM-LEAK", origin.line):
                continue
            self.reporter.add(
                "TMEM-LEAK",
                f"CTA {cta} exits with {count} columns of tensor memory from {column} allocated",
                origin,
            )

    def _report(self, cta: int, exposure: Exposure, how: str) -> None:
        origin = exposure.origin
        remote = exposure.agent.cta != cta
        code = "CLUSTER-EXIT"
        if not remote:
            if exposure.agent.warp >= 0 and exposure.what in STORES:
                code = "BULK-SOURCE-REUSED"
            elif exposure.what in LOADS:
                code = "WAIT-MISSING"
            else:
                return  # a tensor core of the CTA itself, whose results are used or not
        if self.reporter.repeats(code, origin.line):
            return
        act = self.reporter.brief(origin.line)
        signals = exposure.what in (SIGNAL, "tcgen05_commit")
        use = "signals an mbarrier of it" if signals else "touches its shared memory"
        severity = "error" if remote and not exposure.what else ""
        lenient = code == "BULK-SOURCE-REUSED" and not self.reporter.strict and _committed(exposure)
        self.reporter.add(
            code,
            f"CTA {cta} {how} while `{act}` by {warps_text(origin)} {use}: nothing that its "
            "threads have waited for says that this is over",
            origin, severity="advice" if lenient else severity,
        )  # fmt: skip

    def tensor_memory(self, origin: Origin, kind: str, column: int, num_columns: int) -> None:
        """Tensor memory was allocated or freed."""
        mine = self._allocated.setdefault(origin.cta, {})
        if kind == "alloc":
            mine[column] = (num_columns, origin)
        elif kind == "dealloc":
            mine.pop(column, None)
            self.reporter.freed.append((origin.cta, column, column + num_columns))

    def drop(self, ctas: set[int]) -> None:
        """CTAs whose cluster is gone."""
        self._gone -= ctas
        for cta in ctas:
            self._exposed.pop(cta, None)
            self._commits.pop(cta, None)
            self._allocated.pop(cta, None)


def _committed(exposure: Exposure) -> bool:
    """Whether a bulk store is in a group, so that its thread could have waited."""
    component, value = exposure.milestones[0]
    return any(
        s.component == component and s.committed >= value for s in exposure.agent.bulk.values()
    )


def _known(agents: Sequence[Agent], exposure: Exposure, milestone: tuple[int, int]) -> bool:
    """Whether some warp knows a milestone."""
    domain = exposure.agent.domain
    component, value = milestone
    return (
        any(
            c.knows(domain, component, value)
            for a in agents
            for c in (a.clock, *a.lane_clocks.values())
        )
        or exposure.agent.apart.get((component, clocks.KNOWN), 0) >= value
    )
