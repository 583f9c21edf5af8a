"""Flags: memory words through which warps synchronise by strong loads, stores and atomics.

Every word that is written strongly carries the clock that the write published: that of the writer
for a release, or of its last fence for a relaxed write. Tolerant checking takes relaxed and
volatile accesses for releases and acquires. Source: PTX ISA 9.0, "Memory Consistency Model".
"""

from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.clocks import Clock
from ptxgen.emulator.observer import Access, AccessKind, Space

Word = tuple[Space, int, int]
"""Space, owner, address."""


class Flags:
    """Clocks of words."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self._clocks: dict[Word, Clock] = {}

    def forget(self) -> None:
        """Everything before is ordered."""
        self._clocks.clear()

    def _words(self, access: Access) -> list[Word]:
        first = dict.fromkeys(access.addresses.tolist())
        return [(access.space, access.owner, a) for a in first]

    def before(self, access: Access, agent: Agent) -> None:
        """What a strong access reads is learned, before it counts as an access."""
        if access.kind is AccessKind.WRITE:
            return
        acquires = access.semantics in ("acquire", "acq_rel") or not self.strict
        lanes = access.origin.lanes
        for word in self._words(access):
            found = self._clocks.get(word)
            if found is None:
                continue
            if acquires:
                agent.acquire(lanes, found)
            if agent.relaxed_reads is None:
                agent.relaxed_reads = Clock(agent.domain)
            agent.relaxed_reads.join(found)

    def after(self, access: Access, agent: Agent) -> None:
        """What a strong access writes publishes what came before it."""
        if access.kind is AccessKind.READ:
            return
        releases = access.semantics in ("release", "acq_rel") or not self.strict
        published = agent.fence_clock
        if releases:
            published = Clock(agent.domain)
            agent.release(access.origin.lanes, published)
        for word in self._words(access):
            old = self._clocks.get(word)
            if access.kind is AccessKind.ATOMIC and old is not None:
                if published is not None:
                    old.join(published)
            elif published is not None:
                self._clocks[word] = published.copy()
            else:
                self._clocks.pop(word, None)

    def fence(self, agent: Agent, lanes: int) -> None:
        """fence.acq_rel, fence.sc and their kin."""
        if agent.relaxed_reads is not None:
            agent.acquire(lanes, agent.relaxed_reads)
        published = Clock(agent.domain)
        agent.release(lanes, published)
        agent.fence_clock = published
