"""Reports of runs that cannot go on."""

from typing import TYPE_CHECKING

from ptxgen.emulator.fragment import Fragment
from ptxgen.errors import DeadlockError

if TYPE_CHECKING:
    from ptxgen.emulator.cta import Cta
    from ptxgen.emulator.machine import Machine
    from ptxgen.emulator.warp import Warp

MAX_LINES = 40


def deadlock_report(machine: "Machine") -> DeadlockError:
    """The error for a grid in which every warp waits and nothing is in flight."""
    lines = []
    first_line: int | None = None
    for fragment in machine.fragments():
        wait = fragment.wait
        if wait is not None and first_line is None and wait.kind != "join":
            first_line = wait.line
        lines.append(f"  {fragment.warp.name}{_lanes(fragment)}: {describe(fragment)}")
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"  ... and {len(lines) - MAX_LINES} more"]
    return DeadlockError(
        "deadlock: every warp waits and nothing in flight can release one\n" + "\n".join(lines),
        first_line,
    )


def spinning_report(machine: "Machine", warp: "Warp") -> str:
    """The message for warps that poll for something that never changes."""
    lines = [f"  {f.warp.name}{_lanes(f)}: {describe(f)}" for f in machine.fragments()]
    return (
        "livelock: warps poll and nothing changes, whatever clusters may still start\n"
        + "\n".join(lines[:MAX_LINES])
    )


def describe(fragment: Fragment) -> str:
    """What a fragment waits for, with the state of the barrier."""
    wait = fragment.wait
    if wait is None:
        position = fragment.next.position if fragment.next is not None else -1
        body = fragment.next.program.flow.body if fragment.next is not None else ()
        line = body[position].line if 0 <= position < len(body) else 0
        return f"runs at line {line}"
    at = f"line {wait.line}: " if wait.line else ""
    cta = fragment.cta
    if wait.kind == "mbarrier":
        offset, parity = wait.subject[0], wait.subject[1]
        barrier = cta.mbarriers.live.get(offset)
        return f"{at}waits for parity {parity} of mbarrier {barrier_name(cta, offset)}: {barrier}"
    if wait.kind == "bar":
        state = cta.barriers[wait.subject]
        needed = state.count or 32 * cta.num_live_warps()
        return (
            f"{at}waits at barrier {wait.subject}: {state.arrived} of {needed} threads have arrived"
        )
    if wait.kind == "cluster":
        missing = [
            w.name
            for c in cta.cluster.ctas
            for w in c.warps
            if w.alive & ~cta.cluster.arrived.get(w, 0)
        ]
        return f"{at}waits at the cluster barrier for {', '.join(missing[:6])}"
    if wait.kind == "join":
        missing_lanes = fragment.warp.alive & wait.members & ~fragment.mask
        return (
            f"{at}must be executed by all lanes together; lanes {missing_lanes:#010x} are elsewhere"
        )
    if wait.kind == "registers":
        return f"{at}{register_text(fragment)}"
    if wait.kind == "wgmma":
        return f"{at}waits for a wgmma that not all four warps of the warpgroup have issued"
    return f"{at}waits ({wait.kind})"


def register_text(fragment: Fragment) -> str:
    """What a setmaxnreg that waits asks for, and what there is."""
    assert fragment.wait is not None
    _, count = fragment.wait.subject
    pool = fragment.cta.registers
    return (
        f"setmaxnreg asks for {count} registers per thread, {pool.needed(fragment, count)} more "
        f"than its warp has, but the other warps of the CTA have given back {pool.free}"
    )


def barrier_name(cta: "Cta", offset: int) -> str:
    """Symbol and offset of a shared address, as the PTX names it."""
    best = ""
    start = -1
    for name, address in cta.machine.image.shared.items():
        if start < address <= offset:
            best, start = name.split("::")[-1], address
    if start < 0:
        return f"at {offset:#x}"
    return f"{best}+{offset - start:#x}" if offset > start else best


def _lanes(fragment: Fragment) -> str:
    return "" if fragment.mask == fragment.warp.alive else f" lanes {fragment.mask:#010x}"
