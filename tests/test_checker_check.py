"""check: schedules, options, what a finding says; our own kernels are clean under strict."""

from functools import cache
from typing import Any

import pytest
from emulator_kernels import kernel, launch
from litmus_cases import cases

from ptxgen.emission import make_plan
from ptxgen.emulator.checker_faults import code_of
from ptxgen.emulator.checking import check
from ptxgen.emulator.findings import CODES, SEVERITIES, Finding
from ptxgen.errors import (
    ArgumentError,
    BarrierError,
    DeadlockError,
    EmulationError,
    HazardError,
    LaunchError,
    MisalignedError,
    OutOfBoundsError,
)
from ptxgen.kernels import gemm_mma, gemm_sm90, gemm_sm100
from ptxgen.launch import Launch
from ptxgen.operands import make_operands
from ptxgen.problem import Gemm
from ptxgen.renderer import render
from ptxgen.trial import buffer_contents

FP8 = {"a": "e4m3", "b": "e4m3"}
BF16 = {"a": "bf16", "b": "bf16"}


@cache
def own(
    kernel: Any, m: int, n: int, k: int, types: tuple[tuple[str, str], ...], **chosen: Any
) -> tuple[str, Launch, dict[str, bytes]]:
    """Text, launch and data of a kernel of ours."""
    problem = Gemm(m, n, k, **dict(types))  # type: ignore[arg-type]
    plan = make_plan(problem, kernel.default_config(problem, **chosen), num_sms=2)
    operands = make_operands(problem, "integers")
    return render(plan).text, plan.launch, dict(buffer_contents(problem, operands))


def hopper(**chosen: Any) -> tuple[str, Launch, dict[str, bytes]]:
    """An FP8 GEMM whose ring of stages wraps, and whose CTAs have several tiles."""
    return own(
        gemm_sm90, 256, 256, 768, tuple(FP8.items()), tile_m=128, tile_n=128, stages=3, store="tma",
        **chosen,
    )  # fmt: skip


def without(text: str, *parts: str, instead: str = "") -> str:
    """The text without the lines that contain all of some strings."""
    lines = text.splitlines()
    hit = [all(p in line for p in parts) for line in lines]
    assert any(hit)
    return "\n".join(
        instead if drop else line for line, drop in zip(lines, hit, strict=True)
    )  # fmt: skip


def body(text: str, **geometry: int) -> tuple[str, Launch]:
    return kernel(text, shared=".shared .align 16 .b8 tile[256];\n"), launch(**geometry)


RACE = """
mov.u32 %r2, tile;
shl.b32 %r3, %r0, 2;
add.u32 %r4, %r2, %r3;
st.shared.u32 [%r4], %r0;
xor.b32 %r3, %r3, 128;
add.u32 %r5, %r2, %r3;
ld.shared.u32 %r6, [%r5];
cvt.u64.u32 %d2, %r3;
add.u64 %d2, %d1, %d2;
st.global.u32 [%d2], %r6;
"""
"""Two warps exchange their words without a barrier."""


@pytest.mark.parametrize(
    ("kernel", "types", "chosen"),
    [
        (gemm_sm90, FP8, {"store": "tma"}),
        (gemm_sm90, FP8, {"store": "deferred", "cluster_m": 2}),
        (gemm_sm90, BF16, {"store": "global"}),
        (gemm_sm90, FP8 | {"scale": "rowcol", "accumulate": "promoted"}, {}),
        (gemm_mma, BF16, {}),
        (gemm_mma, FP8, {}),
        (gemm_sm100, BF16, {"cta_group": 1}),
        (gemm_sm100, FP8, {"cta_group": 2}),
        (gemm_sm100, BF16, {"scheduler": "clc"}),
    ],
    ids=lambda v: v.NAME if hasattr(v, "NAME") else "-".join(map(str, v.values())),
)
def test_our_kernels_are_clean_under_strict(
    kernel: Any, types: dict[str, str], chosen: dict[str, Any]
) -> None:
    size = (64, 128, 160) if kernel is gemm_mma else (256, 256, 640)
    text, launch, data = own(kernel, *size, tuple(types.items()), **chosen)
    report = check(text, launch, data, strict=True, seeds=(0,))
    assert report.findings == ()
    assert report.identical
    assert len(report.runs) == 4


