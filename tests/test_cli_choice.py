"""Whose choice of a config the commands take: their default, or what a call takes on a GPU."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from other_gpu import OtherGpu

from ptxgen.cli import group
from ptxgen.commands.choice import chosen_model
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.launcher import gemm_call, grouped_call
from ptxgen.problem import Gemm

H200 = OtherGpu("NVIDIA H200", "sm_90a", 132)


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(group, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(autouse=True)
def _no_table_of_a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PTXGEN_TUNING_TABLE", str(tmp_path / "none"))


@pytest.mark.parametrize("dependent", [False, True])
@pytest.mark.parametrize(
    ("size", "kind", "scale"),
    [((4096, 2112, 7168), "e4m3", "block"), ((16, 4096, 7168), "e4m3", "tensor"),
     ((200, 136, 104), "bf16", "none")],
)  # fmt: skip
def test_the_chosen_text_of_gemm_is_the_one_that_a_call_takes(
    size: tuple[int, int, int], kind: str, scale: str, dependent: bool
) -> None:
    wanted = gemm_call.Wanted(Gemm(*size, kind, kind, scale=scale), dependent_launch=dependent)
    taken, _ = gemm_call._emit(wanted, H200)
    sizes = [word for name, x in zip("mnk", size, strict=True) for word in (f"--{name}", str(x))]
    more = ["--dependent-launch"] if dependent else []
    options = [*sizes, "--a", kind, "--scale", scale, "--config", "chosen", *more]
    assert printed("emit", "gemm", *options) == taken.text


@pytest.mark.parametrize("swap_ab", ["auto", "on", "off"])
@pytest.mark.parametrize("expected", [None, 8])
def test_the_chosen_text_of_groups_is_the_one_that_a_call_takes(
    expected: int | None, swap_ab: str
) -> None:
    problem = GroupedGemm("masked", 4, 512, 1024, 512, scale="block")
    taken, _ = grouped_call._emit(problem, (None, swap_ab, expected), H200)
    more = [] if expected is None else ["--expected-rows", str(expected)]
    options = ["--max-m", "512", "--n", "1024", "--k", "512", "--a", "e4m3", "--scale", "block"]
    options += ["--rows", "3", "--swap-ab", swap_ab, "--config", "chosen", *more]
    assert printed("emit", "grouped", *options) == taken.text


def test_a_run_on_a_gpu_chooses_for_that_gpu() -> None:
    model = chosen_model(None, "sm_90a", OtherGpu("NVIDIA H200 MIG 1g.18gb", "sm_90a", 16))
    assert model is not None
    assert model.num_sms == 16
    assert chosen_model(None, "sm_90a", OtherGpu("NVIDIA Something", "sm_90a", 16)) is None


@pytest.mark.parametrize("rows", ["3", "8", "40"])
def test_swapped_on_demand_is_what_swapped_by_choice_is(rows: str) -> None:
    options = ["--rows", rows, "--max-m", "512", "--n", "4096", "--k", "7168", "--a", "e4m3",
               "--scale", "block", "--json"]  # fmt: skip
    chosen, told = (
        json.loads(printed("inspect", "grouped", *options, "--swap-ab", swap))
        for swap in ("auto", "on")
    )
    assert chosen["swap_ab"]
    assert told["config"] == chosen["config"]
