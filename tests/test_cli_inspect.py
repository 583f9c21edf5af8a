"""The command line: inspect and decode."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ptxgen.assembler import assemble
from ptxgen.cli import group

PTX = (
    ".version 8.0\n.target sm_90a\n.address_size 64\n"
    ".visible .entry store(.param .u64 out) .maxntid 128\n{\n"
    "    .reg .b64 %out;\n    .shared .align 16 .b8 smem[256];\n"
    "    ld.param.u64 %out, [out];\n    st.global.u32 [%out], 7;\n    ret;\n}\n"
)


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(group, list(arguments), input=stdin)


def read_json(*arguments: str, stdin: str | None = None) -> dict[str, Any]:
    result = run(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def test_a_config_shows_what_its_plan_holds() -> None:
    text = run("inspect", "gemm", "--a", "e4m3").stdout
    for part in ("a[0]", "128B swizzle", "a_map", "full", "cluster", "Roofline", "tensor cores"):
        assert part in text


@pytest.mark.parametrize("target", ["gemm", "grouped"])
def test_the_parts_of_a_config_are_those_that_its_text_names(target: str) -> None:
    shown = run("inspect", target).stdout.split("\n  parts ")[1].splitlines()[0]
    assert f"// parts    {shown.strip()}\n" in run("emit", target).stdout


def test_the_smem_map_of_a_config_fits_its_launch() -> None:
    data = read_json("inspect", "gemm")
    end = max(r["offset"] + r["nbytes"] for r in data["smem_map"])
    assert end <= data["launch"]["dynamic_smem_bytes"]


def test_a_kernel_without_mbarriers_and_tensor_maps_shows_no_empty_tables() -> None:
    shown = run("inspect", "gemm", "--arch", "sm_80").stdout
    assert "Shared memory" in shown
    assert not any(title in shown for title in ("mbarriers", "Tensor maps", "at least us"))


def test_a_block_scaled_config_shows_which_scales_each_mma_reads() -> None:
    data = read_json(
        "inspect", "gemm", "--arch", "sm_100a", "--a", "e2m1", "--scale", "nv16", "--tile",
        "128x64", "--swap-ab", "off",
    )  # fmt: skip
    reads = data["scale_reads"]
    assert [r["k"] for r in reads] == ["0..63", "64..127", "128..191", "192..255"]
    assert [r["row_columns"] for r in reads] == ["0..3", "4..7", "8..11", "12..15"]
    assert {r["scale_bytes"] for r in reads} == {"0..3"}
    assert (
        "What each MMA of a k-tile reads"
        in run("inspect", "gemm", "--arch", "sm_100a", "--a", "e4m3", "--scale", "mx32").stdout
    )


def test_a_small_problem_is_bound_by_memory_and_a_large_one_by_arithmetic() -> None:
    small = read_json("inspect", "gemm", "--m", "16", "--n", "8192", "--k", "8192")
    large = read_json("inspect", "gemm", "--m", "8192", "--n", "8192", "--k", "8192")
    limits = [
        [r["limit"] for r in data["roofline"] if r["gpu"] == "H200"] for data in (small, large)
    ]
    assert limits == [["memory"], ["tensor cores"]]


def test_a_choice_is_explained_beside_what_was_not_chosen() -> None:
    size = ("--m", "4096", "--n", "2112", "--k", "7168", "--a", "e4m3", "--scale", "tensor")
    why = read_json("inspect", "gemm", *size, "--why")["why"]
    assert "128x176" in why["config"]
    assert "measured" in why["choice"]
    assert [r["us"] for r in why["ranked"]] == sorted(r["us"] for r in why["ranked"])
    assert sum(r["configs"] for r in why["refused"]) <= why["num_refused"]
    assert all("try" in r["example"] for r in why["refused"])


@pytest.mark.parametrize("target", ["gemm", "grouped"])
def test_a_choice_is_explained_on_a_gpu_of_the_arch(target: str) -> None:
    refused = run("inspect", target, "--why", "--gpu", "B200")
    assert refused.exit_code == 2
    assert "--gpu B200 must be of --arch sm_90a: H200, H100, H20; try --arch" in refused.stderr
    shown = run("inspect", "gemm", "--why", "--arch", "sm_100a", "--json")
    assert json.loads(shown.stdout)["why"]["gpu"] == "B200"


def test_ptx_shows_its_instructions_and_resources() -> None:
    data = read_json("inspect", "-", stdin=PTX)
    assert data["opcodes"] == {"ld": 1, "st": 1, "ret": 1}
    (entry,) = data["entries"]
    assert entry["static_smem_bytes"] == 256
    assert entry["directives"].startswith(".maxntid 128")


def test_ptx_shows_what_its_target_lacks() -> None:
    text = PTX.replace("sm_90a", "sm_100a").replace("8.0", "8.6")
    text = text.replace("    ret;", "    wgmma.fence.sync.aligned;\n    ret;")
    data = read_json("inspect", "-", stdin=text)
    (finding,) = data["findings"]
    assert finding["line"] == 10
    assert "wgmma" in finding["message"]


def test_bad_ptx_exits_with_4_and_its_line() -> None:
    result = run("inspect", "-", stdin=PTX.replace("ret;", "ret"))
    assert result.exit_code == 4
    assert "line 1" in result.stderr


def test_a_cubin_shows_the_registers_that_its_assembler_reported(tmp_path: Path) -> None:
    cubin = assemble(PTX)
    (tmp_path / "k.cubin").write_bytes(cubin.code)
    data = read_json("inspect", str(tmp_path / "k.cubin"))
    (kernel,) = data["kernels"]
    assert kernel["registers"] == cubin.registers
    assert kernel["static_smem_bytes"] == cubin.smem_bytes


def test_sass_needs_a_cubin() -> None:
    result = run("inspect", "-", "--sass", stdin=PTX)
    assert result.exit_code == 2
    assert "--sass needs a cubin" in result.stderr


def test_a_matrix_descriptor_is_explained_field_by_field() -> None:
    data = read_json("decode", "0x4000004000000000")
    (descriptor,) = data["descriptors"]
    fields = {f["name"]: f["meaning"] for f in descriptor["fields"]}
    assert fields["stride byte offset"] == "1024 B"
    assert fields["swizzle"] == "128B swizzle"


def test_an_instruction_descriptor_is_explained_field_by_field() -> None:
    text = run("decode", "--kind", "f16", "0x08200490").stdout
    assert "bf16" in text
    assert "128" in text


@pytest.mark.parametrize(
    "arguments", [("zz",), ("0x1_0000_0000_0000_0000",), ("--kind", "f16", "0x100000000")]
)
def test_what_is_no_descriptor_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    result = run("decode", *arguments)
    assert result.exit_code == 2
    assert result.stderr


def test_a_tcgen05_config_shows_tensor_memory_and_the_instruction() -> None:
    data = read_json("inspect", "gemm", "--arch", "sm_100a", "--cta-group", "2")
    (instruction,) = [d for name, d in data["descriptors"].items() if "kind::f16" in name]
    assert {f["name"]: f["meaning"] for f in instruction}["M"] == "256"
    assert all(f["ok"] for fields in data["descriptors"].values() for f in fields)
    assert sum(r["columns"] for r in data["tmem_map"]) <= 512
    assert [r["lanes"] for r in data["tmem_readers"]] == ["0..31", "32..63", "64..95", "96..127"]
