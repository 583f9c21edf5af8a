"""Ask SentryWard, a static verifier of PTX (`pip install sentryward`), about kernels on tcgen05.

Run from a checkout: python scripts/ask_sentryward.py [--seconds 300] [--only WORD]
Prints a line per kernel: the verdict, its checks, and the first diagnostics. It proves one launch
for every schedule, on the premises that it states: fences are not modelled, launch cancellation
fails. Kernels whose loops depend on data (grouped: sizes are read from memory) are outside it.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ptxgen.kernels import gemm_sm100, gemm_sm100_blockscaled  # noqa: E402
from ptxgen.launch import Launch, Param, TensorMap  # noqa: E402
from ptxgen.plans import Plan  # noqa: E402
from ptxgen.problem import MICRO_SCALES, Gemm  # noqa: E402
from ptxgen.renderer import render  # noqa: E402

NUM_SMS = 2
"""Persistent CTAs: few, so that each computes several tiles."""
ELEMENT_TYPES = {"bfloat16": "bf16", "float16": "f16", "uint8": "u8", "uint32": "u32",
                 "tfloat32": "f32", "float32": "f32"}  # fmt: skip
"""Element type of a tensor map -> SentryWard's name."""
CASES: list[tuple[Gemm, dict[str, Any]]] = [
    (Gemm(128, 128, 192), {"cta_group": 1, "tile_n": 64, "stages": 2, "swap_ab": False}),
    (Gemm(256, 128, 192), {"cta_group": 1, "tile_n": 64, "stages": 1, "accumulators": 1}),
    (Gemm(128, 128, 128), {"cta_group": 1, "tile_m": 64, "tile_n": 64, "stages": 2}),
    (Gemm(512, 128, 192), {"cta_group": 2, "tile_n": 64, "stages": 2}),
    (Gemm(256, 128, 128), {"cta_group": 2, "tile_m": 64, "tile_n": 64, "stages": 2}),
    (Gemm(256, 128, 192), {"cta_group": 1, "cluster_m": 2, "tile_n": 64, "stages": 2}),
    (Gemm(128, 128, 192), {"cta_group": 1, "tile_n": 64, "stages": 2, "store": "global"}),
    (Gemm(128, 128, 192), {"cta_group": 1, "tile_n": 64, "stages": 2, "scheduler": "clc"}),
    (Gemm(128, 128, 256, "e4m3", "e4m3"), {"cta_group": 1, "tile_n": 64, "stages": 2}),
    (Gemm(40, 256, 192), {"swap_ab": True, "cta_group": 1, "tile_m": 32, "stages": 2}),
    (Gemm(40, 512, 192), {"swap_ab": True, "cta_group": 2, "tile_m": 32, "stages": 2}),
    (Gemm(128, 128, 256, "e4m3", "e4m3", scale="mx32"),
     {"cta_group": 1, "tile_n": 64, "stages": 2, "scale_slots": 1, "swap_ab": False}),
    (Gemm(256, 128, 512, "e2m1", "e2m1", scale="nv16"),
     {"cta_group": 2, "tile_n": 64, "stages": 2, "swap_ab": False}),
]  # fmt: skip


def plans() -> Iterator[Plan]:
    """The launches that are asked about."""
    for problem, chosen in CASES:
        kernel = gemm_sm100_blockscaled if problem.scale in MICRO_SCALES else gemm_sm100
        yield kernel.plan(problem, kernel.default_config(problem, **chosen), NUM_SMS)


def input_of(launch: Launch) -> dict[str, Any]:
    """SentryWard's description of a launch, schema spverify.kernel-input/v1."""
    described: dict[str, Any] = {
        "grid_dim": list(launch.grid_ctas), "block_dim": list(launch.cta_threads),
        "dynamic_shared_bytes": launch.dynamic_smem_bytes,
    }  # fmt: skip
    if max(launch.cluster_ctas) > 1:
        described["cluster_dim"] = list(launch.cluster_ctas)
    return {
        "schema": "spverify.kernel-input/v1",
        "entry": launch.entry,
        "launch": described,
        "arguments": [
            {"parameter": p.name, "type": p.kind, "value": p.value}
            for p in launch.params
            if p.kind not in ("tensor_map", "pointer")
        ],
        "tma_descriptors": [_map(p) for p in launch.params if isinstance(p.value, TensorMap)],
    }


def _map(param: Param) -> dict[str, Any]:
    tensor_map = param.value
    assert isinstance(tensor_map, TensorMap)
    kind = tensor_map.element_type
    return {
        "parameter": param.name, "object": tensor_map.buffer,
        "element_type": ELEMENT_TYPES.get(kind, kind), "rank": len(tensor_map.dims),
        "global_shape": list(tensor_map.dims),
        "global_strides_bytes": list(tensor_map.strides_bytes),
        "box_shape": list(tensor_map.box), "element_strides": [1] * len(tensor_map.dims),
        "swizzle": tensor_map.swizzle, "interleave": "none", "oob_fill": "zero",
    }  # fmt: skip


def ask(plan: Plan, seconds: float) -> dict[str, Any]:
    """SentryWard's answer about one launch."""
    from sentryward import verify

    with tempfile.TemporaryDirectory() as folder:
        ptx, described = Path(folder, "kernel.ptx"), Path(folder, "input.json")
        ptx.write_text(render(plan).text, encoding="utf-8")
        described.write_text(json.dumps(input_of(plan.launch)), encoding="utf-8")
        found: dict[str, Any] = verify(str(ptx), input=str(described), timeout_seconds=seconds)
        return found


def main() -> None:
    """Ask about every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    for plan in plans():
        if arguments.only not in plan.entry:
            continue
        began = time.monotonic()
        answer = ask(plan, arguments.seconds)
        checks = ", ".join(f"{name} {state}" for name, state in answer["checks"].items())
        sys.stdout.write(f"{answer['result']}: {plan.entry} ({checks}; "
                         f"{time.monotonic() - began:.0f} s)\n")  # fmt: skip
        for diagnostic in answer["diagnostics"][:4]:
            details = json.dumps(diagnostic.get("details", {}))[:240]
            sys.stdout.write(f"  {diagnostic['code']}: {diagnostic['message']} {details}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
