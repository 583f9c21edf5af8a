"""Seconds until a kernel that nobody has seen before can be launched, and from the cubin cache.

Run from a checkout: python benchmarks/cold_start.py [-o PATH] [--device none]. With a GPU the
driver's JIT and the load of the cubin are measured, too. Each config starts with nothing cached;
what the process imports and compiles once (templates, the ranking of configs) is done before, and
its seconds are listed. Exit status 1 if a limit is exceeded.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.report import open_gpu, options, write
from ptxgen import selection
from ptxgen.benchmark.sets import kind
from ptxgen.cache import assemble_cached
from ptxgen.errors import ToolMissingError
from ptxgen.kernels import kernel_of
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.module import load_module
from ptxgen.renderer import render

SHAPES = ((4096, 7168, 16384), (64, 2112, 7168))
KINDS = ("fp8-tensor", "fp8-block", "bf16")
WARM_UP = ("fp8-tensor", (4096, 576, 7168))
LIMITS = {"assembled_s": 1.5, "jit_s": 1.5, "from_cache_s": 0.010}
"""Seconds that emitting and assembling, emitting and the JIT, or looking a text up may take."""
LOOKUPS = 5
"""Times that a cubin is looked up; the median counts."""


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds, result) of one call."""
    began = time.perf_counter()
    result = action()
    return time.perf_counter() - began, result


def measure(name: str, shape: tuple[int, int, int], device: GpuDevice | None) -> dict[str, Any]:
    """All steps for the config that selection takes for one problem."""
    problem = kind(name).problem(shape)
    choose_s, config = timed(lambda: selection.choose(problem))
    kernel = kernel_of(config)

    def emit() -> str:
        return render(kernel.plan(problem, config)).text

    emit_s, text = timed(emit)
    assemble_s, cubin = timed(lambda: assemble_cached(text))
    cached = [timed(lambda: assemble_cached(text)) for _ in range(LOOKUPS)]
    emitted = [timed(lambda: assemble_cached(emit())) for _ in range(LOOKUPS)]
    assert all(again.code == cubin.code for _, again in cached + emitted)
    found = {
        "kind": name, "shape": shape, "config": str(config), "assembler": cubin.assembler,
        "choose_s": choose_s, "emit_s": emit_s, "assembled_s": emit_s + assemble_s,
        "from_cache_s": median(seconds for seconds, _ in cached),
        "emitted_from_cache_s": median(seconds for seconds, _ in emitted),
    }  # fmt: skip
    if device is not None:
        with device.current():
            for step, image in (("load_cubin_s", cubin.code), ("jit_s", text)):
                seconds, module = timed(lambda x=image: load_module(x, device.properties))
                module.unload()
                found[step] = seconds + (emit_s if step == "jit_s" else 0.0)
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Measure each config once and print the table."""
    parser = options(__doc__)
    parser.add_argument("--device", choices=["auto", "none"], default="auto")
    arguments = parser.parse_args(words)
    device: GpuDevice | None = None
    where: dict[str, Any] = {}
    os.environ["CUDA_CACHE_DISABLE"] = "1"  # the driver's own cache of JIT results
    if arguments.device == "auto":
        try:
            device, where = open_gpu()
        except ToolMissingError as error:
            print(f"without a GPU: {error}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PTXGEN_CACHE_DIR"] = folder
        first = measure(*WARM_UP, device)
        rows = [measure(name, shape, device) for name in KINDS for shape in SHAPES]
    slowest = {step: max(r[step] for r in rows) for step in LIMITS if step in rows[0]}
    ok = all(seconds <= LIMITS[step] for step, seconds in slowest.items())
    for row in [first, *rows]:
        steps = "  ".join(f"{k} {v:.4f}" for k, v in row.items() if k.endswith("_s"))
        print(f"{row['kind']:11} {'x'.join(map(str, row['shape'])):15} {steps}")
    print("slowest after the first", {k: round(v, 4) for k, v in slowest.items()}, "limits", LIMITS)
    write(
        arguments.output, "cold_start", ok, where, __doc__,
        limits=LIMITS, slowest=slowest, first_of_the_process=first, rows=rows,
    )  # fmt: skip
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
