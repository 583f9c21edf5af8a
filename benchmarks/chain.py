"""What programmatic dependent launch gains: a chain of four GEMMs, each multiplying what the one
before wrote, with and without it.

Run from a checkout: python benchmarks/chain.py [-o PATH]. Exit status 0 if both ways give equal
bits, 1 if not, 3 without a GPU. The weights exceed the L2 together, so all are read from memory.
Both ways run in CUDA graphs of whole chains, in paired rounds.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.report import exit_status, open_gpu, options, write
from ptxgen import selection
from ptxgen.benchmark.ceilings import image_of
from ptxgen.benchmark.method import Method, compare, paired_ratio
from ptxgen.benchmark.replay import graph_contender, stopwatch
from ptxgen.benchmark.workload import pool
from ptxgen.errors import ConfigError
from ptxgen.kernels import gemm_sm90
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.launching import PreparedCall
from ptxgen.problem import Gemm

M = (1, 16, 32, 64, 128)
CHAINS = ((7168, 16384, 7168, 2048, 7168), (7168, 4096, 7168, 2048, 7168), (4096,) * 5)
"""For each chain, columns of the first A and of every D: weights of 117, 117, 15 and 15 MB; of 29,
29, 15 and 15 MB; and of 17 MB each."""
WAYS = ("plain", "dependent")
METHOD = Method(slot_s=0.01, settle_s=0.1, max_rounds=9)


def links_of(m: int, widths: Sequence[int]) -> list[Gemm]:
    """The links of the chain: e4m3 in and out, so that D is the next A.

    alpha brings D back to the size of A: weights are normal numbers over the pool's scale.
    """
    scale = pool("e4m3", 1).scale
    return [
        Gemm(m, n, k, "e4m3", "e4m3", "e4m3", alpha=scale * k**-0.5) for k, n in pairwise(widths)
    ]


class Chain:
    """Buffers of the links: weights w0..w3, and activations x0..x4 of the most rows."""

    def __init__(self, device: GpuDevice, links: Sequence[Gemm], stack: ExitStack) -> None:
        self.addresses: dict[str, int] = {}
        first = np.resize(pool("e4m3", 0).values, links[0].a_shape)
        self._hold(device, "x0", first, stack)
        for index, link in enumerate(links):
            weights = np.resize(np.roll(pool("e4m3", 1).values, index), link.b_shape)
            self._hold(device, f"w{index}", weights, stack)
            self._hold(device, f"x{index + 1}", np.zeros(link.extent_bytes("d"), np.uint8), stack)

    def _hold(self, device: GpuDevice, name: str, content: Any, stack: ExitStack) -> None:
        self.addresses[name] = device.alloc(content.nbytes)
        stack.callback(device.free, self.addresses[name])
        device.write(self.addresses[name], content.reshape(-1).view(np.uint8).data)

    def of(self, index: int) -> dict[str, int]:
        """Addresses of the buffers of one link."""
        names = {"a": f"x{index}", "b": f"w{index}", "d": f"x{index + 1}"}
        return {name: self.addresses[held] for name, held in names.items()}


def config_of(link: Gemm, gpu: str) -> Any:
    """What was measured to be the fastest for the same sizes with a bf16 D, where that serves an
    e4m3 one, too; else what selection takes."""
    measured = selection.choose(replace(link, d="bf16", scale="tensor", alpha=1.0), gpu)
    store = "tma" if measured.stores_by_tma else "global"
    try:
        config = replace(measured, d=link.d, scale=link.scale, store=store)
        gemm_sm90.plan(link, config)
    except ConfigError:
        return selection.choose(link, gpu)
    return config


def measure(device: GpuDevice, chain: Chain, links: Sequence[Gemm]) -> dict[str, Any]:
    """Times of the chain both ways, and whether the last D is the same."""
    last, d_bytes = chain.of(len(links) - 1)["d"], links[-1].extent_bytes("d")
    contenders, results, configs = [], [], []
    with stopwatch(device) as watch:
        for way in WAYS:
            chosen = [config_of(link, device.name) for link in links]
            if way == "dependent":
                chosen = [config.as_dependent() for config in chosen]
            plans = [gemm_sm90.plan(link, config, device.properties.num_sms)
                     for link, config in zip(links, chosen, strict=True)]  # fmt: skip
            calls = [PreparedCall(device, plan.launch, image_of(plan)) for plan in plans]
            configs = [str(config) for config in chosen]

            def run(_: Mapping[str, int], stream: int, calls: Any = calls) -> None:
                for index, call in enumerate(calls):
                    call(chain.of(index), stream)

            for _ in range(2):  # the second overlaps the first, if the way does
                device.fill(last, d_bytes, 0xFF)
                device.synchronize()
                run({}, watch.stream)
                device.synchronize()
                results.append(np.frombuffer(device.read(last, d_bytes), np.uint8))
            contenders.append(graph_contender(way, watch, run, [{}]))
        samples = compare(contenders, METHOD)
        results.append(np.frombuffer(device.read(last, d_bytes), np.uint8))  # of the timed runs
        for contender in contenders:
            contender.close()
    return {
        "m": links[0].m, "equal": all(np.array_equal(results[0], other) for other in results),
        "distinct_bytes": len(np.unique(results[0])), "configs": configs,
        **{f"{way}_us": samples[way].median * 1e6 for way in WAYS},
        **{f"{way}_spread": samples[way].spread for way in WAYS},
        "gain": paired_ratio(samples["plain"], samples["dependent"]),
    }  # fmt: skip


def measure_all(device: GpuDevice, widths: Sequence[int]) -> list[dict[str, Any]]:
    """One chain, for every number of rows."""
    with ExitStack() as stack:
        chain = Chain(device, links_of(max(M), widths), stack)
        return [{"widths": widths, **measure(device, chain, links_of(m, widths))} for m in M]


def main(words: Sequence[str] | None = None, chains: Sequence[Sequence[int]] = CHAINS) -> int:
    """Run everything on GPU 0 and print what was found."""
    arguments = options(__doc__).parse_args(words)
    device, where = open_gpu()
    table = [row for widths in chains for row in measure_all(device, widths)]
    ok = all(row["equal"] for row in table)
    for row in table:
        print(
            f"{' > '.join(map(str, row['widths']))}  m {row['m']:4}"
            f"  plain {row['plain_us']:8.2f} us  dependent {row['dependent_us']:8.2f}"
            f" us  gain {row['gain']:.3f}  {'equal bits' if row['equal'] else 'BITS DIFFER'}"
        )
    write(arguments.output, "chain", ok, where, __doc__, chains=table)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(exit_status(main))
