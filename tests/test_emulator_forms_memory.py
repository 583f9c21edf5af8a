"""Atomics of a whole warp in every pattern of addresses, and addresses as kernels give them."""

from collections.abc import Callable

import numpy as np
import pytest
from emulator_kernels import STORE_R2, execute, words

from ptxgen.errors import EmulationError

RNG = np.random.default_rng(3)
PATTERNS = {
    "all at one": np.zeros(32, np.uint32), "each its own": np.arange(32, dtype=np.uint32),
    "in pairs": np.arange(32, dtype=np.uint32) // 2 * 3 % 32,
    "at random": RNG.integers(0, 6, 32).astype(np.uint32),
}  # fmt: skip
"""Word that each lane addresses."""


def _wrap(x: int, bits: int = 32) -> int:
    return x & (1 << bits) - 1


def _signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


OPERATIONS: dict[str, Callable[[int, int, int], int]] = {
    "add.u32": lambda m, v, _: _wrap(m + v),
    "min.s32": lambda m, v, _: m if _signed(m) <= _signed(v) else v,
    "max.u32": lambda m, v, _: max(m, v),
    "and.b32": lambda m, v, _: m & v,
    "or.b32": lambda m, v, _: m | v,
    "xor.b32": lambda m, v, _: m ^ v,
    "exch.b32": lambda m, v, _: v,
    "inc.u32": lambda m, v, _: 0 if m >= v else m + 1,
    "dec.u32": lambda m, v, _: v if m == 0 or m > v else m - 1,
    "cas.b32": lambda m, v, w: w if m == v else m,
}
"""New value of a word from the old one and the operands."""
SMALL = RNG.integers(0, 4, 32).astype(np.uint32)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics_act_lane_after_lane(operation: str, pattern: str, space: str) -> None:
    places = PATTERNS[pattern]
    start = RNG.integers(0, 4, 32).astype(np.uint32)
    data = np.concatenate([start, places, SMALL])
    last = ", %r5" if operation.startswith("cas") else ""
    body = f"""
mul.wide.u32 %d2, %r0, 4;
add.s64 %d2, %d2, %d0;
ld.global.u32 %r3, [%d2];
ld.global.u32 %r4, [%d2+128];
ld.global.u32 %r6, [%d2+256];
add.u32 %r5, %r6, 1;
mul.wide.u32 %d4, %r0, 4;
mov.u64 %d5, %d1;
mov.u32 %r7, words;
mad.lo.u32 %r8, %r0, 4, %r7;
mad.lo.u32 %r9, %r4, 4, %r7;
add.s64 %d6, %d1, %d4;
mul.wide.u32 %d7, %r4, 4;
add.s64 %d7, %d7, %d1;
st.global.u32 [%d6], %r3;
st.shared.u32 [%r8], %r3;
bar.warp.sync 0xFFFFFFFF;
atom.{space}.{operation} %r2, [{"%d7" if space == "global" else "%r9"}], %r6{last};
ld.shared.u32 %r11, [%r8];
st.global.u32 [%d6+256], %r11;
st.global.u32 [%d6+128], %r2;
"""
    result = words(execute(body, data, shared=".shared .align 4 .b8 words[128];\n"), 96)
    memory = [int(x) for x in start]
    old = []
    for lane in range(32):
        place = int(places[lane])
        old.append(memory[place])
        value = int(SMALL[lane])
        memory[place] = OPERATIONS[operation](memory[place], value, value + 1)
    assert list(result[32:64]) == old
    assert list(result[:32] if space == "global" else result[64:]) == memory


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_float_atomics_add_in_lane_order(kind: str) -> None:
    size, dtype = (4, np.float32) if kind == "f32" else (8, np.float64)
    values = RNG.standard_normal(32).astype(dtype)
    letter = "f" if kind == "f32" else "e"
    body = f"""
mul.wide.u32 %d2, %r0, {size};
add.s64 %d2, %d2, %d0;
ld.global.{kind} %{letter}1, [%d2];
mov.b64 %d3, 0;
st.global.b64 [%d1], %d3;
red.global.add.{kind} [%d1], %{letter}1;
"""
    total = dtype(0)
    for value in values:
        total += value
    assert words(execute(body, values), 1, dtype)[0] == total


