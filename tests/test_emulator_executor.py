"""Instructions in a warp: how lanes part, meet and exchange values, and errors with their place."""

import numpy as np
import pytest
from emulator_kernels import STORE_R2, execute, kernel, launch, words

from ptxgen.emulator import run
from ptxgen.errors import EmulationError, PtxError, UnknownInstructionError


def test_lanes_part_in_a_loop_and_meet_after_it() -> None:
    # lane t adds t..1, then all lanes exchange their sums, which needs them together
    body = """
mov.u32 %r2, 0;
mov.u32 %r3, %r1;
LOOP:
setp.eq.u32 %p1, %r3, 0;
@%p1 bra DONE;
add.u32 %r2, %r2, %r3;
sub.u32 %r3, %r3, 1;
bra LOOP;
DONE:
shfl.sync.bfly.b32 %r2, %r2, 1, 31, 0xFFFFFFFF;
"""
    expected = [sum(range((t ^ 1) + 1)) for t in range(32)]
    assert words(execute(body + STORE_R2)).tolist() == expected


def test_both_sides_of_a_branch_keep_their_own_registers() -> None:
    body = """
and.b32 %r3, %r1, 1;
setp.eq.u32 %p1, %r3, 0;
@%p1 bra EVEN;
mov.u32 %r2, 100;
mad.lo.u32 %r4, %r1, 3, 7;
bra JOIN;
EVEN:
mov.u32 %r2, 200;
mov.u32 %r4, 5;
JOIN:
add.u32 %r2, %r2, %r4;
"""
    expected = [205 if t % 2 == 0 else 107 + 3 * t for t in range(32)]
    assert words(execute(body + STORE_R2)).tolist() == expected


def test_a_guarded_instruction_leaves_the_other_lanes_alone() -> None:
    body = """
mov.u32 %r2, 9;
setp.lt.u32 %p1, %r1, 10;
@%p1 add.u32 %r2, %r1, 100;
@!%p1 shl.b32 %r2, %r2, 1;
"""
    expected = [100 + t if t < 10 else 18 for t in range(32)]
    assert words(execute(body + STORE_R2)).tolist() == expected


def test_lanes_that_exited_do_not_hold_the_others() -> None:
    body = """
setp.ge.u32 %p1, %r1, 20;
@%p1 exit;
vote.sync.ballot.b32 %r2, %p1, 0xFFFFFFFF;
bar.sync 0;
add.u32 %r2, %r2, 1;
"""
    found = words(execute(body + STORE_R2))
    assert found[:20].tolist() == [1] * 20
    assert (found[20:] == 0xFFFFFFFF).all()


def test_a_warp_that_is_not_full_works() -> None:
    found = words(execute("add.u32 %r2, %r0, 5;" + STORE_R2, threads=45), 64)
    assert found[:45].tolist() == list(range(5, 50))
    assert (found[45:] == 0xFFFFFFFF).all()


def test_shuffles_move_values_as_documented() -> None:
    lanes = np.arange(32)
    cases = {
        "up.b32 %r2, %r1, 4, 0": np.where(lanes >= 4, lanes - 4, lanes),
        "down.b32 %r2, %r1, 4, 31": np.where(lanes + 4 < 32, lanes + 4, lanes),
        "bfly.b32 %r2, %r1, 3, 31": lanes ^ 3,
        "idx.b32 %r2, %r1, 9, 31": np.full(32, 9),
        "idx.b32 %r2, %r1, 1, 0x181F": lanes // 8 * 8 + 1,
        "down.b32 %r2, %r1, 2, 0x1807": np.where(lanes % 8 + 2 < 8, lanes + 2, lanes),
    }
    for text, expected in cases.items():
        found = words(execute(f"shfl.sync.{text}, 0xFFFFFFFF;" + STORE_R2))
        assert found.tolist() == expected.tolist(), text


def test_votes_and_reductions_see_all_lanes() -> None:
    body = """
setp.lt.u32 %p1, %r1, 3;
vote.sync.ballot.b32 %r3, %p1, 0xFFFFFFFF;
vote.sync.any.pred %p2, %p1, 0xFFFFFFFF;
vote.sync.all.pred %p3, %p1, 0xFFFFFFFF;
redux.sync.add.u32 %r4, %r1, 0xFFFFFFFF;
redux.sync.max.s32 %r5, %r1, 0xFFFFFFFF;
mov.u32 %r2, %r3;
@%p2 add.u32 %r2, %r2, 1000;
@%p3 add.u32 %r2, %r2, 50000;
add.u32 %r2, %r2, %r4;
add.u32 %r2, %r2, %r5;
"""
    assert set(words(execute(body + STORE_R2))) == {7 + 1000 + 496 + 31}


def test_elect_chooses_the_lowest_lane_of_the_mask() -> None:
    body = """
mov.u32 %r2, 0;
elect.sync %r3|%p1, 0xFFFFFFF0;
@%p1 mov.u32 %r2, 77;
add.u32 %r2, %r2, %r3;
"""
    assert words(execute(body + STORE_R2)).tolist() == [81 if t == 4 else 4 for t in range(32)]


