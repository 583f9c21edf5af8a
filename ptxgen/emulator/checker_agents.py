"""Agents: what the checker knows of each warp, and where its lanes differ.

A warp has one clock. Where single lanes acquire or release on their own, strict checking keeps a
clock per such lane until the warp is synchronised (bar.warp.sync, bar.sync); tolerant checking
takes a warp for one thread. Source: PTX ISA 9.0, "bar.warp.sync" and "Morally strong operations".
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from ptxgen.emulator import clocks
from ptxgen.emulator.clocks import Clock, Domain, Rows
from ptxgen.emulator.lanes import lane_list


@dataclass(slots=True)
class Stream:
    """Groups of asynchronous operations of one thread."""

    component: int
    """Component that counts its groups; for bulk groups those whose sources were read."""
    full_component: int = 0
    """Bulk groups that are complete."""
    committed: int = 0
    """Groups so far."""
    is_open: bool = False
    """There are operations after the last commit."""


Published = dict[tuple["Agent", int], Clock]
"""What warps made known by strong accesses, each at a scope (index in checker_flags.SCOPES)."""


class Agent:
    """One warp."""

    def __init__(self, domain: Domain, cta: int, warp: int, by_lane: bool) -> None:
        self.domain = domain
        self.cta = cta
        self.warp = warp
        self.by_lane = by_lane
        self.first = domain.add(clocks.PER_WARP)
        """First of its components."""
        self.clock = Clock(domain)
        self.lane_clocks: dict[int, Clock] = {}
        """Of lanes that know more than the warp."""
        self.alive = 0
        """Lanes that have not exited."""
        self.epoch = 1
        """Accesses from now on belong to it."""
        self.synced = 0
        """Last epoch at whose end all lanes synchronised."""
        self.version = 0
        """Grows whenever what it would release changes."""
        self.fence_clock: Clock | None = None
        """What its last release fence would publish by a relaxed write."""
        self.fence_clocks: dict[int, Clock] = {}
        """The same of its last fence of each scope."""
        self.relaxed_reads: Published = {}
        """What an acquire fence would make known."""
        self.tensor_after: Rows | None = None
        """TENSOR row at its last tcgen05.fence::after_thread_sync."""
        self.tensor_maps: Clock | None = None
        """What was known at its last acquiring tensormap proxy fence."""
        self.wgmma_committed = 0
        self.wgmma_parts: deque[tuple[Clock, int]] = deque()
        """Of wgmmas that not all four warps have issued: clock then, group that retires it."""
        self.loads = 0
        """tcgen05.ld waits so far."""
        self.stores = 0
        self.poll: tuple[int, int, int, int] | None = None
        """Its last strong read: line, address, writes so far, its version."""
        self.copies = Stream(self.first + clocks.COPIES)
        self.num_copies = 0
        """cp.async issued."""
        self.bulk: dict[int, Stream] = {}
        self.tensor: dict[int, Stream] = {}
        """tcgen05 mma, cp, shift, by issuing lane."""
        self.apart: dict[tuple[int, int], int] = {}
        """(component, row) -> milestone that each lane knows of itself alone, until they meet."""
        self._used = False
        self._lane_components: dict[tuple[int, int], int] = {}

    @property
    def name(self) -> str:
        """For messages."""
        return f"CTA {self.cta} warp {self.warp}"

    def mark(self) -> int:
        """Epoch of an access that is made now."""
        if not self._used:
            self._used = True
            self.version += 1
        return self.epoch

    def cut(self) -> int:
        """End the epoch; the last one that has ended."""
        if self._used:
            self._used = False
            self.epoch += 1
        return self.epoch - 1

    def is_full(self, mask: int) -> bool:
        """Whether a mask holds all lanes that have not exited."""
        return not self.alive & ~mask

    def lane_component(self, lane: int, which: int = clocks.ACCESSES, make: bool = False) -> int:
        """Component of one lane's own releases (ACCESSES) or proxy fences; 0 if it has none."""
        found = self._lane_components.get((lane, which), 0)
        if not found and make:
            found = self._lane_components[lane, which] = self.domain.add()
        return found

    def clock_of(self, mask: int) -> Clock:
        """What all of some lanes know. Do not change it."""
        lane_clocks = self.lane_clocks
        if not lane_clocks:
            return self.clock
        found = [lane_clocks.get(lane) for lane in lane_list(mask)]
        if None in found or not found:
            return self.clock
        if len(found) == 1:
            assert found[0] is not None
            return found[0]
        width = min(c.rows.shape[1] for c in found if c is not None)
        rows = np.minimum.reduce([c.rows[:, :width] for c in found if c is not None])
        return Clock(self.domain, rows)

    def clocks_of(self, mask: int) -> list[Clock]:
        """The clocks to change when some lanes learn something."""
        self.version += 1
        if not self.by_lane:
            return [self.clock]
        if self.is_full(mask):
            return [self.clock, *self.lane_clocks.values()]
        for lane in lane_list(mask):
            if lane not in self.lane_clocks:
                self.lane_clocks[lane] = self.clock.copy()
        return [self.lane_clocks[lane] for lane in lane_list(mask)]

    def learn(self, mask: int, component: int, value: int) -> None:
        """Some lanes know a milestone."""
        for clock in self.clocks_of(mask):
            clock.set(component, value)

    def acquire(self, mask: int, published: Clock) -> None:
        """Some lanes learn what was released."""
        for clock in self.clocks_of(mask):
            clock.join(published)

    def release(self, mask: int, target: Clock) -> None:
        """Some lanes publish what they did and know."""
        cut = self.cut()
        target.join(self.clock)
        if self.lane_clocks:
            for lane in lane_list(mask):
                if lane in self.lane_clocks:
                    target.join(self.lane_clocks[lane])
        if self.apart:
            self._add_apart(mask, target)
        self._add_own(mask, target, cut, clocks.KNOWN)

    def _add_apart(self, mask: int, target: Clock) -> None:
        """What the lanes know of themselves; of single ones what there are components for."""
        full = self.is_full(mask)
        for (component, row), value in self.apart.items():
            kind = component - self.first
            if full:
                target.set(component, value, row)
            elif kind in clocks.OF_LANES:
                for lane in lane_list(mask):
                    target.set(self.lane_component(lane, kind, make=True), value)

    def learn_apart(self, mask: int, component: int, value: int, row: int) -> None:
        """Every lane of a mask has come to know a milestone of its own."""
        if self.by_lane and self.is_full(mask) and mask & (mask - 1):
            self.version += 1
            self.apart[component, row] = value
            return
        for clock in self.clocks_of(mask):
            clock.set(component, value, row)

    def _add_own(self, mask: int, target: Clock, cut: int, row: int) -> None:
        """Accesses up to an epoch, as lanes know them."""
        target.set(self.first + clocks.ACCESSES, cut, row)
        if self.is_full(mask):
            target.set(self.first + clocks.LANES, cut, row)
            return
        target.set(self.first + clocks.LANES, self.synced, row)
        if self.by_lane:
            for lane in lane_list(mask):
                target.set(self.lane_component(lane, make=True), cut, row)

    def synchronise(self, mask: int) -> None:
        """All lanes of the warp have synchronised; a partial mask counts as all of them."""
        self.synced = self.cut()
        self.version += 1
        for (component, row), value in self.apart.items():
            self.clock.set(component, value, row)
        self.apart.clear()
        if self.lane_clocks:
            for clock in self.lane_clocks.values():
                self.clock.join(clock)
            self.lane_clocks.clear()

    def fence_proxy(self, mask: int, which: tuple[int, ...], rows: tuple[int, ...]) -> None:
        """fence.proxy.async: `which` of the PROXY components, `rows` of the FENCED rows."""
        cut = self.cut()
        components = []
        for kind in which:
            if self.is_full(mask):
                self.learn_apart(mask, self.first + kind, cut, clocks.KNOWN)
            else:
                components += [self.lane_component(n, kind, make=True) for n in lane_list(mask)]
        for clock in self.clocks_of(mask):
            for component in components:
                clock.set(component, cut)
            if clocks.FENCED_SHARED in rows:
                copies = self.copies.component
                copies = max(clock.get(copies), self.apart.get((copies, clocks.KNOWN), 0))
                if copies:
                    clock.set(self.first + clocks.PROXY_COPIES, copies)
            for row in rows:
                clock.set(self.first + clocks.ACCESSES, cut, row)
                part = clock.rows[row]
                np.maximum(part, clock.rows[clocks.KNOWN], out=part)

    def publish_inits(self, lanes: int, target: Clock) -> None:
        """What fence.mbarrier_init has published, by a relaxed arrival after it."""
        component = self.first + clocks.INITS
        known = [self.clock, *(c for n, c in self.lane_clocks.items() if lanes >> n & 1)]
        target.set(component, max(c.get(component) for c in known))

    def tensor_before(self, mask: int) -> None:
        """tcgen05.fence::before_thread_sync: own finished tcgen05 work may be published."""
        for kind in (clocks.LOADS, clocks.STORES):
            component = self.first + kind
            known = self.clock_of(mask).get(component)
            self.learn_apart(mask, component, known, clocks.TENSOR)
        own = [s.component for s in self.tensor.values()]
        cut = self.cut()
        for clock in self.clocks_of(mask):
            clock.set(self.first + clocks.ACCESSES, cut, clocks.TENSOR)  # tcgen05.alloc
            for component in own:
                clock.set(component, clock.get(component), clocks.TENSOR)

    def tensor_promote(self, mask: int) -> None:
        """tcgen05.fence::after_thread_sync: what was published may be used."""
        self.tensor_after = self.clock_of(mask).rows[clocks.TENSOR].copy()

    def bulk_stream(self, lane: int) -> Stream:
        """Bulk groups of one lane."""
        found = self.bulk.get(lane)
        if found is None:
            first = self.domain.add(2)
            found = self.bulk[lane] = Stream(first, first + 1)
        return found

    def tensor_stream(self, lane: int) -> Stream:
        """tcgen05 commits of one lane."""
        found = self.tensor.get(lane)
        if found is None:
            found = self.tensor[lane] = Stream(self.domain.add())
        return found
