"""Instructions: the same bits however a value is represented, and the values that PTX demands."""

from typing import Any

import numpy as np
import pytest
from emulator_kernels import STORE_R2, execute, kernel, launch, words
from numpy.typing import NDArray

from ptxgen.emulator import run
from ptxgen.errors import EmulationError, PtxError, UnknownInstructionError

EDGES = np.array(
    [0, 1, 2, 3, 31, 32, 33, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
     0x3F800000, 0xBF800000, 0x40490FDB, 0x00000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF,
     0x7F800000, 0xFF800000, 0x80000001, 0x3EAAAAAB, 0x4B000001, 0x33800000, 0xC2C80000,
     0x12345678, 0xDEADBEEF, 0x3C003C00, 0xBC007BFF, 0x42280000],
    np.uint32,
)  # fmt: skip

BINARY = """add.u32 add.s32 sub.u32 sub.s32 add.sat.s32 mul.lo.u32 mul.lo.s32 mul.hi.u32 mul.hi.s32
min.s32 max.s32 min.u32 max.u32 div.s32 div.u32 rem.s32 rem.u32 and.b32 or.b32 xor.b32 shl.b32
shr.u32 shr.s32 add.f32 sub.f32 mul.f32 add.rz.f32 add.rm.f32 mul.rp.f32 add.ftz.f32 add.sat.f32
min.f32 max.f32 min.NaN.f32 div.rn.f32 div.rz.f32 add.f16x2 mul.f16x2 max.f16x2 add.bf16x2
mul.bf16x2 min.bf16x2 cvt.rn.bf16x2.f32 cvt.rn.f16x2.f32 cvt.rz.bf16x2.f32
cvt.rn.relu.bf16x2.f32 bmsk.clamp.b32 copysign.f32 set.lt.u32.s32 set.ge.u32.f32
add.u16x2 min.s16x2 max.u16x2 mul24.lo.s32 mul24.hi.u32"""
UNARY = """not.b32 neg.s32 abs.s32 neg.f32 abs.f32 popc.b32 clz.b32 brev.b32 bfind.u32 bfind.s32
bfind.shiftamt.u32 sqrt.rn.f32 rcp.rn.f32 ex2.approx.f32 cvt.s32.s16 cvt.u32.u8 cvt.s32.s8
cvt.rn.f32.s32 cvt.rz.f32.u32 cvt.rzi.s32.f32 cvt.rni.u32.f32 cvt.rmi.s32.f32 cvt.rpi.s32.f32
cvt.rzi.f32.f32 cvt.sat.u32.s32 cvt.rna.tf32.f32 cvt.rn.tf32.f32 cvt.sat.f32.f32 cnot.b32
neg.f16x2 abs.bf16x2 ex2.approx.f16x2 cvt.sat.s8.s32"""
TERNARY = """mad.lo.s32 mad.lo.u32 mad.hi.u32 fma.rn.f32 fma.rz.f32 fma.rn.f16x2 fma.rn.bf16x2
fma.rn.relu.f16x2 sad.u32 sad.s32 bfe.u32 bfe.s32 prmt.b32 shf.l.wrap.b32 shf.r.clamp.b32
slct.b32.s32 dp4a.s32.u32 dp2a.hi.u32.s32 mad24.lo.u32"""


def _all_forms(opcode: str, arity: int) -> dict[str, NDArray[np.uint32]]:
    """Results by representation: varying, fused over registers, uniform, and one lane alone."""
    sources = [f"%r{10 + i}" for i in range(arity)]
    loads = "\n".join(f"ld.global.u32 %r{10 + i}, [%d2+{128 * i}];" for i in range(arity))
    data = np.concatenate([np.roll(EDGES, 5 * i) for i in range(arity)])
    apply = f"{opcode} %r2, {', '.join(sources)};"
    address = "mul.wide.u32 %d2, %r0, 4;\nadd.s64 %d2, %d2, %d0;\n"
    found = {"varying": words(execute(address + loads + apply + STORE_R2, data))}
    copies = "".join(
        f"{opcode} %r{40 + c}, {', '.join(sources)};\nxor.b32 %r{50 + c}, %r{40 + c}, {c};\n"
        for c in range(4)
    )
    back = "xor.b32 %r2, %r53, 3;\n"
    found["fused"] = words(execute(address + loads + copies + back + STORE_R2, data))
    uniform = np.empty(32, np.uint32)
    single = np.empty(32, np.uint32)
    loop = f"""
mov.u32 %r5, 0;
LOOP:
mul.wide.u32 %d2, %r5, 4;
add.s64 %d3, %d2, %d1;
add.s64 %d2, %d2, %d0;
{loads}
{apply}
st.global.u32 [%d3], %r2;
add.u32 %r5, %r5, 1;
setp.lt.u32 %p1, %r5, 32;
@%p1 bra LOOP;
"""
    uniform[:] = words(execute(loop, data))
    single[:] = words(execute(f"setp.ne.u32 %p2, %r1, 7;\n@%p2 bra END;\n{loop}END:", data))
    found["uniform"], found["one lane"] = uniform, single
    return found


