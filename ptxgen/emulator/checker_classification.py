"""Classification: what to call two accesses that are not ordered, and what would order them."""

from ptxgen.emulator import clocks
from ptxgen.emulator.checker_order import Views
from ptxgen.emulator.observer import AccessKind, Space
from ptxgen.emulator.shadow import Record

MMA_READS = ("wgmma", "tcgen05_mma", "tcgen05_cp")
LOADS = ("tma_load", "bulk_load", "bulk_dsmem", "cp_async", "st_async", "red_async", "try_cancel")
STORES = ("tma_store", "tma_reduce", "bulk_store", "bulk_reduce")
TENSOR = ("tcgen05_mma", "tcgen05_cp", "tcgen05_shift", "tcgen05_ld", "tcgen05_st")


def classify(earlier: Record, later: Record) -> tuple[str, str]:
    """Code of a pair that is not ordered, and a fix where the code's own says too little."""
    reads_first = earlier.kind is AccessKind.READ
    what = earlier.what
    if later.what == "tcgen05_dealloc":
        return "TMEM-AFTER-DEALLOC", ""
    if what in STORES and reads_first:
        return "BULK-SOURCE-REUSED", ""
    if reads_first and later.what in LOADS and later.access.space is Space.SHARED:
        return "STAGE-OVERWRITTEN", ""
    if reads_first and what in MMA_READS and earlier.access.space is Space.SHARED:
        return "STAGE-OVERWRITTEN", ""
    if what in TENSOR and earlier.access.space is Space.TENSOR:
        return "WAIT-MISSING", _TENSOR_FIX.get(what, "")
    if what in LOADS and not reads_first:
        fix = ""
        if what == "cp_async":
            fix = (
                "cp.async.wait_group in the copying threads and then a barrier, or "
                "cp.async.mbarrier.arrive and a wait on that mbarrier"
            )
        elif later.kind is AccessKind.READ:
            fix = "wait for the mbarrier phase that counts the copy's bytes (full) before reading"
        return "WAIT-MISSING", fix
    if what in STORES and not reads_first and later.agent is earlier.agent:
        return "WAIT-MISSING", "execute cp.async.bulk.wait_group (without .read) first"
    apart = earlier.agent.domain is not later.agent.domain
    return "RACE", _ACROSS_CLUSTERS if apart and later.access.space is Space.GLOBAL else ""


_ACROSS_CLUSTERS = (
    "order them by a flag in global memory at gpu scope: st.release.gpu after the first access and "
    "ld.acquire.gpu before the second, or fence.acq_rel.gpu in the threads that write and read the "
    "flag, after a barrier where other threads of their CTAs made the accesses"
)
_TENSOR_FIX = {
    "tcgen05_ld": "execute tcgen05.wait::ld before the columns are handed over or overwritten",
    "tcgen05_st": "execute tcgen05.wait::st before the columns are handed over",
    "tcgen05_mma": "execute tcgen05.commit after the mma, and wait for its mbarrier",
    "tcgen05_cp": "execute tcgen05.commit after the copy, and wait for its mbarrier",
    "tcgen05_shift": "execute tcgen05.commit after the shift, and wait for its mbarrier",
}


def is_relaxed(earlier: Record, views: Views) -> bool:
    """Whether relaxed arrivals would order an access before what all views do."""
    domain = earlier.agent.domain
    return all(
        v.clock.knows(domain, c, n, clocks.RELAXED) or v.clock.knows(domain, c, n)
        for v in views
        for c, n in earlier.milestones
    )


def stores_again(earlier: Record, later: Record) -> bool:
    """Whether two CTAs store to the same global bytes by the same instruction."""
    return (
        earlier.access.space is Space.GLOBAL
        and AccessKind.READ not in (earlier.kind, later.kind)
        and earlier.origin.line == later.origin.line
        and earlier.origin.cta != later.origin.cta
    )
