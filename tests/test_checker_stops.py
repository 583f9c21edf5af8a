"""What stops a run has a code: recursion without an end, barriers of the wrong state space."""

from emulator_kernels import kernel, launch

from ptxgen.emulator.checking import check

RECURSION = """
.func deeper(.param .b32 left)
{
.reg .b32 %n;
.reg .pred %more;
ld.param.b32 %n, [left];
setp.ne.u32 %more, %n, 0;
add.u32 %n, %n, -1;
{
.param .b32 next;
st.param.b32 [next], %n;
@%more call deeper, (next);
}
ret;
}
"""
CALL = """
{
.param .b32 first;
st.param.b32 [first], COUNT;
call deeper, (first);
}
st.global.u32 [%d1], %r0;
"""
ARRIVE = """
mov.u32 %r9, bar;
setp.ne.u32 %p0, %r0, 0;
@%p0 bra READY;
mbarrier.init.shared::cta.b64 [%r9], 32;
fence.mbarrier_init.release.cluster;
READY:
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
mov.u32 %r2, %cluster_ctarank;
xor.b32 %r2, %r2, 1;
mapa.shared::cluster.u32 %r3, %r9, %r2;
mbarrier.arrive.release.cluster.SPACE.b64 _, [%r3];
WAIT:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r9], 0;
@!%p1 bra WAIT;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
"""


def codes(text: str, **geometry: int) -> tuple[str, ...]:
    return check(text, launch(**geometry), strict=True, schedules=("lazy",)).codes


def test_recursion_without_an_end_is_an_endless_loop() -> None:
    text = kernel(CALL.replace("COUNT", "0xffffffff"), module=RECURSION)
    assert codes(text, threads=1) == ("ENDLESS-LOOP",)


def test_recursion_that_a_stack_holds_ends() -> None:
    assert codes(kernel(CALL.replace("COUNT", "50"), module=RECURSION), threads=1) == ()


def test_an_arrive_of_the_own_state_space_does_not_reach_another_cta() -> None:
    text = kernel(ARRIVE, shared=".shared .align 8 .b64 bar;\n")
    remote = text.replace("SPACE", "shared::cluster")
    assert codes(remote, grid=2, cluster=2) == ()
    assert codes(text.replace("SPACE", "shared::cta"), grid=2, cluster=2) == ("OUT-OF-BOUNDS",)
