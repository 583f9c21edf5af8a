"""Seconds and memory of the emulator and its checker: the table of docs/emulator-coverage.md.

Run from a checkout on a machine with nothing else to do:
    OPENBLAS_NUM_THREADS=1 python scripts/emulator_speed.py [FILE.ptx LAUNCH.json]
Every row is a process of its own, first and second run; FILE is checked under tolerant rules.
--long adds the rows that take half a minute. Prints Markdown.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from ptxgen.emulator import Options, run  # noqa: E402
from ptxgen.emulator.checking import check  # noqa: E402
from ptxgen.kernels import gemm_mma, gemm_sm90, gemm_sm100  # noqa: E402
from ptxgen.launch import Launch  # noqa: E402
from ptxgen.problem import Gemm  # noqa: E402
from ptxgen.subjects import Subject, gemm_subject  # noqa: E402

MIB = 1 << 20
ROWS: dict[str, tuple[str, tuple[int, int, int], str]] = {
    "gemm_sm90 e4m3 256x256x512, executed": ("sm90", (256, 256, 512), "run"),
    "the same, checked, with exact sums": ("sm90", (256, 256, 512), "exact"),
    "the same, checked with exact sums in all five runs": ("sm90", (256, 256, 512), "all"),
    "gemm_sm90 e4m3 1024x1024x1024, checked": ("sm90", (1024, 1024, 1024), "check"),
    "gemm_sm100 bf16 pair 1024x1024x1024, checked": ("sm100", (1024, 1024, 1024), "check"),
}
LONG = {"gemm_mma bf16 1024x1024x1024, checked": ("mma", (1024, 1024, 1024), "check")}


def subject(kernel: str, size: tuple[int, int, int]) -> Subject:
    """A kernel of ours with its inputs."""
    module: Any = {"sm90": gemm_sm90, "sm100": gemm_sm100, "mma": gemm_mma}[kernel]
    dtype: Any = "e4m3" if kernel == "sm90" else "bf16"
    problem = Gemm(*size, a=dtype, b=dtype)
    chosen = {"cta_group": 2} if kernel == "sm100" else {}
    return gemm_subject(problem, module.default_config(problem, **chosen), module)


def work(name: str, files: list[str]) -> Callable[[], int]:
    """What a row does, as a function that returns the warp instructions of one run."""
    if files:
        text = Path(files[0]).read_text(encoding="utf-8")
        launch, data = Launch.from_json(Path(files[1]).read_text(encoding="utf-8")), None
        return lambda: check(text, launch, data, schedules=("lazy",)).runs[0].num_instructions
    kernel, size, how = {**ROWS, **LONG}[name]
    ours = subject(kernel, size)
    if how == "run":
        return lambda: run(ours.ptx, ours.launch, ours.data, Options()).num_instructions
    schedules: dict[str, Any] = {} if how == "all" else {"schedules": ("lazy",)}

    def checked() -> int:
        report = check(
            ours.ptx, ours.launch, ours.data, strict=True, exact=how != "check", **schedules
        )
        assert not report.findings, report
        return report.runs[0].num_instructions

    return checked


def row(name: str, files: list[str]) -> dict[str, Any]:
    """Measure one row in this process."""
    execute = work(name, files)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        count = execute()
        seconds.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"instructions": count, "seconds": seconds, "peak_mib": peak * 1024 / MIB,
            "grown_mib": (peak - before) * 1024 / MIB}  # fmt: skip


def matmul_rate() -> float:
    """GFLOP/s of numpy's float32 product of matrices of 1024."""
    a = np.ones((1024, 1024), np.float32)
    best = min(_timed(lambda: a @ a) for _ in range(5))
    return 2 * 1024**3 / best / 1e9


def _timed(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE.ptx LAUNCH.json")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if len(arguments.files) not in (0, 2):
        parser.error("a FILE needs its LAUNCH")
    if arguments.row is not None:
        sys.stdout.write(json.dumps(row(arguments.row, arguments.files)))
        return
    sys.stdout.write(f"numpy: {matmul_rate():.0f} GFLOP/s\n\n")
    sys.stdout.write(
        "| what | warp instructions | seconds (later) | peak, grown MiB |\n|---|---|---|---|\n"
    )
    names = [*ROWS, *(LONG if arguments.long else {})]
    jobs = [(name, []) for name in names]
    if arguments.files:
        jobs.append((f"{Path(arguments.files[0]).stem}, checked", arguments.files))
    for name, files in jobs:
        command = [sys.executable, __file__, "--row", name, *files]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        first, later = found["seconds"]
        sys.stdout.write(
            f"| {name} | {found['instructions']} | {first:.2f} ({later:.2f}) | "
            f"{found['peak_mib']:.0f}, {found['grown_mib']:.0f} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
