"""The command line: emit, and what all commands share."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from ptxgen.cli import COMMANDS, group
from ptxgen.launch import Launch


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(group, list(arguments), input=stdin)


def process(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-m", "ptxgen", *arguments],
        env={**os.environ, **environment}, capture_output=True, check=False,
    )  # fmt: skip


def test_without_a_command_the_help_is_printed() -> None:
    result = run()
    assert result.exit_code == 0
    assert result.stdout == run("--help").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_begins_with_its_line_in_the_list(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert COMMANDS[name] in text


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_no_two_options_of_one_name(name: str) -> None:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    names = [option for parameter in command.params for option in parameter.opts]
    assert len(names) == len(set(names))


def test_emit_prints_ptx_and_nothing_else() -> None:
    result = run("emit", "gemm")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert ".target sm_90a" in result.stdout
    assert result.stdout.rstrip().endswith("}")


def test_emit_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    texts = {
        process("emit", "gemm", "--a", "e4m3", PYTHONHASHSEED=seed).stdout for seed in ("1", "2")
    }
    assert len(texts) == 1
    assert texts.pop()


def test_the_text_does_not_depend_on_sizes() -> None:
    options = ("emit", "gemm", "--tile", "128x128", "--stages", "4", "--cluster", "1")
    small = run(*options, "--m", "300", "--n", "512", "--k", "64")
    assert small.stdout == run(*options, "--m", "4096", "--n", "8192", "--k", "1024").stdout


def test_launch_out_is_a_launch_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "launch.json"
    result = run("emit", "gemm", "--m", "100", "--launch-out", str(path))
    launch = Launch.from_json(path.read_text())
    assert f".entry {launch.entry}" in result.stdout
    assert launch.buffer("a").nbytes == 100 * 512 * 2


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        (("masked", "--rows", "3,0,17", "--k", "48"), 20),
        (("contiguous", "--rows", "3,0,17", "--k", "48"), 20),
        (("contiguous", "--index", "rows", "--rows", "3,0,17", "--k", "48"), 20),
        (("kgrouped", "--rows", "16,0,32", "--m", "20"), 40),
    ],
    ids=["masked", "offsets", "rows", "kgrouped"],
)
def test_launch_out_of_groups_has_their_rows(
    options: tuple[str, ...], rows: int, tmp_path: Path
) -> None:
    text, launch, d = (str(tmp_path / name) for name in ("e.ptx", "launch.json", "d.bin"))
    run(
        "emit", "grouped", "--groups", "3", "--n", "64", "--mode", *options,
        "-o", text, "--launch-out", launch,
    )  # fmt: skip
    run("run", text, "--launch", launch, "--device", "emulator", "--save", f"d={d}")
    found = np.fromfile(d, np.float32 if "kgrouped" in options else np.uint16).reshape(-1, 64)
    before = 0 if "kgrouped" in options else 0xFFFF
    assert np.any(found != before, axis=1).sum() == rows


@pytest.mark.parametrize(
    ("option", "part"),
    [
        (("--tile", "64x32x32", "--swizzle", "64"), "_64x32x32_"),
        (("--stages", "2"), "_s2_"),
        (("--cluster", "1x2"), "_c1x2x1_"),
        (("--cluster", "2"), "_c2x1x1_"),
        (("--warpgroups", "1"), "_w1_"),
        (("--store", "global"), "_global"),
        (("--store", "deferred"), "_deferred"),
        (("--split-k", "2"), "_c1x1x2_"),
        (("--dependent-launch",), "_dependent"),
        (("--a", "e5m2"), "_e5m2_e5m2_"),
        (("--a", "e5m2", "--b", "e4m3"), "_e5m2_e4m3_"),
        (("--layout", "tt"), "_tt_"),
        (("--scale", "rowcol"), "_rowcol_"),
        (("--accumulate", "promoted"), "_promoted_"),
        (("--a", "e4m3", "--scale", "block"), "_block_promoted_"),
    ],
)
def test_an_option_shows_in_the_name_of_the_config(option: tuple[str, ...], part: str) -> None:
    result = run("emit", "gemm", *option)
    assert result.exit_code == 0, result.stderr
    (entry,) = [row for row in result.stdout.splitlines() if ".entry" in row]
    assert part in entry


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--arch", "sm_90"), "try sm_90a"),
        (("--a", "e4m3", "--arch", "sm_80"), "mma.sync has FP8 from sm_89 on"),
        (("--a", "bf16", "--b", "f16"), "must be bf16 with bf16"),
        (("--m", "-1"), "m must be >= 0, got -1"),
        (("--m", str(1 << 31)), "m=2147483648 must be at most 2147483647"),
        (("--alpha", "1e39"), "alpha=1e+39"),
        (("--tile", "128x256", "--stages", "9"), "try stages<=4"),
        (("--tile", "96x64"), "tile_m=96 must be one of"),
        (("--k", "100", "--a", "e4m3", "--warpgroups", "2"), "gemm_mma has no --warpgroups"),
        (("--k", "130", "--cluster", "2"), "try a padded copy with a row stride of 136 elements"),
        (("--k", "300", "--a", "e4m3", "--scale", "block", "--accumulate", "promoted"),
         "try a padded copy with a row stride of 304 elements"),
        (("--a", "e4m3", "--scale", "block", "--accumulate", "fast"), "try accumulate=promoted"),
        (("--a", "e4m3", "--scale", "mx32"), "try arch=sm_100a"),
        (("--tile", "big"), "2 to 3 integers joined by x"),
        (("--layout", "xx"), "'xx' is not one of"),
        (("--d", "e2m1"), "'e2m1' is not one of"),
        (("--groups", "4"), "--groups: a gemm has no groups; try grouped"),
        (("--arch", "sm_100a", "--accumulate", "promoted"), "try accumulate=fast"),
        (("--arch", "sm_100a", "--a", "e4m3", "--scale", "group", "--accumulate", "promoted"),
         "has no scale=group"),
        (("--arch", "sm_80", "--a", "s8", "--d", "s32"), "try arch=sm_100a"),
        (("--arch", "sm_80", "--split-k", "2"), "gemm_mma has no --split-k"),
        (("--arch", "sm_80", "--dependent-launch"), "gemm_mma has no --dependent-launch"),
        (("--config", "chosen", "--gpu", "B200"), "must be of --arch sm_90a: H200, H100, H20; try"),
        (("--swap-ab", "on", "--bias", "column"), "got bias=column; try"),
        (("--arch", "sm_80", "--amax"), "got amax=True; try"),
        (("--a", "u8", "--d", "s32", "--alpha", "2"), "got alpha=2.0; try d=f32"),
    ],
)  # fmt: skip
def test_a_bad_option_exits_with_2_and_says_why(arguments: tuple[str, ...], message: str) -> None:
    result = run("emit", "gemm", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        "gemm --a e4m3 --scale block --tile 64x128 --warpgroups 1",
        "gemm --a e4m3 --tile 192x256 --warpgroups 3",
        "gemm --a e4m3 --tile 192x256 --warpgroups 3 --stages 9",
        "gemm --arch sm_100a --cta-group 2 --cluster 1",
        "grouped --a e4m3 --scale block --swap-ab off --tile 64x256 --warpgroups 2",
        "grouped --a e4m3 --swap-ab on --tile 128x192",
        "grouped --tile 192x192 --warpgroups 3",
    ],
)
def test_what_is_to_be_tried_instead_is_legal(arguments: str) -> None:
    given = arguments.split()
    refused = run("emit", *given)
    assert refused.exit_code == 2
    hint = re.search(r"; try (without )?(--[^,]*)", refused.stderr)
    assert hint, refused.stderr
    for option in re.findall(r"--[\w-]+", hint[2]):
        if option in given:
            place = given.index(option)
            del given[place : place + 2]
    result = run("emit", *given, *([] if hint[1] else hint[2].split()))
    assert result.exit_code == 0, f"{refused.stderr}{result.stderr}"


ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs/examples/double_tile"


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", f"{EXAMPLE}.ptx", "--why"),
        ("emit", "grouped", "--layout", "nn"),
        ("emit", "grouped", "--bias", "row"),
        ("emit", "grouped", "--mode", "masked", "--index", "rows"),
        ("emit", "grouped", "--mode", "batched", "--alignment", "16"),
        ("emit", "grouped", "--mode", "contiguous", "--alignment", "128"),
        ("emit", "grouped", "--mode", "contiguous", "--max-m", "128"),
        ("emit", "grouped", "--mode", "kgrouped", "--rows", "16", "--k", "64"),
        ("emit", "grouped", "--mode", "kgrouped", "--d", "bf16"),
        ("emit", "grouped", "--rows", "16", "--m", "64"),
        ("emit", "grouped", "--scale", "block", "--accumulate", "fast"),
        ("emit", "grouped", "--swap-ab", "off", "--token-step", "8"),
        ("emit", "gemm", "--beta", "3"),
        ("emit", "gemm", "--bias-dtype", "f16"),
        ("emit", "gemm", "--config", "chosen", "--tile", "64x64"),
        ("emit", "grouped", "--config", "chosen", "--token-step", "8"),
        ("emit", "grouped", "--arch", "sm_100a", "--expected-rows", "8"),
        ("emit", "grouped", "--dependent-launch"),
        ("inspect", "gemm", "--gpu", "H200"),
        ("run", f"{EXAMPLE}.ptx", "--launch", f"{EXAMPLE}.json", "--seed", "3"),
        ("check", f"{EXAMPLE}.ptx", "--launch", f"{EXAMPLE}.json", "--data", "random"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert f"Error: {[a for a in arguments if a[:2] == '--'][-1]}: " in result.stderr


@pytest.mark.parametrize("place", ["missing/out.ptx", "file/out.ptx", "folder", "read-only"])
def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "read-only").write_text("kept")
    access = os.access  # root may write everything, so the answer for the file is forged
    monkeypatch.setattr(os, "access", lambda p, mode: "read-only" not in str(p) and access(p, mode))
    monkeypatch.setattr("ptxgen.renderer.render", lambda plan: pytest.fail("work was done"))
    result = run("emit", "gemm", "-o", str(tmp_path / place))
    assert result.exit_code == 2
    assert f"cannot write {tmp_path / place}" in result.stderr
    assert (tmp_path / "read-only").read_text() == "kept"


def test_a_failed_emit_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "out.ptx"
    path.write_text("old")
    assert run("emit", "gemm", "--stages", "99", "-o", str(path)).exit_code == 2
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.ptx"]


@pytest.mark.parametrize("place", ["-", "one.ptx"])
def test_two_outputs_cannot_be_one(tmp_path: Path, place: str) -> None:
    path = place if place == "-" else str(tmp_path / place)
    result = run("emit", "gemm", "-o", path, "--launch-out", path)
    assert result.exit_code == 2
    assert "different places" in result.stderr
    assert result.stdout == ""
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["assemble", "inspect", "run", "check", "step"])
def test_a_file_takes_no_options_of_a_problem(command: str) -> None:
    result = run(
        command, "x.ptx", "--m", "5", *(["--launch", "x.json"] if command == "run" else [])
    )
    assert result.exit_code == 2
    assert "--m: a FILE takes no options of a problem" in result.stderr


def test_an_output_can_be_a_device() -> None:
    assert run("emit", "gemm", "-o", os.devnull).exit_code == 0


def test_a_narrow_encoding_and_an_early_reader_give_no_traceback() -> None:
    command = f"{sys.executable} -m ptxgen list configs | head -1"
    done = subprocess.run(
        ["bash", "-c", command], env={**os.environ, "PYTHONIOENCODING": "ascii", "LANG": "C"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "legal configs" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "emit gemm --launch-out launch.json",
        "inspect --help",
        "check gemm --m 64 --n 64 --k 64 --mutate",
    ],
)
def test_where_nobody_reads_a_command_ends_by_sigpipe(command: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "ptxgen", *command.split()], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=writer, stderr=writer, check=False,
        timeout=60,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == -signal.SIGPIPE
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("place", [">/dev/full", ">&-"])
@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "list dtypes",
        "list dtypes --json",
        "emit grouped",
        "emit grouped --launch-out x.json",
        "inspect grouped",
        "bench grouped --list",
    ],
)
def test_where_stdout_is_full_or_closed_one_error_says_so(
    command: str, place: str, tmp_path: Path
) -> None:
    assert_not_written(f"{command} {place}", "stdout", tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        "-o /dev/full",
        "-o x.ptx --launch-out /dev/full",
        "-o /dev/full --launch-out x.json",
        "-o - --launch-out /dev/full",
    ],
)
def test_where_an_output_is_full_one_error_names_it(command: str, tmp_path: Path) -> None:
    assert_not_written(f"emit grouped {command}", "/dev/full", tmp_path)


def assert_not_written(command: str, place: str, folder: Path) -> None:
    """A command fails with one error, which names the place, and leaves no file behind."""
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m ptxgen {command}"], cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(rf"error: cannot write to .*{place}.*: .*; try another .*", line)
    assert os.listdir(folder) == []


def test_a_closed_stdin_is_an_error_of_one_line() -> None:
    command = f"{sys.executable} -m ptxgen assemble - <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "stdin must be open" in done.stderr


def test_a_file_is_written_where_stdout_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "x.ptx"
    command = f"{sys.executable} -m ptxgen emit gemm -o {path} >&-"
    assert subprocess.run(["bash", "-c", command], check=False).returncode == 0
    assert path.read_text() == run("emit", "gemm").stdout


def test_list_says_why_a_config_is_refused() -> None:
    result = run("list", "configs", "--illegal", "--tile", "256x256", "--json")
    data = json.loads(result.stdout)
    assert data["schema"] == "ptxgen.list/1"
    assert data["legal"] + data["illegal"] == data["illegal"] == len(data["configs"]) > 0
    assert all("registers" in c["reason"] for c in data["configs"])


def on_terminal(*arguments: str, **environment: str) -> bytes:
    """What a command prints on a terminal of 100 columns."""
    terminal, other_end = os.openpty()
    command = ["bash", "-c", 'stty cols 100; exec "$@"', "-", sys.executable, "-m", "ptxgen"]
    with subprocess.Popen(
        [*command, *arguments],
        stdin=other_end, stdout=other_end, env={**os.environ, "TERM": "xterm", **environment},
    ) as running:  # fmt: skip
        os.close(other_end)
        text = b""
        with suppress(OSError):  # the end of a terminal is an error on Linux
            while chunk := os.read(terminal, 65536):
                text += chunk
    os.close(terminal)
    assert running.returncode == 0
    return text


def test_a_terminal_gets_a_drawn_table_and_a_pipe_plain_text() -> None:
    drawn, plain = on_terminal("list", "dtypes"), process("list", "dtypes").stdout
    assert b"\x1b[1m" in drawn
    assert "\u2500".encode() in drawn
    assert plain.isascii()
    assert b"\x1b" not in plain


@pytest.mark.parametrize("what", ["kernels", "dtypes", "archs", "gpus"])
def test_list_prints_the_same_things_as_text_and_json(what: str) -> None:
    data = json.loads(run("list", what, "--json").stdout)[what]
    text = run("list", what).stdout
    assert data
    assert all(next(iter(row.values())) in text for row in data)


def test_completion_prints_a_script_for_the_shell() -> None:
    assert "_PTXGEN_COMPLETE=bash_complete" in run("completion", "bash").stdout


def test_a_shell_completes_commands_and_choices() -> None:
    for line, expected in (("ptxgen em", b"emit"), ("ptxgen emit gemm --layout n", b"nn")):
        done = process(
            _PTXGEN_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(line.count(" "))
        )
        assert expected in done.stdout
