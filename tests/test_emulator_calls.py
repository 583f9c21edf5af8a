"""Device functions: parameters, recursion, pointers to functions, printf."""

from emulator_kernels import STORE_R2, execute, words

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
