"""Garbled kernels: check finds a hazard, or refuses the text, and never ends in another way."""

import re
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from litmus_cases import Litmus, cases

from ptxgen.emulator.checking import check
from ptxgen.errors import LaunchError, PtxError

SECONDS = 60
"""More than one of these takes on a machine that is busy."""
KERNELS = [c for c in cases() if len(c.launches) == 1]
WORD = re.compile(r"%?[\w.:]+|[^\s\w]")
STRANGE = st.sampled_from(
    ["", "{", "}", "[", ";", "@", "0", "-1", "0x7fffffff", "%tid.x", "%laneid", ".pred", "b64",
     "ret;", "bar.sync 0;", "trap;", "%thread", "%tile", "0f7f800000", "1e400"]
)  # fmt: skip


@given(kernel=st.sampled_from(KERNELS), data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_garbled_kernel_is_checked_or_refused(kernel: Litmus, data: st.DataObject) -> None:
    text = kernel.text("ok")
    words = [m.span() for m in WORD.finditer(text, text.index(".entry"))]
    start, end = data.draw(st.sampled_from(words))
    other, other_end = data.draw(st.sampled_from(words))
    new = data.draw(st.one_of(STRANGE, st.just(text[other:other_end])))
    began = time.perf_counter()
    try:
        report = check(
            text[:start] + new + text[end:], kernel.launches, schedules=("lazy",),
            max_instructions=20_000,
        )  # fmt: skip
    except (PtxError, LaunchError):
        return
    (run,) = report.runs
    assert not run.error or report.findings
    assert time.perf_counter() - began < SECONDS
