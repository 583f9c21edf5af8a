"""Findings of a checked run: stable codes, how severe each is, and what would fix it.

Each is explained in docs/checking.md. Source of the rules: PTX ISA 9.0, "Memory Consistency Model",
"Async proxy" and the sections of the instructions.
"""

from dataclasses import asdict, dataclass
from typing import Any

SEVERITIES = ("error", "warning", "advice")


@dataclass(frozen=True)
class CodeInfo:
    """What one code stands for."""

    strict: str
    """Severity for our own kernels; empty = not reported."""
    tolerant: str
    """Severity for PTX that other compilers wrote."""
    meaning: str
    fix: str
    """What usually mends it; a finding may say it more exactly."""


_E, _W, _A = SEVERITIES

CODES: dict[str, CodeInfo] = {
    "RACE": CodeInfo(
        _E, _E, "two accesses to the same bytes, one of them a write, are not ordered",
        "order them: a barrier, or arrive and wait on an mbarrier, between the two",
    ),
    "PROXY-MISSING": CodeInfo(
        _E, _E, "the async proxy touches bytes that ordinary stores wrote, with no proxy fence",
        "execute fence.proxy.async in every writing thread, after its writes and before the "
        "barrier that hands the bytes over",
    ),
    "PROXY-WRONG-SIDE": CodeInfo(
        _E, _W, "the proxy fence was executed by another thread than the writer, after the barrier",
        "move fence.proxy.async into the writing threads, before the barrier",
    ),
    "PROXY-WAR": CodeInfo(
        _A, "", "the async proxy overwrites bytes that ordinary loads read, with no proxy fence",
        "execute fence.proxy.async in the reading threads before they release the bytes",
    ),
    "STAGE-OVERWRITTEN": CodeInfo(
        _E, _E, "a copy overwrites a stage that may still be read",
        "wait on the empty mbarrier before the copy, and let every reader arrive there only after "
        "its reads are done (wgmma.wait_group, tcgen05.commit)",
    ),
    "WAIT-MISSING": CodeInfo(
        _E, _E, "the result of an asynchronous operation is used without waiting for it",
        "wait for the operation: its mbarrier phase, its group, or tcgen05.wait",
    ),
    "TX-MISSING": CodeInfo(
        _E, _E, "announced and delivered transaction bytes of an mbarrier differ",
        "make expect_tx announce exactly the bytes of all copies of the phase",
    ),
    "TX-LATE": CodeInfo(
        _E, _E, "bytes of a copy count in a later phase than the one in which it was issued",
        "announce the bytes of all copies of a phase in its expect_tx",
    ),
    "PARITY-LAPPED": CodeInfo(
        _E, _W, "an mbarrier can complete two phases before a thread has waited for the first, "
        "whose parity then looks incomplete",
        "let every waiting warp take part in what starts the next phase (an arrive on the empty "
        "barrier, or a barrier with the thread that arrives)",
    ),
    "OVER-ARRIVAL": CodeInfo(
        _E, _E, "more arrivals than the mbarrier expects in a phase; strict: or a last phase that "
        "some of them began",
        "make mbarrier.init's count the number of arrivals, or elect who arrives",
    ),
    "BARRIER-UNINIT": CodeInfo(
        _E, _E, "an mbarrier is used before its init, or not ordered after it",
        "initialise it first, and put a barrier between the init and all other threads' uses",
    ),
    "BARRIER-OVERWRITTEN": CodeInfo(
        _E, _E, "the bytes of a live mbarrier are written",
        "place the mbarrier outside of the data, or execute mbarrier.inval before the bytes are "
        "reused",
    ),
    "DEADLOCK": CodeInfo(
        _E, _E, "all warps wait and nothing in flight can release one, or a loop cannot end",
        "compare who must arrive with who does: counts, transaction bytes, parities",
    ),
    "OUT-OF-BOUNDS": CodeInfo(
        _E, _E, "an access outside of buffers, shared memory or tensor memory",
        "correct the address, or guard the access",
    ),
    "INPUT-WRITTEN": CodeInfo(
        _E, _W, "a buffer is written whose role in the launch is in",
        "correct the address, or give the buffer the role inout",
    ),
    "FLAG-LEFT-SET": CodeInfo(
        _E, _W, "a word of a workspace that threads synchronise through is not zero after the "
        "launch",
        "let whoever has waited for it write zero, behind its last use",
    ),
    "MISALIGNED": CodeInfo(
        _E, _E, "an address without the alignment that the access needs", "align the address",
    ),
    "UNINIT-SMEM": CodeInfo(
        _E, _W, "shared memory is read that nothing wrote", "write the bytes first",
    ),
    "UNINIT-TMEM": CodeInfo(
        _E, _W, "tensor memory is read that nothing wrote since its allocation",
        "let the first multiplication overwrite the accumulator (enable-input-d false)",
    ),
    "UNINIT-REGISTER": CodeInfo(
        _E, _A, "a register is read that nothing wrote", "assign it on every path",
    ),
    "ACCUMULATOR-IN-FLIGHT": CodeInfo(
        _E, _W, "registers of a wgmma in flight are touched",
        "execute wgmma.wait_group before the registers are read or written",
    ),
    "WGMMA-FENCE-MISSING": CodeInfo(
        _E, _W, "a wgmma uses registers that were touched since the last wgmma.fence",
        "execute wgmma.fence.sync.aligned between those accesses and the wgmma",
    ),
    "BULK-SOURCE-REUSED": CodeInfo(
        _E, _E, "the source of a bulk store may be overwritten, or lost at exit, before it is read",
        "let the thread that stored execute cp.async.bulk.wait_group.read, then a barrier, before "
        "the bytes are reused or the CTA exits",
    ),
    "TCGEN-BEFORE": CodeInfo(
        _E, _W, "tcgen05 work is handed to another thread without fence::before_thread_sync",
        "execute tcgen05.fence::before_thread_sync after the tcgen05 instruction, before the "
        "arrive or barrier",
    ),
    "TCGEN-AFTER": CodeInfo(
        _E, _W, "tcgen05 work of another thread is used without fence::after_thread_sync",
        "execute tcgen05.fence::after_thread_sync after the wait, before the tcgen05 instruction",
    ),
    "TMEM-LEAK": CodeInfo(
        _E, _E, "tensor memory is still allocated when the CTA exits",
        "execute tcgen05.dealloc for every tcgen05.alloc",
    ),
    "TMEM-AFTER-DEALLOC": CodeInfo(
        _E, _E, "tensor memory is used after its deallocation, or freed while in use",
        "wait for all uses (tcgen05.wait, commits) and order them before tcgen05.dealloc",
    ),
    "TMEM-LANES": CodeInfo(
        _E, _E, "a warp reaches tensor memory lanes of another warp",
        "warp w reaches lanes 32 * (w % 4) to 32 * (w % 4) + 31 only",
    ),
    "SETMAXNREG": CodeInfo(
        _E, _W, "a rule of setmaxnreg is broken",
        "let all warps of a warpgroup execute it, and keep the sum within the entry's registers",
    ),
    "ALIGNED-DIVERGENT": CodeInfo(
        _E, _E, "an instruction that the whole warp must execute is reached by part of it",
        "let all lanes reach it together",
    ),
    "CLUSTER-EXIT": CodeInfo(
        _E, _W, "a CTA may exit while others still signal or touch its shared memory",
        "end with barrier.cluster.arrive and wait, or wait for the last remote accesses",
    ),
    "INIT-FENCE-MISSING": CodeInfo(
        _E, _W, "mbarrier.init is not published to the cluster and the async proxy",
        "execute fence.mbarrier_init.release.cluster after the inits, before the barrier",
    ),
    "TENSORMAP-FENCE-MISSING": CodeInfo(
        _E, _E, "a tensor map that the kernel wrote is used without a tensormap proxy fence",
        "execute fence.proxy.tensormap::generic.acquire on the map in the using thread",
    ),
    "NONDETERMINISTIC": CodeInfo(
        _E, _E, "results differ between schedules",
        "see the other findings; without any, the order of floating-point sums may vary",
    ),
    "DEPENDENT-LAUNCH": CodeInfo(
        _E, _E, "memory of an earlier kernel is used without griddepcontrol.wait",
        "execute griddepcontrol.wait before the first such access",
    ),
    "ENDLESS-LOOP": CodeInfo(
        _E, _E, "more instructions were executed, or more calls nested, than a run may take",
        "see what the loop's end depends on, or raise max_instructions",
    ),
    "FORM": CodeInfo(
        _E, _W, "the text is not one that ptxas takes: a form that its target or .version lacks",
        "use what the target has, or raise .version or .target",
    ),
    "FAULT": CodeInfo(_E, _E, "execution stopped with another fault", "see the message"),
}  # fmt: skip


