"""The commands check and step."""

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from litmus_cases import FOLDER

from ptxgen.cli import group
from ptxgen.launch import Launch

SMALL = ["--a", "e4m3", "--tile", "128x32x128", "--stages", "2", "--m", "136", "--n", "32",
         "--k", "272"]  # fmt: skip
"""Options of a problem that is quick to emulate."""


def ptxgen(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(group, list(arguments), prog_name="ptxgen", input=stdin)


@pytest.fixture
def litmus(tmp_path: Path) -> "LitmusFiles":
    return LitmusFiles(tmp_path)


class LitmusFiles:
    """`litmus("name", "bug")`: arguments that name its PTX and its launch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, form: str) -> list[str]:
        facts = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        arguments = [str(FOLDER / f"{name}.{form}.ptx")]
        for key in ("before", "launch"):
            if key in facts:
                path = self.folder / f"{key}.json"
                path.write_text(json.dumps(facts[key]), encoding="utf-8")
                arguments += ["--launch", str(path)]
        return arguments


# check


@pytest.mark.parametrize(
    ("name", "form", "code"),
    [
        ("tma_store_without_proxy_fence", "ok", 0),
        ("tma_store_without_proxy_fence", "bug", 5),
        ("barriers_of_different_ids", "bug", 6),
        ("input_read_before_grid_dependency", "ok", 0),
        ("input_read_before_grid_dependency", "bug", 5),
    ],
)
def test_the_exit_code_says_what_was_found(
    litmus: LitmusFiles, name: str, form: str, code: int
) -> None:
    assert ptxgen("check", *litmus(name, form)).exit_code == code


@pytest.mark.parametrize("rules", ["--strict", "--tolerant"])
def test_registers_that_nobody_gives_back_are_a_deadlock(litmus: LitmusFiles, rules: str) -> None:
    arguments = litmus("setmaxnreg_asks_for_too_much", "bug")
    assert ptxgen("check", *arguments, rules).exit_code == 6


def test_ptx_that_is_none_is_rejected_with_its_line(litmus: LitmusFiles, tmp_path: Path) -> None:
    _, *launch = litmus("exchange_without_barrier", "ok")
    path = tmp_path / "wrong.ptx"
    path.write_text(".version 8.0\n.target sm_90a\nnonsense\n", encoding="utf-8")
    result = ptxgen("check", str(path), *launch)
    assert result.exit_code == 4
    assert "line 3" in result.stderr


def test_a_finding_is_shown_with_lines_bytes_fix_and_replay(litmus: LitmusFiles) -> None:
    output = ptxgen("check", *litmus("tma_store_without_proxy_fence", "bug")).stdout
    assert "error PROXY-MISSING" in output
    assert ">    33 |     st.shared.v4.u32 [%slot]" in output
    assert ">    38 |     cp.async.bulk.tensor.2d.global" in output
    assert "warp 0" in output
    assert "bytes: shared 0x400, 512 B" in output
    assert "fix: execute fence.proxy.async" in output
    assert "replay: --schedule lazy" in output


def test_a_replay_shows_the_same_finding(litmus: LitmusFiles) -> None:
    arguments = litmus("load_not_waited_for", "bug")
    options = ["--schedule", "random", "--seed", "1", "--json"]
    report = json.loads(ptxgen("check", *arguments, *options).stdout)
    assert [(r["schedule"], r["seed"]) for r in report["runs"]] == [("random", 1)]
    assert "WAIT-MISSING" in [f["code"] for f in report["findings"]]


def test_json_names_every_finding_and_run(litmus: LitmusFiles) -> None:
    result = ptxgen("check", *litmus("exchange_without_barrier", "bug"), "--json")
    report = json.loads(result.stdout)
    assert report["schema"] == "ptxgen.check/1"
    assert report["ok"] is False
    race = next(f for f in report["findings"] if f["code"] == "RACE")
    assert race["line"]
    assert race["fix"]
    assert race["template_line"] == ""
    assert {r["schedule"] for r in report["runs"]} == {"lazy", "eager", "run_to_block", "random"}


def test_rules_are_tolerant_for_a_file_unless_strict_is_asked_for(litmus: LitmusFiles) -> None:
    arguments = litmus("fence_after_wait_missing", "bug")
    assert ptxgen("check", *arguments).exit_code == 0
    assert ptxgen("check", *arguments, "--strict").exit_code == 5


def test_a_gemm_of_ours_is_clean_under_strict() -> None:
    result = ptxgen("check", "gemm", *SMALL, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["strict"] is True
    assert report["findings"] == []
    assert report["identical"] is True


def test_a_terminal_sees_how_far_a_check_is_and_stdout_only_the_report() -> None:
    terminal, stderr = pty.openpty()
    command = [sys.executable, "-m", "ptxgen", "check", "gemm", *SMALL, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr) as process:
        os.close(stderr)
        seen = b""
        with suppress(OSError):  # Linux: EIO once nobody has the other end
            while part := os.read(terminal, 1 << 16):
                seen += part
        stdout, _ = process.communicate()
    os.close(terminal)
    assert b"random seed 1" in seen
    assert json.loads(stdout)["ok"]


def test_without_a_terminal_a_check_says_nothing_on_stderr() -> None:
    assert ptxgen("check", "gemm", *SMALL).stderr == ""


def test_recheck_compares_every_k_step_with_numpy() -> None:
    result = ptxgen("check", "gemm", *SMALL, "--recheck", "--json")
    report = json.loads(result.stdout)
    # two tiles of two warpgroups of 64 x 32; 272 = 2 k-tiles of 4 steps, and a third of 4
    assert report["k_steps_compared"] == 2 * 2 * 12
    assert report["ok"] is True


def test_a_trace_has_a_row_for_every_warp_barrier_and_copy(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert ptxgen("check", "gemm", *SMALL, "--trace", str(path)).exit_code == 0
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    rows = {e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    assert {"warp 0", "warp 4", "warp 11"} <= rows
    assert any(row.startswith("mbarrier") for row in rows)
    assert {"tma_load", "wgmma", "tma_store"} <= {e["name"] for e in events if e["ph"] == "b"}
    slices = [e for e in events if e["ph"] == "X"]
    assert any(e["name"] == "PRODUCER_K" for e in slices)
    assert any(e["name"].startswith("phase") and e["args"]["bytes"] for e in slices)
    assert any(e["name"].startswith("wait") for e in slices)


def test_mutants_are_counted_completely(litmus: LitmusFiles) -> None:
    arguments = litmus("stage_released_before_wait", "ok")
    result = ptxgen("check", *arguments, "--mutate", "--executor", "threads:1", "--json")
    report = json.loads(result.stdout)
    assert report["schema"] == "ptxgen.mutation/1"
    counted = report["caught"] + report["equivalent"] + len(report["survivors"])
    assert counted == report["mutants"] > 20
    assert result.exit_code == 0
    assert "mutants" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "kernel.ptx"],
        ["check", "kernel.ptx", "--recheck", "--launch", "x"],
        ["check", "gemm", "--launch", "x"],
        ["check", "gemm", "--launch-template"],
        ["check", "gemm", "--recheck", "--mutate"],
        ["step", "kernel.ptx"],
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str]) -> None:
    assert ptxgen(*arguments).exit_code == 2


@pytest.mark.parametrize(
    "text", ["json:dumps", "json:decoder", "os:getcwd", "nowhere:x", "threads:0"]
)
def test_what_makes_no_executor_is_refused(litmus: LitmusFiles, text: str) -> None:
    arguments = litmus("stage_released_before_wait", "ok")
    result = ptxgen("check", *arguments, "--mutate", "--executor", text)
    assert result.exit_code == 2
    assert f"executor '{text}' must" in result.stderr


def test_bench_lists_everything_without_a_target() -> None:
    result = ptxgen("bench", "--list")
    assert result.exit_code == 0
    assert "dense-train" in result.stdout
    assert "masked-decode" in result.stdout


# launch template


def test_a_launch_template_loads_and_says_what_to_fill_in(litmus: LitmusFiles) -> None:
    path = FOLDER / "tensor_map_edited_without_fence.ok.ptx"
    result = ptxgen("check", str(path), "--launch-template")
    launch = Launch.from_json(result.stdout)
    assert launch.entry == "tensor_map_edited_without_fence"
    assert launch.cta_threads == (128, 1, 1)
    kinds = {p.name: p.kind for p in launch.params}
    assert kinds == {
        "a_map": "tensor_map", "in2": "pointer", "work": "pointer", "out": "pointer",
    }  # fmt: skip
    assert {b.name: b.role for b in launch.buffers}["out"] == "out"
    for name in kinds:
        assert f" {name}: " in result.stderr


def test_a_launch_template_takes_cluster_and_scalars_from_the_text(tmp_path: Path) -> None:
    path = tmp_path / "kernel.ptx"
    path.write_text(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 smem[];\n"
        ".visible .entry k(.param .u32 n, .param .f32 scale, .param .u64 length, "
        ".param .u64 data, .param .align 8 .b8 blob[24], .param .u8 flag, .param .s16 step)\n"
        ".reqntid 64, 2, 1\n.reqnctapercluster 2, 1, 1\n{\n.reg .b64 %d<4>;\n.reg .b32 %r<4>;\n"
        "ld.param.u64 %d0, [data];\nadd.u64 %d1, %d0, 16;\nld.global.u32 %r0, [%d1];\n"
        "ld.param.u64 %d2, [length];\ncvt.u32.u64 %r1, %d2;\nret;\n}\n",
        encoding="utf-8",
    )
    result = ptxgen("check", str(path), "--launch-template")
    launch = Launch.from_json(result.stdout)
    assert (launch.cta_threads, launch.cluster_ctas) == ((64, 2, 1), (2, 1, 1))
    assert launch.grid_ctas == (2, 1, 1)
    assert [(p.name, p.kind) for p in launch.params] == [
        ("n", "u32"), ("scale", "f32"), ("length", "u64"), ("data", "pointer"), ("blob", "bytes"),
        ("flag", "bytes"), ("step", "bytes"),
    ]  # fmt: skip
    assert [len(p.value) // 2 for p in launch.params[-3:]] == [24, 1, 2]
    assert "dynamic_smem_bytes" in result.stderr


# step

COMMANDS = """\
focus 0 0
break 44
continue
print thread byte
barriers
flight
warps
shared tile 16
list 1
nonsense
focus 0 1
step
quit
"""


def test_step_shows_registers_barriers_memory_and_what_is_in_flight(litmus: LitmusFiles) -> None:
    arguments = litmus("load_waited_for_by_one_thread", "ok")
    lines = (FOLDER / "load_waited_for_by_one_thread.ok.ptx").read_text().splitlines()
    copy = next(i for i, line in enumerate(lines, 1) if "cp.async.bulk" in line)
    result = ptxgen(
        "step", *arguments, stdin=COMMANDS.replace("break 44", f"break {copy + 1}")
    )  # fmt: skip
    assert result.exit_code == 0
    output = result.stdout
    assert "%byte = 0 + 16 per lane" in output
    assert "full: phase 0 (parity 0), 0 of 1 arrivals pending, 2048 B outstanding" in output
    assert f"bulk_load of CTA 0 warp 0, line {copy}" in output
    assert "CTA 0 warp 3: " in output
    assert "0x000400  ffffffff" in output
    assert "no command 'nonsense'" in output
    assert output.rstrip().splitlines()[-2].startswith("CTA 0 warp 1")


def test_step_answers_what_cannot_be_and_asks_again(litmus: LitmusFiles) -> None:
    refused = {
        "shared 0 64": "must lie in shared memory of CTA 0",
        "shared 99999999": "must lie in shared memory of CTA 0",
        "shared -5": "an offset must be at least 0, got -5",
        "shared tile 0": "a count must be at least 1",
        "next -1": "a count must be at least 1, got -1",
        "print %nope": "%nope is no register of",
        "break 9999": "there are instructions up to line",
        "delete 3": "there is no breakpoint at line 3",
        "focus 7 0": "there are CTAs 0 to 0 of warps",
        "tmem 128 0": "lanes are 0 to 127",
    }
    result = ptxgen("step", *litmus("load_waited_for_by_one_thread", "ok"),
                    stdin="\n".join((*refused, "quit", "")))  # fmt: skip
    assert result.exit_code == 0, result.output
    answers = result.stdout.split("(ptx) ")[1:]
    for (command, said), answer in zip(refused.items(), answers, strict=False):
        assert answer.startswith(command)
        assert said in answer, answer
    assert answers[-1].strip() == "quit"


def test_step_refuses_a_breakpoint_behind_the_end(litmus: LitmusFiles) -> None:
    result = ptxgen("step", *litmus("exchange_without_barrier", "ok"), "--break", "9999")
    assert result.exit_code == 2
    assert "there are instructions up to line" in result.stderr


def test_step_runs_on_to_the_end_where_commands_end(litmus: LitmusFiles) -> None:
    result = ptxgen("step", *litmus("exchange_without_barrier", "ok"), stdin="step 3\n")
    assert result.exit_code == 0
    assert "finished after" in result.stderr


def test_step_reports_a_deadlock_as_run_does(litmus: LitmusFiles) -> None:
    result = ptxgen("step", *litmus("barriers_of_different_ids", "bug"), stdin="continue\n")
    assert result.exit_code == 6
    assert "deadlock" in result.stderr


def test_a_launch_that_lacks_a_key_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "half.json"
    path.write_text('{"entry": "kernel", "grid_ctas": [1, 1, 1]}', encoding="utf-8")
    result = ptxgen(
        "check", str(FOLDER / "tma_store_without_proxy_fence.ok.ptx"), "--launch", str(path)
    )
    assert result.exit_code == 2
    assert f"error: {path}: launch: key 'cta_threads' is missing" in result.stderr


def test_tune_leaves_nothing_behind_where_there_is_no_such_gpu(tmp_path: Path) -> None:
    result = ptxgen("tune", "gemm", "--table", str(tmp_path / "a/x.db"), "--gpu", "99")
    assert result.exit_code != 0
    assert list(tmp_path.iterdir()) == []
