"""The command line: assemble, cache and doctor."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ptxgen.cli import group

PTX = (
    ".version 8.0\n.target sm_90a\n.address_size 64\n"
    ".visible .entry store(.param .u64 out)\n{\n    .reg .b64 %out;\n"
    "    ld.param.u64 %out, [out];\n    st.global.u32 [%out], 7;\n    ret;\n}\n"
)
LOSSY = PTX.replace("    ret;", "    setmaxnreg.dec.sync.aligned.u32 40;\n    ret;")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXGEN_CACHE_DIR", str(tmp_path / "cache"))


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(group, list(arguments), input=stdin)


def test_stdin_becomes_a_cubin_on_stdout() -> None:
    result = run("assemble", "-", "-o", "-", stdin=PTX)
    assert result.exit_code == 0, result.stderr
    assert result.stdout_bytes.startswith(b"\x7fELF")


def test_a_file_becomes_a_cubin_and_a_report(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(PTX)
    result = run("assemble", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin"), "--json")
    data = json.loads(result.stdout)
    assert data["schema"] == "ptxgen.assembly/1"
    assert data["cubin_bytes"] == (tmp_path / "k.cubin").stat().st_size
    assert data["registers"] > 0
    assert data["assembler"].startswith("ptxas ")


def test_a_config_is_assembled_without_spills_or_notes() -> None:
    result = run("assemble", "gemm", "--a", "e4m3", "--strict", "--json")
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    assert data["spill_bytes"] == 0
    assert data["messages"] == []
    assert data["registers"] == 168
    assert data["dynamic_smem_bytes"] > 100_000


def test_rejected_ptx_exits_with_4_and_names_the_line() -> None:
    result = run("assemble", "-", stdin=PTX.replace("ret;", "rett;"))
    assert result.exit_code == 4
    assert "PTX line 9" in result.stderr
    assert result.stdout == ""


def test_strict_refuses_lost_performance_with_4() -> None:
    assert run("assemble", "-", stdin=LOSSY).exit_code == 0
    result = run("assemble", "-", "--strict", stdin=LOSSY)
    assert result.exit_code == 4
    assert "C7508" in result.stderr


def test_notes_are_shown() -> None:
    assert "C7508" in run("assemble", "-", stdin=LOSSY).stdout


def test_a_missing_assembler_exits_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxgen.toolchain.find_binaries", lambda _: iter(()))
    monkeypatch.setattr("ptxgen.assembler.nvjitlink_version", lambda: None)
    result = run("assemble", "-", stdin=PTX)
    assert result.exit_code == 3
    assert "pip install" in result.stderr


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_an_unreadable_file_exits_with_2(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "k.ptx"
    if content is not None:
        path.write_bytes(content)
    result = run("assemble", str(path))
    assert result.exit_code == 2
    assert str(path) in result.stderr


def test_the_cache_is_listed_and_cleared() -> None:
    run("assemble", "-", stdin=PTX)
    entries = json.loads(run("cache", "list", "--json").stdout)["entries"]
    assert [e["entries"] for e in entries] == [["store"]]
    assert run("cache", "clear").exit_code == 0
    assert json.loads(run("cache", "list", "--json").stdout)["entries"] == []


def test_clearing_the_cache_says_how_much_was_removed() -> None:
    run("assemble", "-", stdin=PTX)
    cleared = run("cache", "clear", "--json")
    assert json.loads(cleared.stdout)["removed"] == 1


def test_a_cubin_and_a_report_do_not_both_go_to_stdout() -> None:
    result = run("assemble", "-", "-o", "-", "--json", stdin=PTX)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_doctor_finds_what_the_tests_use() -> None:
    result = run("doctor", "--require", "ptxas", "--json")
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    found = {f["name"] for f in data["findings"] if f["found"]}
    assert {"python", "numpy", "ptxas", "cache"} <= found


def test_doctor_exits_with_3_and_the_remedy_if_something_required_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ptxgen.diagnosis.find_ptxas", lambda: iter(()))
    result = run("doctor", "--require", "ptxas")
    assert result.exit_code == 3
    assert "ptxas is required and missing" in result.stderr
    assert "pip install --no-deps nvidia-cuda-nvcc" in result.stderr
