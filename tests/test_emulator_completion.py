"""Asynchronous work: what is there after its wait, and what is not there before."""

import numpy as np
import pytest
from emulator_kernels import STORE_R2, execute, words

from ptxgen.emulator import SCHEDULES, Options
from ptxgen.errors import EmulationError

STORE = """
mov.u32 %r3, tile;
shl.b32 %r4, %r0, 2;
add.u32 %r5, %r3, %r4;
st.shared.u32 [%r5], %r0;
fence.proxy.async.shared::cta;
bar.sync 0;
setp.ne.u32 %p1, %r0, 0;
@%p1 bra SKIP;
cp.async.bulk.global.shared::cta.bulk_group [%d1], [tile], 128;
cp.async.bulk.commit_group;
WAIT
SKIP:
bar.sync 0;
st.shared.u32 [%r5], 1000;
"""

TILE = ".shared .align 128 .b8 tile[128];"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_source_of_a_store_may_be_reused_after_wait_group_read(schedule: str) -> None:
    body = STORE.replace("WAIT", "cp.async.bulk.wait_group.read 0;")
    found = execute(body, shared=TILE, options=Options(schedule, 3))
    assert words(found).tolist() == list(range(32))


def test_a_source_overwritten_too_early_reaches_memory_when_stores_read_late() -> None:
    found = execute(STORE.replace("WAIT", ""), shared=TILE)
    assert words(found).tolist() == [1000] * 32


def test_cp_async_lands_when_its_group_is_waited_for() -> None:
    data = np.arange(128, dtype=np.uint32)
    body = """
mov.u32 %r3, tile;
shl.b32 %r4, %r0, 4;
add.u32 %r5, %r3, %r4;
mul.wide.u32 %d4, %r0, 16;
add.s64 %d4, %d4, %d0;
cp.async.cg.shared.global [%r5], [%d4], 16;
cp.async.commit_group;
ld.shared.u32 %r6, [%r5];
cp.async.wait_group 0;
ld.shared.u32 %r2, [%r5+4];
setp.ne.u32 %p1, %r6, 0xFFFFFFFF;
@%p1 mov.u32 %r2, 5000;
"""
    shared = ".shared .align 128 .b8 tile[512];"
    found = words(execute(body + STORE_R2, data, shared=shared))
    assert found.tolist() == [4 * t + 1 for t in range(32)]


WGMMA = """
mov.u32 %r3, tile;
shl.b32 %r4, %r0, 4;
mov.u32 %r5, 0x3F803F80;
FILL:
add.u32 %r6, %r3, %r4;
st.shared.v4.b32 [%r6], {%r5, %r5, %r5, %r5};
add.u32 %r4, %r4, 2048;
setp.lt.u32 %p1, %r4, 4096;
@%p1 bra FILL;
fence.proxy.async.shared::cta;
bar.sync 0;
and.b32 %r7, %r3, 0x3FFFF;
shr.u32 %r7, %r7, 4;
cvt.u64.u32 %d4, %r7;
or.b64 %d4, %d4, 0x0000002000010000;
mov.f32 %f1, 0f40000000;
mov.f32 %f2, %f1;
mov.f32 %f3, %f1;
mov.f32 %f4, %f1;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %d4, %d4, 1, 1, 1, 0, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %d4, %d4, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
WAIT
add.f32 %f5, %f1, %f4;
mov.b32 %r2, %f5;
"""

WGMMA_TILE = ".shared .align 1024 .b8 tile[4096];"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_wgmma_results_are_there_after_the_wait(schedule: str) -> None:
    body = WGMMA.replace("WAIT", "wgmma.wait_group.sync.aligned 0;")
    found = execute(body + STORE_R2, shared=WGMMA_TILE, threads=128, options=Options(schedule, 2))
    assert set(words(found, 128, np.float32)) == {2 * (2.0 + 16 + 16)}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_accumulators_are_poison_before_the_wait(schedule: str) -> None:
    body = WGMMA.replace("WAIT", "")
    found = execute(body + STORE_R2, shared=WGMMA_TILE, threads=128, options=Options(schedule, 2))
    assert np.isnan(words(found, 128, np.float32)).all()


def test_wgmma_of_an_incomplete_warpgroup_is_an_error() -> None:
    body = WGMMA.replace("WAIT", "wgmma.wait_group.sync.aligned 0;")
    with pytest.raises(EmulationError, match="whole warpgroups"):
        execute(body, shared=WGMMA_TILE, threads=96)
