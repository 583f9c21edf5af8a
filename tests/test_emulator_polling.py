"""Warps that poll: what ends it, what is reported, and how soon."""

from time import perf_counter

import numpy as np
import pytest
from emulator_kernels import STORE_R2, execute, words

from ptxgen.emulator import SCHEDULES, Options
from ptxgen.errors import DeadlockError, OutOfTimeError

POLLS = {
    "naps longer each time": ("mov.u32 %r4, 8;", "nanosleep.u32 %r4;\nadd.u32 %r4, %r4, 32;"),
    "traps after 10^8 polls": (
        "mov.u32 %r4, 0;", "add.u32 %r4, %r4, 1;\nsetp.gt.u32 %p2, %r4, 100000000;\n@%p2 trap;"
    ),
    "traps after two seconds": (
        "mov.u64 %d2, %globaltimer;",
        "mov.u64 %d3, %globaltimer;\nsub.u64 %d3, %d3, %d2;\n"
        "setp.gt.u64 %p2, %d3, 2000000000;\n@%p2 trap;",
    ),
}  # fmt: skip


def _poll(before: str, between: str) -> str:
    return f"""{before}
POLL:
ld.acquire.gpu.global.u32 %r2, [%d0];
setp.ne.u32 %p1, %r2, 0;
@%p1 bra DONE;
{between}
bra POLL;
DONE:
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", POLLS)
def test_a_poll_whose_counters_alone_move_is_reported_soon(name: str, schedule: str) -> None:
    options = Options(schedule=schedule, max_instructions=500_000)
    with pytest.raises(DeadlockError, match="poll and nothing changes"):
        execute(_poll(*POLLS[name]) + STORE_R2, np.zeros(4, np.uint32), options=options)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("clock", ["globaltimer", "clock"])
def test_time_leaps_where_nothing_else_lets_a_poll_end(clock: str, schedule: str) -> None:
    t, d = ("u64", "d") if clock == "globaltimer" else ("u32", "r")
    between = f"""mov.{t} %{d}5, %{clock};
sub.{t} %{d}5, %{d}5, %{d}4;
setp.gt.{t} %p2, %{d}5, 2000000000;
@%p2 bra DONE;"""
    body = _poll(f"mov.{t} %{d}4, %{clock};", between)
    options = Options(schedule=schedule, max_instructions=500_000)
    found = execute(body + STORE_R2, np.zeros(4, np.uint32), options=options)
    assert set(words(found, 32)) == {0}


def test_a_run_ends_where_its_time_is_over() -> None:
    body = "mov.u32 %r2, 1;\nAGAIN:\nmad.lo.u32 %r2, %r2, 5, 1;\nst.global.u32 [%d1], %r2;\n" \
           "bra AGAIN;\n"  # fmt: skip
    began = perf_counter()
    with pytest.raises(OutOfTimeError):
        execute(body, np.zeros(4, np.uint32), options=Options(deadline=began + 0.2))
    assert perf_counter() - began < 5


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_polling_until_a_time_is_over_is_no_deadlock(schedule: str) -> None:
    body = """
mov.u64 %d2, %clock64;
POLL:
ld.volatile.global.u32 %r2, [%d0];
mov.u64 %d3, %clock64;
sub.u64 %d3, %d3, %d2;
setp.lt.u64 %p1, %d3, 60000;
@%p1 bra POLL;
"""
    found = execute(body + STORE_R2, np.zeros(4, np.uint32), options=Options(schedule=schedule))
    assert set(words(found, 32)) == {0}


MEETINGS = {
    "bar.sync 0;": 1,
    "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;": 2,
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("meeting", MEETINGS, ids=["bar", "cluster"])
def test_polls_that_meet_at_a_barrier_each_time_are_reported_soon(
    meeting: str, schedule: str
) -> None:
    body = _poll("", meeting)
    options = Options(schedule=schedule, max_instructions=500_000)
    cluster = MEETINGS[meeting]
    with pytest.raises(DeadlockError, match="poll and nothing changes"):
        execute(body, np.zeros(4, np.uint32), threads=96, cluster=cluster, grid=cluster,
                options=options)  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("keeps", ["register", "local", "vote"])
def test_a_count_that_ends_is_no_deadlock_whoever_keeps_it(keeps: str, schedule: str) -> None:
    count = {
        "register": "add.u32 %r4, %r4, 1;",
        "local": "ld.local.u32 %r4, [kept];\nadd.u32 %r4, %r4, 1;\nst.local.u32 [kept], %r4;",
        # the number of threads whose own count is up decides, and comes from all warps
        "vote": "add.u32 %r5, %r5, 1;\nsetp.gt.u32 %p3, %r5, 3000;\n"
                "barrier.cta.red.popc.aligned.u32 %r4, 1, %p3;\nmul.lo.u32 %r4, %r4, 3000;",
    }[keeps]  # fmt: skip
    body = f"""mov.u32 %r4, 0;
mov.u32 %r5, %r0;
st.local.u32 [kept], %r4;
AGAIN:
ld.volatile.global.u32 %r2, [%d0];
bar.sync 0;
{count}
setp.lt.u32 %p1, %r4, 3000;
@%p1 bra AGAIN;
"""
    found = execute(
        body + STORE_R2, np.zeros(4, np.uint32), threads=64, shared=".local .b32 kept;\n",
        options=Options(schedule=schedule),
    )  # fmt: skip
    assert set(words(found, 64)) == {0}
