"""The assembler: what it returns, and how it says no."""

import os
from pathlib import Path

import pytest

from ptxgen import assembler
from ptxgen.assembler import Cubin, assemble
from ptxgen.errors import AssemblyError, ConfigError, ToolMissingError
from ptxgen.toolchain import find_ptxas

HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"
STORE = HEADER + (
    ".visible .entry store(.param .u64 out)\n"
    "{\n"
    "    .reg .b64 %out;\n"
    "    ld.param.u64 %out, [out];\n"
    "    st.global.u32 [%out], 7;\n"
    "    ret;\n"
    "}\n"
)
SETMAXNREG = STORE.replace("    ret;", "    setmaxnreg.dec.sync.aligned.u32 40;\n    ret;")
BAD_LINE_9 = STORE.replace("    ret;", "    rett;")


def entry(body: str, directives: str = "") -> str:
    return HEADER + f".visible .entry k(.param .u64 out) {directives}\n{{\n{body}\nret;\n}}\n"


def spilling() -> str:
    loads = [f"ld.volatile.global.u32 %r{i}, [%out+{4 * i}];" for i in range(100)]
    stores = [f"st.volatile.global.u32 [%out+{4 * i}], %r{i};" for i in range(100)]
    body = [".reg .b64 %out; .reg .b32 %r<100>;", "ld.param.u64 %out, [out];", *loads, *stores]
    return entry("\n".join(body), ".maxntid 1024 .minnctapersm 1")


def fake_ptxas(path: Path, body: str) -> None:
    """A program that answers questions like ptxas, and then does `body`."""
    path.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        '--version) echo "release 13.0, V13.0.1";;\n'
        "--help) echo \"'sm_90','sm_90a'\";;\n"
        "--list-version) echo 8.0 9.0;;\n"
        f"*) {body};;\n"
        "esac\n"
    )
    path.chmod(0o755)


def test_a_cubin_holds_code_resources_and_the_assembler() -> None:
    cubin = assemble(STORE)
    assert cubin.code.startswith(b"\x7fELF")
    assert cubin.arch == "sm_90a"
    assert cubin.assembler.startswith("ptxas ")
    assert [e.name for e in cubin.entries] == ["store"]
    assert 0 < cubin.registers < 32
    assert cubin.spill_bytes == 0


def test_the_same_text_gives_the_same_bytes() -> None:
    assert assemble(STORE).code == assemble(STORE).code


def test_static_shared_memory_is_reported() -> None:
    text = entry(
        ".reg .b32 %t; .shared .b8 smem[1024];\nmov.u32 %t, %tid.x;\nst.volatile.shared.u32 "
        "[smem], %t;"
    )
    assert assemble(text).smem_bytes == 1024


def test_spills_are_reported_and_refused_when_clean_code_is_required() -> None:
    cubin = assemble(spilling())
    assert cubin.spill_bytes > 0
    with pytest.raises(AssemblyError, match="spills registers"):
        cubin.require_clean()


def test_a_lost_setmaxnreg_is_reported_and_refused_when_clean_code_is_required() -> None:
    cubin = assemble(SETMAXNREG)
    assert [m.code for m in cubin.losses] == ["C7508"]
    with pytest.raises(AssemblyError, match="C7508"):
        cubin.require_clean()


def test_setmaxnreg_with_a_known_register_count_is_clean() -> None:
    assemble(entry("setmaxnreg.dec.sync.aligned.u32 40;", ".maxntid 128 .minnctapersm 1"))
    text = entry("setmaxnreg.dec.sync.aligned.u32 40;", ".maxntid 384 .minnctapersm 1")
    assemble(text).require_clean()


def test_a_rejection_names_ptx_line_template_line_and_source() -> None:
    template_lines = [f"gemm.ptx.j2:{100 + i}" for i in range(1, 11)]
    with pytest.raises(AssemblyError, match=r"PTX line 9 \(gemm\.ptx\.j2:109\)") as caught:
        assemble(BAD_LINE_9, template_lines=template_lines)
    assert caught.value.line == 9
    assert "rett;" in str(caught.value)


WGMMA_FENCE = entry("wgmma.fence.sync.aligned;")


