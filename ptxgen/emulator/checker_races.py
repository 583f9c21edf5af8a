"""Races: whether two accesses to the same bytes are ordered, and what to call it if not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.emulator import clocks
from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.checker_report import Reporter, warps_text
from ptxgen.emulator.clocks import Clock
from ptxgen.emulator.lanes import lane_list
from ptxgen.emulator.observer import AccessKind, Proxy, Space
from ptxgen.emulator.proxies import check_proxies
from ptxgen.emulator.shadow import Parts, Readers, Record, Region, Shadow, distinct, overlap
from ptxgen.emulator.tcgen_frontier import check_frontier, is_pipelined

MMA_READS = ("wgmma", "tcgen05_mma", "tcgen05_cp")
LOADS = ("tma_load", "bulk_load", "bulk_dsmem", "cp_async", "st_async", "red_async", "try_cancel")
STORES = ("tma_store", "tma_reduce", "bulk_store", "bulk_reduce")
TENSOR = ("tcgen05_mma", "tcgen05_cp", "tcgen05_shift", "tcgen05_ld", "tcgen05_st")


@dataclass(frozen=True, slots=True)
class View:
    """A party to an access: a warp, some of its lanes, and what they know."""

    agent: Agent
    lanes: int
    clock: Clock


Views = Sequence[View]


class Races:
    """Checks accesses against a shadow and enters them."""

    def __init__(self, reporter: Reporter, uninitialised: bool = True) -> None:
        self.reporter = reporter
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
        kept = [r for r in members if isinstance(r, Record) and not _supersedes(record, r, views)]
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
        """The earlier access belongs to an earlier kernel that let this one start early."""
        view = views[0]
        if view.clock.knows(view.agent.domain, clocks.GRID, 1):
            return
        if self.reporter.repeats("DEPENDENT-LAUNCH", later.origin.line, earlier.origin.line):
            return
        first, size = overlap(earlier.access, later.access)
        name = self.reporter.bytes_name(later.access.space, later.access.owner, first, size)
        self.reporter.add(
            "DEPENDENT-LAUNCH",
            f"`{self.reporter.brief(later.origin.line)}` by {warps_text(later.origin)} touches "
            f"{name}, which the kernel before it may still use: it executed "
            "griddepcontrol.launch_dependents",
            later.origin, other=earlier.origin, access=later.access, addresses=(first, size),
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
        if _relaxed(earlier, views):
            why = "and only a relaxed barrier.cluster.arrive, which orders no memory, lies between"
            fix = fix or "use barrier.cluster.arrive without .relaxed, or a fence.acq_rel before it"
            # Within one CTA, public kernels get away with it.
            inside = {access.owner, earlier.origin.cta} == {later.origin.cta}
            severity = "warning" if inside else ""
        elif _stores_again(earlier, later):
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
        for view in views:
            if (
                earlier.agent is view.agent
                and earlier.is_ordinary
                and not _crosses_lanes(earlier, later)
            ):
                continue
            for lane in lanes:
                component = earlier.agent.lane_component(lane)
                if not component or not view.clock.knows(
                    earlier.agent.domain, component, earlier.epoch
                ):
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


UNORDERED, BY_LANE, ORDERED = range(3)


def relation(earlier: Record, later: Record, view: View) -> int:
    """Whether an access happens before one that a view makes."""
    agent = earlier.agent
    if not earlier.is_ordinary:
        return ORDERED if finished(earlier, view.clock) else UNORDERED
    own = agent is view.agent
    if own:
        if not agent.by_lane or earlier.epoch <= agent.synced:
            return ORDERED
        lanes = earlier.origin.lanes
        if lanes == view.lanes and not lanes & (lanes - 1):
            return ORDERED
    domain = agent.domain
    if not view.clock.knows(domain, agent.first + clocks.ACCESSES, earlier.epoch):
        return BY_LANE if own else UNORDERED
    if not agent.by_lane or view.clock.knows(domain, agent.first + clocks.LANES, earlier.epoch):
        return ORDERED
    return BY_LANE


def finished(record: Record, clock: Clock) -> bool:
    """Whether a clock knows that an asynchronous operation is over."""
    domain = record.agent.domain
    if all(clock.knows(domain, c, v) for c, v in record.milestones):
        return True
    other = record.alternative
    return other is not None and clock.knows(domain, *other)


def _supersedes(later: Record, earlier: Record, views: Views) -> bool:
    """Whether who is ordered after one reader is so after an earlier one, too."""
    if later.proxy is not earlier.proxy or later.strong != earlier.strong:
        return False
    same = (
        later.agent is earlier.agent
        and len(later.milestones) == len(earlier.milestones)
        and all(
            a[0] == b[0] and a[1] >= b[1]
            for a, b in zip(later.milestones, earlier.milestones, strict=True)
        )
    )
    if same:
        return not later.is_ordinary or not earlier.origin.lanes & ~later.origin.lanes
    if later.what not in ("", "wgmma", *STORES):
        return False
    return all(relation(earlier, later, view) == ORDERED for view in views)


def lanes_touching(record: Record, other: Record) -> list[int]:
    """Lanes of an ordinary access whose pieces share bytes with another access."""
    lanes = lane_list(record.origin.lanes)
    access = record.access
    if len(lanes) != len(access.addresses):
        return list(lanes)
    starts, ends = _ranges(other)
    position = np.searchsorted(ends, access.addresses, side="right")
    position = np.minimum(position, len(starts) - 1)
    touched = (starts[position] < access.addresses + access.size) & (
        ends[position] > access.addresses
    )
    return [lane for lane, hit in zip(lanes, touched.tolist(), strict=True) if hit]


def _ranges(record: Record) -> tuple[Any, Any]:
    starts = np.sort(record.access.addresses)
    return starts, starts + record.access.size


def _crosses_lanes(earlier: Record, later: Record) -> bool:
    """Whether different lanes of one warp touch the same bytes."""
    a, b = lane_list(earlier.origin.lanes), lane_list(later.origin.lanes)
    x, y = earlier.access, later.access
    if not later.is_ordinary or len(a) != len(x.addresses) or len(b) != len(y.addresses):
        touching = lanes_touching(earlier, later)
        return any(not later.origin.lanes >> lane & 1 for lane in touching)
    left, right = x.addresses[:, None], y.addresses[None, :]
    hit = (left < right + y.size) & (right < left + x.size)
    return bool((hit & (np.array(a)[:, None] != np.array(b)[None, :])).any())


def classify(earlier: Record, later: Record) -> tuple[str, str]:
    """Code of a pair that is not ordered, and a fix where the code's own says too little."""
    reads_first = earlier.kind is AccessKind.READ
    what = earlier.what
    if later.what == "tcgen05_dealloc":
        return "TMEM-AFTER-DEALLOC", ""
    if what in STORES and reads_first:
        return "BULK-SOURCE-REUSED", ""
    if reads_first and later.what in LOADS and later.access.space is Space.SHARED:
        return "STAGE-OVERWRITTEN", ""
    if reads_first and what in MMA_READS and earlier.access.space is Space.SHARED:
        return "STAGE-OVERWRITTEN", ""
    if what in TENSOR and earlier.access.space is Space.TENSOR:
        return "WAIT-MISSING", _TENSOR_FIX.get(what, "")
    if what in LOADS and not reads_first:
        fix = ""
        if what == "cp_async":
            fix = (
                "cp.async.wait_group in the copying threads and then a barrier, or "
                "cp.async.mbarrier.arrive and a wait on that mbarrier"
            )
        elif later.kind is AccessKind.READ:
            fix = "wait for the mbarrier phase that counts the copy's bytes (full) before reading"
        return "WAIT-MISSING", fix
    if what in STORES and not reads_first and later.agent is earlier.agent:
        return "WAIT-MISSING", "execute cp.async.bulk.wait_group (without .read) first"
    return "RACE", ""


