"""Barriers of a CTA in divergent code: .aligned needs the warp together, others its lanes."""

import pytest
from emulator_kernels import kernel, launch

from ptxgen.emulator.checking import Report, check
from ptxgen.emulator.options import SCHEDULES

TWO_PLACES = """
mul.wide.u32 %d2, %r0, 4;
add.u64 %d2, %d1, %d2;
mov.u32 %r5, tile;
mad.lo.u32 %r6, %r0, 4, %r5;
st.shared.u32 [%r6], %r0;
and.b32 %r2, %r0, 1;
setp.eq.u32 %p0, %r2, 1;
setp.gt.u32 %p3, %r0, 9;
@%p0 bra ODD;
FIRST
bra BOTH;
ODD:
SECOND
BOTH:
xor.b32 %r6, %r6, 132;
ld.shared.u32 %r7, [%r6];
st.global.u32 [%d2], %r7;
"""
"""Even and odd lanes each have their own barrier, before they read what another warp wrote."""
ABSENT = TWO_PLACES.replace("SECOND", "ret;")


def report(text: str, *, strict: bool = True) -> Report:
    ptx = kernel(text, shared=".shared .align 256 .b8 tile[256];\n")
    return check(ptx, launch(threads=64), strict=strict)


def at(first: str, second: str) -> str:
    return TWO_PLACES.replace("FIRST", first).replace("SECOND", second)


@pytest.mark.parametrize(
    "instruction",
    ["barrier.sync 0;", "barrier.cta.sync 3, 64;", "barrier.cta.red.and.pred %p1, 0, %p3;"],
)
def test_lanes_meet_at_different_barriers_that_are_not_aligned(instruction: str) -> None:
    found = report(at(instruction, instruction))
    assert found.findings == ()
    assert len(found.runs) == len(SCHEDULES) + 1
    words = memoryview(found.outputs["out"]).cast("I")
    assert list(words[:64]) == [lane ^ 33 for lane in range(64)]


def test_lanes_at_a_warp_barrier_do_not_arrive_at_that_of_the_cta() -> None:
    assert "DEADLOCK" in report(at("barrier.sync 0;", "bar.warp.sync -1;")).codes


def test_aligned_barriers_do_not_let_lanes_meet() -> None:
    assert "DEADLOCK" in report(at("barrier.sync.aligned 0;", "bar.sync 0;")).codes


def test_an_aligned_barrier_that_other_lanes_pass_by_and_exit_is_divergent() -> None:
    early = ABSENT.replace("FIRST", "bar.sync 0;").replace("xor.b32 %r6, %r6, 132;", "")
    assert report(early).codes == ("ALIGNED-DIVERGENT",)
    assert report(early, strict=False).findings == ()


def test_a_barrier_that_is_not_aligned_waits_for_lanes_that_have_not_exited() -> None:
    early = ABSENT.replace("FIRST", "barrier.sync 0;").replace("xor.b32 %r6, %r6, 132;", "")
    assert report(early).findings == ()
