"""Asynchronous instructions end to end: reductions, remote stores, multicast, tensor memory."""

from dataclasses import replace

import numpy as np
import pytest
from emulator_kernels import STORE_R2, execute, kernel, launch, words

from ptxgen.emulator import SCHEDULES, Options, run
from ptxgen.launch import Param, TensorMap

INIT = """
setp.ne.u32 %p1, %r0, 0;
@!%p1 mbarrier.init.shared.b64 [full], 1;
bar.sync 0;
"""
WAIT = """
LOOP:
mbarrier.try_wait.parity.shared.b64 %p2, [full], 0;
@!%p2 bra LOOP;
"""
FULL = ".shared .align 8 .b64 full;\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bulk_reductions_add_into_global_memory(schedule: str) -> None:
    body = """
mov.u32 %r3, tile;
shl.b32 %r4, %r0, 2;
add.u32 %r5, %r3, %r4;
add.u32 %r6, %r0, 1;
st.shared.u32 [%r5], %r6;
mul.wide.u32 %d4, %r0, 4;
add.s64 %d4, %d4, %d1;
st.global.u32 [%d4], 100;
fence.proxy.async;
bar.sync 0;
setp.ne.u32 %p1, %r0, 0;
@%p1 bra DONE;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d1], [tile], 128;
cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32 [%d1], [tile], 128;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
DONE:
"""
    found = execute(body, shared=".shared .align 128 .b8 tile[128];", options=Options(schedule, 9))
    assert words(found).tolist() == [101 + t for t in range(32)]


REMOTE = f"""
mov.u32 %r3, %cluster_ctarank;
{INIT}
mov.u32 %r4, full;
mov.u32 %r5, cells;
shl.b32 %r6, %r0, 2;
add.u32 %r7, %r5, %r6;
st.shared.u32 [%r7], 7;
@!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 128;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
xor.b32 %r8, %r3, 1;
mapa.shared::cluster.u32 %r9, %r7, %r8;
mapa.shared::cluster.u32 %r10, %r4, %r8;
mad.lo.u32 %r11, %r3, 1000, %r0;
OPERATION [%r9], %r11, [%r10];
{WAIT}
ld.shared.u32 %r2, [%r7];
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mad.lo.u32 %r0, %r3, 32, %r0;
"""
CELLS = FULL + ".shared .align 4 .b8 cells[128];"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_remote_stores_land_before_their_barrier_completes(schedule: str) -> None:
    operation = "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32"
    body = REMOTE.replace("OPERATION", operation) + STORE_R2
    found = execute(body, shared=CELLS, grid=2, cluster=2, options=Options(schedule, 4))
    assert words(found, 64).tolist() == [1000 + t for t in range(32)] + list(range(32))


def test_remote_reductions_combine_with_what_was_there() -> None:
    operation = "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32"
    body = REMOTE.replace("OPERATION", operation) + STORE_R2
    found = execute(body, shared=CELLS, grid=2, cluster=2)
    assert words(found, 64).tolist() == [1007 + t for t in range(32)] + [7 + t for t in range(32)]


MULTICAST = f"""
mov.u32 %r3, %cluster_ctarank;
{INIT}
@!%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full], 256;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
@%p1 bra WAITING;
mov.u32 %r4, tile;
shl.b32 %r5, %r3, 7;
add.u32 %r4, %r4, %r5;
cvta.param.u64 %d4, tmap;
mov.b16 %h1, 3;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster
    [%r4], [%d4, {{0, %r3}}], [full], %h1;
WAITING:
{WAIT}
mov.u32 %r4, tile;
shl.b32 %r5, %r0, 3;
add.u32 %r4, %r4, %r5;
ld.shared.u32 %r2, [%r4];
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mad.lo.u32 %r0, %r3, 32, %r0;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_multicast_halves_reach_both_ctas_and_both_barriers(schedule: str) -> None:
    shared = FULL + ".shared .align 128 .b8 tile[256];"
    text = kernel(MULTICAST + STORE_R2, shared=shared).replace(
        "(.param .u64 input,", "(.param .align 64 .b8 tmap[128], .param .u64 input,"
    )
    frame = launch(1024, grid=2, cluster=2)
    tensor_map = TensorMap("in", 0, "uint32", (32, 8), (128,), (32, 1))
    shape = replace(frame, params=(Param("tmap", "tensor_map", tensor_map), *frame.params))
    data = np.arange(256, dtype=np.uint32)
    found = run(text, shape, {"in": data}, Options(schedule, 8))
    assert words(found, 64).tolist() == list(range(0, 64, 2)) * 2


def test_an_edited_tensor_map_is_what_the_copy_sees() -> None:
    body = f"""
{INIT}
mov.u32 %r4, map;
shl.b32 %r5, %r0, 2;
mul.wide.u32 %d5, %r0, 4;
cvta.param.u64 %d6, tmap;
add.s64 %d6, %d6, %d5;
ld.u32 %r6, [%d6];
add.u32 %r7, %r4, %r5;
st.shared.u32 [%r7], %r6;
bar.warp.sync 0xFFFFFFFF;
add.s64 %d7, %d0, 128;
@!%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r4], %d7;
@!%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r4], 0, 20;
bar.warp.sync 0xFFFFFFFF;
add.s64 %d8, %d1, 2048;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
    [%d8], [%r4], 128;
