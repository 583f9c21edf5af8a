"""The sweep of a selftest: every case computed and checked, and outlived if it hangs or faults.

On a GPU cases run in a child process: a fault ends its context and a hang ends its time, then
another child goes on behind the case. Run as a module this file is the child, which prints one
line of JSON per case and kind of data.
"""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ptxgen.errors import PtxgenError
from ptxgen.grouped_operands import device_sizes
from ptxgen.grouped_problem import GroupedGemm
from ptxgen.grouped_trial import run_grouped
from ptxgen.kernels import k_parts, kernel_of, unit_of
from ptxgen.renderer import render
from ptxgen.selftest.cases import Case, cases
from ptxgen.trial import run_gemm

EMULATED_SMS = 4
"""Persistent CTAs on the emulator: few, so that they are reused."""
MOST_CHILDREN = 12
"""Children that may die before the sweep gives up."""
DATA = {"gpu": ("integers", "random"), "emulator": ("integers",)}
"""Kinds of data: integers are compared with numpy's D, random ones with the exact model's."""


@dataclass(frozen=True)
class Outcome:
    """What came of one case with one kind of data."""

    name: str
    kernel: str
    data: str
    ok: bool
    seconds: float = 0.0
    """Until D was there and checked, assembling included."""
    max_error_over_bound: float | None = None
    exact_elements: int = 0
    exact_mismatches: int = 0
    stray_bytes: int = 0
    error: str = ""
    """Why there is no result."""


def run_case(case: Case, device: Any, data: str) -> Outcome:
    """Compute and check one case. An error of ours is an outcome."""
    began = time.perf_counter()
    kernel, config, problem = kernel_of(case.config), case.config, case.problem
    outcome = Outcome(case.name, kernel.NAME, data, False)
    properties = getattr(device, "properties", None)
    num_sms = properties.num_sms if properties else EMULATED_SMS
    tile, unit = (config.tile_m, config.tile_n), unit_of(config)
    try:
        plan = kernel.plan(problem, config, num_sms)
        text = render(plan).text
        if isinstance(problem, GroupedGemm):
            sizes = device_sizes(problem, case.rows)
            trial: Any = run_grouped(
                problem, sizes, config, plan.launch, text, device, data=data
            )  # fmt: skip
        else:
            trial = run_gemm(
                problem, plan.launch, text, device, tile=tile, data=data, unit=unit,
                k_parts=k_parts(config, problem),
            )  # fmt: skip
    except PtxgenError as error:
        return replace(outcome, seconds=time.perf_counter() - began, error=str(error))
    verdict = trial.verdict
    return replace(
        outcome, ok=trial.ok, seconds=time.perf_counter() - began,
        max_error_over_bound=verdict.max_error_over_bound, exact_elements=verdict.exact_elements,
        exact_mismatches=verdict.exact_mismatches, stray_bytes=trial.stray_bytes,
        error="" if trial.ok else str(verdict),
    )  # fmt: skip


def runs(target: str, small: bool, kind: str) -> list[tuple[Case, str]]:
    """Cases and kinds of data in the order in which they run on a kind of device."""
    return [(case, data) for case in cases(target, small) for data in DATA[kind]]


def sweep_here(target: str, small: bool, device: Any, first: int = 0) -> Iterator[Outcome]:
    """Run the cases in this process, from run `first` on."""
    kind = "emulator" if device.name == "emulator" else "gpu"
    for case, data in runs(target, small, kind)[first:]:
        yield run_case(case, device, data)


def sweep_in_children(
    target: str, small: bool, gpu_index: int, case_seconds: float, command: Sequence[str] = ()
) -> Iterator[Outcome]:
    """Run the cases on a GPU in child processes; a case gets `case_seconds` before it counts as
    hung. command: what starts a child, to which its arguments are added."""
    wanted = runs(target, small, "gpu")
    command = command or (sys.executable, "-m", "ptxgen.selftest.sweep")
    done = dead = 0
    while done < len(wanted):
        arguments = (target, "small" if small else "full", str(gpu_index), str(done))
        reason = ""
        for line in _lines((*command, *arguments), case_seconds):
            if isinstance(line, str):
                reason = line
            else:
                yield Outcome(**line)
                done += 1
        if done >= len(wanted):
            return
        case, data = wanted[done]
        dead += 1
        gave_up = dead >= MOST_CHILDREN
        tail = f"; gave up after {dead} such cases" if gave_up else ""
        yield Outcome(case.name, kernel_of(case.config).NAME, data, False, error=f"{reason}{tail}")
        done += 1
        if gave_up:
            return


def _lines(command: Sequence[str], seconds: float) -> Iterator[dict[str, Any] | str]:
    """Objects that a child prints, one a line; at last why it ended, as text."""
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    lines: queue.Queue[str | None] = queue.Queue()
    errors: list[str] = []

    def read_output() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.put(line)
        lines.put(None)

    def read_errors() -> None:
        assert child.stderr is not None
        errors.extend(child.stderr)

    readers = [threading.Thread(target=f, daemon=True) for f in (read_output, read_errors)]
    for reader in readers:
        reader.start()
    reason = ""
    while True:
        try:
            line = lines.get(timeout=seconds)
        except queue.Empty:
            reason = f"no result within {seconds:g} s: the kernel hangs"
            break
        if line is None:
            break
        yield json.loads(line)
    child.kill()
    status = child.wait()
    for reader in readers:
        reader.join(timeout=5)
    last = errors[-1].strip() if errors else ""
    yield reason or f"the process ended with status {status}: {last}"


def main(arguments: Sequence[str]) -> None:
    """Run as a child: target, small or full, index of the GPU, number of the first run."""
    from ptxgen.launcher.device import GpuDevice

    target, size, gpu_index, first = arguments
    device = GpuDevice.get(int(gpu_index))
    for outcome in sweep_here(target, size == "small", device, int(first)):
        sys.stdout.write(json.dumps(asdict(outcome)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
