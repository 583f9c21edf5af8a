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


class ThreadGroups:
    """Groups of asynchronous operations of the threads of one warp (bulk or cp.async)."""

    def __init__(self) -> None:
        self._open: dict[int, list[Pending]] = {}
        self._groups: dict[int, list[list[Pending]]] = {}

    def add(self, lane: int, operation: Pending) -> None:
        """Lane issues an operation."""
        self._open.setdefault(lane, []).append(operation)

    def commit(self, lanes: tuple[int, ...]) -> list[Pending]:
        """Each lane closes a group; all operations in them. An empty group counts."""
        closed: list[Pending] = []
        for lane in lanes:
            group = self._open.pop(lane, None)
            if group is None:
                if lane in self._groups:
                    self._groups[lane].append([])
            else:
                self._groups.setdefault(lane, []).append(group)
                closed.extend(group)
        return closed

    def open_operations(self, lanes: tuple[int, ...]) -> list[Pending]:
        """Operations of some lanes that are not in a group yet."""
        return [p for lane in lanes for p in self._open.get(lane, ())]

    def satisfied(self, lanes: tuple[int, ...], allowed: int, read_only: bool) -> bool:
        """Whether at most `allowed` most recent groups of every lane are outstanding."""
        for lane in lanes:
            groups = self._groups.get(lane)
            if groups is None:
                continue
            for group in groups[: len(groups) - allowed] if allowed else groups:
                for operation in group:
                    if not (operation.sources_read if read_only else operation.done):
                        return False
        return True

    def all_operations(self, lanes: tuple[int, ...]) -> list[Pending]:
        """Every operation of some lanes that is not done, in a group or not."""
        found = self.open_operations(lanes)
        for lane in lanes:
            for group in self._groups.get(lane, ()):
                found.extend(p for p in group if not p.done)
        return found

    def prune(self) -> None:
        """Forget finished groups at the old end."""
        for groups in self._groups.values():
            while len(groups) > 8 and all(p.done for p in groups[0]):
                groups.pop(0)
