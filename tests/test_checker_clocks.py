"""Vector clocks, and what single lanes of a warp know."""

import numpy as np

from ptxgen.emulator import clocks
from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.clocks import FENCED_SHARED, KNOWN, RELAXED, Clock, Domain

FULL = 0xFFFFFFFF


def agent(domain: Domain, warp: int = 0, by_lane: bool = True) -> Agent:
    found = Agent(domain, 0, warp, by_lane)
    found.alive = FULL
    return found


def test_a_join_knows_what_either_side_knew() -> None:
    domain = Domain()
    a, b = domain.add(), domain.add()
    left, right = Clock(domain), Clock(domain)
    left.set(a, 3)
    right.set(a, 1)
    right.set(b, 7)
    left.join(right)
    assert left.knows(domain, a, 3)
    assert left.knows(domain, b, 7)
    assert not left.knows(domain, b, 8)


def test_clocks_grow_with_their_domain() -> None:
    domain = Domain()
    old = Clock(domain)
    late = domain.add(200)
    new = Clock(domain)
    new.set(late + 150, 5)
    assert not old.knows(domain, late + 150, 1)
    old.join(new)
    assert old.knows(domain, late + 150, 5)


def test_knowledge_of_another_cluster_travels_along() -> None:
    here, there, third = Domain(), Domain(), Domain()
    component = there.add()
    source, carrier, goal = Clock(there), Clock(here), Clock(third)
    source.set(component, 4)
    carrier.join(source)
    goal.join(carrier)
    assert goal.knows(there, component, 4)
    assert not goal.knows(here, component, 4)


def test_a_relaxed_join_makes_nothing_known() -> None:
    domain = Domain()
    a = domain.add()
    mine, other = Clock(domain), Clock(domain)
    other.set(a, 2)
    mine.join_relaxed(other)
    assert not mine.knows(domain, a, 1)
    assert mine.knows(domain, a, 2, RELAXED)


def test_a_release_covers_the_accesses_before_it_alone() -> None:
    domain = Domain()
    writer, target = agent(domain), Clock(domain)
    before = writer.mark()
    writer.release(FULL, target)
    after = writer.mark()
    assert target.knows(domain, writer.first + clocks.ACCESSES, before)
    assert not target.knows(domain, writer.first + clocks.ACCESSES, after)


def test_one_lane_releases_for_itself_alone() -> None:
    domain = Domain()
    writer, target = agent(domain), Clock(domain)
    epoch = writer.mark()
    writer.release(1 << 5, target)
    assert target.knows(domain, writer.first + clocks.ACCESSES, epoch)
    assert not target.knows(domain, writer.first + clocks.LANES, epoch)
    assert target.knows(domain, writer.lane_component(5), epoch)


def test_one_lane_releases_for_all_after_the_warp_has_synchronised() -> None:
    domain = Domain()
    writer, target = agent(domain), Clock(domain)
    epoch = writer.mark()
    writer.synchronise(FULL)
    writer.release(1, target)
    assert target.knows(domain, writer.first + clocks.LANES, epoch)


def test_what_one_lane_acquires_reaches_the_warp_when_it_synchronises() -> None:
    domain = Domain()
    reader, published = agent(domain), Clock(domain)
    component = domain.add()
    published.set(component, 1)
    reader.acquire(1, published)
    assert reader.clock_of(1).knows(domain, component, 1)
    assert not reader.clock_of(FULL).knows(domain, component, 1)
    reader.synchronise(FULL)
    assert reader.clock_of(FULL).knows(domain, component, 1)


def test_tolerant_checking_takes_a_warp_for_one_thread() -> None:
    domain = Domain()
    reader, published = agent(domain, by_lane=False), Clock(domain)
    component = domain.add()
    published.set(component, 1)
    reader.acquire(1, published)
    assert reader.clock_of(FULL).knows(domain, component, 1)


def test_a_proxy_fence_covers_what_its_thread_knew_then() -> None:
    domain = Domain()
    other, fencing, handed = agent(domain), agent(domain, 1), Clock(domain)
    early = other.mark()
    other.release(FULL, handed)
    late = other.mark()
    fencing.acquire(FULL, handed)
    fencing.fence_proxy(FULL, (clocks.PROXY_CTA,), (FENCED_SHARED,))
    other.release(FULL, handed)
    fencing.acquire(FULL, handed)
    accesses = other.first + clocks.ACCESSES
    assert fencing.clock.knows(domain, accesses, early, FENCED_SHARED)
    assert fencing.clock.knows(domain, accesses, late, KNOWN)
    assert not fencing.clock.knows(domain, accesses, late, FENCED_SHARED)


def test_lanes_that_differ_know_what_all_of_them_know() -> None:
    domain = Domain()
    warp = agent(domain)
    a, b = domain.add(), domain.add()
    for lane, component in ((0, a), (1, b)):
        clock = Clock(domain)
        clock.set(component, 1)
        clock.set(domain.width - 1, 1)
        warp.acquire(1 << lane, clock)
    both = warp.clock_of(0b11)
    assert np.count_nonzero(both.rows[KNOWN]) == 1
    assert both.knows(domain, domain.width - 1, 1)
