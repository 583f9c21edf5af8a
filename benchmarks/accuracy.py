"""How far fast and promoted accumulation are from float64, and bit for bit from the exact model.

Run from a checkout: python benchmarks/accuracy.py [-o PATH] [--device emulator]. Exit status 5 if
a result differs from the model of the tensor core.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ptxgen import selection
from ptxgen.exact_model import exact_result
from ptxgen.kernels import kernel_of
from ptxgen.launch import Device
from ptxgen.operands import make_operands
from ptxgen.problem import FP8, Gemm
from ptxgen.quantize import numpy_dtype
from ptxgen.renderer import render

SIZE = 64
"""Rows and columns of D: 4096 elements, every one compared."""
K = (512, 4096, 16384, 65536)
DATA = ("random", "positive")


def measure(device: Device, name: str, k: int, accumulate: str, data: str) -> dict[str, Any]:
    """One product on the device, its errors against float64 and against the exact model."""
    scale = "tensor" if name in FP8 else "none"
    problem = Gemm(SIZE, SIZE, k, name, name, "f32", scale=scale, accumulate=accumulate)
    config = selection.choose(problem)
    plan = kernel_of(config).plan(problem, config)
    operands = make_operands(problem, data, seed=k)
    contents = {"a": operands.a, "b": operands.b}
    if operands.scale_a is not None and operands.scale_b is not None:
        contents |= {"scale_a": operands.scale_a, "scale_b": operands.scale_b}
    addresses = {}
    for buffer in plan.launch.buffers:
        addresses[buffer.name] = device.alloc(buffer.nbytes)
        if buffer.name in contents:
            device.write(
                addresses[buffer.name], np.ascontiguousarray(contents[buffer.name]).tobytes()
            )
    device.launch(plan.launch, render(plan).text, addresses)
    raw = device.read(addresses["d"], problem.extent_bytes("d"))
    for address in addresses.values():
        device.free(address)
    d = np.frombuffer(raw, numpy_dtype("f32")).reshape(SIZE, SIZE)
    rows = np.arange(SIZE)
    exact = exact_result(problem, operands, rows, rows)
    float64 = problem.reference(operands.a, operands.b, operands.scale_a, operands.scale_b)
    error = d.astype(np.float64) - float64
    differing = np.count_nonzero(d.view(np.uint32) != exact.view(np.uint32))
    rms = float(np.sqrt(np.mean(float64**2)))
    return {
        "a": name, "k": k, "accumulate": accumulate, "data": data, "config": str(config),
        "rms_error_over_rms": float(np.sqrt(np.mean(error**2))) / rms,
        "largest_error_over_rms": float(np.max(np.abs(error))) / rms,
        "mean_error_over_rms": float(np.mean(error * np.sign(float64))) / rms,
        "elements": d.size,
        "differ_from_exact_model": int(differing),
    }  # fmt: skip


def main() -> int:
    """Measure every combination and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--device", choices=["gpu", "emulator"], default="gpu")
    parser.add_argument("--largest-k", type=int, default=max(K))
    arguments = parser.parse_args()
    device: Device
    hardware: dict[str, Any] = {"name": "emulator, exact mode"}
    if arguments.device == "emulator":
        from ptxgen.emulator import EmulatorDevice
        from ptxgen.emulator.options import Options

        device = EmulatorDevice(Options(exact=True))
    else:
        from ptxgen.launcher.device import GpuDevice

        gpu = GpuDevice.get()
        device, hardware = gpu, asdict(gpu.properties)
    rows = [
        measure(device, name, k, accumulate, data)
        for name in ("e4m3", "bf16")
        for k in K
        if k <= arguments.largest_k
        for data in DATA
        for accumulate in ("fast", "promoted")
    ]
    wrong = sum(row["differ_from_exact_model"] for row in rows)
    report = {"schema": "ptxgen.accuracy/1", "ok": wrong == 0, "hardware": hardware, "rows": rows}
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    return 0 if wrong == 0 else 5


if __name__ == "__main__":
    sys.exit(main())
