"""Flags: memory words through which warps synchronise by strong loads, stores and atomics.

Every word that is written strongly carries the clocks that the write published: that of the writer
for a release, or of its last fences for a relaxed write. Strict checking looks at scopes: two
threads synchronise only if the scope of each operation and fence involved holds both. Tolerant
checking takes relaxed and volatile accesses for releases and acquires, and scopes for wide enough.
Source: PTX ISA 9.0, "Memory Consistency Model", "Scope" and "Morally strong operations".
"""

from ptxgen.emulator.checker_agents import Agent, Published
from ptxgen.emulator.clocks import Clock
from ptxgen.emulator.observer import Access, AccessKind, Space

Word = tuple[Space, int, int]
"""Space, owner, address."""

SCOPES = ("cta", "cluster", "gpu", "sys")
"""From narrow to wide; their indices are compared."""


def scope_index(names: str) -> int:
    """Index of the scope that a fence or access names; the widest where it names none."""
    found = [SCOPES.index(n) for n in names.split(".") if n in SCOPES]
    return found[-1] if found else len(SCOPES) - 1


def holds(scope: int, agent: Agent, other: Agent) -> bool:
    """Whether a scope of one agent holds another one."""
    if scope >= SCOPES.index("gpu"):
        return True
    if agent.cta == other.cta:
        return True
    return agent.domain is other.domain and scope >= SCOPES.index("cluster")


class Flags:
    """Clocks of words."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self._clocks: dict[Word, Published] = {}
        self.read: dict[int, Access] = {}
        """Address of each word of global memory that was read strongly -> the last such access."""

    def forget(self) -> None:
        """Everything before is ordered."""
        self._clocks.clear()

    def _words(self, access: Access) -> list[Word]:
        first = dict.fromkeys(access.addresses.tolist())
        return [(access.space, access.owner, a) for a in first]

    def _scope(self, names: str) -> int:
        return scope_index(names if self.strict else "")

    def before(self, access: Access, agent: Agent) -> None:
        """What a strong access reads is learned, before it counts as an access."""
        if access.kind is AccessKind.WRITE:
            return
        acquires = access.semantics in ("acquire", "acq_rel") or not self.strict
        lanes = access.origin.lanes
        own = self._scope(access.scope)
        for word in self._words(access):
            if access.space is Space.GLOBAL:
                self.read[word[2]] = access
            for (writer, scope), clock in self._clocks.get(word, {}).items():
                both = min(scope, own)
                if not holds(both, agent, writer):
                    continue
                if acquires:
                    agent.acquire(lanes, clock)
                _add(agent.relaxed_reads, (writer, both), clock)

    def after(self, access: Access, agent: Agent) -> None:
        """What a strong access writes publishes what came before it."""
        if access.kind is AccessKind.READ:
            return
        releases = access.semantics in ("release", "acq_rel") or not self.strict
        own = self._scope(access.scope)
        published: Published = {}
        if releases:
            clock = Clock(agent.domain)
            agent.release(access.origin.lanes, clock)
            published[agent, own] = clock
        for scope, fenced in agent.fence_clocks.items():
            _add(published, (agent, min(scope, own)), fenced)
        for word in self._words(access):
            if access.kind is not AccessKind.ATOMIC:
                self._clocks.pop(word, None)
            if published:
                found = self._clocks.setdefault(word, {})
                for key, clock in published.items():
                    _add(found, key, clock)

    def fence(self, agent: Agent, lanes: int, kind: str) -> None:
        """fence.acq_rel, fence.sc and their kin, e.g. acq_rel.gpu."""
        own = self._scope(kind)
        for (writer, scope), clock in agent.relaxed_reads.items():
            if holds(min(scope, own), agent, writer):
                agent.acquire(lanes, clock)
        published = Clock(agent.domain)
        agent.release(lanes, published)
        agent.fence_clock = published
        agent.fence_clocks[own] = published


def _add(target: Published, key: tuple[Agent, int], clock: Clock) -> None:
    """Add what a clock knows to one of several."""
    found = target.get(key)
    if found is None:
        target[key] = clock.copy()
    else:
        found.join(clock)