@pytest.mark.parametrize(
    ("text", "arch", "reason"),
    [
        (WGMMA_FENCE, "sm_100a", "wgmma does not exist on sm_100a.*sm_90a only.*tcgen05"),
        (WGMMA_FENCE, "sm_90", r"PTX for \.target sm_90a must be assembled for sm_90a"),
        (WGMMA_FENCE.replace("sm_90a", "sm_90"), None, "needs sm_90a, with the a"),
        (WGMMA_FENCE.replace("8.0", "7.8"), None, r"needs \.version 8\.0 or newer"),
        (WGMMA_FENCE.replace("8.0", "42.0"), None, r"takes PTX \.version up to .*says 42\.0"),
        (WGMMA_FENCE, "sm_77", "does not know sm_77"),
        ("", None, r"must have a \.target directive"),
    ],
)
def test_common_rejections_say_what_to_do(text: str, arch: str | None, reason: str) -> None:
    with pytest.raises(AssemblyError, match=reason):
        assemble(text, arch)


@pytest.mark.parametrize("name", ["90a", "SM90a", "sm90a", "sm_90a"])
def test_arch_names_are_normalised(name: str) -> None:
    assert assemble(STORE, name).arch == "sm_90a"


def test_an_arch_that_is_no_target_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="must read like sm_90a"):
        assemble(STORE, "hopper")


def test_nvjitlink_refuses_setmaxnreg_before_it_runs() -> None:
    with pytest.raises(AssemblyError, match=r"PTX line 9: nvJitLink must not .*C7504") as caught:
        assemble(SETMAXNREG, tool="nvjitlink")
    assert caught.value.line == 9


def test_setmaxnreg_in_a_comment_is_not_an_instruction() -> None:
    text = SETMAXNREG.replace("setmaxnreg", "// setmaxnreg")
    assert assembler._setmaxnreg_line(text) is None


@pytest.mark.skipif(assembler.nvjitlink_version() is None, reason="nvJitLink is not here")
def test_nvjitlink_assembles_and_reports_like_ptxas() -> None:
    cubin = assemble(STORE, tool="nvjitlink")
    assert cubin.assembler.startswith("nvJitLink ")
    assert cubin.code.startswith(b"\x7fELF")
    assert [e.name for e in cubin.entries] == ["store"]
    with pytest.raises(AssemblyError) as caught:
        assemble(BAD_LINE_9, tool="nvjitlink")
    assert caught.value.line == 9


def test_no_assembler_at_all_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxgen.toolchain.find_binaries", lambda _: iter(()))
    monkeypatch.setattr(assembler, "nvjitlink_version", lambda: None)
    with pytest.raises(ToolMissingError, match="pip install --no-deps nvidia-cuda-nvcc"):
        assemble(STORE)


def test_an_override_that_is_no_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_PTXAS", "/nowhere/ptxas")
    with pytest.raises(ToolMissingError, match="PTXGEN_PTXAS=/nowhere/ptxas"):
        assemble(STORE)


def test_an_old_ptxas_first_on_path_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_ptxas(tmp_path / "ptxas", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert next(find_ptxas()).version == "13.0.1"
    text = STORE.replace("sm_90a", "sm_80").replace("8.0", "7.0")
    assert assemble(text).assembler != "ptxas 13.0.1"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("kill -SEGV $$", r"ended by SIGSEGV; the text is kept in \S+\.ptx"),
        ("sleep 30", r"did not end within 0\.5 s and was stopped; the text is kept in"),
        (": > $4", "wrote 0 B that are not a whole cubin"),
        ('head -c 500 "$CUBIN" > $4', "wrote 500 B that are not a whole cubin"),
        (r"printf '\377\376 oops' >&2; exit 1", "failed without saying why"),
    ],
)
def test_a_broken_ptxas_is_reported_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str, reason: str
) -> None:
    cubin: Cubin = assemble(STORE)
    (tmp_path / "whole.cubin").write_bytes(cubin.code)
    monkeypatch.setenv("CUBIN", str(tmp_path / "whole.cubin"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(assembler, "TIMEOUT_S", 0.5)
    fake_ptxas(tmp_path / "ptxas", body)
    monkeypatch.setenv("PTXGEN_PTXAS", str(tmp_path / "ptxas"))
    with pytest.raises(AssemblyError, match=reason):
        assemble(STORE)
