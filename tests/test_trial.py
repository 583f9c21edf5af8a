"""Checked runs: right results pass, wrong ones do not, and commands say so."""

import json
import queue
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ptxgen.cli import group
from ptxgen.commands import progress
from ptxgen.emulator import EmulatorDevice
from ptxgen.emulator.buffers import initial_bytes
from ptxgen.errors import DeadlockError
from ptxgen.kernels import gemm_sm90
from ptxgen.launch import Buffer, Launch, Param
from ptxgen.operands import Array, Operands, make_operands
from ptxgen.problem import Gemm
from ptxgen.quantize import numpy_dtype
from ptxgen.renderer import render
from ptxgen.trial import run_gemm, run_launch
from ptxgen.verification import verify

PROBLEM = Gemm(96, 80, 64, d_stride=88)
KEYS = {"schema", "ok", "device", "kernel", "config", "seconds", "max_error_over_bound", "worst"}


class NumpyDevice:
    """Memory, and a launch that writes numpy's result of PROBLEM for integers of seed 0."""

    name = "numpy"

    def __init__(self, spoil: Callable[[Array], None] = lambda d: None) -> None:
        self.memory = np.zeros(1 << 20, np.uint8)
        self.top = 0
        self.spoil = spoil

    def alloc(self, nbytes: int) -> int:
        start = self.top
        self.top += -(-nbytes // 256) * 256
        return start

    def free(self, address: int) -> None:
        pass

    def write(self, address: int, data: bytes | memoryview) -> None:
        self.memory[address : address + len(data)] = np.frombuffer(data, np.uint8)

    def read(self, address: int, nbytes: int) -> bytes:
        return self.memory[address : address + nbytes].tobytes()

    def launch(self, launch: Launch, ptx: str, addresses: Mapping[str, int]) -> None:
        operands = make_operands(PROBLEM, "integers", 0)
        d = PROBLEM.reference(operands.a, operands.b).astype(numpy_dtype("bf16"))
        self.spoil(d)
        for row in range(PROBLEM.m):
            self.write(addresses["d"] + row * PROBLEM.stride("d") * 2, d[row].tobytes())


LAUNCH = Launch("k", (1, 1, 1), (32, 1, 1))


def test_a_right_result_passes() -> None:
    trial = run_gemm(PROBLEM, LAUNCH, "", NumpyDevice(), data="integers")
    assert trial.ok
    assert trial.stray_bytes == 0


@pytest.mark.parametrize("wrong", [0.0, 1000.0, -np.inf, np.nan])
def test_an_element_that_overflows_must_be_as_large_as_its_dtype_holds(wrong: float) -> None:
    problem = Gemm(8, 16, 32, "f16", "f16", "f16")
    a, b = np.full((8, 32), 6e4, np.float16), np.full((16, 32), 6e4, np.float16)
    operands = Operands(a, b, None, None)
    d = np.full((8, 16), np.inf, np.float16)
    assert verify(problem, operands, d).ok
    d[3, 5] = wrong
    assert not verify(problem, operands, d).ok


@pytest.mark.parametrize("index", [(0, 0), (95, 79), (17, 40)])
def test_one_wrong_element_fails_and_is_named(index: tuple[int, int]) -> None:
    def spoil(d: Array) -> None:
        d[index] += 4

    trial = run_gemm(PROBLEM, LAUNCH, "", NumpyDevice(spoil), data="integers")
    assert not trial.ok
    assert trial.verdict.worst == index


D_BYTES = 96 * 88 * 2
WIDEST_STORE = 128
"""Bytes of the widest store: one row of a swizzled TMA box."""


@pytest.mark.parametrize("offset", [-WIDEST_STORE, -1, 80 * 2, D_BYTES, D_BYTES + WIDEST_STORE - 1])
def test_a_byte_written_around_d_or_between_its_rows_fails(offset: int) -> None:
    class Straying(NumpyDevice):
        def launch(self, launch: Launch, ptx: str, addresses: Mapping[str, int]) -> None:
            super().launch(launch, ptx, addresses)
            self.write(addresses["d"] + offset, b"\0")

    trial = run_gemm(PROBLEM, LAUNCH, "", Straying(), data="integers")
    assert trial.verdict.ok
    assert trial.stray_bytes == 1
    assert not trial.ok


class CopyDevice(NumpyDevice):
    """A launch that copies buffer a to d."""

    def launch(self, launch: Launch, ptx: str, addresses: Mapping[str, int]) -> None:
        self.write(addresses["d"], self.read(addresses["a"], 8))


COPY = Launch(
    "copy", (1, 1, 1), (32, 1, 1), params=(Param("a", "pointer", "a"), Param("d", "pointer", "d")),
    buffers=(Buffer("a", 8, "in", "random:f32:1"), Buffer("d", 8, "out")),
)  # fmt: skip


def test_a_foreign_launch_returns_what_it_wrote() -> None:
    _, outputs = run_launch(COPY, "", CopyDevice())
    assert outputs == {"d": initial_bytes(COPY.buffers[0])}


def run(monkeypatch: pytest.MonkeyPatch, device: NumpyDevice, *arguments: str) -> Result:
    monkeypatch.setattr("ptxgen.commands.run.open_device", lambda *_: device)
    return CliRunner().invoke(group, ["run", *arguments])


GEMM = ("gemm", "--m", "96", "--n", "80", "--k", "64", "--d-stride", "88", "--data", "integers")


def test_run_reports_the_documented_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, NumpyDevice(), *GEMM, "--json")
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    assert set(data) >= KEYS
    assert data["ok"] is True
    assert set(data["worst"]) == {"index", "error", "bound"}


