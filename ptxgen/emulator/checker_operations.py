"""Operations: which milestone ends each part of an asynchronous operation.

A copy that signals an mbarrier ends with its phase; a bulk store's reads and writes with its bulk
group; operand reads of a wgmma with a group of each of its four warps; tcgen05 work with a commit.
Source: PTX ISA 9.0, "Async Operations" and the completion mechanisms of each instruction.
"""

from ptxgen.emulator import clocks
from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.checker_barriers import Barriers
from ptxgen.emulator.checker_exits import NEVER, Exits
from ptxgen.emulator.clocks import Clock
from ptxgen.emulator.lanes import lane_list, lowest
from ptxgen.emulator.observer import Access, AccessKind, AsyncOperation
from ptxgen.emulator.shadow import Record

Milestones = tuple[tuple[int, int], ...]


class Operations:
    """Turns operations into records."""

    def __init__(self, barriers: Barriers, exits: Exits) -> None:
        self._barriers = barriers
        self._exits = exits

    def drop(self, ctas: set[int]) -> None:
        """Clusters of these CTAs are gone; what those of others have in flight still arrives."""
        deliveries = self._barriers.deliveries
        for operation in [o for o in deliveries if o.origin.cta in ctas]:
            del deliveries[operation]

    def wgmma(
        self, operation: AsyncOperation, agent: Agent, milestones: Milestones, kernel: int
    ) -> list[Record]:
        """Reads of a wgmma by all four warps."""
        return [
            _record(operation, a, agent, milestones, kernel)
            for a in (*operation.reads, *operation.writes)
        ]

    def records(self, operation: AsyncOperation, agent: Agent, kernel: int) -> list[Record]:
        """Accesses of any other operation, reads first."""
        kind = operation.kind
        lane = lowest(operation.origin.lanes)
        if operation.barriers and kind not in ("tcgen05_commit", "cp_async_arrive"):
            return self._signalling(operation, agent, kernel)
        if kind == "cp_async":
            return self._copies(operation, agent, kernel)
        if kind == "cp_async_arrive":
            milestone = (agent.first + clocks.COPY_ARRIVALS, agent.num_copies)
            self._deliver(operation, agent, milestone)
            return []
        if kind == "tcgen05_commit":
            stream = agent.tensor_stream(lane)
            milestone = (stream.component, stream.committed)
            self._deliver(operation, agent, milestone)
            self._exits.commit(operation, agent, milestone)
            return []
        reads = writes = (agent.first + clocks.LOADS, NEVER)
        if operation.group == "bulk":
            stream = agent.bulk_stream(lane)
            stream.is_open = True
            reads = (stream.component, stream.committed + 1)
            writes = (stream.full_component, stream.committed + 1)
        elif operation.group == "tcgen05":
            stream = agent.tensor_stream(lane)
            reads = writes = (stream.component, stream.committed + 1)
        elif operation.group == "tcgen05_ld":
            reads = writes = (agent.first + clocks.LOADS, agent.loads + 1)
        elif operation.group == "tcgen05_st":
            reads = writes = (agent.first + clocks.STORES, agent.stores + 1)
        return [
            *(_record(operation, a, agent, (reads,), kernel) for a in operation.reads),
            *(_record(operation, a, agent, (writes,), kernel) for a in operation.writes),
        ]

    def _deliver(self, operation: AsyncOperation, agent: Agent, milestone: tuple[int, int]) -> None:
        """An arrival will say a milestone, and what its thread had seen before it asked for it:
        that a stage was full, for one, which is why the stage may be filled again."""
        published = Clock(agent.domain)
        agent.mark()
        agent.release(operation.origin.lanes, published)
        self._barriers.deliveries[operation] = (*milestone, published)

    def _signalling(self, operation: AsyncOperation, agent: Agent, kernel: int) -> list[Record]:
        """A copy whose bytes mbarriers count."""
        milestones = []
        for key in operation.barriers:
            state = self._barriers.live.get(key)
            if state is None:
                milestones.append((agent.first + clocks.LOADS, NEVER))
                continue
            self._barriers.signal(state, agent, operation)
            milestones.append((state.component, state.phase + 1))
        found = [
            _record(operation, a, agent, (milestones[0],), kernel) for a in operation.reads
        ]  # fmt: skip
        for index, access in enumerate(operation.writes):
            milestone = milestones[index if len(milestones) == len(operation.writes) else 0]
            found.append(_record(operation, access, agent, (milestone,), kernel))
        return found

    def _copies(self, operation: AsyncOperation, agent: Agent, kernel: int) -> list[Record]:
        """cp.async of the lanes of a warp."""
        agent.num_copies += 1
        stream = agent.copies
        milestone = (stream.component, stream.committed + 1)
        signalled = (agent.first + clocks.COPY_ARRIVALS, agent.num_copies)
        return [
            _record(operation, a, agent, (milestone,), kernel, signalled)
            for a in (*operation.reads, *operation.writes)
        ]

    def commit(self, agent: Agent, lanes: int, group: str) -> None:
        """A group is closed."""
        if group == "bulk":
            for lane in lane_list(lanes):
                if lane in agent.bulk:
                    agent.bulk[lane].committed += 1
                    agent.bulk[lane].is_open = False
        elif group == "tcgen05":
            for lane in lane_list(lanes):
                agent.tensor_stream(lane).committed += 1
        elif group == "wgmma":
            agent.wgmma_committed += 1
        elif group == "cp_async" and lanes:
            agent.copies.committed += 1

    def waited(self, agent: Agent, lanes: int, group: str, pending: int, read_only: bool) -> None:
        """At most `pending` most recent groups are outstanding."""
        if group == "bulk":
            for lane in lane_list(lanes):
                stream = agent.bulk.get(lane)
                if stream is not None:
                    value = stream.committed - pending
                    agent.learn(1 << lane, stream.component, value)
                    if not read_only:
                        agent.learn(1 << lane, stream.full_component, value)
        elif group == "wgmma":
            agent.learn(lanes, agent.first + clocks.WGMMA, agent.wgmma_committed - pending)
        elif group == "cp_async":
            done = agent.copies.committed - pending
            agent.learn_apart(lanes, agent.copies.component, done, clocks.KNOWN)
        elif group == "tcgen05_ld":
            agent.loads += 1
            agent.learn(lanes, agent.first + clocks.LOADS, agent.loads)
        elif group == "tcgen05_st":
            agent.stores += 1
            agent.learn(lanes, agent.first + clocks.STORES, agent.stores)


def _record(
    operation: AsyncOperation, access: Access, agent: Agent, milestones: Milestones, kernel: int,
    alternative: tuple[int, int] | None = None,
) -> Record:  # fmt: skip
    return Record(
        access.kind, access.proxy, operation.kind, agent, operation.origin, access, milestones,
        alternative, access.kind is AccessKind.ATOMIC, operation, kernel,
    )  # fmt: skip
