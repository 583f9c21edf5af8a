"""Tensor memory: who allocated which columns, and what must be over before they are freed."""

from ptxgen.emulator import clocks
from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.checker_memories import Memories
from ptxgen.emulator.checker_order import View, Views
from ptxgen.emulator.checker_races import Races
from ptxgen.emulator.checker_report import Reporter
from ptxgen.emulator.observer import AccessKind, Origin, Proxy
from ptxgen.emulator.shadow import TENSOR_COLUMNS, Record
from ptxgen.emulator.tcgen_frontier import check_frontier

BLOCK_COLUMNS = 32
"""The smallest allocation; every allocation starts at a multiple."""


class TensorAllocations:
    """Live allocations of all CTAs."""

    def __init__(self, reporter: Reporter, memories: Memories, races: Races) -> None:
        self.reporter = reporter
        self.memories = memories
        self.races = races
        self._holders: dict[int, dict[int, Record]] = {}
        """CTA -> block of columns -> the tcgen05.alloc that holds it."""
        self._handed_over: set[tuple[Record, Agent]] = set()
        """Allocations and the warps that are known to use them in order."""

    def allocated_or_freed(
        self, origin: Origin, agent: Agent, kind: str, column: int, num_columns: int, kernel: int
    ) -> None:
        """tcgen05.alloc or dealloc (`kind`); freeing counts as a write to all cells."""
        if kind not in ("alloc", "dealloc"):
            return
        access = self.memories.columns(origin, column, num_columns)
        shadow = self.memories.shadow(access)
        assert shadow is not None
        region = self.memories.region(shadow, access)
        record = Record(
            AccessKind.WRITE, Proxy.TCGEN05, f"tcgen05_{kind}", agent, origin, access,
            ((agent.first + clocks.ACCESSES, agent.mark()),), kernel=kernel,
        )  # fmt: skip
        holders = self._holders.setdefault(origin.cta, {})
        blocks = range(column // BLOCK_COLUMNS, (column + num_columns) // BLOCK_COLUMNS)
        if kind == "dealloc":
            view = View(agent, origin.lanes, agent.clock_of(origin.lanes))
            self.races.free(shadow, region, record, (view,))
            for block in blocks:
                holders.pop(block, None)
            return
        region.put(shadow.writers, 0)
        region.put(shadow.readers, 0)
        for block in blocks:
            holders[block] = record

    def follow_allocation(self, record: Record, views: Views) -> None:
        """The warp that allocated columns must have handed them over with tcgen05 fences."""
        access = record.access
        column = int(access.addresses[0]) // 4 % TENSOR_COLUMNS
        found = self._holders.get(access.owner, {}).get(column // BLOCK_COLUMNS)
        if found is not None and (found, record.agent) not in self._handed_over:
            self._handed_over.add((found, record.agent))
            check_frontier(self.reporter, found, record, views)

    def drop(self, ctas: set[int]) -> None:
        """CTAs are gone."""
        for cta in ctas:
            self._holders.pop(cta, None)
        self._handed_over.clear()
