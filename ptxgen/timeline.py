"""Timeline: what an emulated kernel did when, in Chrome's trace format (ui.perfetto.dev opens it).

Time is logical: one unit is one warp instruction executed by anybody. It shows order and overlap
under one schedule, not hardware time. A process is a CTA; its threads are its warps, its mbarriers,
and one row per kind of asynchronous work. Source of the format: "Trace Event Format" (Chromium).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ptxgen.emulator.observer import (
    AsyncOperation,
    BarrierEvent,
    BarrierKey,
    Observer,
    Origin,
    Rendezvous,
)
from ptxgen.ptx.parser import parse

ASYNC_ROW = 1000
"""Thread ids of asynchronous work start here, behind those of warps."""
BARRIER_ROW = 10000
"""Those of mbarriers: this and the offset in shared memory."""
ASYNC_ROWS = {
    "tma_load": "TMA loads", "tma_store": "TMA stores", "tma_reduce": "TMA stores",
    "tma_prefetch": "TMA loads", "bulk_load": "bulk copies", "bulk_store": "bulk copies",
    "bulk_reduce": "bulk copies", "bulk_dsmem": "bulk copies", "cp_async": "cp.async",
    "st_async": "remote stores", "red_async": "remote stores", "wgmma": "wgmma",
    "tcgen05_mma": "tcgen05.mma", "tcgen05_cp": "tcgen05.cp", "tcgen05_shift": "tcgen05.shift",
    "tcgen05_st": "tcgen05.st", "try_cancel": "launch control",
}  # fmt: skip
"""Kind of operation -> row of the trace."""


@dataclass(slots=True)
class _Slice:
    name: str
    begin: int
    line: int
    instructions: int = 0


@dataclass(slots=True)
class _Phase:
    begin: int = 0
    arrivals: int = 0
    tx_bytes: int = 0


@dataclass(slots=True)
class _Cta:
    warps: dict[int, _Slice] = field(default_factory=dict)
    barriers: dict[int, str] = field(default_factory=dict)
    bytes_in_flight: int = 0


class Timeline(Observer):
    """Records a run."""

    wants_instructions = True

    def __init__(self, text: str, entry: str | None = None) -> None:
        function = parse(text).entry(entry)
        self._labels = _labels_by_index(function.labels, len(function.body))
        self.events: list[dict[str, Any]] = []
        self._now = 0
        self._ctas: dict[int, _Cta] = {}
        self._waits: dict[tuple[int, int], tuple[int, str]] = {}
        self._phases: dict[BarrierKey, _Phase] = {}
        self._issued: dict[int, tuple[AsyncOperation, int]] = {}
        self._machine: Any = None

    def to_json(self) -> str:
        """The trace; call it when the run is over, however it ended."""
        for cta, state in self._ctas.items():
            for warp in list(state.warps):
                self._close(cta, warp)
        for operation, began in self._issued.values():
            self._operation(operation, began, "never finished")
        self._issued.clear()
        names = [self._named(cta, state) for cta, state in sorted(self._ctas.items())]
        events = [event for some in names for event in some] + self.events
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})

    # Observer

    def on_machine(self, machine: Any) -> None:
        """The machine, for the names of barriers."""
        self._machine = machine

    def on_instruction(self, origin: Origin, index: int) -> None:
        """One unit of time passes."""
        self._now += 1
        state = self._cta(origin.cta)
        name = self._labels[index] if index < len(self._labels) else "end"
        current = state.warps.get(origin.warp)
        if current is not None and current.name != name:
            self._close(origin.cta, origin.warp)
            current = None
        if current is None:
            current = state.warps[origin.warp] = _Slice(name, self._now, origin.line)
        current.instructions += 1

    def on_warp(self, kind: str, origin: Origin) -> None:
        """A warp begins, or lanes of it end."""
        self._cta(origin.cta)
        if kind == "exit":
            self._close(origin.cta, origin.warp)

    def on_issue(self, operation: AsyncOperation) -> None:
        """Work begins to be in flight."""
        self._issued[id(operation)] = operation, self._now
        self._count_bytes(operation, 1)

    def on_finish(self, operation: AsyncOperation, milestone: str) -> None:
        """Work has been done."""
        if milestone != "done":
            return
        found = self._issued.pop(id(operation), None)
        if found is not None:
            self._operation(operation, found[1], "")
            self._count_bytes(operation, -1)

    def on_barrier(self, event: BarrierEvent) -> None:
        """Phases become slices of the barrier's row, waits slices within the warp's."""
        cta, offset = event.barrier
        self._cta(cta).barriers.setdefault(offset, self._barrier_name(cta, offset))
        phase = self._phases.setdefault(event.barrier, _Phase(self._now))
        if event.kind in ("arrive", "arrive_drop"):
            phase.arrivals += event.count
        elif event.kind == "expect_tx":
            phase.tx_bytes += event.count
        elif event.kind == "phase":
            self._slice(
                cta, BARRIER_ROW + offset, f"phase {event.phase}", phase.begin, "mbarrier",
                {"arrivals": phase.arrivals, "bytes": phase.tx_bytes},
            )  # fmt: skip
            self._phases[event.barrier] = _Phase(self._now)
        elif event.kind == "wait_failed" and event.origin is not None:
            who = event.origin.cta, event.origin.warp
            self._waits.setdefault(who, (self._now, self._cta(cta).barriers[offset]))
        elif event.kind == "wait" and event.origin is not None:
            self._end_wait(event.origin)

    def on_rendezvous(self, event: Rendezvous) -> None:
        """Time between arriving at a barrier and passing it."""
        if event.barrier == "warp":
            return
        who = event.origin.cta, event.origin.warp
        if event.kind == "arrive":
            self._waits.setdefault(who, (self._now, f"{event.barrier} barrier {event.index}"))
        else:
            self._end_wait(event.origin)

    def on_commit(
        self, origin: Origin, group: str, operations: Sequence[AsyncOperation],
        barriers: Sequence[BarrierKey] = (),
    ) -> None:  # fmt: skip
        """A point in the warp's row."""
        self._instant(origin, f"commit {group}", {"operations": len(operations)})

    def on_wait_group(self, origin: Origin, group: str, pending: int, read_only: bool) -> None:
        """A point in the warp's row."""
        what = f"{group} at most {pending} left" + (" (read)" if read_only else "")
        self._instant(origin, f"waited: {what}", {})

    def on_tensor_memory(self, origin: Origin, kind: str, column: int, num_columns: int) -> None:
        """A point in the warp's row."""
        self._instant(origin, f"tmem {kind}", {"column": column, "columns": num_columns})

    # Events

    def _cta(self, index: int) -> _Cta:
        found = self._ctas.get(index)
        if found is None:
            found = self._ctas[index] = _Cta()
        return found

    def _close(self, cta: int, warp: int) -> None:
        found = self._ctas[cta].warps.pop(warp, None)
        if found is not None:
            arguments = {"PTX line": found.line, "instructions": found.instructions}
            self._slice(cta, warp, found.name, found.begin, "code", arguments)

    def _end_wait(self, origin: Origin) -> None:
        began = self._waits.pop((origin.cta, origin.warp), None)
        if began is not None and began[0] < self._now:
            arguments = {"PTX line": origin.line}
            self._slice(origin.cta, origin.warp, f"wait {began[1]}", began[0], "wait", arguments)

    def _operation(self, operation: AsyncOperation, began: int, note: str) -> None:
        origin = operation.origin
        row = ASYNC_ROWS.get(operation.kind)
        if row is None:
            return
        nbytes = _nbytes(operation)
        arguments: dict[str, Any] = {
            "warp": origin.warp, "PTX line": origin.line, "bytes": nbytes,
        }  # fmt: skip
        if note:
            arguments["note"] = note
        common = {
            "cat": row, "id": len(self.events) + 1, "pid": origin.cta, "name": operation.kind,
            "tid": ASYNC_ROW + list(ASYNC_ROWS).index(operation.kind),
        }  # fmt: skip
        self.events.append({"ph": "b", "ts": began, "args": arguments, **common})
        self.events.append({"ph": "e", "ts": self._now, **common})

    def _count_bytes(self, operation: AsyncOperation, sign: int) -> None:
        nbytes = operation.tx_bytes * max(len(operation.barriers), 1)
        if not nbytes:
            return
        state = self._cta(operation.origin.cta)
        state.bytes_in_flight += sign * nbytes
        self.events.append({
            "ph": "C", "name": "bytes in flight", "pid": operation.origin.cta, "ts": self._now,
            "args": {"bytes": state.bytes_in_flight},
        })  # fmt: skip

    def _slice(
        self, pid: int, tid: int, name: str, begin: int, category: str, arguments: dict[str, Any]
    ) -> None:
        self.events.append({
            "ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": begin,
            "dur": max(self._now - begin, 1), "args": arguments,
        })  # fmt: skip

    def _instant(self, origin: Origin, name: str, arguments: dict[str, Any]) -> None:
        self.events.append({
            "ph": "i", "s": "t", "name": name, "pid": origin.cta, "tid": origin.warp,
            "ts": self._now, "args": {"PTX line": origin.line, **arguments},
        })  # fmt: skip

    def _named(self, cta: int, state: _Cta) -> list[dict[str, Any]]:
        names = {
            BARRIER_ROW + offset: f"mbarrier {name}" for offset, name in state.barriers.items()
        }
        tids = {e["tid"] for e in self.events if e["pid"] == cta and "tid" in e}
        warps = {tid for tid in tids if tid < ASYNC_ROW}
        names |= {warp: f"warp {warp}" for warp in warps}
        events = [{"ph": "M", "name": "process_name", "pid": cta, "args": {"name": f"CTA {cta}"}}]
        for tid, name in sorted(names.items()):
            events += [
                {"ph": "M", "name": "thread_name", "pid": cta, "tid": tid, "args": {"name": name}},
                {"ph": "M", "name": "thread_sort_index", "pid": cta, "tid": tid,
                 "args": {"sort_index": tid}},
            ]  # fmt: skip
        return events

    def _barrier_name(self, cta: int, offset: int) -> str:
        from ptxgen.emulator.deadlock import barrier_name

        if self._machine is not None:
            for cluster in self._machine.clusters:
                for found in cluster.ctas:
                    if found.index == cta:
                        return barrier_name(found, offset)
        return f"{offset:#x}"


def _nbytes(operation: AsyncOperation) -> int:
    return sum(len(a.addresses) * a.size for a in (operation.writes or operation.reads))


def _labels_by_index(labels: Any, length: int) -> list[str]:
    """For each instruction the last label before it, as the text names it."""
    at: dict[int, str] = {}
    for label, index in labels.items():
        at.setdefault(index, label.split("$")[0])
    found = []
    current = "start"
    for index in range(length):
        if index in at and not at[index].startswith("WAIT"):
            current = at[index]
        found.append(current)
    return found
