"""How far fast and promoted accumulation are from float64, and bit for bit from the exact model.

Run from a checkout: python benchmarks/accuracy.py [-o PATH] [--device emulator]. Exit status 5 if
a result differs from the model of the tensor core, 3 without a GPU.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.report import exit_status, open_gpu, options, write
from ptxgen.emulator import EmulatorDevice
from ptxgen.emulator.options import Options
from ptxgen.exact_model import exact_result
from ptxgen.kernels import kernel_for
from ptxgen.launch import Device
from ptxgen.operands import make_operands
from ptxgen.problem import Gemm
from ptxgen.renderer import render
from ptxgen.trial import run_operands

M, N = 64, 32
"""Rows and columns of D: 2048 elements, every one compared."""
K = (512, 4096, 16384, 65536)
DATA = ("random", "positive")
SUMS = (
    ("e4m3", "tensor", "fast"), ("e4m3", "tensor", "promoted"), ("e4m3", "block", "promoted"),
    ("bf16", "none", "fast"), ("bf16", "none", "promoted"),
)  # fmt: skip
"""Formats of A and B, scales and accumulation."""


def measure(device: Device, sums: tuple[str, str, str], k: int, data: str) -> dict[str, Any]:
    """One product on the device, its errors against float64 and against the exact model."""
    name, scale, accumulate = sums
    problem = Gemm(M, N, k, name, name, "f32", scale=scale, accumulate=accumulate)
    kernel = kernel_for(problem)
    config = kernel.default_config(problem)  # K in one part, so that nothing shortens the sum
    plan = kernel.plan(problem, config)
    operands = make_operands(problem, data, seed=k)
    d = run_operands(problem, operands, plan.launch, render(plan).text, device).d
    exact = exact_result(problem, operands, np.arange(M), np.arange(N))
    float64 = problem.reference(operands.a, operands.b, operands.scale_a, operands.scale_b)
    error = d.astype(np.float64) - float64
    differing = np.count_nonzero(d.view(np.uint32) != exact.view(np.uint32))
    rms = float(np.sqrt(np.mean(float64**2)))
    return {
        "a": name, "scale": scale, "accumulate": accumulate, "k": k, "data": data,
        "config": str(config),
        "rms_error_over_rms": float(np.sqrt(np.mean(error**2))) / rms,
        "largest_error_over_rms": float(np.max(np.abs(error))) / rms,
        "mean_error_over_rms": float(np.mean(error * np.sign(float64))) / rms,
        "elements": d.size,
        "differ_from_exact_model": int(differing),
    }  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Lines that show the rows."""
    yield "formats, scales, sums              K  data      RMS error  largest    mean  bits differ"
    for r in rows:
        yield (
            f"{r['a']} {r['scale']:6} {r['accumulate']:8} {r['k']:13}  {r['data']:8}"
            f" {r['rms_error_over_rms']:10.2e} {r['largest_error_over_rms']:8.1e}"
            f" {r['mean_error_over_rms']:8.1e} {r['differ_from_exact_model']} of {r['elements']}"
        )


def main(words: Sequence[str] | None = None) -> int:
    """Measure every combination and print the table."""
    parser = options(__doc__)
    parser.add_argument("--device", choices=["gpu", "emulator"], default="gpu")
    parser.add_argument("--largest-k", type=int, default=max(K))
    arguments = parser.parse_args(words)
    device: Device
    where: dict[str, Any] = {"hardware": {"name": "emulator, exact mode"}}
    if arguments.device == "emulator":
        device = EmulatorDevice(Options(exact=True))
    else:
        device, where = open_gpu()
    rows = [
        measure(device, sums, k, data)
        for sums in SUMS
        for data in DATA
        for k in K
        if k <= arguments.largest_k
    ]
    ok = not any(row["differ_from_exact_model"] for row in rows)
    print("\n".join(table(rows)))
    write(arguments.output, "accuracy", ok, where, __doc__, rows=rows)
    return 0 if ok else 5


if __name__ == "__main__":
    sys.exit(exit_status(main))
