"""Faults: what stopped a run, as findings with stable codes."""

import re
import sys
from collections.abc import Iterator
from typing import Any

from ptxgen.emulator.checker_report import Reporter
from ptxgen.emulator.observer import Origin
from ptxgen.errors import (
    BarrierError,
    DeadlockError,
    EmulationError,
    HazardError,
    MisalignedError,
    OutOfBoundsError,
)

_BY_TEXT: tuple[tuple[type[EmulationError], str, str], ...] = (
    (BarrierError, r"no mbarrier lives", "BARRIER-UNINIT"),
    (BarrierError, r"over a live mbarrier", "BARRIER-OVERWRITTEN"),
    (BarrierError, r"arrival\(s\) with only|noComplete|threads arrived, but", "OVER-ARRIVAL"),
    (BarrierError, r"transaction bytes must stay", "TX-MISSING"),
    (BarrierError, r"setmaxnreg", "SETMAXNREG"),
    (BarrierError, r"8-byte alignment", "MISALIGNED"),
    (OutOfBoundsError, r"reaches tensor memory lanes|leaves the lanes", "TMEM-LANES"),
    (OutOfBoundsError, r"which has exited", "CLUSTER-EXIT"),
    (EmulationError, r"an endless (loop|recursion)|nested too deeply", "ENDLESS-LOOP"),
    (EmulationError, r"tcgen05\.dealloc of", "TMEM-AFTER-DEALLOC"),
    (EmulationError, r"tcgen05\.alloc after|must not grow", "TMEM-LEAK"),
    (EmulationError, r"four warps of a warpgroup must", "ALIGNED-DIVERGENT"),
)
"""(kind of error, pattern of its message, code): the first that fits."""
_COLUMNS = re.compile(r"tensor memory columns \[(\d+), (\d+)\) of CTA (\d+)")
_LOCATION = re.compile(r"CTA (\d+) warp (\d+)")


def code_of(error: EmulationError) -> str:
    """Code of a fault."""
    text = str(error)
    for kind, pattern, code in _BY_TEXT:
        if isinstance(error, kind) and re.search(pattern, text):
            return code
    if isinstance(error, DeadlockError):
        return "DEADLOCK"
    if isinstance(error, OutOfBoundsError):
        return "OUT-OF-BOUNDS"
    if isinstance(error, MisalignedError):
        return "MISALIGNED"
    return "FAULT"


def current_line() -> int | None:
    """PTX line of the generated code that is running, if it is below the caller."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == "<ptx>":
            lines = frame.f_globals["PTX_LINES"]
            index = frame.f_lineno - 1
            return int(lines[index]) or None if 0 <= index < len(lines) else None
    return None


def report_fault(reporter: Reporter, error: EmulationError) -> None:
    """Enter what stopped a run, which is an error whatever its code is by itself. A HazardError has
    been entered before it was raised."""
    if isinstance(error, HazardError):
        return
    code = code_of(error)
    columns = _COLUMNS.search(str(error))
    if columns:
        first, end, cta = (int(x) for x in columns.groups())
        if any(c == cta and a < end and first < b for c, a, b in reporter.freed):
            code = "TMEM-AFTER-DEALLOC"
    found = _LOCATION.search(str(error))
    cta, warp = (int(found[1]), int(found[2])) if found else (-1, -1)
    if isinstance(error, DeadlockError):
        for other, message, origin in explain_deadlock(reporter.machine):
            if not reporter.repeats(other, origin.line):
                reporter.add(other, message, origin)
    if not reporter.repeats(code, error.line):
        reporter.add(code, str(error), Origin(cta, warp, 0, error.line or 0), severity="error")


def _waits_for_others(fragment: Any) -> bool:
    """Whether lanes are held up by something else than lanes of their warp."""
    return fragment.wait is not None and fragment.wait.kind != "join"


def explain_deadlock(machine: Any) -> Iterator[tuple[str, str, Origin]]:
    """(code, message, waiter) for what a deadlock's barriers show by themselves."""
    if machine is None:
        return
    from ptxgen.emulator.deadlock import barrier_name, register_text

    waiting: set[tuple[int, int]] = set()
    for fragment in machine.fragments():
        wait = fragment.wait
        if wait is None:
            continue
        origin = fragment.origin(wait.line)
        warp, cta = fragment.warp, fragment.cta
        if wait.kind == "join":
            missing = warp.alive & wait.members & ~fragment.mask
            if any(f.mask & missing and _waits_for_others(f) for f in warp.fragments):
                continue  # they would come if what they wait for did: that is what hangs
            yield (
                "ALIGNED-DIVERGENT",
                f"{warp.name}: lanes {fragment.mask:#010x} wait at an instruction that the whole "
                f"warp must execute together; lanes {missing:#010x} never get there",
                origin,
            )
        elif wait.kind == "registers":
            yield "SETMAXNREG", f"{warp.name}: {register_text(fragment)}", origin
        elif wait.kind == "mbarrier":
            barrier = cta.mbarriers.live.get(wait.subject[0])
            if barrier is None or barrier.pending or not barrier.tx:
                continue
            if (cta.index, wait.subject[0]) in waiting:
                continue
            waiting.add((cta.index, wait.subject[0]))
            name = barrier_name(cta, wait.subject[0])
            what = (
                f"{barrier.tx} B are announced and never arrive"
                if barrier.tx > 0
                else f"{-barrier.tx} B more arrive than were announced"
            )
            yield (
                "TX-MISSING",
                f"mbarrier {name} of CTA {cta.index} has all arrivals of phase {barrier.phase}, "
                f"but {what}",
                origin,
            )