_TENSOR_FIX = {
    "tcgen05_ld": "execute tcgen05.wait::ld before the columns are handed over or overwritten",
    "tcgen05_st": "execute tcgen05.wait::st before the columns are handed over",
    "tcgen05_mma": "execute tcgen05.commit after the mma, and wait for its mbarrier",
    "tcgen05_cp": "execute tcgen05.commit after the copy, and wait for its mbarrier",
    "tcgen05_shift": "execute tcgen05.commit after the shift, and wait for its mbarrier",
}


def _relaxed(earlier: Record, views: Views) -> bool:
    """Whether relaxed arrivals would order an access before what all views do."""
    domain = earlier.agent.domain
    return all(
        v.clock.knows(domain, c, n, clocks.RELAXED) or v.clock.knows(domain, c, n)
        for v in views
        for c, n in earlier.milestones
    )


def _stores_again(earlier: Record, later: Record) -> bool:
    """Whether two CTAs store to the same global bytes by the same instruction."""
    return (
        earlier.access.space is Space.GLOBAL
        and AccessKind.READ not in (earlier.kind, later.kind)
        and earlier.origin.line == later.origin.line
        and earlier.origin.cta != later.origin.cta
    )


def _verb(record: Record) -> str:
    return "reads" if record.kind is AccessKind.READ else "writes"
