"""Order: whether one access happens before another, as far as a party to it knows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.emulator import clocks
from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.clocks import Clock
from ptxgen.emulator.lanes import lane_list
from ptxgen.emulator.shadow import Record

RELEASED_WITH_KNOWLEDGE = ("", "wgmma", "tma_store", "tma_reduce", "bulk_store", "bulk_reduce")
"""Kinds whose end is published by the thread that issued them, with all that it knew."""


@dataclass(frozen=True, slots=True)
class View:
    """A party to an access: a warp, some of its lanes, and what they know."""

    agent: Agent
    lanes: int
    clock: Clock


Views = Sequence[View]


UNORDERED, BY_LANE, ORDERED = range(3)


def relation(earlier: Record, later: Record, view: View) -> int:
    """Whether an access happens before one that a view makes."""
    agent = earlier.agent
    if not earlier.is_ordinary:
        if finished(earlier, view.clock):
            return ORDERED
        return BY_LANE if waited_by_lanes(earlier, view) else UNORDERED
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


def waited_by_lanes(record: Record, view: View) -> bool:
    """Whether lanes have waited for their own parts of a cp.async, as far as a view knows."""
    agent = record.agent
    if record.what != "cp_async" or not agent.by_lane:
        return False
    component, value = record.milestones[0]
    if agent is view.agent and agent.apart.get((component, clocks.KNOWN), 0) >= value:
        return True
    lanes = (agent.lane_component(n, clocks.COPIES) for n in lane_list(record.origin.lanes))
    return any(c and view.clock.knows(agent.domain, c, value) for c in lanes)


def supersedes(later: Record, earlier: Record, views: Views) -> bool:
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
    if later.what not in RELEASED_WITH_KNOWLEDGE:
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


def crosses_lanes(earlier: Record, later: Record) -> bool:
    """Whether different lanes of one warp touch the same bytes."""
    a, b = lane_list(earlier.origin.lanes), lane_list(later.origin.lanes)
    x, y = earlier.access, later.access
    if not later.is_ordinary or len(a) != len(x.addresses) or len(b) != len(y.addresses):
        touching = lanes_touching(earlier, later)
        return any(not later.origin.lanes >> lane & 1 for lane in touching)
    left, right = x.addresses[:, None], y.addresses[None, :]
    hit = (left < right + y.size) & (right < left + x.size)
    return bool((hit & (np.array(a)[:, None] != np.array(b)[None, :])).any())
