"""Meetings: named barriers and cluster barriers, which join what their participants know."""

from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.clocks import Clock, Domain
from ptxgen.emulator.observer import Rendezvous

Place = tuple[str, int, int]
"""Kind, CTA (cluster: identity of its domain), index."""


class Meetings:
    """The clock of every barrier and generation that somebody has not passed yet."""

    def __init__(self) -> None:
        self._clocks: dict[Place, dict[int, Clock]] = {}

    def pass_through(self, event: Rendezvous, agent: Agent, domain: Domain) -> None:
        """A warp arrives at, or passes, bar or barrier.cluster."""
        origin = event.origin
        cluster = event.barrier == "cluster"
        place = (event.barrier, id(domain) if cluster else origin.cta, event.index)
        generations = self._clocks.setdefault(place, {})
        clock = generations.get(event.generation)
        if event.kind == "arrive":
            if clock is None:
                for old in [g for g in generations if g < event.generation - 1]:
                    del generations[old]
                clock = generations[event.generation] = Clock(domain)
            if event.relaxed:
                self._arrive_relaxed(agent, origin.lanes, clock)
            else:
                agent.release(origin.lanes, clock)
        elif clock is not None:
            agent.acquire(origin.lanes, clock)
            if not cluster or agent.is_full(origin.lanes):
                agent.synchronise(origin.lanes)

    def _arrive_relaxed(self, agent: Agent, lanes: int, clock: Clock) -> None:
        """Only what a fence has published before; the rest is known in a relaxed way."""
        cut = agent.cut()
        own = agent.clock_of(lanes).copy()
        own.set(agent.first, cut)
        clock.join_relaxed(own)
        if agent.fence_clock is not None:
            clock.join(agent.fence_clock)
        agent.publish_inits(lanes, clock)

    def drop(self, ctas: set[int]) -> None:
        """CTAs are gone; a cluster's clocks go with its domain's identity."""
        for place in [p for p in self._clocks if p[0] == "cta" and p[1] in ctas]:
            del self._clocks[place]
        for place in [p for p in self._clocks if p[0] == "cluster"]:
            del self._clocks[place]