@pytest.mark.parametrize(
    ("opcode", "arity"),
    [(o, 2) for o in BINARY.split()]
    + [(o, 1) for o in UNARY.split()]
    + [(o, 3) for o in TERNARY.split()],
)
def test_every_representation_of_a_value_gives_the_same_bits(opcode: str, arity: int) -> None:
    found = _all_forms(opcode, arity)
    for name, values in found.items():
        different = np.flatnonzero(values != found["varying"])
        assert not len(different), (name, EDGES[different], values[different])


def _f32(values: Any) -> NDArray[np.uint32]:
    return np.asarray(values, np.float32).view(np.uint32)


KNOWN: list[tuple[str, list[int], int]] = [
    ("add.s32", [0x7FFFFFFF, 1], 0x80000000),
    ("add.sat.s32", [0x7FFFFFFF, 1], 0x7FFFFFFF),
    ("mul.hi.s32", [0x80000000, 2], 0xFFFFFFFF),
    ("mul.hi.u32", [0x80000000, 2], 1),
    ("div.s32", [0xFFFFFFF9, 2], 0xFFFFFFFD),
    ("rem.s32", [0xFFFFFFF9, 2], 0xFFFFFFFF),
    ("div.u32", [7, 0], 0xFFFFFFFF),
    ("shl.b32", [1, 32], 0),
    ("shr.s32", [0x80000000, 40], 0xFFFFFFFF),
    ("shr.u32", [0x80000000, 40], 0),
    ("shf.l.wrap.b32", [0x80000000, 1, 33], 3),
    ("shf.r.clamp.b32", [0x80000000, 1, 40], 1),
    ("bfe.s32", [0x00000F00, 8, 4], 0xFFFFFFFF),
    ("bfe.u32", [0x00000F00, 8, 4], 0xF),
    ("prmt.b32", [0x33221100, 0x77665544, 0x0246], 0x00224466),
    ("prmt.b32", [0x00000080, 0, 0x8888], 0xFFFFFFFF),
    ("fma.rn.f32", [0x3F800001, 0x3F800001, 0xBF800002], 0x28800000),
    ("add.rp.f32", [0x3F800000, 0x00000001], 0x3F800001),
    ("add.rz.f32", [0x3F800000, 0xA0000000], 0x3F7FFFFF),
    ("min.f32", [0x7FC00000, 0x3F800000], 0x3F800000),
    ("min.NaN.f32", [0x7FC00000, 0x3F800000], 0x7FFFFFFF),
    ("max.f32", [0x80000000, 0x00000000], 0x00000000),
    ("add.f32", [0x7F800000, 0xFF800000], 0x7FFFFFFF),
    ("cvt.rn.bf16x2.f32", [0x3F808000, 0x3F818000], 0x3F803F82),
    ("cvt.rzi.s32.f32", [0xC2C8F5C3], 0xFFFFFF9C),
    ("cvt.rni.s32.f32", [0x40200000], 2),
    ("cvt.rzi.u32.f32", [0xBF800000], 0),
    ("cvt.rzi.s32.f32", [0x7FC00000], 0),
    ("cvt.sat.u32.s32", [0xFFFFFFFF], 0),
    ("cvt.rna.tf32.f32", [0x3F801000], 0x3F802000),
    ("clz.b32", [1], 31),
    ("bfind.u32", [0], 0xFFFFFFFF),
    ("popc.b32", [0xFF00FF], 16),
]


@pytest.mark.parametrize(("opcode", "operands", "expected"), KNOWN, ids=lambda v: str(v)[:20])
def test_an_operation_has_the_value_that_ptx_defines(
    opcode: str, operands: list[int], expected: int
) -> None:
    moves = "".join(f"mov.b32 %r{10 + i}, {v:#x};\n" for i, v in enumerate(operands))
    sources = ", ".join(f"%r{10 + i}" for i in range(len(operands)))
    result = words(execute(f"{moves}{opcode} %r2, {sources};{STORE_R2}"))
    assert [hex(v) for v in result] == [hex(expected)] * 32


def test_fp8_conversion_saturates_and_puts_the_first_source_on_top() -> None:
    body = """
mov.f32 %f1, 0f44FA0000;
mov.f32 %f2, 0fBF800000;
cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;
cvt.rn.f16x2.e4m3x2 %r3, %h1;
cvt.u32.u16 %r2, %h1;
"""
    assert set(words(execute(body + STORE_R2))) == {0x7EB8}
    assert set(words(execute(body + "mov.b32 %r2, %r3;" + STORE_R2))) == {0x5F00BC00}


