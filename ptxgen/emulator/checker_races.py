"""Races: whether two accesses to the same bytes are ordered, and what to call it if not."""

import numpy as np

from ptxgen.emulator import clocks
from ptxgen.emulator.checker_classification import classify, is_relaxed, stores_again
from ptxgen.emulator.checker_kernels import Kernels
from ptxgen.emulator.checker_order import (
    BY_LANE,
    UNORDERED,
    Views,
    crosses_lanes,
    lanes_touching,
    relation,
    supersedes,
)
from ptxgen.emulator.checker_report import Reporter, warps_text
from ptxgen.emulator.observer import AccessKind, Proxy, Space
from ptxgen.emulator.proxies import check_proxies
from ptxgen.emulator.shadow import Parts, Readers, Record, Region, Shadow, distinct, overlap
from ptxgen.emulator.tcgen_frontier import check_frontier, is_pipelined


class Races:
    """Checks accesses against a shadow and enters them."""

    def __init__(self, reporter: Reporter, kernels: Kernels, uninitialised: bool = True) -> None:
        self.reporter = reporter
        self.kernels = kernels
        self.uninitialised = uninitialised
        """Report reads of memory that nothing wrote."""
        self.num_writes = 0

    def read(self, shadow: Shadow, region: Region, record: Record, views: Views) -> None:
        """Bytes are read."""
        table = shadow.table
        if not record.number:
            table.add(record)
        self._examine_writers(shadow, region, record, views)
        readers = region.get(shadow.readers)
        numbers = distinct(readers)
        if len(numbers) == 1:
            region.put(shadow.readers, self._with_reader(shadow, numbers[0], record, views))
            return
        changed = readers.copy()
        for number in numbers:
            changed[readers == number] = self._with_reader(shadow, number, record, views)
        region.put(shadow.readers, changed)

    def write(self, shadow: Shadow, region: Region, record: Record, views: Views) -> None:
        """Bytes are written."""
        self.num_writes += 1
        table = shadow.table
        if not record.number:
            table.add(record)
        for number in distinct(region.get(shadow.readers)):
            for earlier in table.records(number):
                self._examine(earlier, record, views)
        self._examine_writers(shadow, region, record, views)
        if region.whole:
            region.put(shadow.writers, record.number)
        else:
            self._put_parts(shadow, region, record)
        region.put(shadow.readers, 0)

    def free(self, shadow: Shadow, region: Region, record: Record, views: Views) -> None:
        """Memory is given back: checked like a write, and then nobody's."""
        self.write(shadow, region, record, views)
        region.put(shadow.writers, 0)

    def _put_parts(self, shadow: Shadow, region: Region, record: Record) -> None:
        table = shadow.table
        words, masks = region.index, region.masks
        keys = shadow.writers[words].astype(np.int64) * 16 + masks
        for key in distinct(keys):
            number, mask = key >> 4, key & 15
            old = table.entries[number]
            if isinstance(old, Parts):
                members = [(m & ~mask, r) for m, r in old.members if m & ~mask]
            elif isinstance(old, Record) and mask != 15:
                members = [(15 & ~mask, old)]
            else:
                members = []
            if not members and mask == 15:
                value = record.number
            else:
                value = table.add(Parts((*members, (mask, record))))
            shadow.writers[words[keys == key]] = value

    def _with_reader(self, shadow: Shadow, number: int, record: Record, views: Views) -> int:
        """Entry for words that `record` reads too."""
        if not number:
            return record.number
        entry = shadow.table.entries[number]
        members = entry.members if isinstance(entry, Readers) else (entry,)
        kept = [r for r in members if isinstance(r, Record) and not supersedes(record, r, views)]
        return shadow.table.readers((*kept, record))

    def _uninitialised(self, shadow: Shadow, region: Region, record: Record) -> None:
        space = record.access.space
        code = "UNINIT-TMEM" if space is Space.TENSOR else "UNINIT-SMEM"
        if self.reporter.repeats(code, record.origin.line):
            return
        access = record.access
        missing = np.flatnonzero(region.get(shadow.writers).reshape(-1) == 0)
        size = 4 * len(missing)
        first = int(access.addresses[0])
        if region.width == 1 and not isinstance(region.index, slice):
            first = 4 * int(region.index[missing[0]]) + shadow.base
        elif isinstance(region.index, slice):
            first = 4 * (region.index.start + int(missing[0])) + shadow.base
        name = self.reporter.bytes_name(space, access.owner, first, size)
        self.reporter.add(
            code,
            f"`{self.reporter.brief(record.origin.line)}` by {warps_text(record.origin)} reads "
            f"{name}, which nothing wrote",
            record.origin, access=access, addresses=(first, size),
        )  # fmt: skip

    def _examine_writers(self, shadow: Shadow, region: Region, later: Record, views: Views) -> None:
        writers = region.get(shadow.writers)
        for number in distinct(writers):
            if number:
                mask = 15
                if not region.whole:
                    mask = int(np.bitwise_or.reduce(region.masks[writers.reshape(-1) == number]))
                for earlier in shadow.table.writers(number, mask):
                    self._examine(earlier, later, views)
            elif (
                self.uninitialised
                and later.kind is AccessKind.READ
                and later.access.space is not Space.GLOBAL
            ):
                self._uninitialised(shadow, region, later)

    def _examine(self, earlier: Record, later: Record, views: Views) -> None:
        if earlier.operation is not None and earlier.operation is later.operation:
            return
        if earlier.strong and later.strong:
            return
        if earlier.kernel != later.kernel:
            self._dependent(earlier, later, views)
            return
        if earlier.access.space is Space.TENSOR and is_pipelined(earlier, later):
            return
        by_lane = False
        for view in views:
            order = relation(earlier, later, view)
            if order == UNORDERED:
                self._race(earlier, later, views)
                return
            by_lane = by_lane or order == BY_LANE
        if by_lane and self._lanes_matter(earlier, later, views):
            self._lane_race(earlier, later)
            return
        if later.proxy is Proxy.ASYNC and earlier.proxy is Proxy.GENERIC:
            check_proxies(self.reporter, earlier, later, views)
        elif earlier.access.space is Space.TENSOR:
            check_frontier(self.reporter, earlier, later, views)

    def _dependent(self, earlier: Record, later: Record, views: Views) -> None:
        """The earlier access belongs to an earlier kernel, which may not be over."""
        view = views[0]
        waited = view.clock.knows(view.agent.domain, clocks.GRID, 1)
        if self.kernels.is_over(earlier.kernel, waited):
            return
        if self.reporter.repeats("DEPENDENT-LAUNCH", later.origin.line, earlier.origin.line):
            return
        first, size = overlap(earlier.access, later.access)
        name = self.reporter.bytes_name(later.access.space, later.access.owner, first, size)
        distance = later.kernel - earlier.kernel
        who = "the kernel before it" if distance == 1 else f"the kernel {distance} launches before"
        why, fix = "it executed griddepcontrol.launch_dependents", ""
        if waited:
            why = "none of the kernels in between has waited for it"
            fix = "execute griddepcontrol.wait in every kernel of the chain, too"
        self.reporter.add(
            "DEPENDENT-LAUNCH",
            f"`{self.reporter.brief(later.origin.line)}` by {warps_text(later.origin)} touches "
            f"{name}, which {who} may still use: {why}",
            later.origin, other=earlier.origin, access=later.access, addresses=(first, size),
            fix=fix,
        )  # fmt: skip

    def _race(self, earlier: Record, later: Record, views: Views) -> None:
        code, fix = classify(earlier, later)
        reporter = self.reporter
        partial = any(r.access.size & 3 for r in (earlier, later))
        if not partial and reporter.repeats(code, later.origin.line, earlier.origin.line):
            return
        first, size = overlap(earlier.access, later.access)
        if not size:
            return
        if partial and reporter.repeats(code, later.origin.line, earlier.origin.line):
            return
        access = later.access
        name = reporter.bytes_name(access.space, access.owner, first, size)
        severity = ""
        why = "and nothing says that this is over"
        if is_relaxed(earlier, views):
            why = "and only a relaxed barrier.cluster.arrive, which orders no memory, lies between"
            fix = fix or "use barrier.cluster.arrive without .relaxed, or a fence.acq_rel before it"
            # Within one CTA, public kernels get away with it.
            inside = {access.owner, earlier.origin.cta} == {later.origin.cta}
            severity = "warning" if inside else ""
        elif stores_again(earlier, later):
            severity = "warning"  # rasters that round up store a tile twice, with equal bytes
        reporter.add(
            code,
            f"`{reporter.brief(later.origin.line)}` by {warps_text(later.origin)} {_verb(later)} "
            f"{name}, which `{reporter.brief(earlier.origin.line)}` at line {earlier.origin.line} "
            f"by {warps_text(earlier.origin)} {_verb(earlier)}, {why}",
            later.origin, other=earlier.origin, access=access, addresses=(first, size), fix=fix,
            severity="" if reporter.strict else severity,
        )  # fmt: skip

    def _lanes_matter(self, earlier: Record, later: Record, views: Views) -> bool:
        """Whether other lanes than the ordered ones touched the shared bytes."""
        lanes = lanes_touching(earlier, later)
        agent = earlier.agent
        copies = earlier.what == "cp_async"
        which = clocks.COPIES if copies else clocks.ACCESSES
        value = earlier.milestones[0][1] if copies else earlier.epoch
        for view in views:
            own = agent is view.agent and (earlier.is_ordinary or copies)
            if own and not crosses_lanes(earlier, later):
                continue
            for lane in lanes:
                component = agent.lane_component(lane, which)
                if not component or not view.clock.knows(agent.domain, component, value):
                    return True
        return False

    def _lane_race(self, earlier: Record, later: Record) -> None:
        reporter = self.reporter
        if reporter.repeats("RACE", later.origin.line, earlier.origin.line):
            return
        first, size = overlap(earlier.access, later.access)
        access = later.access
        name = reporter.bytes_name(access.space, access.owner, first, size)
        reporter.add(
            "RACE",
            f"`{reporter.brief(later.origin.line)}` by {warps_text(later.origin)} {_verb(later)} "
            f"{name}, which other lanes of {earlier.agent.name} {_verb(earlier)} at line "
            f"{earlier.origin.line}; those lanes took no part in what orders the two",
            later.origin, other=earlier.origin, access=access, addresses=(first, size),
            fix="execute bar.warp.sync before one lane signals for the warp, or after one lane "
            "waited for it",
        )  # fmt: skip


def _verb(record: Record) -> str:
    return "reads" if record.kind is AccessKind.READ else "writes"
