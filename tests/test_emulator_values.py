"""Instructions: the same bits however a value is represented, and the values that PTX demands."""

from typing import Any

import numpy as np
import pytest
from emulator_kernels import STORE_R2, execute, words
from numpy.typing import NDArray

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


@pytest.mark.parametrize("guard", ["", "@%p1 "])
@pytest.mark.parametrize("name", ["rcp", "rsqrt"])
def test_gross_f64_approximations_read_and_write_high_words(name: str, guard: str) -> None:
    values = np.array([0.3, -2.0, 5.76895902, 1e-310, np.inf, 3e200] * 6)[:32]
    body = f"""
shl.b32 %r2, %r0, 3; cvt.u64.u32 %d2, %r2; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
ld.global.f64 %e0, [%d3];
setp.ge.u32 %p1, %r0, 3; mov.f64 %e1, 0d3FF0000000000000;
{guard}{name}.approx.ftz.f64 %e1, %e0;
st.global.f64 [%d4], %e1;
"""
    found = words(execute(body, values), 32, np.uint64)
    taken = slice(3 if guard else 0, None)
    assert not (found & 0xFFFFFFFF).any()
    with np.errstate(divide="ignore", invalid="ignore"):
        flushed = np.where(np.abs(values) < 2.0**-1022, 0.0, values)
        exact = 1 / flushed if name == "rcp" else 1 / np.sqrt(flushed)
    assert np.allclose(found.view(np.float64)[taken], exact[taken], rtol=2**-19, equal_nan=True)


@pytest.mark.parametrize("operation", ["add", "sub"])
@pytest.mark.parametrize("uniform", ["neither", "left", "right", "both"])
def test_a_chain_of_carries_ends_in_what_addc_reads(uniform: str, operation: str) -> None:
    # after a subtraction the flag is 1 where nothing was borrowed
    rng = np.random.default_rng(3)
    some = rng.choice([0, 1, 2**32 - 1, 2**32 - 2, 0x12345678], (2, 32, 4)).astype(np.uint32)
    for index, name in enumerate(("left", "right")):
        if uniform in (name, "both"):
            some[index] = some[index, 0]
    loads = [
        f"ld.global.v4.u32 {{%r{r}, %r{r + 1}, %r{r + 2}, %r{r + 3}}}, [{base}+{512 * i}];"
        for i, (r, name) in enumerate(((4, "left"), (8, "right")))
        for base in ["%d0" if uniform in (name, "both") else "%d2"]
    ]
    body = f"""
mul.wide.u32 %d2, %r0, 16; add.u64 %d3, %d1, %d2; add.u64 %d3, %d3, %d2; add.u64 %d2, %d2, %d0;
{chr(10).join(loads)}
{operation}.cc.u32 %r4, %r4, %r8;
{operation}c.cc.u32 %r5, %r5, %r9;
{operation}c.cc.u32 %r6, %r6, %r10;
{operation}c.cc.u32 %r7, %r7, %r11;
mov.u32 %r2, 0;
addc.u32 %r2, %r2, %r2;
st.global.v4.u32 [%d3], {{%r4, %r5, %r6, %r7}};
st.global.u32 [%d3+16], %r2;
"""
    found = words(execute(body, some), 256).reshape(32, 8)[:, :5]
    for lane in range(32):
        a, b = (sum(int(x) << 32 * i for i, x in enumerate(limbs)) for limbs in some[:, lane])
        total = a + b if operation == "add" else a + (2**128 - b)
        assert [int(x) for x in found[lane]] == [total >> 32 * i & 0xFFFFFFFF for i in range(5)]
