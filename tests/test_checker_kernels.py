"""Kernels in stream order: what programmatic dependent launches may touch, and when."""

import pytest

from ptxgen.emulator.checking import Report, check
from ptxgen.launch import Buffer, Launch, Param

LET_IN = "griddepcontrol.launch_dependents;"
WAIT = "griddepcontrol.wait;"
WRITES_X = "st.global.u32 [%x], 7;"
READS_X = "ld.global.u32 %r, [%x];"
NAMES = ("first", "second", "third")


def entry(name: str, body: str) -> str:
    return f"""
.visible .entry {name}(.param .u64 x_param, .param .u64 y_param)
{{
    .reg .b32 %r;
    .reg .b64 %x, %y;
    ld.param.u64 %x, [x_param];
    ld.param.u64 %y, [y_param];
    mov.u32 %r, 1;
    {body}
    st.global.u32 [%y], %r;
    ret;
}}
"""


def launch(name: str, index: int) -> Launch:
    own = f"y{index}"
    return Launch(
        name, (1, 1, 1), (1, 1, 1),
        params=(Param("x_param", "pointer", "x"), Param("y_param", "pointer", own)),
        buffers=(Buffer("x", 4, "inout"), Buffer(own, 4, "out")),
    )  # fmt: skip


def checked(*bodies: str) -> Report:
    """One kernel of one thread for each body, in stream order; x is shared."""
    head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    named = list(zip(NAMES, bodies, strict=False))
    text = head + "".join(entry(name, body) for name, body in named)
    launches = [launch(name, index) for index, (name, _) in enumerate(named)]
    return check(text, launches, schedules=("lazy",))


@pytest.mark.parametrize(
    "bodies",
    [
        pytest.param((LET_IN + WRITES_X, READS_X), id="reads what is being written"),
        pytest.param((LET_IN + READS_X, WRITES_X), id="writes what is being read"),
        pytest.param((LET_IN + WRITES_X, WRITES_X + WAIT), id="waits too late"),
        pytest.param(
            (LET_IN + WRITES_X, LET_IN, WAIT + READS_X), id="waits for one that did not wait"
        ),
        pytest.param((LET_IN + WRITES_X, LET_IN + WAIT, READS_X), id="let in before the wait"),
    ],
)
def test_a_kernel_that_starts_early_may_not_touch_what_is_in_use(bodies: tuple[str, ...]) -> None:
    assert checked(*bodies).codes == ("DEPENDENT-LAUNCH",)


@pytest.mark.parametrize(
    "bodies",
    [
        pytest.param((WRITES_X, READS_X), id="not let in early"),
        pytest.param((LET_IN + WRITES_X, WAIT + READS_X), id="waits"),
        pytest.param((LET_IN + READS_X, READS_X), id="both read"),
        pytest.param((LET_IN + WRITES_X, LET_IN + WAIT, WAIT + READS_X), id="all wait"),
        pytest.param((LET_IN + WRITES_X, WAIT + LET_IN, READS_X), id="let in after the wait"),
        pytest.param((LET_IN + WRITES_X, "", READS_X), id="an ordinary kernel lies between"),
    ],
)
def test_a_kernel_may_touch_what_is_over(bodies: tuple[str, ...]) -> None:
    assert checked(*bodies).findings == ()


def test_a_chain_without_waits_names_the_kernel_that_may_still_run() -> None:
    (finding,) = checked(LET_IN + WRITES_X, LET_IN, WAIT + READS_X).findings
    assert "the kernel 2 launches before" in finding.message
    assert "every kernel of the chain" in finding.fix
