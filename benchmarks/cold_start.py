"""Seconds until a kernel that nobody has seen before can be launched, and from the cubin cache.

Run from a checkout: python benchmarks/cold_start.py [-o PATH] [--device none]. With a GPU the
driver's JIT and the load of the cubin are measured, too. Each config starts with nothing cached.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ptxgen import selection
from ptxgen.benchmark.sets import kind
from ptxgen.cache import assemble_cached
from ptxgen.errors import ToolMissingError
from ptxgen.kernels import kernel_of
from ptxgen.renderer import render

SHAPES = ((4096, 7168, 16384), (64, 2112, 7168), (4096, 576, 7168))
KINDS = ("fp8-tensor", "fp8-rowcol-promoted", "bf16")


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds, result) of one call."""
    began = time.perf_counter()
    result = action()
    return time.perf_counter() - began, result


def measure(name: str, shape: tuple[int, int, int], device: Any) -> dict[str, Any]:
    """All steps for the config that selection takes for one problem."""
    problem = kind(name).problem(shape)
    choose_s, config = timed(lambda: selection.choose(problem))
    kernel = kernel_of(config)
    plan_s, plan = timed(lambda: kernel.plan(problem, config))
    render_s, rendered = timed(lambda: render(plan))
    assemble_s, cubin = timed(lambda: assemble_cached(rendered.text))
    cached_s, again = timed(lambda: assemble_cached(rendered.text))
    assert again.code == cubin.code
    found = {
        "problem": {"kind": name, "shape": shape}, "config": str(config),
        "assembler": cubin.assembler, "choose_s": choose_s, "plan_s": plan_s, "emit_s": render_s,
        "assemble_s": assemble_s, "from_cache_s": cached_s,
        "cold_s": choose_s + plan_s + render_s + assemble_s,
    }  # fmt: skip
    if device is not None:
        from ptxgen.launcher.module import load_module

        with device.current():
            found["load_cubin_s"], module = timed(
                lambda: load_module(cubin.code, device.properties)
            )
            module.unload()
            found["jit_s"], module = timed(lambda: load_module(rendered.text, device.properties))
            module.unload()
    return found


def main() -> int:
    """Measure each config once and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--device", choices=["auto", "none"], default="auto")
    arguments = parser.parse_args()
    device = None
    os.environ["CUDA_CACHE_DISABLE"] = "1"  # the driver's own cache of JIT results
    if arguments.device == "auto":
        from ptxgen.launcher.device import GpuDevice

        try:
            device = GpuDevice.get()
        except ToolMissingError as error:
            print(f"without a GPU: {error}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PTXGEN_CACHE_DIR"] = folder
        rows = [measure(name, shape, device) for name in KINDS for shape in SHAPES]
    report = {
        "schema": "ptxgen.cold_start/1",
        "hardware": asdict(device.properties) if device else None,
        "slowest_cold_s": max(r["cold_s"] for r in rows),
        "slowest_from_cache_s": max(r["from_cache_s"] for r in rows),
        "rows": rows,
    }
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
