"""The commands take grouped problems, from emitting them to running and explaining them."""

import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from grouped_runs import assert_shares_a_tile

from ptxgen.cli import group
from ptxgen.grouped_operands import device_sizes, make_grouped_operands
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.kernels import grouped_sm90
from ptxgen.swap_selection import choose_swap

SMALL = ["--groups", "4", "--rows", "3,0,17,8", "--n", "128", "--k", "256", "--a", "e4m3"]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(group, arguments)


@pytest.mark.parametrize("swap", ["auto", "on", "off"])
@pytest.mark.parametrize(
    "mode",
    [
        ["--mode", "masked", "--max-m", "24", "--scale", "block"],
        ["--mode", "contiguous", "--scale", "block"],
        ["--mode", "contiguous", "--index", "rows", "--alignment", "16", "--scale", "group"],
        ["--mode", "batched", "--rows", "20", "--scale", "rowcol"],
    ],
    ids=lambda m: m[1],
)
def test_run_reports_every_mode_as_right(mode: list[str], swap: str) -> None:
    done = run("run", "grouped", *SMALL, *mode, "--swap-ab", swap, "--device", "emulator", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert report["ok"]
    assert report["stray_bytes"] == 0
    assert swap == "auto" or report["swap_ab"] == (swap == "on")


@pytest.mark.parametrize("swap", ["auto", "on", "off"])
@pytest.mark.parametrize("group", ["1", "2"])
def test_run_reports_groups_on_tcgen05_as_right(group: str, swap: str) -> None:
    done = run("run", "grouped", *SMALL, "--arch", "sm_100a", "--cta-group", group, "--swap-ab",
               swap, "--data", "integers", "--device", "emulator", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert report["config"].startswith("grouped_sm100_100a_masked")
    assert report["swap_ab"] == (swap != "off")
    assert (report["exact_mismatches"], report["stray_bytes"]) == (0, 0)


def test_run_adds_groups_of_k_to_d() -> None:
    done = run("run", "grouped", "--mode", "kgrouped", "--groups", "3", "--rows", "48,0,160", "--m",
               "72", "--n", "64", "--a", "e4m3", "--scale", "group", "--data", "integers",
               "--device", "emulator", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["exact_mismatches"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        "--mode contiguous --rows 0,0",
        "--mode contiguous --rows 0,0 --scale rowcol --arch sm_100a",
        "--mode contiguous --rows 0,0 --index rows",
        "--mode masked --rows 0,0 --max-m 0 --scale block",
        "--mode batched --m 0 --arch sm_100a",
        "--mode kgrouped --rows 0,0 --m 24 --scale group",
        "--mode kgrouped --rows 32,16 --m 0",
    ],
)  # fmt: skip
def test_a_problem_without_rows_runs(arguments: str) -> None:
    done = run("run", "grouped", "--groups", "2", "--n", "16", "--a", "e4m3",
               *arguments.split(), "--device", "emulator", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert (report["ok"], report["stray_bytes"]) == (True, 0)


@pytest.mark.parametrize("options", [["--alignment", "128"], [], ["--scale", "group"]], ids=str)
def test_parts_of_k_are_laid_out_at_multiples_of_the_alignment(options: list[str]) -> None:
    done = run("run", "grouped", "--mode", "kgrouped", "--groups", "3", "--rows", "60,4,16", "--m",
               "16", "--n", "16", "--a", "e4m3", *options, "--data", "integers", "--device",
               "emulator", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert (report["rows"], report["exact_mismatches"]) == ([60, 4, 16], 0)


def test_what_fills_a_part_of_k_up_to_the_next_is_zero() -> None:
    problem = GroupedGemm("kgrouped", 2, 8, 8, 144, "e4m3", "e4m3", "f32", alignment=128)
    sizes = device_sizes(problem, [60, 16])
    assert sizes is not None
    assert sizes.tolist() == [0, 128, 144]
    operands = make_grouped_operands(problem, sizes, "random", rows=[60, 16])
    for x in (operands.a, operands.b):
        columns = np.abs(x.astype(np.float32)).max(axis=(0, 1)) > 0
        assert columns[:60].all()
        assert not columns[60:128].any()
        assert columns[128:].all()


def test_token_steps_ask_for_swapped_operands() -> None:
    done = run("emit", "grouped", "--token-step", "16", "--max-m", "4096")
    assert ".visible .entry grouped_sm90_masked" in done.output
    assert "_swapped16_" in done.output


def test_run_shares_tiles_out_along_k_where_told() -> None:
    done = run("run", "grouped", "--groups", "4", "--rows", "3,0,17,8", "--n", "128", "--k", "2048",
               "--a", "e4m3", "--scale", "block", "--swap-ab", "on", "--stream-k", "on", "--data",
               "integers", "--device", "emulator", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    problem = GroupedGemm("masked", 4, 17, 128, 2048, "e4m3", scale="block")
    rows = [3, 0, 17, 8]
    config = choose_swap(problem, sum(rows) // 4, swap_ab="on", chosen={"stream_k": True}).config
    assert report["config"] == str(config)
    assert_shares_a_tile(problem, config, device_sizes(problem, rows), grouped_sm90.NUM_SMS)
    assert (report["exact_mismatches"], report["stray_bytes"]) == (0, 0)


def test_rows_beyond_what_a_masked_group_holds_are_said_to_be_clamped() -> None:
    sizes = ("--groups", "2", "--rows", "30,5", "--max-m", "24", "--n", "64", "--k", "128")
    done = run("run", "grouped", *sizes, "--a", "e4m3", "--b", "e4m3", "--device", "emulator")
    assert done.exit_code == 0, done.output
    assert "30 (counts as 24), 5" in done.output


def test_emit_gives_one_text_for_any_sizes() -> None:
    texts = {
        run("emit", "grouped", "--n", n, "--tile", "64x64", "--swap-ab", "off").output
        for n in ("128", "4096")
    }
    assert len(texts) == 1
    assert ".visible .entry grouped_sm90" in texts.pop()


def test_inspect_explains_the_choice_beside_published_rules() -> None:
    done = run("inspect", "grouped", *SMALL, "--scale", "block", "--why", "--gpu", "H20", "--json")
    assert done.exit_code == 0, done.output
    why = json.loads(done.output)["why"]
    assert {e["operands"] for e in why["estimates"]} == {"swapped", "not swapped"}
    assert any("4430" in p["source"] for p in why["published"])


def test_check_finds_no_hazard_in_a_grouped_kernel() -> None:
    done = run("check", "grouped", *SMALL, "--max-m", "24", "--scale", "block", "--schedule",
               "lazy", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert report["strict"]
    assert report["findings"] == []


def test_step_runs_a_grouped_kernel_to_its_end() -> None:
    done = run("step", "grouped", "--groups", "2", "--rows", "3,9", "--n", "64", "--k", "128")
    assert done.exit_code == 0, done.output
    assert "finished after" in done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rows", "3,0"], "got 2; try --groups 2"),
        (["--rows", "3,x,1,1"], "3,x,1,1"),
        (["--mode", "batched", "--max-m", "24"], "batched groups all have m=24"),
        (["--groups", "0", "--rows", "1"], "--groups must be from 1 to 512, got 0; try 1"),
        (["--groups", "1" + 23 * "0", "--rows", "5"], "try 512"),
        (["--groups", "1000000000", "--rows", "5"], "try 512"),
        (["--expected-rows", "-1"], "--expected-rows must be from 0 to 2147483647, got -1; try 0"),
        (["--expected-rows", "2147483648"], "try 2147483647"),
        (["--mode", "contiguous", "--index", "ends", "--alignment", "99999999999"],
         "--alignment must be from 1 to 2147483647"),
        (["--rows", "3,99999999999999999999,1,1"], "must be numbers up to 2147483647"),
        (["--scale", "mx32"], "mx32"),
        (["--tile", "64x8x64"], "must be MxN, as its K is one row of the swizzle, got 64x8x64; try "
         "--tile 64x8"),
        (["--a", "e2m1"], "got a=e2m1 and b=e2m1; try a=e4m3 and b=e4m3"),
        (["--a", "s8", "--d", "s32"], "got a=s8 and b=s8; try arch=sm_100a"),
        (["--mode", "kgrouped"], "--k: --rows says the K of each group; try without"),
        (["--arch", "sm_100a", "--swap-ab", "off", "--store", "tma"], "try store=global"),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize(
    "command", [["run", "--device", "emulator"], ["emit"], ["inspect"]], ids=lambda c: c[0]
)
def test_what_cannot_be_is_refused_with_its_reason(
    arguments: list[str], said: str, command: list[str]
) -> None:
    done = run(*command[:1], "grouped", *SMALL, *arguments, *command[1:])
    assert done.exit_code == 2
    assert said in done.output