@dataclass(slots=True)
class Finding:
    """One hazard. Repetitions at the same lines are counted, not listed."""

    code: str
    """Key of CODES."""
    severity: str
    """One of SEVERITIES."""
    message: str
    """What happened: instructions, warps, bytes."""
    line: int | None = None
    """PTX line of the access that completes the hazard."""
    other_line: int | None = None
    """PTX line of the earlier access, where there are two."""
    cta: int = -1
    """Linear CTA index."""
    warps: tuple[int, ...] = ()
    """Warps of the later and the earlier access, each in its CTA."""
    space: str = ""
    """shared, global, tensor, or nothing."""
    addresses: tuple[int, int] | None = None
    """(first byte, bytes). Shared: offset in the CTA's window; tensor: 4 * (512 lane + column)."""
    barrier: str = ""
    """Symbol and offset of the mbarrier."""
    fix: str = ""
    schedule: str = ""
    """Schedule that shows it; with `seed` it replays."""
    seed: int = 0
    count: int = 1
    """How often it occurred in that schedule."""
    instruction: str = ""
    """Text at `line`."""
    other_instruction: str = ""
    """Text at `other_line`."""

    @property
    def key(self) -> tuple[str, int | None, int | None]:
        """What makes two occurrences the same finding."""
        return self.code, self.line, self.other_line

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        where = f"line {self.line}: " if self.line else ""
        replay = f"\n  replay: schedule={self.schedule} seed={self.seed}" if self.schedule else ""
        return (
            f"{self.severity} {self.code}{times}: {where}{self.message}\n  fix: {self.fix}{replay}"
        )
