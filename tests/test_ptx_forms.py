"""The table of instruction forms, against messages and against ptxas itself."""

import subprocess
from pathlib import Path

import pytest

from ptxgen.errors import ConfigError, PtxError
from ptxgen.ptx.form_table import TARGETS
from ptxgen.ptx.forms import NAMES, check_forms, min_version
from ptxgen.ptx.module import Instruction, Module
from ptxgen.ptx.parser import parse
from ptxgen.toolchain import find_ptxas

PTXAS = next(find_ptxas(), None)

DECLARATIONS = (
    ".reg .b16 %h<9>; .reg .b32 %r<19>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .pred %p<9>;"
)

SAMPLES = (
    "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f0,%f1,%f2,%f3}, %rd0, %rd1, 1, 1, 1;",
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 {%r0,%r1,%r2,%r3}, %rd0, %rd1, 1;",
    "tcgen05.mma.cta_group::1.kind::f16 [%r0], %rd0, %rd1, %r1, %p0;",
    "tcgen05.mma.cta_group::1.kind::f16 [%r0], %rd0, %rd1, %r1, %p0, 15;",
    "tcgen05.mma.cta_group::1.kind::i8 [%r0], %rd0, %rd1, %r1, %p0;",
    "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X"
    " [%r0], %rd0, %rd1, %r1, [%r4], [%r5], %p0;",
    "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale"
    " [%r0], %rd0, %rd1, %r1, [%r4], [%r5], %p0;",
    "tcgen05.shift.cta_group::1.down [%r0];",
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    " [%r0], [%rd0, {%r1, %r2}], [%r3];",
    "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes"
    " [%r0], [%rd0, {%r1, %r2}], [%r3];",
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2"
    " [%r0], [%rd0, {%r1, %r2}], [%r3];",
    "mbarrier.arrive.shared::cta.b64 _, [%r0], 2;",
    "mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r0], %r1;",
    "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p0, [%r0], %r1;",
    "barrier.cluster.arrive.release.aligned;",
    "setmaxnreg.dec.sync.aligned.u32 40;",
    "elect.sync _|%p0, -1;",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
    " {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%f0,%f1,%f2,%f3};",
    "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32"
    " {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, {%f0,%f1,%f2,%f3};",
    "cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1;",
    "st.global.v8.b32 [%rd0], {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7};",
    "max.f32 %f0, %f1, %f2, %f3;",
    "fma.rn.f32x2 %rd0, %rd1, %rd2, %rd3;",
    "mov.u32 %r0, %cluster_ctarank;",
    "mov.u32 %r0, %tid.x;",
)
TRIED_TARGETS = ("sm_90", "sm_90a", "sm_100a", "sm_100f", "sm_120a")
VERSIONS = ("7.8", "8.0", "8.1", "8.2", "8.3", "8.4", "8.5", "8.6", "8.7", "8.8", "9.0")


def kernel(body: str, target: str = "sm_90a", version: str = "9.0", header: str = "") -> Module:
    return parse(text(body, target, version, header))


def text(body: str, target: str, version: str, header: str = "") -> str:
    return (
        f".version {version}\n.target {target}\n.address_size 64\n"
        f".entry k{header} {{ {DECLARATIONS}\n{body}\nret; }}\n"
    )


def lowest(body: str, target: str) -> str | None:
    try:
        return min_version(kernel(body, target), target).version
    except PtxError:
        return None


def test_lowest_version_names_the_instruction_that_needs_it() -> None:
    module = kernel("bar.sync 0;\nwgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
                    " {%f0,%f1,%f2,%f3}, %rd0, %rd1, %r0, 0, 1, 1, 1, 0, 0;")  # fmt: skip
    version, need = min_version(module, "sm_90a")
    assert version == "8.2"
    assert isinstance(need, Instruction)
    assert (need.name, need.line) == ("wgmma", 6)


def test_plain_code_needs_only_what_the_target_needs() -> None:
    for target, floor in TARGETS.items():
        assert min_version(kernel("add.s32 %r0, %r1, %r2;", target), target) == (floor, None)


def test_large_parameters_and_directives_raise_the_version() -> None:
    assert min_version(kernel("", header="(.param .b8 p[4352])"), "sm_90a").version == "8.0"
    assert min_version(kernel("", header="(.param .b8 p[4353])"), "sm_90a").version == "8.1"
    clusters = kernel("", header="() .blocksareclusters")
    assert min_version(clusters, "sm_90a") == ("9.0", ".blocksareclusters")


@pytest.mark.parametrize(
    ("body", "target", "advice"),
    [
        ("wgmma.fence.sync.aligned;", "sm_100a", "Hopper only: use tcgen05.mma"),
        ("wgmma.fence.sync.aligned;", "sm_120a", "Hopper only: use mma.sync"),
        ("wgmma.fence.sync.aligned;", "sm_90", "try .target sm_90a"),
        ("tcgen05.wait::ld.sync.aligned;", "sm_90a", "use wgmma"),
        ("tcgen05.wait::ld.sync.aligned;", "sm_100", "try .target sm_100a"),
    ],
)  # fmt: skip
def test_missing_instruction_says_what_has_it_and_what_to_use(
    body: str, target: str, advice: str
) -> None:
    (finding,) = check_forms(kernel(body, target))
    assert finding.line == 5
    assert advice in finding.message
    assert finding.targets


def test_version_that_is_too_low_is_found() -> None:
    (finding,) = check_forms(kernel("elect.sync _|%p0, -1;", "sm_90", "7.8"))
    assert finding.message == "elect.sync needs .version 8.0, got 7.8"


def test_misspelt_instruction_is_found() -> None:
    (finding,) = check_forms(kernel("wgma.fence.sync.aligned;"))
    assert "not an instruction" in finding.message
    assert "wgmma" in NAMES


def test_unknown_target_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be one of"):
        min_version([], "sm_12")


@pytest.mark.skipif(PTXAS is None, reason="no ptxas")
@pytest.mark.parametrize("target", TRIED_TARGETS)
def test_ptxas_takes_the_stated_version(target: str, tmp_path: Path) -> None:
    stated = {body: lowest(body, target) for body in SAMPLES}
    refused = [b for b, v in stated.items() if v and not assembles(b, target, v, tmp_path)]
    assert not refused


@pytest.mark.skipif(
    PTXAS is None or not PTXAS.version.startswith("13.0."),
    reason="not the ptxas that was measured; 13.5 takes some forms at a lower .version",
)
@pytest.mark.parametrize("target", TRIED_TARGETS)
def test_ptxas_takes_nothing_below_the_stated_version(target: str, tmp_path: Path) -> None:
    taken = []
    for body in SAMPLES:
        stated = lowest(body, target)
        below = "9.0" if stated is None else VERSIONS[max(0, VERSIONS.index(stated) - 1)]
        if below != stated and assembles(body, target, below, tmp_path):
            taken.append((body, below))
    assert not taken


def assembles(body: str, target: str, version: str, folder: Path) -> bool:
    path = folder / "form.ptx"
    path.write_text(text(body, target, version))
    assert PTXAS is not None
    command = [
        str(PTXAS.path),
        "-O0",
        f"-arch={target}",
        str(path),
        "-o",
        str(folder / "form.cubin"),
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
