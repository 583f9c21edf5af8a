"""Scheduling: waits, named barriers, what is reported as stuck, and how runs are replayed."""

import numpy as np
import pytest
from emulator_kernels import STORE_R2, execute, words

from ptxgen.emulator import SCHEDULES, Options
from ptxgen.errors import BarrierError, DeadlockError, EmulationError

RING = """
setp.ne.u32 %p1, %r0, 0;
@%p1 bra READY;
mbarrier.init.shared.b64 [full], 1;
mbarrier.init.shared.b64 [empty], 32;
fence.mbarrier_init.release.cluster;
READY:
bar.sync 0;
setp.lt.u32 %p2, %r0, 32;
mov.u32 %r10, 0;
mov.u32 %r2, 0;
@%p2 bra CONSUMER;
setp.ne.u32 %p3, %r0, 32;
@%p3 bra END;
PRODUCE:
and.b32 %r11, %r10, 1;
xor.b32 %r12, %r11, 1;
FREE:
mbarrier.try_wait.parity.shared.b64 %p4, [empty], %r12;
@!%p4 bra FREE;
mbarrier.arrive.expect_tx.shared.b64 _, [full], 128;
mul.wide.u32 %d4, %r10, 128;
add.s64 %d4, %d4, %d0;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d4], 128, [full];
add.u32 %r10, %r10, 1;
setp.lt.u32 %p5, %r10, 6;
@%p5 bra PRODUCE;
bra END;
CONSUMER:
and.b32 %r11, %r10, 1;
TAKE:
WAIT_FULL
@!%p4 bra TAKE;
mov.u32 %r13, tile;
shl.b32 %r14, %r1, 2;
add.u32 %r13, %r13, %r14;
ld.shared.u32 %r15, [%r13];
add.u32 %r2, %r2, %r15;
mbarrier.arrive.shared.b64 _, [empty];
add.u32 %r10, %r10, 1;
setp.lt.u32 %p5, %r10, 6;
@%p5 bra CONSUMER;
mul.wide.u32 %d30, %r0, 4;
add.s64 %d30, %d30, %d1;
st.global.u32 [%d30], %r2;
END:
"""

WAIT_FULL = "mbarrier.try_wait.parity.shared.b64 %p4, [full], %r11;"

SHARED = """.shared .align 128 .b8 tile[128];
.shared .align 8 .b64 full;
.shared .align 8 .b64 empty;
"""

DATA = np.arange(6 * 32, dtype=np.uint32) * 3 + 1


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_ring_of_one_stage_carries_all_tiles_under_every_schedule(schedule: str) -> None:
    body = RING.replace("WAIT_FULL", WAIT_FULL)
    found = execute(
        body, DATA, shared=SHARED, threads=64, options=Options(schedule=schedule, seed=5)
    )
    assert words(found).tolist() == DATA.reshape(6, 32).sum(axis=0).tolist()


def test_a_dropped_wait_reads_poison_when_copies_complete_late() -> None:
    body = """
setp.ne.u32 %p1, %r0, 0;
@%p1 bra READY;
mbarrier.init.shared.b64 [full], 1;
mbarrier.arrive.expect_tx.shared.b64 _, [full], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d0], 128, [full];
READY:
bar.sync 0;
mov.u32 %r13, tile;
shl.b32 %r14, %r1, 2;
add.u32 %r13, %r13, %r14;
ld.shared.u32 %r2, [%r13];
"""
    late, early = (
        words(execute(body + STORE_R2, DATA, shared=SHARED, options=Options(schedule)))
        for schedule in ("lazy", "eager")
    )
    assert set(late) == {0xFFFFFFFF}
    assert early.tolist() == DATA[:32].tolist()


def test_a_random_schedule_replays_from_its_seed() -> None:
    body = RING.replace("WAIT_FULL", WAIT_FULL)
    counts = [
        execute(
            body, DATA, shared=SHARED, threads=64, options=Options("random", seed)
        ).num_instructions
        for seed in (1, 1, 2, 3)
    ]
    assert counts[0] == counts[1]
    assert len(set(counts)) > 1


def test_a_deadlock_names_line_barrier_parity_and_what_is_missing() -> None:
    body = RING.replace("WAIT_FULL", WAIT_FULL).replace("[full], 128;", "[full], 144;")
    with pytest.raises(DeadlockError) as caught:
        execute(body, DATA, shared=SHARED, threads=64)
    text = str(caught.value)
    assert "CTA 0 warp 0" in text
    assert "waits for parity 0 of mbarrier full" in text
    assert "16 B outstanding" in text
    assert "CTA 0 warp 1: line" in text
    assert "mbarrier empty" in text
    assert caught.value.line is not None


def test_a_try_wait_used_as_a_peek_returns_false_rather_than_hanging() -> None:
    body = """
setp.ne.u32 %p1, %r0, 0;
@%p1 bra READY;
mbarrier.init.shared.b64 [full], 1;
READY:
bar.sync 0;
mbarrier.try_wait.parity.shared.b64 %p2, [full], 0;
selp.u32 %r2, 10, 20, %p2;
bar.sync 0;
@%p1 bra LATER;
mbarrier.arrive.shared.b64 _, [full];
LATER:
LOOP:
mbarrier.test_wait.parity.shared.b64 %p2, [full], 0;
@!%p2 bra LOOP;
"""
    found = execute(body + STORE_R2, shared=".shared .align 8 .b64 full;", threads=64)
    assert set(words(found, 64)) == {20}


