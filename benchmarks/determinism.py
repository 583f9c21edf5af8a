"""Equal bits: 200 repeats under load from a second stream, and row i of D whatever M is.

Run from a checkout: python benchmarks/determinism.py [-o PATH]. Exit status 0 if all bits agree, 1
if not, 3 without a GPU. The cost of batch invariance is the time of the best config that sums K as
all M must, over that of the best config for this M, in paired rounds.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.report import exit_status, open_gpu, options, write
from ptxgen import selection
from ptxgen.benchmark.ceilings import image_of
from ptxgen.benchmark.method import Method, compare, paired_ratio
from ptxgen.benchmark.replay import launch_contender, stopwatch
from ptxgen.benchmark.sets import kind
from ptxgen.benchmark.workload import Workload
from ptxgen.kernels import kernel_of
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.launching import PreparedCall
from ptxgen.launcher.timing import new_stream
from ptxgen.problem import Gemm

Named = tuple[str, tuple[int, int, int]]
"""A kind, and a shape."""


@dataclass(frozen=True)
class Extent:
    """What is run: all of it by default, less where it is only tried."""

    repeats: int = 200
    repeated: tuple[Named, ...] = (
        ("fp8-tensor", (1024, 2112, 7168)), ("fp8-rowcol-promoted", (515, 1040, 4112)),
        ("fp8-block", (1024, 2112, 7168)), ("fp8-block", (1, 576, 7168)),
        ("bf16", (64, 2112, 7168)), ("fp8-tensor", (16, 7168, 2048)),
    )  # fmt: skip
    load: tuple[int, int, int] = (1536, 1536, 2048)
    """What keeps the second stream busy."""
    invariant: tuple[Named, ...] = (
        ("fp8-tensor", (300, 2112, 7168)), ("fp8-block", (300, 576, 7168)),
    )  # fmt: skip
    """Every M from 1 to theirs."""
    cost_m: tuple[int, ...] = (1, 16, 64, 128, 300, 1024, 4096)


METHOD = Method(slot_s=0.008, settle_s=0.05, max_rounds=7)


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


def repeat_under_load(device: GpuDevice, named: Named, extent: Extent) -> dict[str, Any]:
    """Runs of one problem while another stream is busy; how many differ from the first."""
    problem = kind(named[0]).problem(named[1])
    config = selection.choose(problem, device.name)
    call = prepared(device, problem, config)
    load_problem = kind(named[0]).problem(extent.load)
    load = prepared(device, load_problem, selection.choose(load_problem, device.name))
    with (
        workload_of(device, problem) as workload,
        workload_of(device, load_problem) as other,
        new_stream(device) as stream,
        new_stream(device) as load_stream,
    ):
        copy = workload.copies[0]
        busy = other.copies[0]
        first, differing = None, 0
        for repeat in range(extent.repeats):
            device.fill(copy["d"], workload.d_bytes, 0xFF)
            device.synchronize()
            for _ in range(repeat % 5 + 1):
                load(busy, load_stream)
            call(copy, stream)
            load(busy, load_stream)
            device.synchronize()
            found = device.read(copy["d"], workload.d_bytes)
            first = first or found
            differing += found != first
    return {"kind": named[0], "shape": named[1], "config": str(config), "repeats": extent.repeats,
            "differing": differing, "written": first != b"\xff" * workload.d_bytes}  # fmt: skip


def rows_for_every_m(device: GpuDevice, named: Named) -> dict[str, Any]:
    """M for which a row of D differs from that of the largest M, with batch_invariant=True.

    Scales of A that lie with M contiguous keep the strides of the largest M.
    """
    whole_problem = kind(named[0]).problem(named[1])
    configs: dict[str, None] = {}
    wrong = []
    with workload_of(device, whole_problem) as workload:
        copy = workload.copies[0]

        def rows(m: int) -> Any:
            """All of D, poison where this M does not reach."""
            device.fill(copy["d"], workload.d_bytes, 0xFF)
            device.synchronize()
            problem = replace(whole_problem, m=m)
            config = selection.choose(problem, device.name, batch_invariant=True)
            configs[str(config)] = None
            call = prepared(device, problem, config)
            call(workload.copies[0])
            device.synchronize()
            return workload.read_d(copy).view(np.uint16)

        whole = rows(whole_problem.m)
        for m in range(1, whole_problem.m + 1):
            found = rows(m)
            if not np.array_equal(found[:m], whole[:m]) or not (found[m:] == 0xFFFF).all():
                wrong.append(m)
    return {"kind": named[0], "shape": named[1], "configs": list(configs), "from": 1,
            "to": whole_problem.m, "wrong_m": wrong}  # fmt: skip


def cost_of_invariance(device: GpuDevice, named: Named, m: int) -> dict[str, Any]:
    """Time of the batch-invariant config for this m beside that of the one chosen freely."""
    problem = kind(named[0]).problem((m, *named[1][1:]))
    configs = {
        name: selection.choose(problem, device.name, batch_invariant=name == "invariant")
        for name in ("chosen", "invariant")
    }
    with stopwatch(device) as watch, workload_of(device, problem) as workload:
        contenders = []
        for name, config in configs.items():
            plan = kernel_of(config).plan(problem, config, device.properties.num_sms)
            contenders.append(
                launch_contender(name, watch, plan.launch, image_of(plan), workload.copies)
            )
        samples = compare(contenders, METHOD)
        for contender in contenders:
            contender.close()
    return {
        "kind": named[0], "m": m, "n": problem.n, "k": problem.k,
        "chosen_us": samples["chosen"].median * 1e6,
        "invariant_us": samples["invariant"].median * 1e6,
        "ratio": paired_ratio(samples["invariant"], samples["chosen"]),
        "configs": {name: str(config) for name, config in configs.items()},
    }  # fmt: skip


def main(words: Sequence[str] | None = None, extent: Extent | None = None) -> int:
    """Run everything on GPU 0 and print what was found."""
    arguments = options(__doc__).parse_args(words)
    extent = extent or Extent()
    device, where = open_gpu()
    repeats = [repeat_under_load(device, named, extent) for named in extent.repeated]
    for r in repeats:
        print(f"{r['kind']} {r['shape']}: {r['differing']} of {r['repeats']} repeats differ")
    every_m = [rows_for_every_m(device, named) for named in extent.invariant]
    for e in every_m:
        print(f"{e['kind']} {e['shape']}, {len(e['configs'])} configs: rows differ at M ="
              f" {e['wrong_m'] or 'none'}")  # fmt: skip
    cost = [cost_of_invariance(device, x, m) for x in extent.invariant for m in extent.cost_m]
    for c in cost:
        print(f"{c['kind']} m {c['m']:4}: chosen {c['chosen_us']:8.2f} us, batch-invariant"
              f" {c['invariant_us']:8.2f} us, {c['ratio']:.3f}")  # fmt: skip
    ok = all(r["written"] and not r["differing"] for r in repeats)
    ok = ok and not any(e["wrong_m"] for e in every_m)
    found = {"repeats": repeats, "every_m": every_m, "cost": cost}
    write(arguments.output, "determinism", ok, where, __doc__, **found)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(exit_status(main))
