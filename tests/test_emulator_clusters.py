"""Clusters: shared memory of other CTAs, barriers across them, and who is resident."""

import numpy as np
import pytest
from emulator_kernels import STORE_R2, execute, words

from ptxgen.emulator import SCHEDULES, Options
from ptxgen.errors import DeadlockError, OutOfBoundsError

CLUSTER_SUM = """
mov.u32 %r3, %cluster_ctarank;
mov.u32 %r4, cell;
setp.ne.u32 %p1, %r0, 0;
add.u32 %r5, %r3, 5;
@!%p1 st.shared.u32 [%r4], %r5;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
xor.b32 %r6, %r3, 1;
mapa.shared::cluster.u32 %r7, %r4, %r6;
ld.shared::cluster.u32 %r2, [%r7];
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mov.u32 %r8, %ctaid.x;
mad.lo.u32 %r0, %r8, 32, %r0;
"""


def test_ctas_of_a_cluster_read_each_others_shared_memory() -> None:
    shared = ".shared .align 4 .b32 cell;"
    found = words(execute(CLUSTER_SUM + STORE_R2, shared=shared, grid=4, cluster=2), 128)
    assert found.tolist() == [6] * 32 + [5] * 32 + [6] * 32 + [5] * 32


def test_a_mapped_address_carries_the_rank_in_bit_24() -> None:
    body = """
mov.u32 %r4, cell;
mapa.shared::cluster.u32 %r2, %r4, 1;
sub.u32 %r2, %r2, %r4;
mov.u32 %r8, %cluster_ctarank;
mad.lo.u32 %r0, %r8, 32, %r0;
"""
    shared = ".shared .align 4 .b32 cell;"
    found = words(execute(body + STORE_R2, shared=shared, grid=2, cluster=2), 64)
    assert set(found[:32]) == {1 << 24}
    assert set(found[32:]) == {0}


def test_exited_threads_do_not_hold_the_cluster_barrier() -> None:
    body = """
mov.u32 %r3, %cluster_ctarank;
setp.eq.u32 %p1, %r3, 1;
@%p1 exit;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mov.u32 %r2, 8;
"""
    assert set(words(execute(body + STORE_R2, grid=2, cluster=2))) == {8}


def test_shared_memory_of_an_exited_cta_is_out_of_reach() -> None:
    body = """
mov.u32 %r3, %cluster_ctarank;
setp.eq.u32 %p1, %r3, 1;
@%p1 exit;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mov.u32 %r4, cell;
mapa.shared::cluster.u32 %r7, %r4, 1;
ld.shared::cluster.u32 %r2, [%r7];
"""
    with pytest.raises(OutOfBoundsError, match="has exited"):
        execute(body, shared=".shared .align 4 .b32 cell;", grid=2, cluster=2)


def test_a_remote_arrive_releases_the_waiting_cta() -> None:
    body = """
mov.u32 %r3, %cluster_ctarank;
mov.u32 %r4, full;
setp.ne.u32 %p1, %r0, 0;
@!%p1 mbarrier.init.shared.b64 [%r4], 2;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mapa.shared::cluster.u32 %r5, %r4, 0;
mapa.shared::cluster.u32 %r6, %r4, 1;
@!%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];
@!%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];
LOOP:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r4], 0;
@!%p2 bra LOOP;
mov.u32 %r2, 6;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mad.lo.u32 %r0, %r3, 32, %r0;
"""
    found = execute(body + STORE_R2, shared=".shared .align 8 .b64 full;", grid=2, cluster=2)
    assert set(words(found, 64)) == {6}


FLAG = """
mov.u32 %r3, %ctaid.x;
setp.ne.u32 %p1, %r3, 0;
@%p1 bra SET;
SPIN:
ld.acquire.gpu.global.u32 %r2, [%d0];
setp.eq.u32 %p2, %r2, 0;
@%p2 bra SPIN;
bra DONE;
SET:
st.release.gpu.global.u32 [%d0], 7;
mov.u32 %r2, 7;
DONE:
mad.lo.u32 %r0, %r3, 32, %r0;
"""


def test_clusters_that_wait_for_each_other_run_when_all_are_resident() -> None:
    zero = np.zeros(4, np.uint32)
    found = execute(FLAG + STORE_R2, zero, grid=2, options=Options(resident_clusters=0))
    assert set(words(found, 64)) == {7}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_polling_for_a_cluster_that_is_not_resident_lets_it_start(schedule: str) -> None:
    zero = np.zeros(4, np.uint32)
    options = Options(schedule=schedule, idle_turns=1000)
    found = execute(FLAG + STORE_R2, zero, grid=2, options=options)
    assert set(words(found, 64)) == {7}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_polling_for_what_never_comes_is_reported_soon(schedule: str) -> None:
    zero = np.zeros(4, np.uint32)
    body = FLAG.replace("st.release.gpu.global.u32 [%d0], 7;", "")
    options = Options(schedule=schedule, max_instructions=500_000)
    with pytest.raises(DeadlockError, match="poll and nothing changes"):
        execute(body, zero, grid=2, threads=128, options=options)