fence.proxy.tensormap::generic.acquire.gpu [%d8], 128;
@%p1 bra WAITING;
mbarrier.arrive.expect_tx.shared.b64 _, [full], 128;
cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [tile], [%d8, {{0}}], [full];
WAITING:
{WAIT}
mov.u32 %r8, tile;
add.u32 %r8, %r8, %r5;
ld.shared.u32 %r2, [%r8];
"""
    shared = FULL + ".shared .align 128 .b8 tile[128];\n.shared .align 128 .b8 map[128];"
    text = kernel(body + STORE_R2, shared=shared).replace(
        "(.param .u64 input,", "(.param .align 64 .b8 tmap[128], .param .u64 input,"
    )
    frame = launch(256)
    tensor_map = TensorMap("in", 0, "uint32", (32,), (), (32,))
    shape = replace(frame, params=(Param("tmap", "tensor_map", tensor_map), *frame.params))
    found = run(text, shape, {"in": np.arange(64, dtype=np.uint32)})
    assert words(found).tolist() == list(range(32, 52)) + [0] * 12


BF16_ONE = 0x3F803F80
TCGEN05 = f"""
{INIT}
mov.u32 %r3, tile;
shl.b32 %r4, %r0, 4;
add.u32 %r5, %r3, %r4;
mov.u32 %r6, {BF16_ONE};
st.shared.v4.b32 [%r5], {{%r6, %r6, %r6, %r6}};
st.shared.v4.b32 [%r5+2048], {{%r6, %r6, %r6, %r6}};
shr.u32 %r7, %r0, 5;
setp.eq.u32 %p3, %r7, 0;
@!%p3 bra ALLOCATED;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [address], 32;
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED:
fence.proxy.async.shared::cta;
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
ld.shared.u32 %r8, [address];
@%p1 bra WAITING;
shr.u32 %r9, %r3, 4;
cvt.u64.u32 %d4, %r9;
or.b64 %d4, %d4, 0x0000401000080000;
mov.u32 %r10, 0x08080490;
setp.ne.u32 %p4, 0, 0;
tcgen05.mma.cta_group::1.kind::f16 [%r8], %d4, %d4, %r10, %p4;
tcgen05.mma.cta_group::1.kind::f16 [%r8], %d4, %d4, %r10, 1;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [full];
WAITING:
{WAIT}
tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x4.b32 {{%r20, %r21, %r22, %r23}}, [%r8];
tcgen05.wait::ld.sync.aligned;
add.f32 %f1, %f2, %f2;
mov.b32 %f1, %r20;
mov.b32 %f2, %r23;
add.f32 %f3, %f1, %f2;
mov.b32 %r2, %f3;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r8], {{%r0}};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r24}}, [%r8];
tcgen05.wait::ld.sync.aligned;
setp.ne.u32 %p5, %r24, %r0;
@%p5 mov.u32 %r2, 0;
bar.sync 0;
@!%p3 bra FREED;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32;
FREED:
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tensor_memory_holds_the_product_after_the_commit(schedule: str) -> None:
    shared = FULL + ".shared .align 1024 .b8 tile[4096];\n.shared .align 4 .b32 address;"
    text = kernel(TCGEN05 + STORE_R2, shared=shared).replace(
        ".version 8.6\n.target sm_90a", ".version 8.6\n.target sm_100a"
    )
    found = run(text, launch(threads=128), {}, Options(schedule, 6))
    assert set(words(found, 128, np.float32)) == {2 * (16.0 + 16.0)}
