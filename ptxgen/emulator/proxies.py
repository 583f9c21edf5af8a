"""The frontier between the generic and the async proxy.

Ordinary accesses must be fenced by the threads that made them before a copy or a tensor core
touches the bytes; the other direction needs nothing, since waiting for a completion implies the
fence. Source: PTX ISA 9.0, "Async proxy".
"""

from collections.abc import Sequence

from ptxgen.emulator import clocks
from ptxgen.emulator.checker_agents import Agent
from ptxgen.emulator.checker_order import View, lanes_touching
from ptxgen.emulator.checker_report import Reporter, warps_text
from ptxgen.emulator.lanes import lane_list
from ptxgen.emulator.observer import Access, AccessKind, Space
from ptxgen.emulator.shadow import Record, Shadow, distinct, overlap

_BOTH = (clocks.FENCED_SHARED, clocks.FENCED_GLOBAL)


def fence_proxy(agent: Agent, lanes: int, kind: str) -> None:
    """fence.proxy.KIND of some lanes."""
    parts = kind.split(".")
    if not parts[0].startswith("async"):
        if "tensormap" in parts[0] and "acquire" in kind:
            agent.tensor_maps = agent.clock_of(lanes).copy()
        return
    if "global" in parts:
        agent.fence_proxy(lanes, (clocks.PROXY_GLOBAL,), (clocks.FENCED_GLOBAL,))
    elif any("shared::cta" in p for p in parts) and "sync_restrict" not in kind:
        agent.fence_proxy(lanes, (clocks.PROXY_CTA,), (clocks.FENCED_SHARED,))
    elif any("shared::" in p for p in parts):
        agent.fence_proxy(lanes, (clocks.PROXY_CTA, clocks.PROXY_CLUSTER), (clocks.FENCED_SHARED,))
    else:
        agent.fence_proxy(lanes, clocks.PROXY_FENCES, _BOTH)


def check_proxies(
    reporter: Reporter, earlier: Record, later: Record, views: Sequence[View]
) -> None:
    """An ordinary access `earlier` is followed, in order, by `later` in the async proxy."""
    if earlier.kind is AccessKind.READ and later.kind is AccessKind.READ:
        return
    code = ""
    for view in views:
        if fenced_by_owner(earlier, later, view):
            continue
        if fenced_by_another(earlier, view):
            code = code or "PROXY-WRONG-SIDE"
        else:
            code = "PROXY-MISSING"
    if not code:
        return
    if earlier.what == "cp_async" and code == "PROXY-WRONG-SIDE":
        return  # its bytes may arrive by an mbarrier, and then only the waiting side can fence
    if earlier.kind is AccessKind.READ:
        code = "PROXY-WAR"
    if reporter.repeats(code, later.origin.line, earlier.origin.line):
        return
    first, size = overlap(earlier.access, later.access)
    name = reporter.bytes_name(later.access.space, later.access.owner, first, size)
    done = "read" if earlier.kind is AccessKind.READ else "wrote"
    does = "reads" if later.kind is AccessKind.READ else "writes"
    side = {
        "PROXY-MISSING": "no fence.proxy.async lies between the two",
        "PROXY-WAR": "no fence.proxy.async of the reader lies between the two",
        "PROXY-WRONG-SIDE": "only another thread than the writer executed fence.proxy.async",
    }[code]
    reporter.add(
        code,
        f"`{reporter.brief(later.origin.line)}` by {warps_text(later.origin)} {does} {name} in the "
        f"async proxy, which `{reporter.brief(earlier.origin.line)}` at line {earlier.origin.line} "
        f"by {warps_text(earlier.origin)} {done}; {side}",
        later.origin, other=earlier.origin, access=later.access, addresses=(first, size),
    )  # fmt: skip


def check_tensor_map(
    reporter: Reporter, shadow: Shadow, access: Access, agent: Agent
) -> None:  # fmt: skip
    """A tensor map in memory is read by a copy: who wrote it in this kernel must be fenced off."""
    lanes = access.origin.lanes
    for number in distinct(shadow.region(access).get(shadow.writers)):
        for record in shadow.table.records(number):
            fenced = agent.tensor_maps
            component, value = record.milestones[0]
            domain = record.agent.domain
            if fenced is not None and (
                record.agent is agent or fenced.knows(domain, component, value)
            ):
                continue
            if reporter.repeats("TENSORMAP-FENCE-MISSING", access.origin.line, record.origin.line):
                continue
            known = record.agent is agent or agent.clock_of(lanes).knows(domain, component, value)
            reporter.add(
                "TENSORMAP-FENCE-MISSING",
                f"`{reporter.brief(access.origin.line)}` by {warps_text(access.origin)} uses a "
                f"tensor map that {warps_text(record.origin)} wrote at line {record.origin.line}, "
                + (
                    "and has not executed fence.proxy.tensormap::generic.acquire since"
                    if known
                    else "and nothing orders the two"
                ),
                access.origin, other=record.origin, access=access,
                addresses=(int(access.addresses[0]), access.size),
            )  # fmt: skip


def fenced_by_owner(earlier: Record, later: Record, view: View) -> bool:
    """Whether the thread that made an access fenced it afterwards, as far as a view knows."""
    agent = earlier.agent
    access = earlier.access
    if earlier.what == "cp_async":
        value = earlier.milestones[0][1]
        return view.clock.knows(agent.domain, agent.first + clocks.PROXY_COPIES, value)
    which = clocks.PROXY_GLOBAL
    if access.space is Space.SHARED:
        which = clocks.PROXY_CTA if access.owner == agent.cta else clocks.PROXY_CLUSTER
    if view.clock.knows(agent.domain, agent.first + which, earlier.epoch):
        return True
    lanes = earlier.origin.lanes
    if view.agent is agent and agent.apart.get((agent.first + which, clocks.KNOWN), 0) >= (
        earlier.epoch
    ):
        others = lanes & ~view.lanes
        if not others or not any(others >> n & 1 for n in lanes_touching(earlier, later)):
            return True
    if not any(agent.lane_component(lane, which) for lane in lane_list(lanes)):
        return False
    for lane in lanes_touching(earlier, later):
        component = agent.lane_component(lane, which)
        if not component or not view.clock.knows(agent.domain, component, earlier.epoch):
            return False
    return True


def fenced_by_another(earlier: Record, view: View) -> bool:
    """Whether some thread fenced when it knew of the access."""
    shared = earlier.access.space is Space.SHARED
    row = clocks.FENCED_SHARED if shared else clocks.FENCED_GLOBAL
    domain = earlier.agent.domain
    if all(view.clock.knows(domain, c, v, row) for c, v in earlier.milestones):
        return True
    other = earlier.alternative
    return other is not None and view.clock.knows(domain, *other, row)