def test_subnormal_sums_flush_in_global_memory_only() -> None:
    body = """
mov.b32 %r3, 0x00000001;
mov.b32 %f1, %r3;
mov.u32 %r4, word;
mov.u32 %r5, 0;
st.shared.u32 [%r4], %r5;
st.global.u32 [%d1], %r5;
red.shared.add.f32 [%r4], %f1;
red.global.add.f32 [%d1], %f1;
ld.shared.u32 %r2, [%r4];
st.global.u32 [%d1+4], %r2;
"""
    found = words(execute(body, shared=".shared .align 4 .b32 word;\n"), 2)
    assert list(found) == [0, 32]


def test_128_bit_compare_and_swap_and_exchange() -> None:
    data = np.array([1, 2, 3, 4], np.uint64)
    body = """
setp.ne.u32 %p1, %r0, 5;
@%p1 bra DONE;
ld.global.v2.u64 {%d2, %d3}, [%d0];
ld.global.v2.u64 {%d4, %d5}, [%d0+16];
st.global.v2.u64 [%d1], {%d2, %d3};
mov.b128 %q0, {%d2, %d3};
mov.b128 %q1, {%d4, %d5};
atom.global.cas.b128 %q2, [%d1], %q0, %q1;
atom.global.exch.b128 %q3, [%d1], %q2;
mov.b128 {%d6, %d7}, %q3;
st.global.v2.u64 [%d1+16], {%d6, %d7};
DONE:
"""
    assert list(words(execute(body, data), 4, np.uint64)) == [1, 2, 3, 4]


def test_a_generic_address_in_a_shared_operand_counts_by_its_low_half() -> None:
    body = (
        """
mov.u32 %r3, word;
cvt.u64.u32 %d3, %r3;
cvta.shared.u64 %d4, %d3;
st.shared.u32 [%d4], %r0;
ld.shared.u32 %r2, [%r3];
"""
        + STORE_R2
    )
    assert list(words(execute(body, shared=".shared .align 4 .b32 word;\n"))) == [31] * 32


CALLED = """
.func (.param .b32 result) twice(.param .b32 x)
{ .reg .b32 %a; ld.param.b32 %a, [x]; shl.b32 %a, %a, 1; st.param.b32 [result], %a; ret; }
.func (.param .b32 result) next(.param .b32 x)
{ .reg .b32 %a; ld.param.b32 %a, [x]; add.u32 %a, %a, 1; st.param.b32 [result], %a; ret; }
.global .align 8 .u64 table[3] = {twice, next, twice};
.extern .func (.param .b64 result) malloc(.param .b64 size);
.extern .func free(.param .b64 address);
"""


def test_lanes_call_different_functions_through_a_table() -> None:
    body = (
        """
rem.u32 %r3, %r0, 3;
mul.wide.u32 %d2, %r3, 8;
mov.u64 %d3, table;
add.s64 %d3, %d3, %d2;
ld.global.u64 %d4, [%d3];
{ .param .b32 x; .param .b32 result;
st.param.b32 [x], %r0;
prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
call (result), %d4, (x), prototype;
ld.param.b32 %r2, [result]; }
"""
        + STORE_R2
    )
    wanted = [i + 1 if i % 3 == 1 else 2 * i for i in range(32)]
    assert list(words(execute(body, module=CALLED))) == wanted


def test_memory_is_allocated_and_freed_on_the_device() -> None:
    body = (
        """
{ .param .b64 size; .param .b64 result;
mov.b64 %d2, 16;
st.param.b64 [size], %d2;
call.uni (result), malloc, (size);
ld.param.b64 %d3, [result]; }
st.global.u32 [%d3+4], %r0;
ld.global.u32 %r2, [%d3+4];
{ .param .b64 address;
st.param.b64 [address], %d3;
call.uni free, (address); }
"""
        + STORE_R2
    )
    assert list(words(execute(body, module=CALLED))) == list(range(32))


def test_a_pointer_to_no_function_is_reported() -> None:
    body = """
{ .param .b32 x; .param .b32 result;
mov.b64 %d4, 999;
prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
call (result), %d4, (x), prototype; }
"""
    with pytest.raises(EmulationError, match="0x3e7"):
        execute(body, module=CALLED)
