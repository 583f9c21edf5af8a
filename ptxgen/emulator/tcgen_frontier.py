"""The tcgen05 frontier: fence::before_thread_sync and ::after_thread_sync, and what needs neither.

Source: PTX ISA 9.0, "tcgen05 Memory Consistency Model Operations".
"""

from collections.abc import Sequence

from ptxgen.emulator import clocks
from ptxgen.emulator.checker_order import View
from ptxgen.emulator.checker_report import Reporter, warps_text
from ptxgen.emulator.shadow import Record, overlap

_IN_ORDER = frozenset({
    ("tcgen05_mma", "tcgen05_mma"), ("tcgen05_cp", "tcgen05_mma"), ("tcgen05_cp", "tcgen05_cp"),
    ("tcgen05_shift", "tcgen05_mma"), ("tcgen05_mma", "tcgen05_shift"),
    ("tcgen05_shift", "tcgen05_cp"), ("tcgen05_shift", "tcgen05_shift"),
    # Not in the PTX text, but block-scaled kernels of CUTLASS refill the same scale columns.
    ("tcgen05_mma", "tcgen05_cp"),
})  # fmt: skip
"""Kinds of two operations of one thread that the tensor core performs in order."""


def is_pipelined(earlier: Record, later: Record) -> bool:
    """Whether one thread issued both and the hardware keeps their order."""
    return (
        earlier.agent is later.agent
        and earlier.origin.lanes == later.origin.lanes
        and (earlier.what, later.what) in _IN_ORDER
    )


def check_frontier(
    reporter: Reporter, earlier: Record, later: Record, views: Sequence[View]
) -> None:
    """tcgen05 work `earlier` of another warp is followed, in order, by `later`."""
    view = views[0]
    if earlier.agent is view.agent or (later.what == "tcgen05_dealloc" and not reporter.strict):
        return
    domain = earlier.agent.domain
    clock = view.clock
    if not all(clock.knows(domain, c, v, clocks.TENSOR) for c, v in earlier.milestones):
        code = "TCGEN-BEFORE"
    else:
        after = view.agent.tensor_after
        if after is not None and all(
            c < after.shape[0] and after[c] >= v for c, v in earlier.milestones
        ):
            return
        code = "TCGEN-AFTER"
    if reporter.repeats(code, later.origin.line, earlier.origin.line):
        return
    first, size = overlap(earlier.access, later.access)
    name = reporter.bytes_name(later.access.space, later.access.owner, first, size)
    side = (
        f"{earlier.agent.name} executed no tcgen05.fence::before_thread_sync in between"
        if code == "TCGEN-BEFORE"
        else f"{view.agent.name} executed no tcgen05.fence::after_thread_sync in between"
    )
    reporter.add(
        code,
        f"`{reporter.brief(later.origin.line)}` by {warps_text(later.origin)} uses {name}, as "
        f"`{reporter.brief(earlier.origin.line)}` at line {earlier.origin.line} by "
        f"{warps_text(earlier.origin)} did before; {side}",
        later.origin, other=earlier.origin, access=later.access, addresses=(first, size),
    )  # fmt: skip