def test_a_wrong_result_exits_with_5_and_still_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(d: Array) -> None:
        d[3, 4] = np.nan

    result = run(monkeypatch, NumpyDevice(spoil), *GEMM, "--json")
    assert result.exit_code == 5
    data = json.loads(result.stdout)
    assert data["ok"] is False
    assert data["worst"]["index"] == [3, 4]
    assert data["max_error_over_bound"] is None
    assert "worst element (3, 4)" in result.stderr


def test_a_deadlock_exits_with_6_and_names_the_template_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def spoil(d: Array) -> None:
        raise DeadlockError("PTX line 100: all warps wait", 100)

    result = run(monkeypatch, NumpyDevice(spoil), *GEMM)
    assert result.exit_code == 6
    assert re.search(r"PTX line 100: all warps wait \(\S+\.ptx\.j2:\d+\)", result.stderr)


def test_run_gemm_on_the_emulator_checks_itself() -> None:
    arguments = ("--m", "70", "--n", "72", "--k", "64", "--a", "e4m3", "--scale", "rowcol")
    result = CliRunner().invoke(
        group, ["run", "gemm", *arguments, "--device", "emulator", "--json"]
    )
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    assert data["ok"] is True
    assert data["max_error_over_bound"] > 0


def test_the_exact_emulator_equals_the_tensor_core_model() -> None:
    arguments = ("--k", "96", "--a", "e4m3", "--exact", "--device", "emulator", "--json")
    data = json.loads(CliRunner().invoke(group, ["run", "gemm", *arguments]).stdout)
    assert data["exact_elements"] > 1000
    assert data["exact_mismatches"] == 0


def test_an_emitted_file_and_launch_run_on_the_emulator(tmp_path: Path) -> None:
    ptx, launch = str(tmp_path / "k.ptx"), str(tmp_path / "k.json")
    size = ("--m", "64", "--n", "64", "--k", "64")
    runner = CliRunner()
    assert (
        runner.invoke(group, ["emit", "gemm", *size, "-o", ptx, "--launch-out", launch]).exit_code
        == 0
    )
    result = runner.invoke(
        group, ["run", ptx, "--launch", launch, "--device", "emulator", "--json"]
    )
    assert result.exit_code == 0, result.stderr
    (output,) = json.loads(result.stdout)["outputs"]
    assert output["buffer"] == "d"
    assert output["bytes"] == 64 * 64 * 2


