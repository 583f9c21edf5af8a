"""Asynchronous operations in flight, and the groups that threads wait for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ptxgen.emulator.observer import AsyncOperation, Origin

if TYPE_CHECKING:
    from ptxgen.emulator.cta import Cta
    from ptxgen.emulator.machine import Machine
    from ptxgen.emulator.warp import Warp


@dataclass(slots=True, eq=False)
class Pending:
    """One operation in flight, performed in one or two stages."""

    kind: str
    origin: Origin
    warp: "Warp"
    stages: list[Callable[[], None]]
    """What is left to do: of a store first `read`, then `done`; of others only `done`."""
    barriers: list[tuple["Cta", int]] = field(default_factory=list)
    """mbarriers that it signals."""
    operation: AsyncOperation | None = None
    after: "Pending | None" = None
    """An operation that must be done first."""
    warps: "tuple[Warp, ...]" = ()
    """Who may wait for it, where that is not `warp` alone."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return not self.stages

    @property
    def sources_read(self) -> bool:
        """Whether its sources may be overwritten."""
        return len(self.stages) < 2

    def perform(self, machine: "Machine") -> None:
        """Do the next stage."""
        stage = self.stages.pop(0)
        stage()
        machine.epoch += 1
        if self.operation is not None and machine.observer is not None:
            if self.done:
                self.operation.finished = True
            machine.observer.on_finish(self.operation, "done" if self.done else "read")

    def wanted(self) -> bool:
        """Whether somebody waits for it."""
        if any(offset in cta.mbarrier_waiters for cta, offset in self.barriers):
            return True
        return any(
            f.wait is not None and f.wait.kind in GROUP_WAITS
            for w in self.waiters
            for f in w.fragments
        )

    @property
    def waiters(self) -> "tuple[Warp, ...]":
        """Warps whose group waits it may end."""
        return self.warps or (self.warp,)


GROUP_WAITS = ("bulk", "cp_async", "wgmma", "tcgen05")
"""Kinds of waits that end when operations in flight are done."""


@dataclass(slots=True, eq=False)
class _Part:
    """Lanes with the same history."""

    lanes: int
    open: list[Pending] = field(default_factory=list)
    """Not in a group yet."""
    groups: list[list[Pending]] = field(default_factory=list)
    """Oldest first; those that are done are dropped from the old end."""


class ThreadGroups:
    """Groups of asynchronous operations of the threads of one warp (bulk or cp.async).

    Every thread has its own; threads that did the same share one record.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def add(self, lanes: int, operation: Pending) -> None:
        """The lanes of a mask issue an operation."""
        for part in self._within(lanes, True):
            part.open.append(operation)

    def commit(self, lanes: int) -> list[Pending]:
        """Each lane closes a group; all operations in them. An empty group counts."""
        closed: list[Pending] = []
        for part in self._within(lanes, False):
            part.groups.append(part.open)
            closed.extend(part.open)
            part.open = []
        return closed

    def satisfied(self, lanes: int, allowed: int, read_only: bool) -> bool:
        """Whether at most `allowed` most recent groups of every lane are outstanding."""
        for part in self._parts:
            if not part.lanes & lanes:
                continue
            groups = part.groups
            while groups and all(p.done for p in groups[0]):
                groups.pop(0)
            for group in groups[: max(len(groups) - allowed, 0)]:
                for operation in group:
                    if not (operation.sources_read if read_only else operation.done):
                        return False
        return True

    def outstanding(self, lanes: int) -> list[Pending]:
        """Every operation of some lanes that is not done, in a group or not, oldest first."""
        found: dict[Pending, None] = {}
        for part in self._parts:
            if part.lanes & lanes:
                for group in (*part.groups, part.open):
                    found.update((p, None) for p in group if not p.done)
        return list(found)

    def _within(self, lanes: int, create: bool) -> list[_Part]:
        """Records that cover exactly the lanes, those without history only if asked for."""
        found = []
        rest = lanes
        for part in list(self._parts):
            common = part.lanes & lanes
            if not common:
                continue
            rest &= ~common
            if common != part.lanes:
                part.lanes &= ~common
                part = _Part(common, list(part.open), [list(g) for g in part.groups])
                self._parts.append(part)
            found.append(part)
        if rest and create:
            part = _Part(rest)
            self._parts.append(part)
            found.append(part)
        return found