@pytest.mark.parametrize(
    ("parts", "instead", "code"),
    [
        (("fence.proxy.async",), "", "PROXY-MISSING"),
        (("try_wait", "[%empty_bar]"), "setp.eq.u32 %done, 0, 0;", "STAGE-OVERWRITTEN"),
        (("try_wait", "[%full_bar]"), "setp.eq.u32 %done, 0, 0;", "WAIT-MISSING"),
        (("cp.async.bulk.wait_group.read",), "", "BULK-SOURCE-REUSED"),
        (("wgmma.wait_group", " 1;"), "", "STAGE-OVERWRITTEN"),
        (("wgmma.wait_group", " 0;"), "", "ACCUMULATOR-IN-FLIGHT"),
        (("wgmma.fence",), "", "WGMMA-FENCE-MISSING"),
        (("fence.mbarrier_init",), "", "INIT-FENCE-MISSING"),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_a_wait_or_fence_that_is_dropped_is_missed(
    parts: tuple[str, ...], instead: str, code: str
) -> None:
    text, launch, data = hopper()
    report = check(without(text, *parts, instead=instead), launch, data, strict=True)
    assert code in report.codes


def read_of_race() -> Finding:
    """The finding at the load that comes too early."""
    findings = check(*body(RACE, threads=64), strict=True).findings
    return next(f for f in findings if f.code == "RACE" and f.instruction.startswith("ld."))


def test_a_finding_names_instructions_warps_bytes_and_a_fix() -> None:
    finding = read_of_race()
    assert finding.other_instruction.startswith("st.shared.u32")
    assert finding.line is not None
    assert finding.other_line is not None
    assert finding.line > finding.other_line
    assert set(finding.warps) == {0, 1}
    assert finding.addresses is not None
    assert finding.addresses[1] == 128
    assert "tile" in finding.message
    assert "barrier" in finding.fix


def test_a_finding_replays_under_its_schedule_and_seed() -> None:
    finding = read_of_race()
    again = check(
        *body(RACE, threads=64), strict=True, schedules=(finding.schedule,), seeds=(finding.seed,)
    )  # fmt: skip
    assert finding.key in [f.key for f in again.findings]


def test_repetitions_of_a_hazard_are_counted() -> None:
    loop = "mov.u32 %r9, 0;\nAGAIN:\n" + RACE + (
        "add.u32 %r9, %r9, 1;\nsetp.lt.u32 %p1, %r9, 5;\n@%p1 bra AGAIN;\n"
    )  # fmt: skip
    report = check(*body(loop, threads=64), schedules=("lazy",))
    assert max(f.count for f in report.findings) >= 5
    assert len({f.key for f in report.findings}) == len(report.findings)


def test_a_barrier_makes_the_exchange_right() -> None:
    text, launch = body(RACE.replace("xor.b32", "bar.sync 0;\nxor.b32"), threads=64)
    assert check(text, launch, strict=True).findings == ()


def test_on_race_raise_stops_at_the_first_error() -> None:
    with pytest.raises(HazardError, match="RACE"):
        check(*body(RACE, threads=64), on_race="raise")


def test_without_race_detection_only_results_are_compared() -> None:
    report = check(*body(RACE, threads=64), detect_races=False)
    assert set(report.codes) <= {"NONDETERMINISTIC"}
    assert len(report.runs) == 5


def test_results_that_depend_on_the_schedule_are_nondeterministic() -> None:
    order = """
    atom.global.add.u32 %r2, [%d1], 1;
    mul.wide.u32 %d2, %r0, 4;
    add.u64 %d2, %d1, %d2;
    st.global.u32 [%d2+64], %r2;
    """
    text, where = kernel(order), launch(threads=128)
    report = check(text, where, {"out": bytes(4096)}, seeds=(0, 1, 2, 3))
    assert report.codes == ("NONDETERMINISTIC",)
    assert not report.identical


def test_reads_outside_of_buffers_stop_a_run_or_give_poison() -> None:
    far = "ld.global.u32 %r2, [%d0+4096];\nst.global.u32 [%d1], %r2;\n"
    assert check(*body(far)).codes == ("OUT-OF-BOUNDS",)
    assert not check(*body(far)).ok
    report = check(*body(far), out_of_bounds_reads="uninitialized")
    assert [f.severity for f in report.findings] == ["warning"]
    assert report.outputs["out"][:4] == b"\xff" * 4


def test_unwritten_shared_memory_is_poison_or_zero() -> None:
    read = "mov.u32 %r2, tile;\nld.shared.u32 %r3, [%r2];\nst.global.u32 [%d1], %r3;\n"
    report = check(*body(read), strict=True)
    assert report.codes == ("UNINIT-SMEM",)
    assert report.outputs["out"][:4] == b"\xff" * 4
    report = check(*body(read), strict=True, uninitialized_memory="zero")
    assert report.findings == ()
    assert report.outputs["out"][:4] == bytes(4)


def test_time_that_is_over_ends_a_check() -> None:
    text, launch, data = hopper()
    report = check(text, launch, data, max_seconds=0.01)
    assert len(report.runs) == 1
    assert len(report.skipped) == 4
    assert report.seconds < 5


def test_clusters_that_wait_for_each_other_are_run_side_by_side() -> None:
    wait = """
    mov.u32 %r2, %ctaid.x;
    setp.ne.u32 %p1, %r2, 0;
    @%p1 bra SIGNAL;
    POLL:
    ld.acquire.gpu.global.u32 %r3, [%d1];
    setp.eq.u32 %p2, %r3, 0;
    @%p2 bra POLL;
    bra DONE;
    SIGNAL:
    mov.u32 %r4, 1;
    st.release.gpu.global.u32 [%d1], %r4;
    DONE:
    """
    report = check(
        kernel(wait), launch(threads=1, grid=2), {"out": bytes(4096)}, strict=True,
        schedules=("lazy", "random"),
    )  # fmt: skip
    assert report.findings == ()
    assert report.identical


@pytest.mark.parametrize(
    "options",
    [{"schedules": ("slow",)}, {"on_race": "ignore"}, {"uninitialized_memory": "one"}],
)
def test_options_that_do_not_exist_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(options))):
        check(*body(RACE), **options)


