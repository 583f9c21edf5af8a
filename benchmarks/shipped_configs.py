"""Every config in the tables that ship: assembled and compiled without a spill or a C75xx message,
clean under the strict checker, and right on a GPU, also under compute-sanitizer.

Run from a checkout:
    python benchmarks/shipped_configs.py [-o PATH]                       all that can be done here
    compute-sanitizer --report-api-errors no python benchmarks/shipped_configs.py --steps run
The latter is memcheck; without that option it also counts the calls of cuFuncGetParamInfo that tell
by an error that a kernel has no more parameters.
Each config gets a small problem of its own, with partial tiles, tails of K and reused stages. Exit
status 1 if a config fails, 3 if there is no GPU for a step that needs one.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.report import exit_status, open_gpu, options, write
from ptxgen.assembler import assemble
from ptxgen.devices import GPU_MODELS
from ptxgen.emulator.checking import check
from ptxgen.errors import PtxgenError
from ptxgen.images import config_text
from ptxgen.kernels import KERNELS
from ptxgen.operands import make_operands
from ptxgen.problem import Gemm
from ptxgen.trial import buffer_contents, run_operands
from ptxgen.tuning_table import shipped_rows

STEPS = ("assemble", "strict", "jit", "run")
NEED_GPU = ("jit", "run")
TAIL = 16
"""Rows and k by which they exceed whole tiles: 16 bytes of FP8, as TMA wants."""
D_TAIL = 8
"""Columns by which D exceeds them: 16 bytes of 16-bit elements."""
ODD_TAIL = 11
"""The same of a D that threads store, for which TMA is no good."""


@cache
def shipped_configs() -> tuple[tuple[str, Any], ...]:
    """(kernel, config) of every row of every table, each once."""
    rows = [row for name in GPU_MODELS for row in shipped_rows(name)]
    found = ((row.kernel, KERNELS[row.kernel].Config(**row.config_fields())) for row in rows)
    return tuple(dict.fromkeys(found))


def small_problem(config: Any) -> Gemm:
    """A problem of a few tiles that goes round the config's ring of stages, and its main loop."""
    k_tiles = max(2, -(-config.stages // 2), config.k_tiles_before_loop + 1) * config.split_k
    m = config.a_rows or config.tile_m * config.cluster_m + TAIL
    n = config.tile_n * config.cluster_n + (D_TAIL if config.stores_by_tma else ODD_TAIL)
    return Gemm(
        m, n, k_tiles * config.tile_k + TAIL, config.a, config.b, config.d, config.layout,
        config.scale, config.accumulate, scale_format=config.scale_format,
    )  # fmt: skip


def assembled(kernel: str, config: Any) -> str:
    """What ptxas has against the config; empty if nothing."""
    cubin = assemble(config_text(kernel, config), "sm_90a")
    spills = f"{cubin.spill_bytes} bytes of spills " if cubin.spill_bytes else ""
    return spills + " ".join(map(str, cubin.messages))


def strictly(kernel: str, config: Any) -> str:
    """What the strict checker finds on the small problem, with one cluster for all tiles."""
    problem = small_problem(config)
    plan = KERNELS[kernel].plan(problem, config, num_sms=config.cluster_ctas)
    contents = buffer_contents(problem, make_operands(problem, "integers"))
    text = config_text(kernel, config)
    report = check(text, plan.launch, contents, strict=True, seeds=(0,))
    differ = "" if report.identical else " results differ between schedules"
    return " ".join(map(str, report.findings)) + differ


def compiled(kernel: str, config: Any) -> str:
    """What the driver's compiler says of spills, and its C75xx notes."""
    from ptxgen.launcher.device import GpuDevice
    from ptxgen.launcher.module import load_module

    device = GpuDevice.get()
    with device.current():
        module = load_module(config_text(kernel, config), device.properties)
        module.unload()
    spills = f"{module.jit_log.spill_bytes} bytes of spills " if module.jit_log.spill_bytes else ""
    return spills + " ".join(map(str, module.jit_log.notes))


def right(kernel: str, config: Any) -> str:
    """Whether a GPU computes the small problem exactly, and writes nothing else."""
    from ptxgen.launcher.device import GpuDevice

    problem = small_problem(config)
    plan = KERNELS[kernel].plan(problem, config, num_sms=config.cluster_ctas)
    x = make_operands(problem, "integers")
    done = run_operands(problem, x, plan.launch, config_text(kernel, config), GpuDevice.get())
    want = problem.reference(x.a, x.b, x.scale_a, x.scale_b).astype(done.d.dtype)
    wrong = int((done.d != want).sum())
    return (
        f"{wrong} elements wrong, {done.stray_bytes} stray bytes"
        if wrong + done.stray_bytes
        else ""
    )


ACTIONS: dict[str, Callable[[str, Any], str]] = {
    "assemble": assembled, "strict": strictly, "jit": compiled, "run": right,
}  # fmt: skip


def look(
    configs: Sequence[tuple[str, Any]], steps: Sequence[str], seconds: float = float("inf")
) -> Iterator[dict[str, Any]]:
    """For each config what each step has against it, until `seconds` are over."""
    end = time.monotonic() + seconds
    for kernel, config in configs:
        if time.monotonic() > end:
            return
        found = {}
        for step in steps:
            try:
                found[step] = ACTIONS[step](kernel, config)
            except PtxgenError as error:
                found[step] = f"{type(error).__name__}: {error}"
        yield {"config": str(config), "ok": not any(found.values()), **found}


def main(words: Sequence[str] | None = None) -> int:
    """Look at every config and print what was found."""
    parser = options(__doc__)
    parser.add_argument("--steps", default=",".join(STEPS), help="of " + ", ".join(STEPS))
    parser.add_argument("--part", default="0/1", help="I/N: every Nth config from the Ith on")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    arguments = parser.parse_args(words)
    steps = arguments.steps.split(",")
    part, parts = map(int, arguments.part.split("/"))
    where: dict[str, Any] = {}
    if set(steps) & set(NEED_GPU):
        _, where = open_gpu()
    configs = shipped_configs()[part::parts]
    rows = list(look(configs, steps, arguments.seconds))
    for row in rows:
        if not row["ok"]:
            print(row)
    failed = sum(not row["ok"] for row in rows)
    print(f"{', '.join(steps)}: {len(rows)} of {len(configs)} configs looked at, {failed} failed")
    write(
        arguments.output, "shipped_configs", not failed, where, __doc__,
        configs=len(configs), rows=rows,
    )  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