def test_named_barriers_count_threads_and_arrive_does_not_wait() -> None:
    # warp 1 only arrives; warp 0 waits for it and then reads what it wrote
    body = """
setp.ge.u32 %p1, %r0, 32;
mov.u32 %r3, cell;
@%p1 bra WRITE;
bar.sync 3, 64;
ld.shared.u32 %r2, [%r3];
bra STORE;
WRITE:
mov.u32 %r2, 41;
st.shared.u32 [%r3], 42;
bar.arrive 3, 64;
STORE:
"""
    shared = ".shared .align 4 .b32 cell;"
    found = words(execute(body + STORE_R2, shared=shared, threads=64), 64)
    assert found.tolist() == [42] * 32 + [41] * 32


def test_barriers_with_different_counts_in_one_phase_are_an_error() -> None:
    body = """
setp.ge.u32 %p1, %r0, 32;
@%p1 bra OTHER;
bar.sync 1, 64;
OTHER:
bar.sync 1, 96;
"""
    with pytest.raises(BarrierError, match="same thread count"):
        execute(body, threads=64)


def test_bar_red_counts_predicates_of_the_whole_cta() -> None:
    body = """
setp.lt.u32 %p1, %r0, 40;
bar.red.popc.u32 %r2, 0, %p1;
bar.red.and.pred %p2, 0, %p1;
@%p2 add.u32 %r2, %r2, 1000;
bar.red.or.pred %p3, 0, %p1;
@%p3 add.u32 %r2, %r2, 2000;
"""
    assert set(words(execute(body + STORE_R2, threads=96), 96)) == {2040}


def test_an_endless_loop_ends_at_the_instruction_limit() -> None:
    body = "LOOP:\nadd.u32 %r2, %r2, 1;\nst.global.u32 [%d1], %r2;\nbra LOOP;\n"
    with pytest.raises(EmulationError, match="max_instructions=10000"):
        execute(body, options=Options(max_instructions=10_000))


def test_divergent_lanes_at_an_aligned_instruction_are_reported() -> None:
    body = """
setp.lt.u32 %p1, %r1, 16;
@%p1 bra LOW;
bar.sync 1, 32;
LOW:
bar.sync 2, 32;
"""
    with pytest.raises(DeadlockError, match="must be executed by all lanes together"):
        execute(body)


def test_setmaxnreg_takes_multiples_of_eight_only() -> None:
    with pytest.raises(BarrierError, match="multiple of 8"):
        execute("setmaxnreg.dec.sync.aligned.u32 20;")


def test_programmatic_dependent_launch_instructions_pass() -> None:
    body = "griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\nmov.u32 %r2, 1;\n"
    assert set(words(execute(body + STORE_R2))) == {1}


def test_cancelled_clusters_are_worked_on_by_the_one_that_asked() -> None:
    # persistent by clusterlaunchcontrol: the first CTA takes over all others
    body = """
mov.u32 %r3, %ctaid.x;
mov.u32 %r4, response;
mov.u32 %r5, full;
mov.u32 %r9, 0;
mbarrier.init.shared.b64 [%r5], 1;
NEXT:
mul.wide.u32 %d4, %r3, 4;
add.s64 %d4, %d4, %d1;
mov.u32 %r6, %ctaid.x;
add.u32 %r6, %r6, 100;
st.global.u32 [%d4], %r6;
mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 16;
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r4], [%r5];
LOOP:
mbarrier.try_wait.parity.shared.b64 %p2, [%r5], %r9;
@!%p2 bra LOOP;
xor.b32 %r9, %r9, 1;
ld.shared.b128 %q1, [%r4];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q1;
@!%p3 bra DONE;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r3, %r7, %r8, _}, %q1;
bra NEXT;
DONE:
"""
    shared = ".shared .align 16 .b8 response[16];\n.shared .align 8 .b64 full;"
    found = execute(body, shared=shared, threads=1, grid=5)
    assert words(found, 5).tolist() == [100] * 5


@pytest.mark.parametrize(
    "loop",
    ["LOOP:\n@!%p4 bra LOOP;\n", "LOOP:\n@%p4 bra DONE;\nbra LOOP;\nDONE:\n", "LOOP:\nbra LOOP;\n"],
)
@pytest.mark.parametrize("lanes", ["setp.eq.u32 %p4, %r0, 99;\n", "setp.lt.u32 %p4, %r0, 5;\n"])
def test_a_loop_whose_wait_was_lost_is_named_at_once(loop: str, lanes: str) -> None:
    with pytest.raises(DeadlockError, match="endless loop: lanes 0xffffff") as caught:
        execute(lanes + loop, options=Options(max_instructions=1000))
    assert caught.value.line is not None