def test_a_file_runs_with_its_launch_and_saves_its_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "k.ptx").write_text("")
    (tmp_path / "k.json").write_text(COPY.to_json())
    result = run(
        monkeypatch, CopyDevice(), str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "k.json"),
        "--save", f"d={tmp_path}/d.raw", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "d.raw").read_bytes() == initial_bytes(COPY.buffers[0])
    assert set(json.loads(result.stdout)) >= KEYS


@pytest.mark.parametrize(
    "arguments", [("k.ptx",), ("gemm", "--launch", "x"), ("k.ptx", "--launch", "x", "--save", "d")]
)
def test_options_that_do_not_go_together_are_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    assert run(monkeypatch, NumpyDevice(), *arguments).exit_code == 2


@pytest.mark.parametrize("name", ["tpu", "gpu:x", "emulator:0", "auto:1"])
def test_an_unknown_device_is_a_usage_error(name: str) -> None:
    result = CliRunner().invoke(group, ["run", "gemm", "--device", name])
    assert result.exit_code == 2
    assert "device must be auto, emulator, gpu or gpu:INDEX" in result.stderr


@pytest.mark.parametrize("alpha", ["nan", "inf"])
@pytest.mark.parametrize("target", ["gemm", "grouped"])
def test_a_result_that_cannot_be_checked_is_refused(target: str, alpha: str) -> None:
    result = CliRunner().invoke(group, ["run", target, "--device", "emulator", "--alpha", alpha])
    assert result.exit_code == 2
    assert "alpha must be finite for a result to be checked" in result.stderr


def test_a_problem_too_large_for_the_host_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError("no room for A")

    monkeypatch.setattr("ptxgen.trial.make_operands", refuse)
    result = CliRunner().invoke(group, ["run", "gemm", "--device", "emulator"])
    assert result.exit_code == 1
    assert result.stderr == "error: not enough memory on this host: no room for A; try less\n"


def test_no_gpu_exits_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxgen.errors import ToolMissingError
    from ptxgen.launcher.device import GpuDevice

    def missing(index: int | None = None) -> None:
        raise ToolMissingError("no NVIDIA driver")

    monkeypatch.setattr(GpuDevice, "get", missing)
    assert CliRunner().invoke(group, ["run", "gemm", "--device", "gpu"]).exit_code == 3


@pytest.mark.parametrize(
    "command", ["run gemm --device emulator", "run grouped --device emulator", "check gemm"]
)
def test_more_bytes_than_the_emulator_takes_are_refused_before_they_are_made(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("trial.make_operands", "grouped_trial.make_grouped_operands",
                  "subjects.make_operands"):  # fmt: skip
        monkeypatch.setattr(f"ptxgen.{place}", lambda *_: pytest.fail("bytes were made"))
    done = CliRunner().invoke(group, [*command.split(), "--d-stride", "3000000000"])
    assert done.exit_code == 2
    assert re.search(
        r"at most 4294967296 bytes together, got \d+, \d+ of them in 'd'; try", done.output
    )


def test_a_slow_run_says_how_far_the_emulator_is(monkeypatch: pytest.MonkeyPatch) -> None:
    said: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(progress, "note", said.put)
    monkeypatch.setattr(progress, "PERIOD_S", 0.02)
    device = EmulatorDevice()
    with progress.progress_shown(device) as shown:
        shown.tell("running")
        config = gemm_sm90.default_config(PROBLEM)
        plan = gemm_sm90.plan(PROBLEM, config)
        run_gemm(PROBLEM, plan.launch, render(plan).text, device, data="integers")
        done = re.compile(r"running: \d+ s, (\d+) of \1 clusters, about 0 s left")
        while not done.fullmatch(said.get(timeout=60)):
            pass
