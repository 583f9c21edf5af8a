"""What stops a run has a code: recursion without an end, barriers of the wrong state space."""

import pytest
from emulator_kernels import kernel, launch

from ptxgen.emulator.checking import check
from ptxgen.errors import LaunchError
from ptxgen.ptx.forms import check_forms
from ptxgen.ptx.parser import parse

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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ret;", "tcgen05.fence::before_thread_sync;\nret;"),
        ("sm_90a", "sm_999x"),
        (".version 8.6", ".version 99.9"),
    ],
)
def test_a_text_that_ptxas_rejects_is_said_to_be_one(old: str, new: str) -> None:
    text = kernel("st.global.u32 [%d1], %r0;")
    assert codes(text) == ()
    assert codes(text.replace(old, new)) == ("FORM",)


def test_tensor_core_work_of_pairs_and_single_ctas_does_not_mix() -> None:
    body = "tcgen05.relinquish_alloc_permit.cta_group::{}.sync.aligned;"
    text = kernel(body.format(1) + body.format(1)).replace("sm_90a", "sm_100a")
    (finding,) = check_forms(parse(text.replace("cta_group::1", "cta_group::2", 1)))
    assert "one cta_group" in finding.message
    assert check_forms(parse(text)) == []


def test_a_cluster_has_no_more_ctas_than_hardware_allows() -> None:
    with pytest.raises(LaunchError, match="at most 16 CTAs"):
        launch(grid=17, cluster=17)