def test_carries_chain_additions_subtractions_and_products() -> None:
    # 64-bit a - b + a * b from 32-bit halves, varying by lane, against 64-bit arithmetic
    body = """
ld.global.v2.u32 {%r4, %r5}, [%d0];
mad.lo.u32 %r4, %r1, 0x9E3779B9, %r4;
not.b32 %r6, %r4;
add.u32 %r7, %r1, 3;
sub.cc.u32 %r10, %r4, %r6;
subc.u32 %r11, %r5, %r7;
mad.lo.cc.u32 %r12, %r4, %r6, %r10;
madc.hi.u32 %r13, %r4, %r6, %r11;
add.cc.u32 %r12, %r12, %r4;
addc.u32 %r13, %r13, 0;
mov.b64 %d4, {%r12, %r13};
mov.b64 %d5, {%r4, %r5};
mov.b64 %d6, {%r6, %r7};
sub.u64 %d7, %d5, %d6;
mul.wide.u32 %d8, %r4, %r6;
add.u64 %d7, %d7, %d8;
cvt.u64.u32 %d9, %r4;
add.u64 %d7, %d7, %d9;
xor.b64 %d7, %d7, %d4;
mov.b64 {%r2, %r3}, %d7;
or.b32 %r2, %r2, %r3;
"""
    data = np.array([0x89ABCDEF, 0xFFFFFFF0, 0, 0], np.uint32)
    assert set(words(execute(body + STORE_R2, data))) == {0}


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


FUNCTION = """
.func (.param .b32 result) twice_plus(.param .b32 a, .param .b32 b)
{
.reg .b32 %r<4>;
.reg .pred %p<2>;
ld.param.b32 %r1, [a];
ld.param.b32 %r2, [b];
setp.gt.u32 %p1, %r1, 15;
@%p1 bra BIG;
shl.b32 %r1, %r1, 1;
BIG:
add.u32 %r3, %r1, %r2;
st.param.b32 [result], %r3;
ret;
}
"""


def test_a_device_function_takes_parameters_and_returns_per_lane() -> None:
    body = """
{
.param .b32 p0;
.param .b32 p1;
.param .b32 r0;
st.param.b32 [p0], %r1;
st.param.b32 [p1], 100;
call.uni (r0), twice_plus, (p0, p1);
ld.param.b32 %r2, [r0];
}
"""
    found = words(execute(body + STORE_R2, module=FUNCTION))
    assert found.tolist() == [(t if t > 15 else 2 * t) + 100 for t in range(32)]


SUM = """
.func (.reg .u32 total) sum_to(.reg .u32 n)
{
.reg .pred %p<2>;
.reg .u32 %r<4>;
mov.u32 total, 0;
setp.eq.u32 %p1, n, 0;
@%p1 bra END;
sub.u32 %r1, n, 1;
call.uni (%r2), sum_to, (%r1);
add.u32 total, %r2, n;
END:
ret;
}
"""


def test_a_recursive_function_with_registers_as_parameters_parts_the_lanes() -> None:
    found = words(execute("call (%r2), sum_to, (%r1);" + STORE_R2, module=SUM))
    assert found.tolist() == [t * (t + 1) // 2 for t in range(32)]


def test_a_function_is_called_through_a_pointer() -> None:
    body = """
mov.u64 %d5, sum_to;
prototype: .callprototype (.reg .u32 _) _ (.reg .u32 _);
mov.u32 %r3, 7;
call (%r2), %d5, (%r3), prototype;
"""
    assert set(words(execute(body + STORE_R2, module=SUM))) == {28}


PRINTF = """
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[16] = {108, 97, 110, 101, 32, 37, 100, 32, 37, 46, 49, 102, 10, 0, 0, 0};
"""


def test_printf_is_formatted_for_every_lane() -> None:
    body = """
setp.gt.u32 %p1, %r1, 1;
@%p1 bra END;
mov.u32 %r3, depot;
cvt.u64.u32 %d3, %r3;
cvta.local.u64 %d3, %d3;
st.u32 [%d3], %r1;
cvt.rn.f64.u32 %e1, %r1;
st.f64 [%d3+8], %e1;
mov.u64 %d4, text;
{
.param .b64 p0;
.param .b64 p1;
.param .b32 r0;
st.param.b64 [p0], %d4;
st.param.b64 [p1], %d3;
call.uni (r0), vprintf, (p0, p1);
ld.param.b32 %r4, [r0];
}
END:
"""
    result = execute(body, module=PRINTF, shared=".local .align 8 .b8 depot[16];")
    assert result.printed == "lane 0 0.0\nlane 1 1.0\n"


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