def test_vectors_generic_addresses_and_wide_registers_move_bytes() -> None:
    data = np.arange(256, dtype=np.uint32)
    body = """
mul.wide.u32 %d2, %r0, 16;
add.s64 %d3, %d2, %d0;
ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d3];
mov.u64 %d4, buffer;
cvta.shared.u64 %d4, %d4;
add.s64 %d5, %d4, %d2;
st.v4.u32 [%d5], {%r7, %r6, %r5, %r4};
bar.sync 0;
xor.b64 %d6, %d5, 16;
ld.b128 %q1, [%d6];
mov.b128 {%d8, %d9}, %q1;
add.s64 %d10, %d1, %d2;
st.global.v2.u64 [%d10], {%d9, %d8};
"""
    body = body.replace("mov.u64 %d4, buffer;", "mov.u32 %r3, buffer;\ncvt.u64.u32 %d4, %r3;")
    shared = ".shared .align 16 .b8 buffer[512];"
    found = words(execute(body, data, shared=shared), 128).reshape(32, 4)
    expected = data[:128].reshape(32, 4)[np.arange(32) ^ 1][:, ::-1].reshape(32, 2, 2)
    assert found.tolist() == expected[:, ::-1].reshape(32, 4).tolist()


def test_local_memory_belongs_to_each_lane() -> None:
    body = """
mov.u32 %r3, depot;
and.b32 %r4, %r1, 3;
shl.b32 %r4, %r4, 2;
add.u32 %r3, %r3, %r4;
st.local.u32 [%r3], %r1;
bar.warp.sync 0xFFFFFFFF;
ld.local.u32 %r2, [%r3];
"""
    found = words(execute(body + STORE_R2, shared=".local .align 16 .b8 depot[16];"))
    assert found.tolist() == list(range(32))


def test_atomics_apply_every_lane_once() -> None:
    body = """
atom.global.add.u32 %r2, [%d0], 2;
atom.shared.max.u32 %r3, [cell], %r1;
red.global.add.f32 [%d0+4], 0f3F000000;
atom.global.cas.b32 %r4, [%d0+8], %r1, 99;
bar.sync 0;
ld.global.u32 %r5, [%d0];
ld.global.u32 %r6, [%d0+4];
ld.global.u32 %r7, [%d0+8];
add.u32 %r2, %r5, %r7;
"""
    data = np.array([10, 0, 5, 0], np.uint32)
    found = words(execute(body + STORE_R2, data, shared=".shared .align 4 .b32 cell;"))
    assert set(found) == {10 + 64 + 99}


def test_signed_bytes_are_extended_and_stores_truncate() -> None:
    data = np.array([0xFF, 0x7F, 0x80, 1] * 8, np.uint8)
    body = """
cvt.u64.u32 %d2, %r0;
add.s64 %d3, %d2, %d0;
ld.global.s8 %r2, [%d3];
add.s64 %d4, %d2, %d1;
st.global.u8 [%d4+2048], %r2;
"""
    result = execute(body + STORE_R2, data)
    assert words(result, 4).tolist() == [0xFFFFFFFF, 0x7F, 0xFFFFFF80, 1]
    assert result.buffers["out"][2048:2052] == bytes([0xFF, 0x7F, 0x80, 1])


def test_trap_names_its_line_and_warp() -> None:
    with pytest.raises(EmulationError, match=r"PTX line \d+, CTA 0 warp 1: .*trap"):
        execute("setp.eq.u32 %p1, %r0, 40;\n@%p1 trap;", threads=64)


def test_an_unknown_instruction_is_an_error_with_its_line() -> None:
    text = kernel("frobnicate.sync.b32 %r2, %r1;")
    line = text.split("frobnicate")[0].count("\n") + 1
    with pytest.raises(PtxError) as caught:
        run(text, launch())
    assert caught.value.line == line


def test_an_unknown_form_of_a_known_instruction_is_an_error() -> None:
    with pytest.raises(UnknownInstructionError, match=r"line \d+: .*shfl.up.b32"):
        execute("shfl.up.b32 %r2, %r1, 1, 0;")


def test_code_that_is_never_reached_may_be_unknown() -> None:
    body = "mov.u32 %r2, 3;\nbra NEXT;\nshfl.up.b32 %r2, %r1, 1, 0;\nNEXT:\n"
    assert set(words(execute(body + STORE_R2))) == {3}


def test_misaligned_access_names_line_and_lane() -> None:
    body = "add.s64 %d2, %d1, 2;\nst.global.u32 [%d2], %r0;\n"
    with pytest.raises(EmulationError, match=r"PTX line \d+, CTA 0 warp 0: .*multiple of 4"):
        execute(body)


def test_access_past_a_buffer_names_the_buffer() -> None:
    body = "mul.wide.u32 %d2, %r0, 4;\nadd.s64 %d2, %d2, %d1;\nst.global.u32 [%d2+4000], %r0;\n"
    with pytest.raises(EmulationError, match="4 B past the end of buffer 'out'"):
        execute(body)


def test_an_uninitialised_mbarrier_is_an_error() -> None:
    body = "mbarrier.arrive.shared.b64 %d4, [bar];"
    with pytest.raises(EmulationError, match="no mbarrier lives"):
        execute(body, shared=".shared .align 8 .b64 bar;")
