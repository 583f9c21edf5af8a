"""Vector clocks whose components are warps, mbarriers, and streams of asynchronous groups.

A component counts milestones: entry >= n of a clock means that milestone n is known to have
happened. So the end of every asynchronous operation is an ordinary (component, value) pair, and
"does X happen before this?" is one comparison. The
epochs are those of FastTrack (Flanagan and Freund, PLDI 2009).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

KNOWN = 0
"""Row: milestones that are known."""
FENCED_SHARED = 1
"""Row: those that were known to some thread when it executed fence.proxy.async on shared memory."""
FENCED_GLOBAL = 2
"""Row: the same for global memory."""
TENSOR = 3
"""Row: tcgen05 work that fence::before_thread_sync or a commit has published."""
RELAXED = 4
"""Row: what would be known if relaxed arrivals released."""
ROWS = 5

GRID = 0
"""Component: 1 once griddepcontrol.wait has passed."""

# Components of each warp, relative to its first.
ACCESSES = 0
"""Accesses of the warp, by epoch, as far as any of its lanes released them."""
LANES = 1
"""The same as far as they are released by all lanes, or were synchronised in the warp."""
PROXY_CTA = 2
"""Accesses that the warp itself fenced towards the async proxy: its CTA's shared memory."""
PROXY_CLUSTER = 3
"""The same, shared memory of the cluster."""
PROXY_GLOBAL = 4
PROXY_FENCES = (PROXY_CTA, PROXY_CLUSTER, PROXY_GLOBAL)
INITS = 5
"""mbarrier.init published by fence.mbarrier_init."""
WGMMA = 6
"""wgmma groups that the warp waited for."""
LOADS = 7
"""tcgen05.ld waited for."""
STORES = 8
"""tcgen05.st waited for."""
COPIES = 9
"""cp.async groups waited for."""
COPY_ARRIVALS = 10
"""cp.async, by number, that cp.async.mbarrier.arrive has signalled."""
PROXY_COPIES = 11
"""cp.async groups that the warp fenced towards the async proxy after waiting for them."""
PER_WARP = 12
OF_LANES = (*PROXY_FENCES, COPIES)
"""Those that single lanes may have a component of their own for."""

Rows = NDArray[np.int32]
"""Shape (ROWS, components)."""


class Domain:
    """Components of one cluster."""

    def __init__(self) -> None:
        self.width = 1
        """Components so far; GRID is the first."""

    def add(self, count: int = 1) -> int:
        """First of `count` new components."""
        first = self.width
        self.width += count
        return first


class Clock:
    """What is known at one point, of the own cluster and perhaps of others."""

    __slots__ = ("domain", "foreign", "rows")

    def __init__(self, domain: Domain, rows: Rows | None = None) -> None:
        self.domain = domain
        self.rows: Rows = np.zeros((ROWS, domain.width), np.int32) if rows is None else rows
        self.foreign: dict[Domain, Rows] | None = None

    def copy(self) -> "Clock":
        """The same knowledge, independent of this one."""
        found = Clock(self.domain, self.rows.copy())
        if self.foreign:
            found.foreign = {d: r.copy() for d, r in self.foreign.items()}
        return found

    def set(self, component: int, value: int, row: int = KNOWN) -> None:
        """Raise one entry of the own domain."""
        if component >= self.rows.shape[1]:
            self.rows = _wider(self.rows, self.domain.width)
        if self.rows[row, component] < value:
            self.rows[row, component] = value

    def get(self, component: int, row: int = KNOWN) -> int:
        """One entry of the own domain."""
        rows = self.rows
        return int(rows[row, component]) if component < rows.shape[1] else 0

    def knows(self, domain: Domain, component: int, value: int, row: int = KNOWN) -> bool:
        """Whether milestone `value` of a component is known."""
        rows: Any = self.rows
        if domain is not self.domain:
            rows = None if self.foreign is None else self.foreign.get(domain)
            if rows is None:
                return False
        return component < rows.shape[1] and bool(rows[row, component] >= value)

    def join(self, other: "Clock") -> None:
        """Learn all that another clock knows."""
        if other.domain is self.domain:
            self.rows = _joined(self.rows, other.rows)
        else:
            self._learn(other.domain, other.rows)
        if other.foreign:
            for domain, rows in other.foreign.items():
                if domain is self.domain:
                    self.rows = _joined(self.rows, rows)
                else:
                    self._learn(domain, rows)

    def join_relaxed(self, other: "Clock") -> None:
        """Note in the RELAXED row what another clock knows."""
        if other.rows.shape[1] > self.rows.shape[1]:
            self.rows = _wider(self.rows, other.rows.shape[1])
        mine = self.rows[RELAXED, : other.rows.shape[1]]
        np.maximum(mine, other.rows[KNOWN], out=mine)

    def _learn(self, domain: Domain, rows: Rows) -> None:
        if self.foreign is None:
            self.foreign = {}
        mine = self.foreign.get(domain)
        self.foreign[domain] = rows.copy() if mine is None else _joined(mine, rows)


def _wider(rows: Rows, width: int) -> Rows:
    # some slack, so that clocks do not grow at every new component
    found = np.zeros((ROWS, width + 16), np.int32)
    found[:, : rows.shape[1]] = rows
    return found


def _joined(mine: Rows, other: Rows) -> Rows:
    width = other.shape[1]
    if width > mine.shape[1]:
        mine = _wider(mine, width)
    part = mine[:, :width]
    np.maximum(part, other, out=part)
    return mine
