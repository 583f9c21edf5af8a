"""What programmatic dependent launch gains: a chain of four GEMMs, each multiplying what the one
before wrote, with and without it.

Run from a checkout: python benchmarks/chain.py [-o PATH]. Exit status 0 if both ways give equal
bits, 1 if not, 3 without a GPU. The weights exceed the L2 together, so all are read from memory.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ptxgen import selection
from ptxgen.benchmark.ceilings import image_of
from ptxgen.benchmark.method import Method, compare, paired_ratio
from ptxgen.benchmark.replay import graph_contender, stopwatch
from ptxgen.errors import ConfigError, ToolMissingError
from ptxgen.kernels import gemm_sm90
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.launching import PreparedCall
from ptxgen.operands import make_operands
from ptxgen.problem import Gemm

M = (1, 16, 32, 64, 128)
WIDTHS = (7168, 16384, 7168, 2048, 7168)
"""Columns of the first A and of every D: weights of 117, 117, 15 and 15 MB."""
WAYS = ("plain", "dependent")


def problems(m: int) -> list[Gemm]:
    """The links of the chain: e4m3 in and out, so that D is the next A."""
    return [Gemm(m, n, k, "e4m3", "e4m3", "e4m3", alpha=k**-0.5) for k, n in pairwise(WIDTHS)]


class Chain:
    """Four links on buffers of their own: weights w0..w3 and activations x0..x4."""

    def __init__(self, device: GpuDevice, m: int, stack: ExitStack) -> None:
        self.links = problems(m)
        self.addresses: dict[str, int] = {}
        self.d_bytes = self.links[-1].extent_bytes("d")
        for index, link in enumerate(self.links):
            weights = make_operands(replace(link, m=1), "random", seed=index).b
            self._hold(device, f"w{index}", weights.tobytes(), stack)
            self._hold(device, f"x{index + 1}", bytes(link.extent_bytes("d")), stack)
        first = make_operands(replace(self.links[0], n=1), "random", seed=9).a
        self._hold(device, "x0", first.tobytes(), stack)

    def _hold(self, device: GpuDevice, name: str, content: bytes, stack: ExitStack) -> None:
        self.addresses[name] = device.alloc(len(content))
        stack.callback(device.free, self.addresses[name])
        device.write(self.addresses[name], content)

    def of(self, index: int) -> dict[str, int]:
        """Addresses of the buffers of one link."""
        names = {"a": f"x{index}", "b": f"w{index}", "d": f"x{index + 1}"}
        return {name: self.addresses[held] for name, held in names.items()}


def config_of(link: Gemm, gpu: str) -> Any:
    """What was measured to be the fastest for the same sizes with a bf16 D, where that serves an
    e4m3 one, too; else what selection takes."""
    measured = selection.choose(replace(link, d="bf16", scale="tensor", alpha=1.0), gpu)
    store = "global" if measured.store == "global" else "tma"
    try:
        config = replace(measured, d=link.d, scale=link.scale, store=store)
        config.check()
    except ConfigError:
        return selection.choose(link, gpu)
    return config


def calls_of(device: GpuDevice, chain: Chain, dependent: bool) -> list[tuple[PreparedCall, Any]]:
    """The prepared calls of a chain, each with its config."""
    calls = []
    for link in chain.links:
        config = replace(config_of(link, device.name), dependent_launch=dependent)
        plan = gemm_sm90.plan(link, config, device.properties.num_sms)
        calls.append((PreparedCall(device, plan.launch, image_of(plan)), config))
    return calls


def measure(device: GpuDevice, m: int) -> dict[str, Any]:
    """Times of the chain both ways, and whether the last D is the same."""
    with ExitStack() as stack, stopwatch(device) as watch:
        chain = Chain(device, m, stack)
        contenders, results, configs = [], [], []
        for way in WAYS:
            calls = calls_of(device, chain, way == "dependent")
            configs = [str(config) for _, config in calls]

            def run(_: Mapping[str, int], stream: int, calls: Any = calls) -> None:
                for index, (call, _config) in enumerate(calls):
                    call(chain.of(index), stream)

            device.fill(chain.addresses[f"x{len(chain.links)}"], chain.d_bytes, 0xFF)
            run({}, watch.stream)
            last = device.read(chain.addresses[f"x{len(chain.links)}"], chain.d_bytes)
            results.append(np.frombuffer(last, np.uint8))
            contenders.append(graph_contender(way, watch, run, [{}]))
        samples = compare(contenders, Method(max_rounds=9))
        for contender in contenders:
            contender.close()
    return {
        "m": m, "equal": bool(np.array_equal(*results)), "configs": configs,
        **{f"{way}_us": samples[way].median * 1e6 for way in WAYS},
        "gain": paired_ratio(samples["plain"], samples["dependent"]),
    }  # fmt: skip


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
    table = [measure(device, m) for m in M]
    report = {
        "schema": "ptxgen.chain/1", "hardware": asdict(device.properties), "widths": WIDTHS,
        "chains": table,
    }  # fmt: skip
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n", encoding="utf-8")
    return 0 if all(row["equal"] for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
