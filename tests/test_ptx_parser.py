"""What `parse` makes of PTX text, and what it refuses."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxgen.errors import PtxSyntaxError
from ptxgen.ptx.lexer import MAX_TEXT_CHARS
from ptxgen.ptx.module import Address, Function, Immediate, Pair, Register, Sink, Symbol, Vector
from ptxgen.ptx.parser import parse

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"

SAMPLE = (
    HEADER
    + """
.extern .shared .align 1024 .b8 smem[];  // dynamic
.global .align 8 .u64 table[3] = {generic(word)+4, 7};
.global .align 4 .u32 word = 0x10;
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.visible .entry kernel(
  .param .align 64 .b8 kernel_map[128], .param .u64 .ptr .global .align 16 kernel_out)
.maxntid 384, 1, 1
.minnctapersm 1
.explicitcluster
{
  .reg .pred %p<3>; .reg .b32 %r<10>; .reg .b64 %rd<3>; .reg .f32 %f<4>; .reg .b16 %rs<3>;
  .shared .align 8 .b64 full[2];
  .loc 1 23 5, function_name $L__info_string0, inlined_at 1 20 3
  mov.u32 %r1, smem; /* two
  lines */ ld.param.u64 %rd1, [kernel_out];
  { .reg .pred P; WAIT: mbarrier.try_wait.parity.shared::cta.b64 P, [full], %r1; @P bra DONE;
    bra WAIT; DONE: }
  { .reg .pred P; WAIT: mbarrier.try_wait.parity.shared::cta.b64 P, [full+8], 1; @!P bra WAIT; }
  elect.sync _|%p1, 0xFFFFFFFF;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r1], [%rd1, {%r2, %r3}], [full];
  mov.b32{%rs1,%rs2},%r4;
  st.global.f32 [%rd1+-4], 0f3F800000;
  wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f0,%f1,%f2,%f3}, %rd1, %rd2, !%p2, 1, -1;
  {
    .param .b64 param0;
    st.param.b64 [param0+0], %rd1;
    call.uni (retval0), vprintf, (param0, param0);
  }
  ret;
}
""".replace("call.uni (retval0), vprintf", ".param .b32 retval0; call.uni (retval0), vprintf")
)


def body(text: str, declarations: str = ".reg .b32 %r<9>; .reg .b64 %rd<9>;") -> Function:
    return parse(f"{HEADER}.entry k(.param .u64 a) {{ {declarations} {text} }}").entry()


def test_opcode_keeps_its_modifiers_and_double_colons() -> None:
    copy = next(i for i in parse(SAMPLE).entry().body if i.name == "cp")
    assert copy.modifiers[:5] == ("async", "bulk", "tensor", "2d", "shared::cluster")
    assert copy.modifiers[-1] == "mbarrier::complete_tx::bytes"
    assert copy.operands[1] == Address(
        Register("%rd1"), 0, Vector((Register("%r2"), Register("%r3")))
    )


def test_labels_and_registers_of_sibling_scopes_get_unique_names() -> None:
    kernel = parse(SAMPLE).entry()
    waits = [i for i in kernel.body if i.name == "mbarrier"]
    assert [str(i.operands[0]) for i in waits] == ["P", "P$1"]
    branches = [i for i in kernel.body if i.name == "bra"]
    targets = [kernel.labels[str(i.operands[0])] for i in branches]
    first, second = (kernel.body.index(i) for i in waits)
    assert targets == [second, first, second]
    assert branches[2].guard == ("P$1", True)


def test_lines_count_comments_and_long_statements() -> None:
    kernel = parse(SAMPLE).entry()
    for instruction in kernel.body:
        assert instruction.name in SAMPLE.split("\n")[instruction.line - 1]


def test_directives_and_parameters_are_kept() -> None:
    kernel = parse(SAMPLE).entry("kernel")
    assert kernel.directives == {
        "maxntid": (384, 1, 1),
        "minnctapersm": (1,),
        "explicitcluster": (),
    }
    assert [(p.name, p.nbytes, p.align) for p in kernel.params] == [
        ("kernel_map", 128, 64),
        ("kernel_out", 8, 8),
    ]


def test_initialiser_holds_bytes_and_relocations() -> None:
    module = parse(SAMPLE)
    table = module.variables["table"]
    assert table.initial == bytes(8) + (7).to_bytes(8, "little") + bytes(8)
    relocation = table.relocations[0]
    assert (relocation.symbol, relocation.addend, relocation.generic) == ("word", 4, True)
    assert module.variables["smem"].nbytes == 0


def test_call_has_returns_callee_and_arguments() -> None:
    call = next(i for i in parse(SAMPLE).entry().body if i.name == "call")
    argument = Symbol("param0")
    assert call.operands == (
        Vector((Symbol("retval0"),)), Symbol("vprintf"), Vector((argument, argument)),
    )  # fmt: skip


def test_sinks_pairs_and_vectors_without_space() -> None:
    operands = {i.name: i.operands for i in parse(SAMPLE).entry().body}
    assert operands["elect"] == (Pair(Sink(), Register("%p1")), Immediate(0xFFFFFFFF))
    assert operands["mov"] == (Vector((Register("%rs1"), Register("%rs2"))), Register("%r4"))


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("0x1F", 31), ("017", 15), ("0b101U", 5), ("-1", -1), ("(3 << 2) + 1", 13),
        ("0xFFFFFFFFFFFFFFFF", 2**64 - 1), ("~1", -2), ("7 / -2", -3), ("3 > 2 ? 4 : 5", 4),
        ("(.u64) -1", 2**64 - 1), ("0f3F800000", 1.0), ("0dBFF8000000000000", -1.5),
        ("2.5e-1", 0.25), ("-1.5", -1.5), ("1 + 2 * 3", 7), ("WARP_SZ", 32),
    ],
)  # fmt: skip
def test_constant_expression_is_folded(literal: str, value: float) -> None:
    operand = body(f"mov.b64 %rd1, {literal};").body[0].operands[1]
    assert isinstance(operand, Immediate)
    assert operand.value == value


def test_register_of_inner_range_hides_the_outer_one() -> None:
    text = "mov.u32 %r1, 1; { .reg .b64 %r<2>; mov.u64 %r1, 2; mov.u32 %r5, 3; } mov.u32 %r1, 4;"
    kernel = body(text)
    names = [str(i.operands[0]) for i in kernel.body]
    assert names == ["%r1", "%r1$1", "%r5", "%r1"]
    assert kernel.registers == {"%r1": "b32", "%r1$1": "b64", "%r5": "b32"}


def test_vector_register_stands_for_its_components() -> None:
    kernel = body("st.global.v2.f32 [a], %v;", ".reg .v2 .f32 %v;")
    assert kernel.body[0].operands[1] == Vector((Register("%v.x"), Register("%v.y")))


def test_branch_targets_follow_renamed_labels() -> None:
    kernel = body("{ L: bra L; } ts: .branchtargets L, M; brx.idx %r1, ts; L: ret; M: ret;")
    assert [kernel.labels[name] for name in kernel.branch_targets["ts"]] == [2, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mov.u32 %r1 5;", "expected ',' or ';' after an operand, got '5'"),
        ("mov.u32 %q, 5;", "expected a declared register, got '%q'"),
        ("ld.global.u32 %r1, [%rd1;", "expected ']'"),
        ("ld.global.u32 %r1, [%rd1-8];", "+-8"),
        ("bra NOWHERE;", "got 'NOWHERE'"),
        ("L: L: ret;", "'L' is declared twice"),
        (".reg .pred %r<2>;", "declared twice"),
        ("mov.u32 %r1, 99999999999999999999;", "at most 64 bits"),
        ("mov.u32 %r1, 1 / 0;", "a divisor other than zero"),
        ("mov.u32 %r1, " + "(" * 500 + "1;", "nested constants"),
        ("{" * 500, "nested scopes"),
        (".shared .align 3 .b8 x[4];", "a power of two"),
        ("@%r1 5;", "expected an instruction"),
    ],
)  # fmt: skip
def test_refusal_names_the_line_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        body("\n" + text)
    assert message in str(caught.value)
    assert caught.value.line == 5
    assert str(caught.value).startswith("line 5: ")


def test_text_that_is_too_long_is_refused_at_once() -> None:
    with pytest.raises(PtxSyntaxError, match="at most"):
        parse(HEADER + " " * MAX_TEXT_CHARS)


@pytest.mark.parametrize(
    "part", ["(", "{", "[", "-", '"', "/*", "a:", ".reg .b32 %r<9>;{", "!", "@"]
)
def test_repeated_junk_is_refused_in_linear_time(part: str) -> None:
    started = time.perf_counter()
    for junk in (
        part * 200_000,
        f".entry k() {{ {part * 200_000}",
        f".global .u8 x = {part * 200_000}",
    ):
        with pytest.raises(PtxSyntaxError):
            parse(HEADER + junk)
    assert time.perf_counter() - started < 10


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_text_parses_or_is_refused(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(SAMPLE)))
    stop = data.draw(st.integers(start, min(len(SAMPLE), start + 40)))
    junk = data.draw(st.text('{}[](),;:.@!%|_-+~0x1fLr \n"/*<>é', max_size=8))
    try:
        parse(SAMPLE[:start] + junk + SAMPLE[stop:])
    except PtxSyntaxError as error:
        assert error.line is not None  # noqa: PT017
        assert 1 <= error.line <= SAMPLE.count("\n") + junk.count("\n") + 1  # noqa: PT017