def test_a_buffer_that_the_launch_does_not_have_is_refused() -> None:
    with pytest.raises(LaunchError, match="nothing"):
        check(*body(RACE), {"nothing": b""})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BarrierError("no mbarrier lives at shared offset 0x400"), "BARRIER-UNINIT"),
        (BarrierError("mbarrier.init at 0x400 over a live mbarrier"), "BARRIER-OVERWRITTEN"),
        (BarrierError("1 arrival(s) with only 0 pending"), "OVER-ARRIVAL"),
        (OutOfBoundsError("16-byte access at 0x0"), "OUT-OF-BOUNDS"),
        (OutOfBoundsError("names CTA rank 1, which has exited"), "CLUSTER-EXIT"),
        (MisalignedError("needs 128-byte alignment"), "MISALIGNED"),
        (DeadlockError("deadlock"), "DEADLOCK"),
        (EmulationError("the kernel executed trap"), "FAULT"),
    ],
)
def test_what_stops_a_run_has_a_code(error: EmulationError, code: str) -> None:
    assert code_of(error) == code


def test_every_code_has_severities_a_meaning_and_a_fix() -> None:
    for code, info in CODES.items():
        assert info.strict in SEVERITIES, code
        assert info.tolerant in ("", *SEVERITIES), code
        assert info.meaning, code
        assert info.fix, code


def test_where_a_line_has_several_instructions_a_finding_names_those_that_may_be_meant() -> None:
    findings = check(*body(RACE.replace("\n", " "), threads=64), strict=True).findings
    messages = {f.code: f.message for f in findings}
    assert messages["RACE"].startswith("`st.shared.u32 or ld.shared.u32 or st.global.u32` by CTA 0")


@pytest.mark.parametrize(
    ("before_exit", "says"),
    [("", "which has exited"), ("nanosleep.u32 20;", "touches its shared memory")],
    ids=["gone", "in time"],
)
def test_a_load_from_a_cta_that_may_be_gone_is_an_error_of_foreign_kernels_too(
    before_exit: str, says: str
) -> None:
    case = next(c for c in cases() if c.name == "cta_gone_while_peer_reads")
    text = case.text("bug").replace("    ret;", f"    {before_exit}\n    ret;")
    (found,) = check(text, case.launches, schedules=("lazy",)).findings
    assert (found.code, found.severity) == ("CLUSTER-EXIT", "error")
    assert says in found.message
