"""Equal bits: 200 repeats under load from a second stream, and row i of D whatever M is.

Run from a checkout: python benchmarks/determinism.py [-o PATH]. Exit status 0 if all bits agree, 3
without a GPU.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ptxgen import selection
from ptxgen.benchmark.ceilings import image_of
from ptxgen.benchmark.method import Method, compare, paired_ratio
from ptxgen.benchmark.replay import launch_contender, stopwatch
from ptxgen.benchmark.sets import kind
from ptxgen.benchmark.workload import Workload
from ptxgen.errors import ToolMissingError
from ptxgen.kernels import kernel_of
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.launching import PreparedCall
from ptxgen.launcher.timing import new_stream
from ptxgen.problem import Gemm

REPEATS = 200
REPEATED = (
    kind("fp8-tensor").problem((1024, 2112, 7168)),
    kind("fp8-rowcol-promoted").problem((515, 1040, 4112)),
    kind("bf16").problem((64, 2112, 7168)),
    kind("fp8-tensor").problem((16, 7168, 2048)),
)
INVARIANT = kind("fp8-tensor").problem((300, 2112, 7168))
COST_M = (1, 16, 64, 128, 300, 1024, 4096)


def prepared(device: GpuDevice, problem: Gemm, config: Any) -> PreparedCall:
    """A call of `config` for `problem`."""
    plan = kernel_of(config).plan(problem, config, device.properties.num_sms)
    return PreparedCall(device, plan.launch, image_of(plan))


@contextmanager
def workload_of(device: GpuDevice, problem: Gemm) -> Iterator[Workload]:
    """Operands of `problem`, freed at the end."""
    workload = Workload(device, problem)
    try:
        yield workload
    finally:
        workload.free()


def repeat_under_load(device: GpuDevice, problem: Gemm) -> dict[str, Any]:
    """Runs of one problem while another stream is busy; how many differ from the first."""
    config = selection.choose(problem, device.name)
    call = prepared(device, problem, config)
    load_problem = replace(problem, m=1536, n=1536, k=2048)
    load = prepared(device, load_problem, selection.choose(load_problem, device.name))
    with (
        workload_of(device, problem) as workload,
        workload_of(device, load_problem) as other,
        new_stream(device) as stream,
        new_stream(device) as load_stream,
    ):
        copy = workload.addresses(call.launch)[0]
        busy = other.addresses(load.launch)[0]
        first, differing = None, 0
        for repeat in range(REPEATS):
            device.fill(copy["d"], workload.d_bytes, 0xFF)
            device.synchronize()
            for _ in range(repeat % 5 + 1):
                load(busy, load_stream)
            call(copy, stream)
            load(busy, load_stream)
            found = workload.read_d(copy).view(np.uint8)
            first = found if first is None else first
            differing += not np.array_equal(found, first)
    return {"problem": asdict(problem), "config": str(config), "repeats": REPEATS,
            "differing": differing}  # fmt: skip


def rows_for_every_m(device: GpuDevice) -> dict[str, Any]:
    """M for which a row of D differs from that of the largest M, with batch_invariant=True."""
    config = selection.choose(INVARIANT, device.name, batch_invariant=True)
    wrong = []
    with workload_of(device, INVARIANT) as workload:
        copy = workload.copies[0]
        prepared(device, INVARIANT, config)(copy)
        whole = workload.read_d(copy).copy().view(np.uint16)
        for m in range(1, INVARIANT.m + 1):
            device.fill(copy["d"], workload.d_bytes, 0xFF)
            call = prepared(device, replace(INVARIANT, m=m), config)
            call(copy)
            found = workload.read_d(copy).view(np.uint16)
            if not np.array_equal(found[:m], whole[:m]) or not (found[m:] == 0xFFFF).all():
                wrong.append(m)
    return {"problem": asdict(INVARIANT), "config": str(config), "from": 1, "to": INVARIANT.m,
            "wrong_m": wrong}  # fmt: skip


def cost_of_invariance(device: GpuDevice) -> list[dict[str, Any]]:
    """Time of the batch-invariant config beside that of the config chosen for each m."""
    table = []
    with stopwatch(device) as watch:
        for m in COST_M:
            problem = replace(INVARIANT, m=m)
            configs = {
                name: selection.choose(problem, device.name, batch_invariant=name == "invariant")
                for name in ("chosen", "invariant")
            }
            with workload_of(device, problem) as workload:
                contenders = []
                for name, config in configs.items():
                    plan = kernel_of(config).plan(problem, config, device.properties.num_sms)
                    copies = workload.addresses(plan.launch)
                    contenders.append(
                        launch_contender(name, watch, plan.launch, image_of(plan), copies)
                    )
                samples = compare(contenders, Method(max_rounds=7))
                for contender in contenders:
                    contender.close()
            table.append(
                {
                    "m": m,
                    "chosen_us": samples["chosen"].median * 1e6,
                    "invariant_us": samples["invariant"].median * 1e6,
                    "ratio": paired_ratio(samples["invariant"], samples["chosen"]),
                    "configs": {name: str(config) for name, config in configs.items()},
                }
            )
    return table


def main() -> int:
    """Run everything on GPU 0 and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    try:
        device = GpuDevice.get()
    except ToolMissingError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    repeats = [repeat_under_load(device, problem) for problem in REPEATED]
    every_m = rows_for_every_m(device)
    ok = not any(r["differing"] for r in repeats) and not every_m["wrong_m"]
    report = {
        "schema": "ptxgen.determinism/1",
        "ok": ok,
        "hardware": asdict(device.properties),
        "repeats": repeats,
        "every_m": every_m,
        "cost": cost_of_invariance(device),
    }
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
