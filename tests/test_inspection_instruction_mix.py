"""Families of instructions, counted."""

import pytest

from ptxgen.inspection.instruction_mix import FAMILIES, family, instruction_mix
from ptxgen.ptx.parser import parse

HEADER = ".version 8.6\n.target sm_100a\n.address_size 64\n"
REGISTERS = ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; .reg .f32 %f<9>;"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0,%f1,%f2,%f3}, %rd0, %rd1, 1;",
         "mma"),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r0], %rd0, %rd1, %r1, %p0;", "mma"),
        ("wgmma.wait_group.sync.aligned 0;", "barrier"),
        ("wgmma.fence.sync.aligned;", "barrier"),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r0];", "barrier"),
        ("tcgen05.wait::ld.sync.aligned;", "barrier"),
        ("tcgen05.fence::after_thread_sync;", "barrier"),
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r0];", "memory"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd0, {%r1, %r2}], [%r3];", "tma"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd0], [%r0], %r1;", "tma"),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0], 16,"
         " [%r1];", "tma"),
        ("prefetch.tensormap [%rd0];", "tma"),
        ("cp.async.bulk.commit_group;", "barrier"),
        ("cp.async.bulk.wait_group.read 0;", "barrier"),
        ("cp.async.ca.shared.global [%r0], [%rd0], 16;", "memory"),
        ("cp.async.wait_all;", "barrier"),
        ("cp.async.mbarrier.arrive.shared::cta.b64 [%r0];", "barrier"),
        ("fence.proxy.tensormap::generic.release.gpu;", "barrier"),
        ("fence.proxy.async.shared::cta;", "barrier"),
        ("st.shared.b32 [%r0], %r1;", "memory"),
        ("fma.rn.f32 %f0, %f1, %f2, %f3;", "alu"),
        ("setmaxnreg.inc.sync.aligned.u32 240;", "control"),
        ("ret;", "control"),
    ],
)  # fmt: skip
def test_family_of_an_instruction(text: str, expected: str) -> None:
    (instruction,) = parse(f"{HEADER}.entry k {{ {REGISTERS} {text} }}").entry().body
    assert family(instruction) == expected


def test_counts_add_up_over_all_functions() -> None:
    module = parse(
        f"{HEADER}.func f {{ ret; }} .entry k {{ {REGISTERS} add.s32 %r0, %r1, %r2;"
        " add.s32 %r0, %r1, 2; bar.sync 0; ret; }"
    )
    mix = instruction_mix(module)
    assert mix.total == 5
    assert mix.opcodes == {"ret": 2, "add": 2, "bar": 1}
    assert mix.forms["add.s32"] == 2
    assert tuple(mix.families) == FAMILIES
    assert sum(mix.families.values()) == 5
    assert instruction_mix(module.entry()).families["control"] == 1
