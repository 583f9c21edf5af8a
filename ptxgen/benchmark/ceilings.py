"""ceilings: what the GPU does at most, measured in the same run as everything else.

A read-only TMA stream is the bandwidth ceiling, wgmma on resident operands the Tensor Core's, and
an empty launch of a persistent grid the cost that no kernel goes below.
"""

import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.benchmark.method import Contender, Method, Samples, compare
from ptxgen.benchmark.replay import Stopwatch, launch_contender
from ptxgen.benchmark.workload import POOL_ELEMENTS, pool
from ptxgen.cache import assemble_cached
from ptxgen.errors import ToolMissingError
from ptxgen.kernels import empty, stream_read_sm90, wgmma_issue_sm90
from ptxgen.launcher.device import GpuDevice
from ptxgen.launcher.driver import check
from ptxgen.plans import Plan
from ptxgen.renderer import render

STREAM_BYTES = 1 << 30
"""What the read stream reads in one launch: far more than the L2."""
EMPTY_SMEM_BYTES = 200 << 10
MMA_K_TILES = 64
"""k-tiles of one tile of the wgmma ceiling: 8192 of K in FP8."""
MMA_TILES = 96
"""Tiles of one launch of it: some milliseconds."""
MMA_SETTLE_S = 0.7
"""The Tensor Core's clock takes this long to settle at full power.
Source: benchmarks/peers/h200.json."""


@dataclass(frozen=True)
class Ceilings:
    """What was measured."""

    read_bytes_per_s: Samples
    """One sample per round, as for the others."""
    empty_s: Samples
    mma_flop_per_s: dict[str, Samples]
    """By dtype of the operands."""

    def as_data(self) -> dict[str, Any]:
        """For the report."""
        return {
            "read_stream_gbytes_per_s": self.read_bytes_per_s.median / 1e9,
            "read_stream_samples": [v / 1e9 for v in self.read_bytes_per_s.values],
            "read_stream_bytes": STREAM_BYTES,
            "empty_launch_us": self.empty_s.median * 1e6,
            "empty_launch_samples": [v * 1e6 for v in self.empty_s.values],
            "wgmma_tflops": {n: s.median / 1e12 for n, s in self.mma_flop_per_s.items()},
            "wgmma_samples": {
                n: [v / 1e12 for v in s.values] for n, s in self.mma_flop_per_s.items()
            },
        }


def image_of(plan: Plan) -> bytes | str:
    """The cubin of a plan, or its PTX text where no assembler is here.

    Raises: AssemblyError.
    """
    text = render(plan).text
    try:
        cubin = assemble_cached(text)
    except ToolMissingError:
        return text
    cubin.require_clean()
    return cubin.code


class StreamReader:
    """The read stream, on a buffer of its own, for any number of bytes."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch
        self.device = watch.device
        self._address = self.device.alloc(STREAM_BYTES)
        fill_random(self.device, self._address, STREAM_BYTES)

    def contender(self, nbytes: int) -> tuple[Contender, int]:
        """A contender that reads about `nbytes`, never what the L2 still holds; and its bytes."""
        chunk = stream_read_sm90.Config().chunk_bytes
        count = max(1, round(nbytes / chunk)) * chunk
        count = min(count, STREAM_BYTES)
        plan = stream_read_sm90.plan(count, self.device.properties.num_sms)
        copies = [{"data": self._address + i * count} for i in range(max(1, STREAM_BYTES // count))]
        l2_copies = math.ceil(2 * self.device.properties.l2_bytes / count) + 1
        name = "read stream"
        contender = launch_contender(
            name, self.watch, plan.launch, image_of(plan), copies[: max(l2_copies, 1)]
        )
        return contender, count

    def copy_bytes_per_s(self) -> float:
        """Bandwidth of copies of one half of the buffer to the other, reads and writes counted.

        Raises: DriverError.
        """
        half = STREAM_BYTES // 2
        copy = self.device.driver.cuMemcpyDtoDAsync

        def issue() -> None:
            result = copy(self._address + half, self._address, half, self.watch.stream)
            check("cuMemcpyDtoDAsync", result)

        times = [self.watch.timed(issue, 5, 20) / 20 for _ in range(5)]
        return STREAM_BYTES / sorted(times)[2]

    def close(self) -> None:
        """Give the buffer back."""
        self.device.free(self._address)


def fill_random(device: GpuDevice, address: int, nbytes: int) -> None:
    """Random FP8 numbers, repeated."""
    device.write(address, pool("e4m3", 0).values.view(np.uint8)[: min(nbytes, POOL_ELEMENTS)].data)
    done = min(nbytes, POOL_ELEMENTS)
    with device.current():
        while done < nbytes:
            step = min(done, nbytes - done)
            check("cuMemcpyDtoD", device.driver.cuMemcpyDtoD(address + done, address, step))
            done += step


def measure_ceilings(
    watch: Stopwatch, reader: StreamReader, dtypes: tuple[str, ...], method: Method,
    executor: Executor, note: Callable[[str], None] = lambda text: None,
) -> Ceilings:  # fmt: skip
    """Measure all ceilings; those of the Tensor Core for each of `dtypes`.

    Raises: DriverError, AssemblyError.
    """
    device = watch.device
    num_sms = device.properties.num_sms
    configs = {name: wgmma_issue_sm90.Config(name) for name in dtypes}
    plans = {
        name: wgmma_issue_sm90.plan(MMA_TILES, MMA_K_TILES, num_sms, config)
        for name, config in configs.items()
    }
    images = {name: executor.submit(image_of, plan) for name, plan in plans.items()}
    note("measuring ceilings: read stream, empty launch, wgmma")
    stream, count = reader.contender(STREAM_BYTES)
    nothing = empty.plan(num_sms, EMPTY_SMEM_BYTES)
    launch = launch_contender("empty", watch, nothing.launch, image_of(nothing), [{}])
    times = {name: compare([c], method)[name]
             for name, c in (("read stream", stream), ("empty", launch))}  # fmt: skip
    stream.close()
    launch.close()
    rates: dict[str, Samples] = {}
    settled = Method(method.slot_s, 0, MMA_SETTLE_S, method.min_rounds, method.min_rounds)
    for name, plan in plans.items():
        data = device.alloc(plan.launch.buffer("data").nbytes)
        sums = device.alloc(plan.launch.buffer("sums").nbytes)
        values = pool(name, 0).values.view(np.uint8)[: plan.launch.buffer("data").nbytes]
        device.write(data, values.data)
        contender = launch_contender(
            name, watch, plan.launch, images[name].result(), [{"data": data, "sums": sums}]
        )
        flop = wgmma_issue_sm90.flop(wgmma_issue_sm90.Config(name), num_sms, MMA_TILES, MMA_K_TILES)
        seconds = compare([contender], settled)[name]
        rates[name] = Samples(tuple(flop / v for v in seconds.values))
        contender.close()
        device.free(data)
        device.free(sums)
    return Ceilings(
        Samples(tuple(count / v for v in times["read stream"].values)), times["empty"], rates
    )
